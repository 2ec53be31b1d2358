"""Claims of unproven decoders make an answer partial only if the account itself used the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import UNPROVEN
from chainfolio.adapters.evm.positions.reader import SingleAccountReader
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents
from chainfolio.adapters.evm.protocols import fluid_vault, gmx_stake, sablier, yearn_v2
from chainfolio.adapters.evm.reads import BALANCE_OF, Call, NativeBalance
from chainfolio.plans import Reverted, run_offline
from chainfolio.protocols import InstalledProtocol
from chainfolio.reads import Read

ME, CONTRACT, ROUTER, FEES, COIN, OTHER = (f"0x{digit * 40}" for digit in "123456")
STREAM = {
    "ownerOf": ME,
    "getEndTime": 2_000_000_000,
    "isCancelable": False,
    "getUnderlyingToken": COIN,
    "getDepositedAmount": 10,
    "getWithdrawnAmount": 0,
    "getRefundedAmount": 0,
    "withdrawableAmountOf": 3,
}
STAKE = {
    "gmx": COIN,
    "esGmx": OTHER,
    "feeGmxTracker": FEES,
    "rewardToken": OTHER,
    "depositBalances": 5,
    "claimable": 0,
}
POOLED = {"getPositionsForNftIds": ((1, ME, 5, 5),), "vaultByNftId": OTHER, "constantsView": (2**159,) * 12}
VAULT = {"token": COIN, "pricePerShare": 2, "decimals": 0, "totalSupply": 100}
RESOLVERS = {"positions_resolver": (FEES,), "vault_resolver": (ROUTER,)}


def read(
    row: InstalledProtocol, match: ContractInteractions, answers: Mapping[str, Any], balances: Mapping[str, int]
) -> AccountContents:
    """Read an account whose contracts answer by the function's name."""

    def answer(request: Read[object]) -> Any:
        if isinstance(request, NativeBalance):
            return 0
        assert isinstance(request, Call)
        if request.signature == BALANCE_OF:
            return balances.get(request.to, 0)
        return answers.get(request.signature.partition("(")[0], Reverted())

    reader = SingleAccountReader(Shares(Protocols([row], listed=frozenset({COIN}))), ME, match)
    contents: AccountContents = run_offline(reader.read_all(tuple(balances)), answer)
    return contents


def partial(contents: AccountContents) -> list[bool]:
    """Return for each issue that names the missing proof whether it is partial."""
    return [issue.makes_partial for issue in contents.issues if UNPROVEN in issue.reason]


SENT = {CONTRACT: frozenset[str | None]({COIN})}
FORGED = {CONTRACT: frozenset[str | None]({OTHER})}


@pytest.mark.parametrize(
    ("actions", "is_partial"),
    [({}, False), ({"sent": FORGED}, False), ({"sent": SENT}, True), ({"self_acquired": frozenset({CONTRACT})}, True)],
    ids=["a gift", "a transfer that an unknown token logs", "a deposit", "an own transaction"],
)
def test_an_unproven_claim_is_partial_only_by_the_account_s_own_action(
    actions: dict[str, Any], is_partial: bool
) -> None:
    stream = InstalledProtocol("streams", sablier.FAMILY, {"lockup": (CONTRACT,)}, {})
    meeting = ContractInteractions(ids={CONTRACT: frozenset({1})}, **actions)
    assert partial(read(stream, meeting, STREAM, {})) == [is_partial]
    vault = InstalledProtocol("vaults", yearn_v2.FAMILY, {"vault": (CONTRACT,)}, {})
    holder = ContractInteractions(tokens=frozenset({CONTRACT}), **actions)
    assert partial(read(vault, holder, VAULT, {CONTRACT: 10})) == [is_partial]


@pytest.mark.parametrize(("actions", "is_partial"), [({}, False), ({"sent": SENT}, True)], ids=["a gift", "a deposit"])
def test_a_claim_that_an_unproven_decoder_cannot_read_is_partial_likewise(
    actions: dict[str, Any], is_partial: bool
) -> None:
    row = InstalledProtocol("vaults", fluid_vault.FAMILY, {"vault_factory": (CONTRACT,), **RESOLVERS}, {})
    contents = read(row, ContractInteractions(ids={CONTRACT: frozenset({1})}, **actions), POOLED, {})
    assert [issue.makes_partial for issue in contents.issues] == [is_partial]


@pytest.mark.parametrize(("raw", "issues"), [(5, [True]), (0, [])], ids=["staked", "left"])
def test_an_account_that_left_an_unproven_contract_has_no_issue(raw: int, issues: list[bool]) -> None:
    roles = {"staked_gmx": (CONTRACT,), "reward_router": (ROUTER,)}
    row = InstalledProtocol("stakes", gmx_stake.FAMILY, roles, {})
    interactions = ContractInteractions(exchanged=SENT, sent=SENT)
    contents = read(row, interactions, {**STAKE, "depositBalances": raw}, {})
    assert [issue.makes_partial for issue in contents.issues] == issues
    assert len(contents.positions) == len(issues)
