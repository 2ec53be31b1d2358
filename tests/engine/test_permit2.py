"""Allowances inside the published Permit2: found by its events, equal to what it lets spenders take."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.permit2 import filters
from chainfolio.blocks import Block
from chainfolio.engine.approvals.permit2 import read_permit2_allowances
from chainfolio.engine.results import Permit2Allowance
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.errors import NotIndexed, NotSupported
from chainfolio.localchain import install
from chainfolio.localchain.errors import LocalChainError
from chainfolio.localchain.evm import MAX, call_data, tx
from chainfolio.pricing.fixed import build_fixed
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import EVERYTHING, Index, index

pytestmark = pytest.mark.node
PERMIT2 = "0x000000000022d473030f116ddee9f6b43ac78ba3"
# The code that lies at Permit2's address on every chain, as Uniswap publishes it to be put into test chains.
PUBLISHED = "node_modules/@uniswap/v4-periphery/lib/permit2/test/utils/DeployPermit2.sol"
DATASETS = (*EVERYTHING, "events")
APPROVE = "approve(address,address,uint160,uint48)"
TAKE = "transferFrom(address,address,uint160,address)"
ALLOWANCE = "allowance(address,address,address)(uint160,uint48,uint48)"
FOREVER = 2**48 - 1
ALL = 2**160 - 1
# The published code remembers what is signed for on 31337 as of another address; on any other chain it works it out.
ELSEWHERE = 4242
RELAY = "0x" + "4e" * 20  # sends what another one signed


@pytest.fixture
def subject() -> Iterator[EvmSubject]:
    with evm(20) as chain:
        chain.node.rpc("anvil_setCode", PERMIT2, "0x" + code())
        chain.trade(20, 5)
        yield chain


def code() -> str:
    match = re.search(r'hex"([0-9a-f]+)"', (install.ensure() / PUBLISHED).read_text())
    assert match, "the package keeps the code in another way"
    return match[1]


def names(subject: EvmSubject) -> tuple[str, ...]:
    return tuple(subject.deployment.accounts[name] for name in ("alice", "bob", "carol", "dave"))


def now_s(subject: EvmSubject) -> int:
    return int(subject.node.block()["timestamp"], 16)


async def read_allowances(
    indexed: Index, owners: list[str], prices: dict[str, str] | None = None
) -> tuple[tuple[Permit2Allowance, ...], Block]:
    facts = indexed.chain.facts
    value_usd = {str(facts.token_asset(token)): usd for token, usd in (prices or {}).items()}
    book = TokenBook(facts.key, indexed.lake, {})
    source = Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (build_fixed(value_usd, "test"),))
    block = await source.newest_block()
    return await read_permit2_allowances(source, [owner.lower() for owner in owners], [PERMIT2], block), block


async def filled(indexed: Index) -> None:
    indexed.events = filters([PERMIT2])
    await indexed.fill_final()
    await indexed.materialise()
    await indexed.follower().step()


def can_take(subject: EvmSubject, allowance: Permit2Allowance, raw: int) -> bool:
    """Return True if Permit2 itself lets the spender take `raw` now."""
    data = call_data(TAKE, allowance.owner, allowance.spender, raw, allowance.token)
    try:
        subject.node.rpc("eth_call", {"from": allowance.spender, "to": PERMIT2, "data": data}, "latest")
    except LocalChainError:
        return False
    return True


def sign(subject: EvmSubject, owner: str, token: str, spender: str, raw: int, until_s: int, nonce: int) -> bytes:
    """Sign a permit of Permit2 as `owner`, which needs no transaction of the owner."""
    fields = {
        "PermitDetails": [("address", "token"), ("uint160", "amount"), ("uint48", "expiration"), ("uint48", "nonce")],
        "PermitSingle": [("PermitDetails", "details"), ("address", "spender"), ("uint256", "sigDeadline")],
        "EIP712Domain": [("string", "name"), ("uint256", "chainId"), ("address", "verifyingContract")],
    }
    types = {name: [{"type": kind, "name": field} for kind, field in parts] for name, parts in fields.items()}
    details = {"token": token, "amount": str(raw), "expiration": str(until_s), "nonce": str(nonce)}
    message: dict[str, Any] = {
        "types": types,
        "primaryType": "PermitSingle",
        "domain": {"name": "Permit2", "chainId": ELSEWHERE, "verifyingContract": PERMIT2},
        "message": {"details": details, "spender": spender, "sigDeadline": str(FOREVER)},
    }
    return bytes.fromhex(subject.node.rpc("eth_signTypedData_v4", owner, message)[2:])


async def test_what_is_left_is_what_permit2_lets_be_taken_to_the_unit(subject: EvmSubject, tmp_path: Path) -> None:
    alice, bob, carol, dave = names(subject)
    usdc, dai, weth = (subject.token(symbol) for symbol in ("USDC", "DAI", "WETH"))
    soon = now_s(subject) + 100_000
    balance = subject.balance(alice.lower(), usdc, subject.height) or 0
    assert balance > 10_000
    approve = "approve(address,uint256)"
    single = ((dai, 900, soon, 0), carol, FOREVER)
    permit = "permit(address,((address,uint160,uint48,uint48),address,uint256),bytes)"
    transactions = [
        tx(alice, usdc, approve, PERMIT2, MAX),
        tx(alice, dai, approve, PERMIT2, 500),
        tx(alice, PERMIT2, APPROVE, usdc, bob, 7_000, soon),
        tx(alice, PERMIT2, APPROVE, usdc, carol, ALL, FOREVER),
        tx(bob, PERMIT2, TAKE, alice, dave, 1_000, usdc),  # used up in part
        tx(alice, PERMIT2, APPROVE, usdc, dave, 5, soon),
        tx(alice, PERMIT2, "lockdown((address,address)[])", [(usdc, dave)]),
        tx(alice, PERMIT2, APPROVE, weth, bob, 5, now_s(subject) + 50),  # expires
        tx(alice, PERMIT2, APPROVE, weth, carol, 5, soon),  # that the token itself does not let Permit2 take
    ]
    for transaction in transactions:
        subject.node.settle([transaction])
    subject.node.rpc("anvil_setChainId", ELSEWHERE)
    signed = sign(subject, alice, dai, carol, 900, soon, 0)
    subject.node.rpc("anvil_impersonateAccount", RELAY)
    subject.node.rpc("anvil_setBalance", RELAY, hex(10**18))
    subject.node.settle([tx(RELAY, PERMIT2, permit, alice, single, signed)])
    subject.node.rpc("anvil_setChainId", 31337)
    subject.node.mine(1, 200)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        await filled(indexed)
        before = indexed.chain.requests
        allowances, block = await read_allowances(indexed, [alice], {usdc: "0.5", dai: "1"})
        assert indexed.chain.requests - before <= 4  # the head, what tokens are called, prices, and what is left
        assert {(each.token, each.spender): (each.raw, each.takeable) for each in allowances} == {
            (usdc, bob.lower()): (6_000, 6_000),
            (usdc, carol.lower()): (ALL, balance - 1_000),
            (dai, carol.lower()): (900, 500),
            (weth, carol.lower()): (5, 0),
        }
        for each in allowances:
            stored = subject.node.call(PERMIT2, ALLOWANCE, each.owner, each.token, each.spender, block=block.height)
            assert (each.raw, each.expires_s) == tuple(stored[:2])
            assert each.takeable is not None
            assert not each.takeable or can_take(subject, each, each.takeable)
            assert not can_take(subject, each, each.takeable + 1)
            assert each.unlimited is (each.raw == ALL)
        risks = {(each.token, each.spender): each.at_risk for each in allowances}
        assert risks[usdc, bob.lower()] == Decimal("0.003")
        assert risks[usdc, carol.lower()] == Decimal(balance - 1_000).scaleb(-6) / 2
        assert risks[dai, carol.lower()] == Decimal(500).scaleb(-18)
        assert risks[weth, carol.lower()] == 0
        heights = [each.position.height for each in allowances]
        assert heights == sorted(heights, reverse=True)
        assert (await read_allowances(indexed, [bob, dave]))[0] == ()


async def test_it_is_found_in_the_tail_goes_with_its_block_and_stays_when_final(
    subject: EvmSubject, tmp_path: Path
) -> None:
    alice, bob, *_ = names(subject)
    usdc, until_s = subject.token("USDC"), now_s(subject) + 1_000_000
    approval = tx(alice, PERMIT2, APPROVE, usdc, bob, 70, until_s)
    async with index(subject, tmp_path, datasets=DATASETS) as indexed:
        await filled(indexed)
        subject.node.settle([approval])
        follower = indexed.follower()
        await follower.step()
        ((only,), _) = await read_allowances(indexed, [alice])
        assert (only.raw, only.expires_s, only.takeable) == (70, until_s, 0)
        subject.reorg(2)
        await follower.step()
        assert (await read_allowances(indexed, [alice]))[0] == ()
        subject.node.settle([approval])
        subject.mine(80)
        await follower.step()
        follower.finalise(subject.height - 64)
        for _ in range(2):
            ((only,), _) = await read_allowances(indexed, [alice])
            assert only.raw == 70
            await indexed.materialise()


async def test_what_is_not_indexed_or_not_known_is_said(subject: EvmSubject, tmp_path: Path) -> None:
    alice, *_ = names(subject)
    subject.mine(80)
    async with index(subject, tmp_path, datasets=EVERYTHING) as indexed:
        await filled(indexed)
        with pytest.raises(NotIndexed) as error:
            await read_allowances(indexed, [alice])
        assert (error.value.dataset, error.value.first) == ("events", 0)
        await indexed.fill(5, 9, ("events",))
        with pytest.raises(NotIndexed) as error:
            await read_allowances(indexed, [alice])
        assert (error.value.first, error.value.last) == (0, 4)
        source = Snapshotter(
            indexed.chain, indexed.lake, indexed.tail, TokenBook(indexed.chain.key, indexed.lake, {}), ()
        )
        with pytest.raises(NotSupported, match="No Permit2 is known on local"):
            await read_permit2_allowances(source, [alice.lower()], [], await source.newest_block())
