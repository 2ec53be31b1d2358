"""Interactions, trusted claims and underlying assets of shares, on contracts given as a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.reader import SingleAccountReader
from chainfolio.adapters.evm.positions.rules import (
    Collection,
    Counterparty,
    DecoderPlan,
    Event,
    EveryAccount,
    Family,
    MayRefuse,
    ProtocolMatch,
    Rule,
    Token,
)
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents
from chainfolio.adapters.evm.protocols.erc4626 import LAGS, payable
from chainfolio.adapters.evm.reads import BALANCE_OF, Call, NativeBalance
from chainfolio.indexer.families import families
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.protocols import DecodedPosition, InstalledProtocol, TokenAmount
from chainfolio.reads import AtParent, Read

ME, POOL, FARM, SHARE, OTHER, COIN, GOLD = (f"0x{digit * 40}" for digit in "1234567")
OURS = {name: family for name, family in families().items() if isinstance(family, Family)}
ASSET, TOTAL, PREVIEW = "asset()(address)", "convertToAssets(uint256)(uint256)", "previewRedeem(uint256)(uint256)"
Contracts = Mapping[tuple[str, str], Any]
NOTHING: Mapping[str, int] = {}


def protocols(family: Family, options: Mapping[str, str] | None = None, **roles: str) -> Protocols:
    return Protocols(
        [InstalledProtocol("ours", family, {role: (address,) for role, address in roles.items()}, options or {})]
    )


def answer_of(contracts: Contracts, ask: Read[object]) -> Any:
    assert isinstance(ask, Call)
    result = contracts.get((ask.to, ask.signature), Reverted())
    return result(*ask.args) if callable(result) else result


def read(
    protocol_set: Protocols, match: ContractInteractions, contracts: Contracts, balances: Mapping[str, int] = NOTHING
) -> AccountContents:
    """Read the contents of an account with these interactions and token balances."""

    def answer(ask: Read[object]) -> Any:
        if isinstance(ask, AtParent):  # the block before was the same
            return answer(ask.read)
        if isinstance(ask, NativeBalance):
            return 0
        assert isinstance(ask, Call)
        return balances[ask.to] if ask.signature == BALANCE_OF and ask.args == (ME,) else answer_of(contracts, ask)

    contents: AccountContents = run_offline(
        SingleAccountReader(Shares(protocol_set), ME, match).read_all(tuple(balances)), answer
    )
    return contents


def supplied(contents: AccountContents) -> list[dict[str, int]]:
    return [each.underlying.parts for each in contents.positions]


def family_of(*names: str) -> Family:
    """Return a family whose positions count the id, or the tokens, of each match."""

    def position(match: ProtocolMatch) -> DecoderPlan:
        yield []
        return DecodedPosition("STAKED", supplied=(TokenAmount(match.contract, match.id or len(match.tokens) or 1),))

    rules = (
        Counterparty("farm"),
        Collection("ids"),
        EveryAccount("all"),
        Token("pool", "POOL()(address)", together=True),
    )
    return Family("told", tuple(rule for rule in rules if rule.role in names), position=position)


# --- who is concerned ---


def test_nobody_is_asked_about_what_nobody_met() -> None:
    protocol_set = protocols(family_of("farm", "ids", "pool"), farm=FARM, ids=OTHER, pool=POOL)
    plan = SingleAccountReader(Shares(protocol_set), ME, ContractInteractions()).read_all([])
    assert next(plan) == [NativeBalance(ME)]
    with pytest.raises(StopIteration) as stop:
        plan.send([7])
    assert stop.value.value == AccountContents(7, {}, (), ())


def test_a_counterparty_s_tokens_are_told() -> None:
    received: list[ProtocolMatch] = []

    def position(match: ProtocolMatch) -> DecoderPlan:
        received.append(match)
        yield []

    protocol_set = protocols(Family("farms", (Counterparty("farm"),), position=position), {"pending": "x()"}, farm=FARM)
    read(
        protocol_set,
        ContractInteractions(exchanged={FARM: frozenset({SHARE, COIN, None}), OTHER: frozenset({SHARE})}),
        {},
    )
    expected = ProtocolMatch(ME, FARM, tokens=(SHARE, COIN), contracts={"farm": (FARM,)}, options={"pending": "x()"})
    assert received == [expected]


def test_each_token_of_a_collection_is_a_meeting() -> None:
    protocol_set = protocols(family_of("ids"), ids=OTHER)
    contents = read(protocol_set, ContractInteractions(ids={OTHER: frozenset({7, 3}), FARM: frozenset({1})}), {})
    assert [each.decoded.supplied for each in contents.positions] == [
        (TokenAmount(OTHER, 3),),
        (TokenAmount(OTHER, 7),),
    ]


def test_tokens_that_give_one_answer_are_one_meeting() -> None:
    protocol_set = protocols(family_of("pool"), pool=POOL)
    contracts = {(SHARE, "POOL()(address)"): POOL, (COIN, "POOL()(address)"): POOL, (GOLD, "POOL()(address)"): OTHER}
    contents = read(protocol_set, ContractInteractions(tokens=frozenset({SHARE, COIN, GOLD, OTHER})), contracts)
    assert [each.decoded.supplied for each in contents.positions] == [(TokenAmount(POOL, 2),)]


def test_what_a_token_answers_at_one_block_is_forgotten_at_the_next() -> None:
    protocol_set = protocols(family_of("pool"), pool=POOL)
    match, answers = ContractInteractions(tokens=frozenset({SHARE})), {(SHARE, "POOL()(address)"): POOL}
    assert [len(read(protocol_set, match, each).positions) for each in (answers, {}, answers)] == [1, 0, 1]


def test_tokens_that_lay_in_shares_are_asked_in_the_first_round_the_next_time() -> None:
    def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
        yield []
        return (TokenAmount(COIN, raw),) if match.contract == SHARE else None

    protocol_set = protocols(
        Family("wrap", (Token("pool", "POOL()(address)"),), unwrap=unwrap, position_type="VAULT"), pool=POOL
    )
    match = ContractInteractions()

    def rounds() -> list[set[str]]:
        plan, targets = SingleAccountReader(Shares(protocol_set), ME, match).read_all([SHARE]), []
        answers: list[Any] | None = None
        with suppress(StopIteration):
            while True:
                reads = next(plan) if answers is None else plan.send(answers)
                targets.append({ask.to for ask in reads if isinstance(ask, Call)})
                answers = [1 if not isinstance(ask, Call) or ask.signature == BALANCE_OF else POOL for ask in reads]
        return [each for each in targets if each]

    assert [rounds() for _ in range(2)] == [[{SHARE}, {SHARE}, {COIN}], [{SHARE, COIN}, {SHARE}]]


def test_a_token_whose_question_could_not_be_read_makes_the_answer_partial() -> None:
    protocol_set = protocols(family_of("pool"), pool=POOL)
    contracts = {
        (SHARE, "POOL()(address)"): Unknown("the node is busy"),
        (COIN, "POOL()(address)"): Unknown("", "absent"),
    }
    contents = read(
        protocol_set, ContractInteractions(tokens=frozenset({SHARE, COIN})), contracts, {SHARE: 10, COIN: 10}
    )
    assert [(each.subject, each.makes_partial) for each in contents.issues] == [(SHARE, True)]


def test_a_token_that_is_held_is_enough_where_no_transfer_of_it_was_indexed() -> None:
    protocol_set = protocols(family_of("pool"), pool=POOL)
    contents = read(protocol_set, ContractInteractions(), {(SHARE, "POOL()(address)"): POOL}, {SHARE: 10, COIN: 0})
    assert [each.decoded.supplied for each in contents.positions] == [(TokenAmount(POOL, 1),)]


# --- what is believed ---

VAULT = OURS["erc4626"]
HONEST = {(SHARE, ASSET): COIN, (SHARE, TOTAL): lambda raw: raw * 2, (SHARE, PREVIEW): lambda raw: raw * 2 - 1}


BACKED = HONEST | {(SHARE, "totalSupply()(uint256)"): 100, (COIN, BALANCE_OF): 200}
DEPOSITOR = ContractInteractions(tokens=frozenset({SHARE}), sent={SHARE: frozenset({COIN})})


def test_a_vault_that_nobody_lists_is_believed_by_who_deposited_its_asset_into_it() -> None:
    assert supplied(read(protocols(VAULT), DEPOSITOR, BACKED, {SHARE: 10})) == [{COIN: 19}]


@pytest.mark.parametrize(
    "tokens_sent",
    [{}, {OTHER: frozenset({COIN})}, {SHARE: frozenset({GOLD})}, {SHARE: frozenset({None})}],
    ids=["nothing", "its asset to somebody else", "another token", "native coins"],
)
def test_a_vault_that_was_sent_to_a_wallet_stays_a_token_and_is_said(
    tokens_sent: dict[str, frozenset[str | None]],
) -> None:
    match = ContractInteractions(tokens=frozenset({SHARE}), sent=tokens_sent)
    contents = read(protocols(VAULT), match, BACKED, {SHARE: 10**30})
    assert supplied(contents) == []
    (issue,) = contents.issues
    assert "never deposited" in issue.reason
    assert (issue.adapter, issue.subject, issue.account, issue.makes_partial) == ("ours", SHARE, ME, False)


@pytest.mark.parametrize(
    "changed",
    [
        {(COIN, BALANCE_OF): 179},
        {(SHARE, "totalSupply()(uint256)"): 112},
        {(SHARE, "totalSupply()(uint256)"): 9},
        {(SHARE, PREVIEW): lambda raw: 10**60},
        {(SHARE, PREVIEW): Reverted(), (SHARE, TOTAL): lambda raw: 23},
    ],
    ids=["too few assets", "too many shares", "fewer shares than one holds", "a preview of anything", "no preview"],
)
def test_a_deposit_into_a_vault_counts_only_as_far_as_its_assets_cover_all_holders(changed: Contracts) -> None:
    contents = read(protocols(VAULT), DEPOSITOR, BACKED | dict(changed), {SHARE: 10})
    assert supplied(contents) == []
    (issue,) = contents.issues
    assert "do not cover" in issue.reason
    assert not issue.makes_partial


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({(COIN, BALANCE_OF): 188}, 18),
        ({(COIN, BALANCE_OF): 180}, 18),
        ({(SHARE, "totalSupply()(uint256)"): 111}, 18),
        ({(SHARE, PREVIEW): Reverted(), (SHARE, TOTAL): lambda raw: 22}, 20),
        ({(SHARE, PREVIEW): Reverted(), (SHARE, TOTAL): lambda raw: 23, (COIN, BALANCE_OF): 210}, 21),
    ],
    ids=["few assets", "just enough", "many shares", "a promise above them", "a larger promise"],
)
def test_a_vault_that_lacks_little_counts_with_its_part_of_what_lies_there(changed: Contracts, expected: int) -> None:
    contents = read(protocols(VAULT), DEPOSITOR, BACKED | dict(changed), {SHARE: 10})
    assert supplied(contents) == [{COIN: expected}]
    (issue,) = contents.issues
    assert LAGS in issue.reason
    assert not issue.makes_partial


@given(*[st.integers(0, 500)] * 4)
@example(promised=22, raw=10, supply=100, assets=200)
def test_a_vault_never_counts_with_more_than_its_part_of_what_lies_there(
    promised: int, raw: int, supply: int, assets: int
) -> None:
    """A vault counts at most with its part of the assets, for any promise and any claimed supply."""
    payable_raw = payable(promised, raw, supply, assets)
    if payable_raw is not None:
        assert 0 <= raw <= supply
        assert payable_raw <= promised
        assert payable_raw * supply <= (assets + 1) * raw


def test_a_vault_that_is_listed_needs_no_deposit() -> None:
    protocol_set = protocols(VAULT, vault=SHARE)
    assert supplied(read(protocol_set, ContractInteractions(), HONEST, {SHARE: 10})) == [{COIN: 19}]


def test_a_vault_that_will_not_preview_pays_what_its_shares_stand_for() -> None:
    contracts = {key: result for key, result in HONEST.items() if key[1] != PREVIEW}
    assert supplied(read(protocols(VAULT, vault=SHARE), ContractInteractions(), contracts, {SHARE: 10})) == [{COIN: 20}]


def test_a_preview_that_could_not_be_read_is_not_a_refusal() -> None:
    contracts = HONEST | {(SHARE, PREVIEW): Unknown("the node ran out of gas")}
    contents = read(protocols(VAULT, vault=SHARE), ContractInteractions(), contracts, {SHARE: 10})
    assert supplied(contents) == []
    (issue,) = contents.issues
    assert "previewRedeem" in issue.reason
    assert issue.makes_partial


PAIR = {
    (SHARE, "factory()(address)"): FARM,
    (SHARE, "token0()(address)"): COIN,
    (SHARE, "token1()(address)"): GOLD,
    (SHARE, "totalSupply()(uint256)"): 100,
    (SHARE, "kLast()(uint256)"): 0,
    (SHARE, "getReserves()(uint112,uint112)"): (1_000, 50),
    (FARM, "feeTo()(address)"): "0x" + "0" * 40,
    (COIN, "balanceOf(address)(uint256)"): 1_001,
    (GOLD, "balanceOf(address)(uint256)"): 50,
}
GENUINE = {(FARM, "getPair(address,address)(address)"): SHARE}


def test_a_pair_is_one_if_its_factory_knows_it() -> None:
    protocol_set = protocols(OURS["uniswap_v2"], factory=FARM)
    assert supplied(read(protocol_set, ContractInteractions(), PAIR | GENUINE, {SHARE: 10})) == [{COIN: 100, GOLD: 5}]
    fake = read(
        protocol_set, ContractInteractions(), PAIR | {(FARM, "getPair(address,address)(address)"): OTHER}, {SHARE: 10}
    )
    assert (supplied(fake), fake.issues) == ([], ())
    for fewer in (0, 9):
        fake = read(
            protocol_set,
            ContractInteractions(),
            PAIR | GENUINE | {(SHARE, "totalSupply()(uint256)"): fewer},
            {SHARE: 10},
        )
        assert (supplied(fake), fake.issues) == ([], ())  # a token that lies is a loose token like any other


def test_a_pair_of_another_factory_is_no_pair() -> None:
    protocol_set = protocols(OURS["uniswap_v2"], factory=OTHER)
    assert supplied(read(protocol_set, ContractInteractions(), PAIR | GENUINE, {SHARE: 10})) == []


# --- what lies behind shares ---


def test_shares_of_shares_are_unfolded_and_sums_are_made_once() -> None:
    protocol_set = Protocols(
        [
            InstalledProtocol("pairs", OURS["uniswap_v2"], {"factory": (FARM,)}, {}),
            InstalledProtocol("vaults", VAULT, {"vault": (OTHER, COIN)}, {}),
        ]
    )
    vaults = {
        (vault, call): (GOLD if call == ASSET else lambda raw: raw * 3)
        for vault in (OTHER, COIN)
        for call in (ASSET, TOTAL, PREVIEW)
    }
    assert supplied(read(protocol_set, ContractInteractions(), PAIR | GENUINE | vaults, {SHARE: 10})) == [
        {GOLD: 5 + 300}
    ]


@pytest.mark.parametrize(
    ("inner", "reason"),
    [({SHARE: SHARE}, "leads back to itself"), ({SHARE: OTHER, OTHER: SHARE}, "leads back to itself")],
)
def test_shares_that_go_in_circles_stay_what_they_are_and_are_said(inner: dict[str, str], reason: str) -> None:
    contracts = {
        (vault, call): (asset if call == ASSET else lambda raw: raw)
        for vault, asset in inner.items()
        for call in (ASSET, TOTAL, PREVIEW)
    }
    protocol_set = Protocols([InstalledProtocol("vaults", VAULT, {"vault": tuple(inner)}, {})])
    contents = read(protocol_set, ContractInteractions(), contracts, {SHARE: 10})
    assert supplied(contents) == []  # the loose token stays
    assert [reason in issue.reason for issue in contents.issues] == [True]


def test_shares_deeper_than_anybody_builds_are_left_and_said() -> None:
    chain = [f"0x{number:040x}" for number in range(1, 30)]
    contracts = {
        (vault, call): (asset if call == ASSET else lambda raw: raw)
        for vault, asset in pairwise(chain)
        for call in (ASSET, TOTAL, PREVIEW)
    }
    protocol_set = Protocols([InstalledProtocol("vaults", VAULT, {"vault": tuple(chain)}, {})])
    contents = read(protocol_set, ContractInteractions(), contracts, {chain[0]: 10})
    assert ["lie in each other" in issue.reason for issue in contents.issues] == [True]
    assert supplied(contents) == [{chain[8]: 10}]


# --- decoders that fail ---


def broken(fault: str) -> Family:
    def position(match: ProtocolMatch) -> DecoderPlan:
        if fault == "raises at once":
            raise KeyError("pending")
        results = yield [Call(match.contract, "read()(uint256)"), MayRefuse(Call(match.contract, "maybe()(uint256)"))]
        behaviours: dict[str, Any] = {
            "raises later": lambda: 1 // 0,
            "finds garbage": lambda: [DecodedPosition("STAKED"), "a string"],
            "finds a number": lambda: 7,
            "finds a negative": lambda: DecodedPosition("STAKED", supplied=(TokenAmount(COIN, -1),)),
            "finds a float": lambda: DecodedPosition("STAKED", (TokenAmount(COIN, 0.5),)),  # type: ignore[arg-type]
            "finds one part": lambda: DecodedPosition("STAKED", TokenAmount(COIN, 1)),  # type: ignore[arg-type]
            "finds no parts": lambda: DecodedPosition("STAKED", rewards=None),  # type: ignore[arg-type]
            "finds truth": lambda: DecodedPosition("STAKED", borrowed=(TokenAmount(COIN, True),)),
            "finds another type": lambda: DecodedPosition("STEAKED", supplied=(TokenAmount(COIN, 1),)),
            "finds no address": lambda: DecodedPosition("STAKED", supplied=(TokenAmount("COIN", 1),)),
            "finds one share": lambda: DecodedPosition("STAKED", replaces=COIN),  # type: ignore[arg-type]
            "finds a health": lambda: DecodedPosition("STAKED", health=1.5),  # type: ignore[arg-type]
            "finds no name": lambda: DecodedPosition("STAKED", name=None),  # type: ignore[arg-type]
            "finds no end": lambda: DecodedPosition("STAKED", unlock_s=None),  # type: ignore[arg-type]
            "asks for ever": lambda: None,
            "reads": lambda: DecodedPosition(
                "STAKED", supplied=(TokenAmount(COIN, results[0]),), unknown="" if results[1] else "its rewards"
            ),
        }
        if fault == "asks for ever":
            while True:
                yield [Call(match.contract, "read()(uint256)")]
        return behaviours[fault]()

    return Family("broken", (Counterparty("farm"),), position=position)


READS = {(FARM, "read()(uint256)"): 5, (FARM, "maybe()(uint256)"): 6}
MET = ContractInteractions(exchanged={FARM: frozenset({COIN})})


@pytest.mark.parametrize(
    "fault",
    [
        "raises at once",
        "raises later",
        "finds garbage",
        "finds a number",
        "finds a negative",
        "finds a float",
        "finds one part",
        "finds no parts",
        "finds truth",
        "finds another type",
        "finds no address",
        "finds one share",
        "finds a health",
        "finds no name",
        "finds no end",
        "asks for ever",
    ],
)
def test_a_decoder_that_breaks_is_an_issue_and_nothing_is_found(fault: str) -> None:
    contents = read(protocols(broken(fault), farm=FARM), MET, READS)
    assert contents.positions == ()
    (issue,) = contents.issues
    assert (issue.adapter, issue.subject, issue.makes_partial) == ("ours", FARM, True)
    assert ME in issue.reason


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("finds one part", "`supplied` is one TokenAmount, not a tuple of them (is a comma missing?)"),
        ("finds another type", "there is no position type 'STEAKED' (did you mean `STAKED`?)"),
    ],
)
def test_what_is_wrong_with_a_position_is_said(fault: str, message: str) -> None:
    (issue,) = read(protocols(broken(fault), farm=FARM), MET, READS).issues
    assert message in issue.reason


def test_shares_that_are_unfolded_to_one_part_are_said_to_be() -> None:
    def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
        yield []
        return TokenAmount(COIN, raw)

    family = Family("shares", (Token("share"),), unwrap=unwrap, position_type="VAULT")
    contents = read(protocols(family, share=SHARE), ContractInteractions(), {}, {SHARE: 1})
    assert contents.positions == ()
    (issue,) = contents.issues
    assert "is one TokenAmount, not a tuple of them" in issue.reason


@pytest.mark.parametrize("failure", [Reverted(b"no"), Unknown("out of gas"), Unknown("no contract", cause="absent")])
def test_a_read_that_gives_nothing_is_never_a_position_of_zero(failure: Any) -> None:
    contents = read(protocols(broken("reads"), farm=FARM), MET, READS | {(FARM, "read()(uint256)"): failure})
    assert (contents.positions, len(contents.issues)) == ((), 1)


@pytest.mark.parametrize("failure", [Reverted(b"no"), Unknown("no contract", cause="absent")])
def test_what_a_contract_may_refuse_is_known_to_be_missing(failure: Any) -> None:
    contents = read(protocols(broken("reads"), farm=FARM), MET, READS | {(FARM, "maybe()(uint256)"): failure})
    assert supplied(contents) == [{COIN: 5}]
    assert [issue.reason for issue in contents.issues] == [f"not known of {ME}: its rewards"]


def test_what_may_be_refused_must_still_be_read() -> None:
    failed = {(FARM, "maybe()(uint256)"): Unknown("the node could not finish this read")}
    contents = read(protocols(broken("reads"), farm=FARM), MET, READS | failed)
    assert (contents.positions, len(contents.issues)) == ((), 1)


def test_reads_are_written_down_for_whoever_asks_where_a_number_is_from() -> None:
    (position,) = read(protocols(broken("reads"), farm=FARM), MET, READS).positions
    assert [
        (each.read.signature, each.result) for each in position.underlying.calls if isinstance(each.read, Call)
    ] == [
        ("read()(uint256)", 5),
        ("maybe()(uint256)", 6),
    ]


# --- which rows there are ---


def test_rows_are_of_the_chain_and_of_families_that_are_installed() -> None:
    registry = Registry(
        [
            Protocol("here", "Here", {"local": {"factory": [FARM]}}, families=["uniswap_v2"]),
            Protocol("there", "There", {"other": {"factory": [OTHER]}}, families=["uniswap_v2"]),
            Protocol("missing", "MissingDependency", {"local": {"x": [POOL]}}, families=["nobody has this"]),
            Protocol("everywhere", "Everywhere", {}, families=["erc4626"]),
        ]
    )
    assert [(row.protocol, row.family.name) for row in registry.rows("local", "evm", OURS)] == [
        ("everywhere", "erc4626"),
        ("here", "uniswap_v2"),
    ]


# --- events ----------------------------------------------------------------------------------------------------------


def put(account: str, number: int) -> NamedEvent:
    """Return a deposit event of a numbered position for `account`, sent by another account."""
    topics = ("0x" + "00" * 12 + OTHER[2:], "0x" + "00" * 12 + account[2:])
    return NamedEvent(2, topics, number.to_bytes(32, "big"))


PUT = Event("farm", "Put(address indexed by, address indexed owner, uint256 number)", owner=1, values=(2,))
TOOK = Event("farm", "Took(address indexed owner)", owner=0)
BY_PUT, BY_TAKING = PUT.parsed.filter(FARM), TOOK.parsed.filter(FARM)


def matches(match: ContractInteractions, *rules: Rule) -> list[ProtocolMatch]:
    protocol_set = protocols(Family("mine", rules=rules or (PUT, TOOK)), farm=FARM)
    return [each.match for each in protocol_set.by_contract(ME, match)]


def test_the_events_of_a_chain_are_those_that_its_protocols_ask_for() -> None:
    protocol_set = protocols(Family("mine", rules=(PUT, TOOK, Counterparty("farm"))), farm=FARM)
    assert set(protocol_set.events) == {BY_PUT, BY_TAKING}
    assert protocols(Family("mine", rules=(PUT,)), chef=FARM).events == ()


def test_what_events_said_is_one_meeting_each_value_once() -> None:
    match = ContractInteractions(
        events={BY_PUT: (put(ME, 7), put(ME, 3), put(ME, 7))}, covered=frozenset({BY_PUT, BY_TAKING})
    )
    (matched,) = matches(match)
    assert (matched.contract, matched.values, matched.has_all_events) == (FARM, ((7,), (3,)), True)


def test_a_contract_is_met_once_by_whichever_rules() -> None:
    match = ContractInteractions(exchanged={FARM: frozenset({COIN})}, events={BY_PUT: (put(ME, 7),)})
    (matched,) = matches(match, PUT, Counterparty("farm"), EveryAccount("farm"))
    assert (matched.tokens, matched.values, matched.has_all_events) == ((COIN,), ((7,),), False)


def test_who_caused_an_event_is_not_whom_it_concerns() -> None:
    as_first = put(ME, 7)._replace(place=1)
    assert matches(ContractInteractions(events={BY_PUT: (as_first,)})) == []


def test_one_event_that_is_not_indexed_makes_what_the_others_said_not_all() -> None:
    match = ContractInteractions(events={BY_PUT: (put(ME, 7),)}, covered=frozenset({BY_PUT}))
    (matched,) = matches(match)
    assert (matched.values, matched.has_all_events) == (((7,),), False)


def test_an_event_that_is_not_as_declared_is_a_meeting_of_which_not_all_is_known() -> None:
    short = put(ME, 7)._replace(data=b"")
    match = ContractInteractions(events={BY_PUT: (short,)}, covered=frozenset({BY_PUT, BY_TAKING}))
    (matched,) = matches(match)
    assert (matched.values, matched.has_all_events) == ((), False)


@pytest.mark.parametrize(
    "match",
    [
        ContractInteractions(tokens=frozenset({FARM})),
        ContractInteractions(ids={FARM: frozenset({1})}),
        ContractInteractions(exchanged={FARM: frozenset({COIN})}),
        ContractInteractions(exchanged={FARM: frozenset({None})}),
    ],
)
def test_who_met_a_protocol_that_cannot_be_read_is_told_and_nobody_else(match: ContractInteractions) -> None:
    farm = Protocol("farm", "The farm", {"ethereum": {"farm": [FARM], "chef": [FARM]}}, families=["erc4627"])
    (unread,) = Registry([farm]).unread(OURS)
    protocol_set = Protocols((), unread={FARM: unread.document}, listed=frozenset({COIN}))
    (issue,) = protocol_set.unread_protocols(ME, match)
    assert (issue.adapter, issue.subject, issue.account, issue.makes_partial) == ("protocols", "farm", ME, True)
    assert f"positions of {ME} in The farm are unknown: its file names the family `erc4627`" in issue.reason
    assert list(protocol_set.unread_protocols(ME, ContractInteractions(tokens=frozenset({COIN})))) == []
    assert "did you mean `erc4626`?" in unread.remedy
    assert "`families` in farm.toml" in unread.remedy


def test_whose_token_only_logs_a_transfer_to_a_protocol_makes_no_answer_partial() -> None:
    farm = Protocol("farm", "The farm", {"ethereum": {"farm": [FARM]}}, undecoded=["farm"])
    protocol_set = Protocols((), unread=Registry([farm]).undecoded("ethereum"), listed=frozenset({COIN}))
    (forged,) = protocol_set.unread_protocols(ME, ContractInteractions(exchanged={FARM: frozenset({GOLD})}))
    (real,) = protocol_set.unread_protocols(ME, ContractInteractions(exchanged={FARM: frozenset({GOLD, COIN})}))
    assert (forged.makes_partial, real.makes_partial) == (False, True)
    assert forged.reason == real.reason == f"positions of {ME} in The farm are unknown: there is no decoder for them"


def test_a_protocol_is_unread_by_the_families_that_are_missing_alone() -> None:
    both = Protocol("both", "Both", {}, families=["erc4626", "nothing_like_it", "nor_this"])
    plain = Protocol("plain", "Plain", {"ethereum": {"farm": [FARM]}})
    (unread,) = Registry([both, plain]).unread(OURS)
    assert (unread.protocol, unread.families) == (both, ("nothing_like_it", "nor_this"))
    assert "families `nothing_like_it`, `nor_this`" in unread.problem
    assert "did you mean" not in unread.remedy
