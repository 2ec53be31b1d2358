"""Decoders replayed from recorded reads of real accounts, with the shipped files.

A read that was not recorded fails the test. The expected amounts were published with the recordings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.adapters.evm.protocols import ticks
from chainfolio.adapters.evm.reads import Call
from chainfolio.configs.generate import kinds
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import load
from chainfolio.localchain.evm import call_data, result
from chainfolio.plans import Output, Reverted, Rounds
from chainfolio.protocols import DecodedPosition, InstalledProtocol
from tests.evm.recorded import lines, needs_recordings
from tests.protocols.scripted import outcomes

pytestmark = needs_recordings
CONFIGS = Path(__file__).parents[2] / "configs"
CHAINS = {"ethereum": 1, "optimism": 10, "gnosis": 100, "base": 8453, "arbitrum": 42161}
SIDES = {"asset": "supplied", "liability": "borrowed"}


# Who pays fees to lockers of CRV: what they answered was not recorded.
FEES = ("0xa464e6dcda8ac41e03616f95f4bc98a13b8922dc", "0xd16d5ec345dd86fb63c6a9c43c517210f1027914")


class Recording:
    """One recorded case: the account, its reads, and the expected amounts."""

    def __init__(self, name: str) -> None:
        (case,) = [case for case in lines("positions.jsonl.gz") if case["id"] == name]
        self.chain = next(key for key, number in CHAINS.items() if number == case["chain_id"])
        self.account: str = case["accounts"][0].lower()
        self.expected: list[dict[str, str]] = case["expected"]
        self._results = {(call["to"], call["data"]): call["result"] for call in case["calls"]}
        assert all(call["success"] for call in case["calls"])

    def answer(self, call: Call) -> Any:
        """Return the recorded answer of a contract."""
        data = call_data(call.signature, *call.args)
        assert (call.to, data) in self._results, f"{call} was not recorded"
        return result(call.signature, self._results[call.to, data])

    def run_batched(self, plan: Rounds[Any, Any, Output]) -> Output:
        """Run a decoder on the recorded answers."""
        answers: Sequence[Any] | None = None
        while True:
            try:
                reads = next(plan) if answers is None else plan.send(answers)
            except StopIteration as stop:
                result: Output = stop.value
                return result
            calls = [read for read in reads if isinstance(read, Call)]
            assert len(calls) == len(reads)
            answers = [Reverted() if call.to in FEES else self.answer(call) for call in calls]

    def raws(self, decimals: Mapping[str, int]) -> dict[tuple[str, str], int]:
        """Return the expected amounts in the units of the contracts, by side and token."""
        return {
            (SIDES[each["side"]], token): int(Decimal(each["amount"]).scaleb(decimals.get(token, 18)))
            for each in self.expected
            for token in [each["asset"].rpartition(":")[2].lower()]
        }

    def outcomes(self, protocol: str, interactions: ContractInteractions) -> list[Outcome]:
        """Return the outcomes of the protocol's shipped file for these interactions."""
        registry = load([CONFIGS / "protocols"], kinds())
        rows = [row for row in registry.rows(self.chain, "evm", families()) if row.protocol == protocol]
        assert rows, f"{protocol} has no decoder on {self.chain}"
        return self.run_batched(outcomes(Protocols(rows), self.account, interactions))


def summed(positions: Sequence[DecodedPosition]) -> dict[tuple[str, str], int]:
    """Return the sums of the positions that are not zero, by side and token."""
    total: dict[tuple[str, str], int] = {}
    for each in positions:
        for side in ("supplied", "borrowed", "rewards"):
            for part in getattr(each, side):
                total[side, part.token] = total.get((side, part.token), 0) + part.raw
    return {key: raw for key, raw in total.items() if raw}


WBTC = "0x2260fac5e5542a773aa44fbcfedf7c193bc2c599"


@pytest.mark.parametrize(
    ("case", "protocol", "contract", "kind", "decimals"),
    [
        ("curve_locked_crv_balances", "curve", "0x5f3b5dfeb7b28cdbd7faba78963ee202a494e2a2", "LOCKED", {}),
        ("curve_crvusd_balances", "curve", "0x4e59541306910ad6dc1dac0ac9dfb29bd9f15c67", "LENDING", {WBTC: 8}),
        ("curve_lend_balances", "curve", "0xb5c6082d3307088c98da8d79991501e113e6365d", "LENDING", {}),
        ("safe_locked", "safe", "0x0a7cb434f96f65972d46a5c1a64a9654dc9959b2", "LOCKED", {}),
        ("woofi_stake_v2_balances", "woofi", "0xba91ffd8a2b9f68231eca6af51623b3433a89b13", "STAKED", {}),
    ],
)
def test_who_gave_tokens_to_a_contract_has_in_it_what_was_recorded(
    case: str, protocol: str, contract: str, kind: str, decimals: dict[str, int]
) -> None:
    recording = Recording(case)
    (outcome,) = recording.outcomes(protocol, ContractInteractions(exchanged={contract: frozenset()}))
    assert [issue.reason for issue in outcome.issues if "fees" not in issue.reason] == []
    assert [(each.position_type, each.pool) for each in outcome.positions] == [(kind, contract)]
    assert summed(outcome.positions) == recording.raws(decimals)


def test_a_lock_says_when_it_ends() -> None:
    escrow = "0x5f3b5dfeb7b28cdbd7faba78963ee202a494e2a2"
    (outcome,) = Recording("curve_locked_crv_balances").outcomes(
        "curve", ContractInteractions(exchanged={escrow: frozenset()})
    )
    assert outcome.positions[0].unlock_s == 0x70B99180


def test_a_token_that_stands_for_a_stake_is_the_stake_and_not_a_holding_too() -> None:
    recording = Recording("gnosis_giveth_staked_balances")
    receipt = "0xffbabeb49be77e5254333d5fdff72920b989425f"
    (outcome,) = recording.outcomes("giveth", ContractInteractions(tokens=frozenset([receipt])))
    assert summed(outcome.positions) == recording.raws({})
    assert outcome.positions[0].replaces == (receipt,)


def test_what_was_granted_and_not_claimed_is_the_recipient_s() -> None:
    recording = Recording("yearn_vesting_balances")
    (token,) = [token for _, token in recording.raws({})]
    escrow = "0x0d2b3ae5432c53580b462f04e6365a1955c8bbd4"
    contracts = {"vesting_escrow": (escrow,), "vested_token": (token,)}
    protocol = InstalledProtocol("yearn_vesting", families()["vesting_escrow"], contracts, {})
    interactions = ContractInteractions(exchanged={escrow: frozenset([token])})
    (outcome,) = recording.run_batched(outcomes(Protocols([protocol]), recording.account, interactions))
    assert summed(outcome.positions) == recording.raws({token: 6})
    (stranger,) = recording.run_batched(outcomes(Protocols([protocol]), "0x" + "11" * 20, interactions))
    assert (stranger.positions, stranger.issues) == ((), ())


def extrafi(account: str, **options: str) -> tuple[Recording, Outcome]:
    recording = Recording("extrafi_farm_balances")
    manager = "0xf9cfb8a62f50e10adde5aa888b44cf01c5957055"
    protocol = InstalledProtocol("extrafi", families()["extrafi"], {"position_manager": (manager,)}, options)
    interactions = ContractInteractions(exchanged={manager: frozenset([None])})
    (outcome,) = recording.run_batched(outcomes(Protocols([protocol]), account or recording.account, interactions))
    return recording, outcome


def test_a_farm_with_borrowed_tokens_is_its_shares_less_its_debts() -> None:
    recording, outcome = extrafi("", positions="20/3408")
    # What stayed outside the pair was not published, but is in the recorded answer.
    usd_plus = "0xb79dd08ea68a908a97220c76d19a6aa9cbde4376"
    assert summed(outcome.positions) == {**recording.raws({usd_plus: 6}), ("supplied", usd_plus): 14534}


@pytest.mark.parametrize(("account", "options"), [("", {}), ("0x" + "11" * 20, {"positions": "20/3408"})])
def test_positions_of_which_no_number_is_known_are_not_taken_for_none(account: str, options: dict[str, str]) -> None:
    _, outcome = extrafi(account, **options)
    assert summed(outcome.positions) == {}
    assert "numbers" in outcome.positions[0].unknown


def test_liquidity_between_ticks_is_what_was_recorded_on_arbitrum() -> None:
    recording = Recording("uniswapv3_balances_arbitrum")
    facts = tomllib.loads((CONFIGS / "protocols" / "uniswap3.toml").read_text())["contracts"]["arbitrum"]
    pool = Call("0xc6962004f452be9203591991d15f6b388e09e8d0", "slot0()(uint160,int24)")
    (expected,) = recording.expected
    stored = recording.answer(
        Call(
            facts["position_manager"][0],
            "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128)",
            (int(expected["position_id"]),),
        )
    )
    price, tick = recording.answer(pool)
    raw0, raw1 = ticks.amounts(stored[7], price, *stored[5:7])
    # They were published as computed with the tick, not with the price in it, so they agree to the width of a tick.
    assert stored[5] <= tick < stored[6]
    for raw, decimals, amount in ((raw0, 18, expected["token0_amount"]), (raw1, 6, expected["token1_amount"])):
        assert abs(Decimal(raw).scaleb(-decimals) / Decimal(amount) - 1) < Decimal("1e-6")
