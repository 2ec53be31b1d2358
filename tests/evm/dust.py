"""An EVM wallet with unsolicited tokens, read through the scanner of a fake node that meters gas."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from chainfolio.adapters.evm.prices.chainlink import Chainlink, Feed
from chainfolio.adapters.evm.reads import NativeBalance, balance_of
from chainfolio.adapters.evm.scan import answer
from chainfolio.adapters.evm.tokens import describe
from chainfolio.adapters.evm.untrusted import MAX_CALL_READS, MAX_CALL_ROUNDS, READ_GAS, Budget, call_gas
from chainfolio.assets import Asset
from chainfolio.engine.snapshots.reading import holdings_of
from chainfolio.engine.snapshots.trust import Trust, group_untrusted_issues, mark_untrusted
from chainfolio.plans import Plan, run_batched
from chainfolio.positions import AccountState
from tests.chains.dust import DustKind, Mix, Wallet, Work
from tests.evm.contracts import Burns, Contract, Contracts, Reverts, balances, gives
from tests.evm.fakes import ALICE, TOKEN, FakeChain, FakeNode, FakeTransport, wired

FEED = "0x" + "fe" * 20
BALANCE_OF = bytes.fromhex("70a08231")
LATEST = bytes.fromhex("feaf968c")


def _burns(data: bytes) -> bytes:
    raise Burns


def _reverts(data: bytes) -> bytes:
    raise Reverts


def _burns_in_names(data: bytes) -> bytes:
    if data[:4] == BALANCE_OF:
        return (1).to_bytes(32, "big")
    raise Burns


BEHAVIOURS: dict[str, Contract] = {
    "loops for ever": _burns,
    "loops in its name": _burns_in_names,
    "reverts": _reverts,
    "answers nothing": lambda data: b"",
    "answers too much": lambda data: b"\xff" * 20_000,
    "answers one": gives(1),
    "answers dearly": gives(2),
}


def _feed(data: bytes) -> bytes:
    """A feed at 2,000 USD, updated at the block."""
    if data[:4] == LATEST:
        return b"".join(
            each.to_bytes(32, "big") for each in (7, 2000 * 10**8, BLOCK.time_us // 10**6, BLOCK.time_us // 10**6, 7)
        )
    return (8).to_bytes(32, "big")


CHAIN = FakeChain(5)
BLOCK = CHAIN.block(3)


def hostile(mix: Mix) -> dict[str, Contract]:
    """Contracts of a mix, some below and some above the honest addresses."""
    kinds = [BEHAVIOURS[name] for name, count in sorted(mix.items()) for _ in range(count)]
    return {f"0x{(k % 2) * 0xFF:02x}{k:038x}": contract for k, contract in enumerate(kinds, 1)}


def costs(dust: dict[str, Contract]) -> dict[str, int]:
    """Return the gas costs of expensive contracts: just below the gas limit of a read."""
    dear = BEHAVIOURS["answers dearly"]
    return {address: READ_GAS - 1 for address, contract in dust.items() if contract is dear}


async def read(mix: Mix, mark: Callable[..., list[Any]] = mark_untrusted) -> Wallet:
    """Read the wallet: its coins and one listed token, both priced by a feed, and the hostile tokens."""
    dust = hostile(mix)
    contracts = Contracts(
        {**dust, TOKEN: balances({ALICE: 7}), FEED: _feed}, {ALICE: 10**18}, gas_cap=30_000_000, costs=costs(dust)
    )
    pool = wired(FakeNode(CHAIN, contracts), checked=True)
    facts = pool.node.facts
    trusted_token, native = facts.token_asset(TOKEN), facts.info.native.asset
    tokens = [trusted_token, *(facts.token_asset(each) for each in dust)]
    trust = Trust(lambda asset: asset == trusted_token)
    strangers = trust.untrusted_contracts(tokens)
    source = Chainlink({asset: Feed(asset, FEED, 8, 3600) for asset in (trusted_token, native)})

    def wallet() -> Plan[Any]:
        native_raw, *raws = yield [NativeBalance(ALICE), *(balance_of(each.reference, ALICE) for each in tokens)]
        return native_raw, dict(zip(tokens, raws, strict=True))

    plans: dict[str, Plan[Any]] = {
        "wallet": wallet(),
        "tokens": describe(facts, [each.reference for each in tokens]),
        "prices": source.prices([trusted_token, native], BLOCK),
    }
    reports = await run_batched(plans, lambda reads: answer(pool.node, mark(reads, strangers), BLOCK))
    assert not [report.reason for report in reports.values() if report.status != "ok"]
    results: dict[str, Any] = {name: report.result for name, report in reports.items()}
    native_raw, raws = results["wallet"]
    state = AccountState(native_raw, raws, (), ())
    tokens_by_account: dict[str, dict[Asset, bool]] = {ALICE: dict.fromkeys(tokens, True)}
    holdings, issues = holdings_of({ALICE: state}, tokens_by_account, trust)
    quotes = results["prices"]
    prices: dict[str, Decimal] = {str(price.asset): price.usd for price in quotes.prices}
    trusted = {
        "native": native_raw,
        "token": raws[trusted_token],
        "held": (ALICE, trusted_token, 7) in holdings,
        **prices,
    }
    is_complete = not any(issue.makes_partial for issue in issues) and not quotes.refused
    return Wallet(
        trusted, is_complete, len(group_untrusted_issues(issues)), Work(pool.node.requests, contracts.gas_used)
    )


def allowance(count: int) -> Work:
    """Four reads a token: by their number alone, and by one more round."""
    return Work(6, Budget.of(4 * count).gas + call_gas(MAX_CALL_READS), turns=MAX_CALL_ROUNDS - 1)


EVM = DustKind(tuple(BEHAVIOURS), read, allowance, FakeTransport)
