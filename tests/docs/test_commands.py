"""README, tutorials and how-tos can be followed: the commands of each page run in their order, as written.

Nothing is copied here: fences are taken from the Markdown. The reader has a node, which is the demo's chain under the
names of the page; a settings file in one folder; and works in another one. Settings of a page are written to that file,
in the order of the page. Where a page needs something of the reader's own (`WALLET=0x…`), it is given by READER.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

from chainfolio.cli.demo import prepare
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from tests.e2e.running import ALICE, DAVE, ROOT, Demo, environment, free_port
from tests.storage.stores import Stores

HOW_TO = ROOT / "docs" / "how-to"
TUTORIAL = ROOT / "docs" / "tutorial"
FENCES = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
OURS = re.compile(r"^chainfolio ", re.M)
ASSIGNED = re.compile(r"^(export )?([A-Z_]+)=\S+(?: +#.*)?$")
CHAINS = re.compile(r"^\[chains\.(\w+)\]|--chain (\w+)|^chainfolio index (\w+)", re.M)
PATIENCE_S = 240
BLOCK = 30  # of the demo's chain, for the reader's own
STAKED_BY = 150  # blocks of trading after which a wallet has staked

# A pack of a wallet whose holdings all have a price.
CLOSE = f"""
echo {DAVE} > fund.txt; ssh-keygen -q -t ed25519 -N "" -f close_key
printf '[prices]\\nmax_age_hours = 100\\n' > policy.toml; chainfolio watch {DAVE} --chain ethereum"""
CLOSED = (
    'chainfolio close make --accounts fund.txt --chain ethereum --from 2023-11-15 --to 2023-11-16 --at "12:00 UTC" '
    "--policy policy.toml --key close_key --out close-2023"
)
# What is there before a page begins, because another page said how.
BEFORE = {
    "add-a-protocol.md": "chainfolio index base",
    "ask-for-the-past.md": "chainfolio index ethereum",
    "operate.md": "chainfolio index ethereum; chainfolio account create --name team",
    "query-the-lake.md": "chainfolio index ethereum",
    "check-a-closed-period.md": f"{CLOSE}; {CLOSED}",
    "verify-an-answer.md": "chainfolio index ethereum",
}
# What the reader puts in: their own, or taken from what the last command printed.
READER = {
    "BLOCK": str(BLOCK),
    "FACTORY": "$(contract uniswap2)",
    "STAKING": "$(contract synthetix)",
    "ID": "$(printed accountId)",
    "OTHER": "$(printed accountId)",
    "KEY": "$(printed apiKey)",
    "KEY_ID": "$(printed keyId)",
    "VIRTUAL": "$(printed address)",
    "RPC": "$NODE",
    "SPARE_RPC": "$NODE",
    "OTHER_RPC": "$NODE",
    "CHAINFOLIO_DATABASE": "$DATABASE",
    "WALLET": ALICE,
    "NAME": "$(quarantined)",
    "DATA": '"$(dirname "$CHAINFOLIO_CONFIG")/data"',
}
# Of one page: an account in the address book, which only the API fills; an account that staked.
OF_PAGE = {
    ("accounts.md", "WALLET"): f"$(in_book $ID {ALICE})",
    ("add-a-protocol.md", "WALLET"): "$(staker $STAKING)",
    ("close-a-period.md", "WALLET"): DAVE,
}
# A reader's shell: servers run in a terminal of their own, the newest release is this tree.
SHELL = """
set -euo pipefail
cli() { "$PYTHON" -m chainfolio.cli.main "$@"; }
chainfolio() {
  case "$1" in
    serve|worker) stop; "$PYTHON" -m chainfolio.cli.main "$@" > server.log 2>&1 & echo $! > server.pid; until_ready ;;
    *) local code=0; cli "$@" > printed || code=$?; cat printed
       case "$1 $code" in  # something cannot be proven, and tokens differ that grow without events: as the pages say
         "verify 11"|"reconcile 12"|"close 13") ;; *) return "$code" ;;
       esac ;;
  esac
}
until_ready() {
  until grep -q "listening\\|: block " server.log; do
    kill -0 "$(cat server.pid)" || { cat server.log; false; }; sleep 0.1
  done
}
stop() { [ ! -e server.pid ] || { kill "$(cat server.pid)"; wait; rm server.pid; }; }
trap stop EXIT
curl() { command curl --fail-with-body --connect-to "127.0.0.1:8080:127.0.0.1:$CHAINFOLIO_SERVER_PORT" "$@"; }
make() { command make --dry-run --directory "$ROOT" "$1" > /dev/null; }
pip() {
  (cd "${!#}" && "$PYTHON" -m hatchling build -t wheel -d dist)
  "$PYTHON" -m pip install --no-index --no-deps --target "$SITE" "${!#}"/dist/*.whl
}
python() { "$PYTHON" "$@"; }
duckdb() { "$PYTHON" -c 'import duckdb, sys; db = duckdb.connect(); db.execute(open(sys.argv[2]).read())
print(db.sql(sys.argv[4]))' "$@"; }
in_book() { "$PYTHON" -m tests.docs.given in_book "$@"; }
staker() { "$PYTHON" -m tests.docs.given staker "$NODE" "$1"; }
quarantined() { "$PYTHON" -m tests.docs.given quarantined "$NODE/?b"; }
printed() { "$PYTHON" -c 'import json, sys; found = json.load(open("printed"))
print((found[0] if isinstance(found, list) else found)[sys.argv[1]])' "$1"; }
contract() { grep -oE -m1 "0x[0-9a-f]{40}" "$PROTOCOLS/$1.toml"; }
"""


@dataclass(frozen=True)
class Chain:
    """A node, and the folder with its facts, prices and protocols as files."""

    node: str
    folder: Path


@dataclass(frozen=True)
class Page:
    """One page: what it shows, in its order."""

    path: Path

    @property
    def fences(self) -> list[tuple[str, str]]:
        """Settings and commands."""
        code_blocks = [(kind, body) for kind, body in FENCES.findall(self.path.read_text())]
        return [
            (kind, body) for kind, body in code_blocks if (kind == "toml" and is_settings(body)) or OURS.search(body)
        ]

    @property
    def chains(self) -> list[str]:
        """The chains that it names."""
        text = "\n".join(body for _, body in self.fences) + "\n" + BEFORE.get(self.path.name, "")
        return sorted({next(filter(None, match)) for match in CHAINS.findall(text)})

    def script(self) -> str:
        """Join all code blocks into a script for a shell."""
        lines = [SHELL, BEFORE.get(self.path.name, "")]
        for kind, body in self.fences:
            if kind == "toml":
                lines += ["stop", f"cat >> $CHAINFOLIO_CONFIG <<'END_OF_SETTINGS'\n{body}END_OF_SETTINGS"]
            else:
                lines += [self._rewritten(line) for line in body.splitlines()]
        return "\n".join(["set -x", *lines])

    def _rewritten(self, line: str) -> str:
        """A line with the reader's own value where it assigns one."""
        if (match := ASSIGNED.match(line)) is None:
            return line
        value = OF_PAGE.get((self.path.name, match[2]), READER[match[2]])
        return f"{match[1] or ''}{match[2]}={value}"


def is_settings(body: str) -> bool:
    """Return True if some TOML is of our settings file, and no protocol's or package's."""
    return bool({"chains", "state", "server", "data"} & tomllib.loads(body).keys())


PAGES = [
    page
    for path in [ROOT / "README.md", *sorted(TUTORIAL.glob("*.md")), *sorted(HOW_TO.glob("*.md"))]
    if (page := Page(path)).fences and OURS.search(path.read_text())  # one of settings alone is not followed
]


OTHER_PAGE = pytest.mark.slow("the README shows nearly the same commands, on the same chain")


@pytest.fixture
def chain(request: pytest.FixtureRequest, demo: Demo, tmp_path: Path) -> Iterator[Chain]:
    """Yield the demo's chain; for the page about protocols one with a longer history and a staker."""
    if request.getfixturevalue("page").path.name != "add-a-protocol.md":
        yield Chain(demo.node, demo.config.parent)
        return
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, STAKED_BY)
        yield Chain(node.url, prepare(tmp_path / "chain", node, deployment, 0).data_dir)


@pytest.fixture
def reader(chain: Chain, stores: Stores, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a reader with a node and a folder for settings, who works in another folder."""
    for name in ("etc/protocols", "work", "site"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "etc" / "chainfolio.toml").touch()
    prices = (chain.folder / "prices.toml").read_text()
    (tmp_path / "etc" / "prices.toml").write_text(prices.replace("[chainlink.local]", "[chainlink.ethereum]"))
    port = str(free_port())
    return {
        **environment(),
        "CHAINFOLIO_CONFIG": str(tmp_path / "etc" / "chainfolio.toml"),
        "CHAINFOLIO_PRICES_FILE": "prices.toml",
        "CHAINFOLIO_PROTOCOLS": "protocols",
        "CHAINFOLIO_SERVER_PORT": port,
        "DATABASE": stores.url("postgresql") if stores.server else f"sqlite:///{tmp_path}/other.db",
        "NODE": chain.node,
        "PROTOCOLS": str(chain.folder / "protocols"),
        "PYTHON": sys.executable,
        "PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}",
        "ROOT": str(ROOT),
        "SITE": str(tmp_path / "site"),
    }


def configured(reader: dict[str, str], chain: Chain, keys: list[str]) -> Iterator[tuple[str, str]]:
    """The chains of a page are the one there is: what the reader would write into the file is put over it."""
    facts, folder = (chain.folder / "local.toml").read_text(), Path(reader["CHAINFOLIO_CONFIG"]).parent
    for key in keys:
        (folder / f"{key}.toml").write_text(facts.replace('key = "local"', f'key = "{key}"'))
        yield f"CHAINFOLIO_CHAINS__{key.upper()}__FACTS", f"{key}.toml"
        yield f"CHAINFOLIO_CHAINS__{key.upper()}__RPC", ",".join([chain.node, f"{chain.node}/?b", f"{chain.node}/?c"])


@pytest.mark.node
@pytest.mark.xdist_group("demo")
@pytest.mark.skipif(which("curl") is None or which("bash") is None, reason="there is no curl or no bash here")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.path.parent == ROOT else OTHER_PAGE, id=page.path.name) for page in PAGES],
)
def test_the_commands_of_a_page_work_in_their_order_as_they_stand_there(
    page: Page, reader: dict[str, str], chain: Chain, tmp_path: Path
) -> None:
    env = {**reader, **dict(configured(reader, chain, page.chains))}
    if any('\ndata = "/' in f"\n{body}" for _, body in page.fences):
        env["CHAINFOLIO_DATA"] = "data"
    script = tmp_path / "page.sh"
    script.write_text(page.script())
    with (tmp_path / "said").open("w+b") as output_file:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=tmp_path / "work",
            env=env,
            stdout=output_file,
            stderr=output_file,
            start_new_session=True,
        )
        try:
            code = shell.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):  # nothing of it may stay, a server least of all
                os.killpg(shell.pid, signal.SIGTERM)
            shell.wait()
        output_file.seek(0)
        output = output_file.read().decode()
    assert code == 0, output[-6000:]
    assert not (tmp_path / "work" / "data").exists(), "nothing is kept where the commands happened to run"


def test_every_page_that_shows_a_command_is_followed() -> None:
    pages = [ROOT / "README.md", *TUTORIAL.glob("*.md"), *HOW_TO.glob("*.md")]
    pages_with_commands = {path for path in pages if OURS.search(path.read_text())}
    assert pages_with_commands == {page.path for page in PAGES}
    assert len(pages_with_commands) > 8
