"""Hooks of MkDocs: pages made of files that lie outside of docs/ or are no Markdown.

The README of each folder is a page below `parts/`; the changelog, CONTRIBUTING, SECURITY and the notebook of the
tutorial are pages too. A link to a file that is on no page is shown as text.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "tutorial" / "notebook.ipynb"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
SHIM = "https://unpkg.com/iframe-worker/shim"
FENCE = re.compile(r"(^```.*?^```$)", re.M | re.S)


@cache
def sources() -> dict[Path, str]:
    """The files that are pages and no Markdown of docs/, each with the path of its page in the site."""
    parts = sorted(path.parent for path in [*ROOT.glob("*/README.md"), *ROOT.glob("adapters/*/README.md")])
    names = {part / "README.md": "-".join(part.relative_to(ROOT).parts) for part in parts if "." not in part.name}
    pages = {path: f"parts/{name}.md" for path, name in names.items()}
    project = {ROOT / f"{name.upper()}.md": f"{name}.md" for name in ("changelog", "contributing", "security")}
    return {**pages, **project, NOTEBOOK: "tutorial/notebook.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the parts into the navigation."""
    parts = [page for page in sources().values() if page.startswith("parts/")]
    config.nav = json.loads(json.dumps(config.nav).replace('"PARTS"', json.dumps(parts)))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are no Markdown files in docs/."""
    for path, page in sources().items():
        text = path.read_text()
        files.append(File.generated(config, page, content=notebook_page(text) if path == NOTEBOOK else text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages of the site; a link to a file that is no page becomes its text."""
    pages = {page: path for path, page in sources().items()}
    source = pages.get(page.file.src_uri, ROOT / "docs" / page.file.src_uri)
    chunks = FENCE.split(markdown)  # every second one is a fence
    chunks[::2] = [LINK.sub(lambda link: _link(link, source, page.file.src_uri), chunk) for chunk in chunks[::2]]
    return "".join(chunks)


def _link(link: re.Match[str], source: Path, here: str) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if re.match(r"\w+:", target):
        return link[0]
    path = (source.parent / target).resolve()
    page = sources().get(path / "README.md" if path.is_dir() else path, "")
    if not page and path.is_relative_to(ROOT / "docs") and path.suffix != ".py":
        page = path.relative_to(ROOT / "docs").as_posix()
    if not page:
        return text
    return f"[{text}]({os.path.relpath(page, os.path.dirname(here) or '.')}{anchor})"


def on_post_build(config: MkDocsConfig) -> None:
    """Replace the one script that the theme loads from elsewhere by the copy in docs/vendor/."""
    site = Path(config.site_dir)
    for path in site.rglob("*.html"):
        local = os.path.relpath(site / "vendor" / "iframe-worker.min.js", path.parent)
        path.write_text(path.read_text().replace(SHIM, local))


def notebook_page(notebook: str) -> str:
    """Return a notebook as Markdown: the text, the code and the text of the stored outputs."""
    chunks = []
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        chunks.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
            chunks.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(chunks) + "\n"
