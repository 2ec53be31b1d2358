"""The documentation site is built without a warning, needs no other site, and has no dead link."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs import build_architecture, build_cli, build_http
from docs.site_hooks import NOTEBOOK, sources
from tests.e2e.browser import PROGRAM, browsing
from tests.e2e.running import ROOT, Demo, environment

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}  # what a browser loads by itself
LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload"}

pytestmark = pytest.mark.xdist_group("site")


class Html(HTMLParser):
    """The links, the loaded files and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what a tag refers to."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])
        elif tag == "link" and LOADED_LINKS & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])
        elif tag == "a" and "href" in values:
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a warning ends the build."""
    folder = tmp_path_factory.mktemp("site")
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**environment(), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout + process.stderr == ""
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Html]]:
    """The pages of the site; the page for wrong addresses is no file that others link to."""
    for path in sorted(site.rglob("*.html")):
        if path.name != "404.html":
            yield path, Html(path.read_text())


@pytest.mark.slow("reads each page of the built site; test_docs.py follows the links of its sources")
def test_no_link_is_dead_and_no_anchor_is_missing(site: Path) -> None:
    html_by_page = dict(pages(site))
    assert len(html_by_page) > 100
    dead = []
    for path, html in html_by_page.items():
        for link in [*html.links, *html.loaded]:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            anchors = html_by_page[target].anchors if target in html_by_page else set()
            if not target.is_file() or (
                url.fragment and target in html_by_page and unquote(url.fragment) not in anchors
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    remote_links = [(path.name, link) for path, html in pages(site) for link in html.loaded if urlsplit(link).netloc]
    assert remote_links == []
    styles = [path for path in site.rglob("*.css") if "url(http" in path.read_text() or "@import" in path.read_text()]
    assert styles == []


def test_every_page_of_docs_is_in_the_site_and_can_be_searched(site: Path) -> None:
    page_names = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    expected = {*page_names, *sources().values()}
    files = {name.removesuffix("README.md") + "index.md" if name.endswith("README.md") else name for name in expected}
    assert [name for name in files if not (site / name).with_suffix(".html").is_file()] == []
    index = json.loads((site / "search" / "search_index.json").read_text())
    searched = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert [name for name in files if name.removesuffix(".md") + ".html" not in searched] == []


def test_explanations_are_short() -> None:
    long = [
        path.name for path in (ROOT / "docs" / "explanation").glob("*.md") if len(path.read_text().splitlines()) > 120
    ]
    assert long == []


def test_the_reference_of_commands_is_the_parser() -> None:
    assert build_cli.PAGE.read_text() == build_cli.page(), "run: python -m docs.build_cli"


def test_the_reference_of_the_api_is_its_description() -> None:
    assert build_http.PAGE.read_text() == build_http.page(), "run: python -m docs.build_http"


def test_the_picture_of_the_architecture_is_that_of_the_imports() -> None:
    drawn = build_architecture.PICTURE.read_text()
    assert drawn == build_architecture.picture(), "run: python -m docs.build_architecture"


@pytest.mark.slow("takes seconds, and faster tests take its branches")
@pytest.mark.node
@pytest.mark.xdist_group("demo")
def test_the_notebook_runs_from_its_first_cell_to_its_last(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat  # 2 s: its validator of JSON Schema builds 39 parsers
    from nbclient import NotebookClient

    (tmp_path / "data").symlink_to(demo.config.parent)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    stored = [len(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert [len(each) for each in outputs] == stored, "the stored outputs are those of an earlier notebook"
    assert not any(output.output_type == "error" for each in outputs for output in each)


@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")
async def test_search_finds_a_page_that_is_opened_as_a_file(site: Path, tmp_path: Path) -> None:
    async with browsing(tmp_path) as page:
        await page.open(f"{(site / 'index.html').as_uri()}?q=reconcile")
        await page.once("document.querySelector('.md-search-result__link')")
        links = await page.says("[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")
        assert any("reference/cli.html" in link for link in links)
        assert page.complaints == []


# The first read begins the transitions of the new width, which move the search box of the theme.
WIDTH_OF_PAGE = """(document.documentElement.scrollWidth,
    document.getAnimations().forEach(each => each.finish()), document.documentElement.scrollWidth)"""


@pytest.mark.slow("opens each page in a browser")
@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("part", [0, 1], ids=["half of the pages", "the other half"])
async def test_no_page_is_wider_than_its_window(site: Path, tmp_path: Path, part: int) -> None:
    window = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
    async with browsing(tmp_path) as page:
        for path, _ in list(pages(site))[part::2]:
            await page.open(path.as_uri())
            await page.once("document.readyState !== 'loading' && document.querySelector('.md-content')")
            for width in (390, 1280):
                await page.do("Emulation.setDeviceMetricsOverride", width=width, **window)
                assert await page.says(WIDTH_OF_PAGE) <= width, path
        assert page.complaints == []
