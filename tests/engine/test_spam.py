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
    with evm(10) as found:
        found.trade(40, 1)
        yield found


@pytest.fixture(scope="module")
def spam(subject: EvmSubject) -> dict[str, str]:
    sent = {symbol: address.lower() for symbol, address in airdrop(subject.node, subject.deployment).items()}
    subject.mine(1)
    return sent


def flagged(taken: Snapshot, account: str) -> dict[str, tuple[str, ...]]:
    return {asset.reference: spam.reasons for (owner, asset), spam in taken.spam.items() if owner == account}


def of_one(indexed: Index, account: str, tokens: tuple[str, ...], trusted: tuple[str, ...], height: int) -> Arrived:
    """How tokens came to one account."""
    asked, trust = ([indexed.chain.info.token_asset(each) for each in some] for some in (tokens, trusted))
    rows = ChainIndex(indexed.lake, indexed.tail, indexed.key)
    found = arrivals_of(rows, {account: asked}, {account: trust}, height)[account]
    return {asset.reference: arrival for asset, arrival in found.items()}


async def whole(indexed: Index, *, follow: bool) -> None:
    """All of the chain: some of it in the lake and sorted, some not, some in the tail."""
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
        await whole(indexed, follow=follow)
        taken = await indexed.snapshot(list(wallets.values()))
        for name, account in wallets.items():
            found = flagged(taken, account)
            assert set(found) == (set(spam.values()) if name in SPAMMED else set()), name
            for reasons in found.values():
                assert {"MASS_TRANSFER", "UNSOLICITED", "NO_PRICE"} <= set(reasons)
        alice = flagged(taken, wallets["alice"])
        assert {"LURE", "SITE"} <= set(alice[spam["USDC-GIFT.COM"]])
        assert "MIXED_SCRIPTS" in alice[spam["USD\u0421"]]
        assert taken.spam == (await indexed.snapshot(list(wallets.values()), taken.block)).spam
        before = await indexed.chain.block(taken.block.height - 4)
        assert (await indexed.snapshot([wallets["alice"]], before)).spam == {}, "it had not come yet"


async def test_how_a_token_came_is_what_the_chain_says(
    subject: EvmSubject, spam: dict[str, str], tmp_path: Path
) -> None:
    alice, frank = (subject.deployment.accounts[name].lower() for name in ("alice", "frank"))
    dai, usdc, weth = (subject.token(symbol) for symbol in ("DAI", "USDC", "WETH"))
    moon = spam["MOON"]
    async with index(subject, tmp_path) as indexed:
        await whole(indexed, follow=True)
        found = of_one(indexed, alice, (moon, dai, "0x" + "12" * 20), (usdc, weth), subject.height)
        assert found[moon] == TokenArrival(
            transfer_count=1, is_own_action=False, recipients=len(SPAMMED) + STRANGERS, net=10**24
        )
        assert found[dai].is_own_action, "she has traded it"
        assert set(found) == {moon, dai}
        assert of_one(indexed, alice, (moon,), (), 5) == {}
        given = of_one(indexed, frank, (dai,), (), subject.height)
        assert given[dai].transfer_count > 1


async def test_a_transfer_that_a_token_invents_is_no_deed_of_its_holder(
    subject: EvmSubject, spam: dict[str, str], tmp_path: Path
) -> None:
    """A token can log that its holder sent it, in anybody's transaction; what the holder signs itself counts."""
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
        await whole(indexed, follow=True)
        told = {
            name: of_one(indexed, account.lower(), (moon,), (), subject.height)[moon]
            for name, account in (("bob", bob), ("carol", carol))
        }
        assert (told["bob"].is_own_action, told["carol"].is_own_action) == (False, True)
