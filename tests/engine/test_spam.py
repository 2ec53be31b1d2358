"""Spam as a real node shows it: found by what it is and how it came; what a wallet did itself is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chainfolio.contracts import Snapshot
from chainfolio.engine.rows import ChainIndex
from chainfolio.localchain.airdrop import SPAMMED, STRANGERS, airdrop
from chainfolio.localchain.evm import tx
from chainfolio.portfolio.spam import TokenArrival
from tests.chains.account_rows import arrivals_of
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

pytestmark = pytest.mark.node
Arrived = dict[str, TokenArrival]


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(10) as chain:
        chain.trade(40, 1)
        yield chain


@pytest.fixture(scope="module")
def spam(subject: EvmSubject) -> dict[str, str]:
    airdropped = {symbol: address.lower() for symbol, address in airdrop(subject.node, subject.deployment).items()}
    subject.mine(1)
    return airdropped


def flagged(snapshot: Snapshot, account: str) -> dict[str, tuple[str, ...]]:
    return {asset.reference: spam.reasons for (owner, asset), spam in snapshot.spam.items() if owner == account}


def of_one(indexed: Index, account: str, tokens: tuple[str, ...], trusted: tuple[str, ...], height: int) -> Arrived:
    """Return how each token arrived at one account."""
    assets, trust = ([indexed.chain.info.token_asset(each) for each in contracts] for contracts in (tokens, trusted))
    rows = ChainIndex(indexed.lake, indexed.tail, indexed.key)
    arrivals = arrivals_of(rows, {account: assets}, {account: trust}, height)[account]
    return {asset.reference: arrival for asset, arrival in arrivals.items()}


async def index_all(indexed: Index, *, follow: bool) -> None:
    """Index the whole chain, so that rows lie in the lake (sorted if `follow`) and in the tail."""
    await indexed.fill_final()
    if follow:
        await indexed.materialise()
    await indexed.follower().step()


@pytest.mark.parametrize("follow", [True, False])
async def test_what_was_sent_to_many_is_flagged_and_what_wallets_did_themselves_is_not(
    subject: EvmSubject, spam: dict[str, str], tmp_path: Path, follow: bool
) -> None:
    wallets = {name: subject.deployment.accounts[name].lower() for name in ("alice", "bob", "dave", "erin")}
    async with index(subject, tmp_path) as indexed:
        await index_all(indexed, follow=follow)
        snapshot = await indexed.snapshot(list(wallets.values()))
        for name, account in wallets.items():
            reasons_by_token = flagged(snapshot, account)
            assert set(reasons_by_token) == (set(spam.values()) if name in SPAMMED else set()), name
            for reasons in reasons_by_token.values():
                assert {"MASS_TRANSFER", "UNSOLICITED", "NO_PRICE"} <= set(reasons)
        alice = flagged(snapshot, wallets["alice"])
        assert {"LURE", "SITE"} <= set(alice[spam["USDC-GIFT.COM"]])
        assert "MIXED_SCRIPTS" in alice[spam["USD\u0421"]]
        assert snapshot.spam == (await indexed.snapshot(list(wallets.values()), snapshot.block)).spam
        before = await indexed.chain.block(snapshot.block.height - 4)
        assert (await indexed.snapshot([wallets["alice"]], before)).spam == {}, "it had not come yet"


async def test_how_a_token_came_is_what_the_chain_says(
    subject: EvmSubject, spam: dict[str, str], tmp_path: Path
) -> None:
    alice, frank = (subject.deployment.accounts[name].lower() for name in ("alice", "frank"))
    dai, usdc, weth = (subject.token(symbol) for symbol in ("DAI", "USDC", "WETH"))
    moon = spam["MOON"]
    async with index(subject, tmp_path) as indexed:
        await index_all(indexed, follow=True)
        arrivals_of_alice = of_one(indexed, alice, (moon, dai, "0x" + "12" * 20), (usdc, weth), subject.height)
        assert arrivals_of_alice[moon] == TokenArrival(
            transfer_count=1, is_own_action=False, recipients=len(SPAMMED) + STRANGERS, net=10**24
        )
        assert arrivals_of_alice[dai].is_own_action, "she has traded it"
        assert set(arrivals_of_alice) == {moon, dai}
        assert of_one(indexed, alice, (moon,), (), 5) == {}
        arrivals_of_frank = of_one(indexed, frank, (dai,), (), subject.height)
        assert arrivals_of_frank[dai].transfer_count > 1


async def test_a_transfer_that_a_token_invents_is_no_deed_of_its_holder(
    subject: EvmSubject, spam: dict[str, str], tmp_path: Path
) -> None:
    """A token can log a transfer of its holder in any transaction; only the holder's own one counts."""
    bob, carol, ivan = (subject.deployment.accounts[name] for name in ("bob", "carol", "ivan"))
    moon = spam["MOON"]
    topics = [bytes.fromhex("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")]
    topics += [bytes.fromhex("00" * 12 + each[2:].lower()) for each in (bob, ivan)]
    log = "log(bytes32[],bytes)"
    subject.node.send(tx(ivan, moon, log, topics, (7).to_bytes(32, "big")))
    topics[1] = bytes.fromhex("00" * 12 + carol[2:].lower())
    subject.node.send(tx(carol, moon, log, topics, (7).to_bytes(32, "big")))
    subject.mine(1)
    async with index(subject, tmp_path) as indexed:
        await index_all(indexed, follow=True)
        arrivals = {
            name: of_one(indexed, account.lower(), (moon,), (), subject.height)[moon]
            for name, account in (("bob", bob), ("carol", carol))
        }
        assert (arrivals["bob"].is_own_action, arrivals["carol"].is_own_action) == (False, True)
