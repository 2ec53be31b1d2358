"""The page *Start* at a real node of every kind, and with names of the Ethereum Name Service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.indexer.wiring import CONFIGS
from chainfolio.kinds import kind_of
from chainfolio.localchain.names import deploy_names
from chainfolio.localchain.node import LocalNode
from tests.cli.test_first_run import served
from tests.cli.test_rpc_kinds import ADDRESSES, Place
from tests.cli.test_rpc_kinds import stand_in as stand_in

pytestmark = pytest.mark.node


@pytest.fixture
def described(here: Path, stand_in: Place) -> Path:
    """A settings file that describes the chain of a node which no file of ours describes."""
    if text := stand_in.settings(here):
        text += f'{kind_of(stand_in.kind).settings.ENDPOINTS} = ["{stand_in.url}"]\n'
    (here / "chainfolio.toml").write_text(text)
    return here / "chainfolio.toml"


@pytest.mark.slow("starts a node of every kind", only=["starknet", "beacon", "solana"])
async def test_an_endpoint_of_every_kind_is_checked_and_shown(here: Path, described: Path, stand_in: Place) -> None:
    async with served(here, described) as face:
        texts = [ADDRESSES[stand_in.kind]] if stand_in.kind in ADDRESSES else []
        report = await face.done("check", rpc=stand_in.url, addresses=texts)
        assert report["chain"]["kind"] == stand_in.kind
        # The beacon node is a few slots old, and has no rewards yet: `doctor` calls that a problem.
        assert (report["ok"], report["problem"] == "") == ((False,) * 2 if stand_in.kind == "beacon" else (True,) * 2)
        assert report["row"]["head"] is not None
        assert [each["problem"] for each in report["accounts"]] == ["" for _ in texts]
        if texts:
            (document,) = await face.done("portfolio", rpc=stand_in.url, addresses=texts)
            assert list(document["chains"]) == [report["chain"]["key"]]
        else:
            status, refused = await face.post("portfolio", {"rpc": stand_in.url, "addresses": [ADDRESSES["evm"]]})
            assert (status, "no chain of its kind" in refused["message"]) == (400, True)


@pytest.fixture(scope="module")
def named() -> Iterator[tuple[LocalNode, str]]:
    """A node with a name, and the account that it stands for."""
    with LocalNode() as node:
        names = deploy_names(node)
        alice = node.accounts[1].lower()
        names.register("alice.eth", alice, alice)
        names.register("empty.eth", node.accounts[2])
        yield node, alice


async def test_a_name_is_resolved_at_an_endpoint_of_ethereum(here: Path, named: tuple[LocalNode, str]) -> None:
    node, alice = named
    facts = (CONFIGS / "chains" / "local.toml").read_text().replace('key = "local"', 'key = "ethereum"')
    (here / "ethereum.toml").write_text(facts)
    file = here / "chainfolio.toml"
    file.write_text('[chains.ethereum]\nrpc = ["http://127.0.0.1:1"]\nfacts = "ethereum.toml"\n')
    async with served(here, file) as face:
        report = await face.done("check", rpc=node.url, addresses=["alice.eth", "empty.eth", "none.eth"])
        found, empty, unknown = report["accounts"]
        assert (found["address"], found["problem"]) == (alice, "")
        assert f"alice.eth is {alice}" in found["notes"]
        assert empty["problem"]
        assert unknown["problem"]
        (document,) = await face.done("portfolio", rpc=node.url, addresses=["alice.eth", "none.eth"])
        assert document["address"] == alice
