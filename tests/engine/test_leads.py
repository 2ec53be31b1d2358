"""Contracts of files that lead to others: a token that names a pool concerns who is led to that pool."""

from __future__ import annotations

from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.reader import SingleAccountReader
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Family, ProtocolMatch, Token
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.plans import Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, TokenAmount

ME, SHARE, POOL, OTHER, PROVIDER, FIRST, SECOND = ("0x" + letter * 40 for letter in "1234567")
QUESTION = "POOL()(address)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Finds a unit of each token that named the pool."""
    yield []
    assert match.is_fork
    assert not match.contracts or match.is_listed("pool")
    return DecodedPosition(
        "LENDING", supplied=tuple(TokenAmount(each, 1) for each in match.tokens), pool=match.contract
    )


FAMILY = Family(
    "led",
    (
        Token("pool", QUESTION, together=True),
        Token("data", QUESTION, through=("PROVIDER()(address)", "getPool()(address)")),
        Token("list", QUESTION, through=("all()(address[])", "getPool()(address)")),
    ),
    position=position,
)


def read(
    says: dict[tuple[str, str], Any], contracts: dict[str, str], requests: list[str] | None = None
) -> AccountContents:
    """Read an account that interacted with one token, which names a pool."""
    row = InstalledProtocol(
        "fork", FAMILY, {role: (contract,) for role, contract in contracts.items()}, {}, is_fork=True
    )

    def answer(ask: Read) -> Any:
        if isinstance(ask, NativeBalance):
            return 0
        assert isinstance(ask, Call)
        if requests is not None and ask.to != SHARE:
            requests.append(ask.to)
        name = ask.signature.partition("(")[0]
        return POOL if name == "POOL" else says.get((ask.to, name), Unknown("there is no contract", "absent"))

    interactions = ContractInteractions(tokens=frozenset({SHARE}))
    return run_offline(SingleAccountReader(Shares(Protocols([row])), ME, interactions).read_all([]), answer)


@pytest.mark.parametrize(
    ("says", "contracts"),
    [
        ({(FIRST, "PROVIDER"): PROVIDER, (PROVIDER, "getPool"): POOL}, {"data": FIRST}),
        ({(FIRST, "all"): (SECOND, PROVIDER), (PROVIDER, "getPool"): POOL}, {"list": FIRST}),
    ],
    ids=["by its data provider", "by one of a list"],
)
def test_a_pool_to_which_a_contract_of_a_file_leads_is_its_protocol_s(
    says: dict[tuple[str, str], Any], contracts: dict[str, str]
) -> None:
    contents = read(says, contracts)
    assert [(each.protocol, each.decoded.pool) for each in contents.positions] == [("fork", POOL)]
    assert contents.issues == ()


def test_a_pool_that_only_its_token_names_is_nobody_s() -> None:
    says = {(FIRST, "PROVIDER"): PROVIDER, (PROVIDER, "getPool"): OTHER}
    assert read(says, {"data": FIRST}) == AccountContents(0, {}, (), ())


def test_a_contract_that_could_not_be_asked_leaves_it_unknown_whose_the_pool_is() -> None:
    failed = {(FIRST, "PROVIDER"): Unknown("time is up")}
    (issue,) = read(failed, {"data": FIRST}).issues
    assert (issue.adapter, issue.makes_partial) == ("protocols", True)
    assert FIRST in issue.reason
    answers_of_second = {(SECOND, "all"): (PROVIDER,), (PROVIDER, "getPool"): POOL}
    assert read(failed | answers_of_second, {"data": FIRST, "list": SECOND}).issues == ()


def test_where_a_file_names_the_pool_itself_nobody_is_asked_where_others_lead() -> None:
    requests: list[str] = []
    contents = read({}, {"pool": POOL, "data": FIRST}, requests)
    assert FIRST not in requests
    assert [each.decoded.pool for each in contents.positions] == [POOL]
