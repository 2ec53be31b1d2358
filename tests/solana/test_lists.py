"""Positions in program accounts that name their owner: listed and read at one slot with the wallet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from solders.keypair import Keypair

from chainfolio.adapters.solana import positions
from chainfolio.adapters.solana.account_reads import ListRead
from chainfolio.adapters.solana.layouts import STAKE
from chainfolio.adapters.solana.protocols import marinade_ticket
from chainfolio.adapters.solana.reads import Wallet, WalletRead
from chainfolio.errors import BadAnswer, Unavailable
from chainfolio.plans import Unknown
from chainfolio.protocols import InstalledProtocol, InstalledProtocols
from chainfolio.transport.http_endpoint import MAX_TRIES
from tests.json_rpc import Refuse
from tests.solana.fakes import WALLET, FakeNode, account
from tests.solana.ledger import Ledger
from tests.solana.ledger_node import FAILURES, LedgerNode, read
from tests.solana.vendor_accounts import MARINADE, MARINADE_STATE, marinade_bytes, ticket_bytes

CONTRACTS: Final = {"program": (MARINADE,), "state": (MARINADE_STATE,)}
ROWS: Final = tuple(InstalledProtocol(name, marinade_ticket.FAMILY, CONTRACTS, {}) for name in ("marinade", "another"))
INSTALLED: Final = InstalledProtocols(ROWS[:1])


def tickets(count: int) -> Ledger:
    """So many tickets of the wallet, each of one lamport more."""
    ledger = Ledger()
    ledger.put(MARINADE_STATE, MARINADE, marinade_bytes(2**32))
    content = ticket_bytes(WALLET, 1, 1)
    for raw in range(1, count + 1):
        ledger.put(str(Keypair().pubkey()), MARINADE, content[:72] + raw.to_bytes(8, "little") + content[80:])
    return ledger


async def test_all_accounts_that_name_the_wallet_are_its_positions() -> None:
    states = await read(LedgerNode(tickets(3), {WALLET: []}), WALLET, installed=INSTALLED)
    assert sorted(sum(each.supplied.values()) for each in states[WALLET].positions) == [1, 2, 3]
    assert not states[WALLET].issues


async def test_an_endpoint_that_does_not_look_for_accounts_leaves_positions_unknown_and_says_of_whom() -> None:
    def refuses(params: Any) -> Any:
        raise Refuse(-32010, "KLend excluded from account secondary indexes; this RPC method unavailable for key")

    node = LedgerNode(tickets(1), {WALLET: []})
    node.answers = {**node.answers, "getProgramAccounts": refuses}
    states = await read(node, WALLET, installed=InstalledProtocols(ROWS))
    assert states[WALLET].positions == ()
    [issue] = [each for each in states[WALLET].issues if "positions of" in each.reason]
    assert issue.makes_partial
    assert issue.reason.startswith("positions of another, marinade were not looked for: ")


OTHER: Final = str(Keypair().pubkey())
BOTH: Final = InstalledProtocols(
    (
        *INSTALLED.rows,
        InstalledProtocol("fork", marinade_ticket.FAMILY, {"program": (OTHER,), "state": (MARINADE_STATE,)}, {}),
    )
)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_list_that_fails_takes_no_other_positions_with_it(failure: tuple[int, str]) -> None:
    node = LedgerNode(tickets(2), {WALLET: {OTHER: (7, 3)}})
    node.refuse_lists(OTHER, *failure)
    states = await read(node, WALLET, installed=BOTH)
    assert sorted(sum(each.supplied.values()) for each in states[WALLET].positions) == [1, 2]
    assert list(states[WALLET].balances.values()) == [7]
    [issue] = states[WALLET].issues
    assert issue.makes_partial
    assert issue.reason.startswith("positions of fork were not looked for: ")


async def test_a_list_that_comes_once_and_then_no_more_is_unknown_and_holds_nothing_up() -> None:
    node, list_requests = LedgerNode(tickets(2), {WALLET: []}), 0

    def answer_one_list(params: Any) -> Any:
        nonlocal list_requests
        list_requests += params[0] == OTHER
        if params[0] == OTHER and list_requests != MAX_TRIES + 1:
            raise Refuse(*FAILURES[0])
        if params[0] == OTHER:
            node.ledger.lamports[WALLET] = 9  # since that slot: what it came with is of before
        return node._list(params)

    node.answers = {**node.answers, "getProgramAccounts": answer_one_list}
    states = await read(node, WALLET, installed=BOTH)
    assert (len(states[WALLET].positions), states[WALLET].native) == (2, 9)
    assert ["positions of fork" in each.reason for each in states[WALLET].issues] == [True]


async def test_a_list_that_never_comes_is_asked_apart_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    node = LedgerNode(tickets(2), {WALLET: []})
    real, waited = node.post, 0

    async def post(source: str, url: str, body: bytes, timeout_s: float) -> Any:
        nonlocal waited
        if OTHER.encode() in body:
            waited += 1
            raise Unavailable(source, "timed out")
        return await real(source, url, body, timeout_s)

    monkeypatch.setattr(node, "post", post)
    states = await read(node, WALLET, installed=BOTH)
    assert len(states[WALLET].positions) == 2
    [issue] = states[WALLET].issues
    assert issue.reason.endswith("were not looked for: timed out")
    assert waited == 2 * MAX_TRIES, "with all the rest, and then apart; what was not told is not waited for again"


async def test_where_one_endpoint_fails_to_list_another_one_is_asked_first() -> None:
    node = LedgerNode(tickets(2), {WALLET: []})
    real = node.post

    async def post(source: str, url: str, body: bytes, timeout_s: float) -> Any:
        if "one" in url and b"getProgramAccounts" in body:
            raise Unavailable(source, "timed out")
        return await real(source, url, body, timeout_s)

    node.post = post  # type: ignore[method-assign]
    chain = node.chain("http://one.test", "http://two.test")
    head = (await chain.heads()).latest
    wallet, addresses = await chain.answer(
        [WalletRead(WALLET), ListRead(MARINADE, "marinade_ticket", 40, WALLET)], head
    )
    assert isinstance(wallet, Wallet)
    assert wallet.lamports == 5
    assert isinstance(addresses, Sequence)
    assert len(addresses) == 2
    await chain.close()


Lie = Callable[[FakeNode], Any]


@pytest.mark.parametrize(
    "lie",
    [
        lambda node: [{"pubkey": WALLET, "account": account(STAKE, 5)}],
        lambda node: [{"pubkey": WALLET, "account": account(MARINADE, 5)}] * 2,
        lambda node: [{"pubkey": "short", "account": account(MARINADE, 5)}],
        lambda node: [{"pubkey": WALLET, "account": {**account(MARINADE, 5), "lamports": 1.5}}],
        lambda node: [None],
        lambda node: {},
        lambda node: None,
    ],
)
async def test_a_list_that_cannot_be_is_refused(lie: Lie) -> None:
    node = LedgerNode(Ledger(), {WALLET: []})
    node.answers = {
        **node.answers,
        "getProgramAccounts": lambda params: node.at([] if params[0] == STAKE else lie(node)),
    }
    with pytest.raises(BadAnswer):
        await read(node, WALLET, installed=INSTALLED)


async def test_an_endpoint_that_passes_over_filters_gives_nobody_what_belongs_to_others() -> None:
    node = LedgerNode(tickets(1), {WALLET: []})
    stranger = str(Keypair().pubkey())
    node.ledger.put(stranger, MARINADE, ticket_bytes(stranger, 10**9, 1))
    real = node.answers["getProgramAccounts"]
    node.answers = {
        **node.answers,
        "getProgramAccounts": lambda params: real([params[0], {**params[1], "filters": []}]),
    }
    states = await read(node, WALLET, installed=INSTALLED)
    assert [sum(each.supplied.values()) for each in states[WALLET].positions] == [1]
    reasons = {each.subject: each.reason for each in states[WALLET].issues}
    assert f"a ticket of {stranger}" in reasons[stranger]
    assert "another kind" in reasons[MARINADE_STATE] or "bytes" in reasons[MARINADE_STATE]


async def test_an_account_that_comes_while_positions_are_read_is_among_them() -> None:
    node, late = LedgerNode(tickets(1), {WALLET: []}), tickets(1)
    looks = 0

    def later(params: Any) -> Any:
        nonlocal looks
        looks += params[0] == MARINADE
        if looks == 2:
            node.ledger.accounts |= late.accounts
        return node._list(params)

    node.answers = {**node.answers, "getProgramAccounts": later}
    states = await read(node, WALLET, installed=INSTALLED)
    assert len(states[WALLET].positions) == 2


async def test_of_thousands_of_accounts_some_are_read_and_the_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MAX_CLAIMS", 2)
    states = await read(LedgerNode(tickets(3), {WALLET: []}), WALLET, installed=INSTALLED)
    assert len(states[WALLET].positions) == 2
    [issue] = states[WALLET].issues
    assert (issue.makes_partial, issue.reason) == (True, "1 positions of marinade were not looked at")


async def test_lists_beside_no_wallet_are_read_too() -> None:
    node = LedgerNode(tickets(2), {})
    chain = node.chain()
    head = (await chain.heads()).latest
    list_read = ListRead(MARINADE, "marinade_ticket", 40, WALLET)
    [addresses] = await chain.answer([list_read], head)
    assert isinstance(addresses, Sequence)
    assert len(addresses) == 2

    def refuses(params: Any) -> Any:
        raise Refuse(-32010, "excluded from account secondary indexes")

    node.answers = {**node.answers, "getProgramAccounts": refuses}
    [unknown] = await chain.answer([list_read], head)
    assert isinstance(unknown, Unknown)
    await chain.close()
