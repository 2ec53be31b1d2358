"""Who has met what, what is believed, and what lies behind shares: on contracts that are a dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from chainfolio.asking import Reverted, Unknown, answered, lockstep
from chainfolio.calls import Call, Read
from chainfolio.contracts import Issue
from chainfolio.protocols import (
    Always,
    Collection,
    Counterparty,
    Decoding,
    Family,
    Found,
    Maybe,
    Met,
    Part,
    Token,
)  # fmt: skip
from indexer.candidates import Encounters
from indexer.families import families
from indexer.protocols import Outcome, Protocols, Row, rows
from indexer.registry import Protocol, Registry
from indexer.unfold import Unfolding

ME, POOL, FARM, SHARE, OTHER, COIN, GOLD = (f"0x{digit * 40}" for digit in "1234567")
OURS = families()
ASSET, TOTAL, PREVIEW = "asset()(address)", "convertToAssets(uint256)(uint256)", "previewRedeem(uint256)(uint256)"
Contracts = Mapping[tuple[str, str], Any]


def protocols(family: Family, options: Mapping[str, str] | None = None, **roles: str) -> Protocols:
    return Protocols([Row("ours", family, {role: (address,) for role, address in roles.items()}, options or {})])


def asked(contracts: Contracts, ask: Read) -> Any:
    assert isinstance(ask, Call)
    said = contracts.get((ask.to, ask.signature), Reverted())
    return said(*ask.args) if callable(said) else said


def read(given: Protocols, met: Encounters, contracts: Contracts) -> list[Outcome]:
    found: list[Outcome] = answered(given.read(ME, met), lambda ask: asked(contracts, ask))
    return found


def unfolded(
    given: Protocols, met: Encounters, contracts: Contracts, held: Mapping[str, int], found: Sequence[Outcome] = ()
) -> Unfolding:
    """Positions and loose tokens, unfolded to the end."""
    unfolding = Unfolding(given, {ME: met})
    unfolding.add(found)
    answered(given.ask(sorted({*held, *unfolding.tokens})), lambda ask: asked(contracts, ask))
    for token, raw in held.items():
        unfolding.add_loose(ME, token, raw)
    while askings := unfolding.askings():
        reports = answered(lockstep(askings), lambda ask: asked(contracts, ask))
        unfolding.take(reports)
        answered(given.ask(sorted(unfolding.tokens)), lambda ask: asked(contracts, ask))
    return unfolding


def supplied(unfolding: Unfolding) -> list[dict[str, int]]:
    return [each.merged("supplied") for each in unfolding.opened if not each.dropped]


def told(*names: str) -> Family:
    """A family that finds one supplied unit of the reward for each contract its rules bring up."""

    def position(met: Met) -> Decoding:
        yield []
        return Found("STAKED", supplied=(Part(met.contract, 1),))

    rules = (Counterparty("farm"), Collection("ids"), Always("all"), Token("pool", "POOL()(address)", together=True))
    return Family("told", tuple(rule for rule in rules if rule.role in names), position=position)


# --- who is concerned ---


def test_nobody_is_asked_about_what_nobody_met() -> None:
    given = protocols(told("farm", "ids", "pool"), farm=FARM, ids=OTHER, pool=POOL)
    asking = given.read(ME, Encounters())
    with pytest.raises(StopIteration) as stop:
        next(asking)
    assert stop.value.value == []


def test_a_counterparty_s_tokens_are_told() -> None:
    seen: list[Met] = []

    def position(met: Met) -> Decoding:
        seen.append(met)
        yield []

    given = protocols(Family("farms", (Counterparty("farm"),), position=position), {"pending": "x()"}, farm=FARM)
    read(given, Encounters(exchanged={FARM: frozenset({SHARE, COIN, None}), OTHER: frozenset({SHARE})}), {})
    expected = Met(ME, FARM, tokens=(SHARE, COIN), contracts={"farm": (FARM,)}, options={"pending": "x()"})
    assert seen == [expected]


def test_each_token_of_a_collection_is_a_meeting() -> None:
    given = protocols(told("ids"), ids=OTHER)
    found = read(given, Encounters(ids={OTHER: frozenset({7, 3}), FARM: frozenset({1})}), {})
    assert [each.meeting.met.id for each in found] == [3, 7]


def test_tokens_that_give_one_answer_are_one_meeting() -> None:
    given = protocols(told("pool"), pool=POOL)
    contracts = {(SHARE, "POOL()(address)"): POOL, (COIN, "POOL()(address)"): POOL, (GOLD, "POOL()(address)"): OTHER}
    found = read(given, Encounters(tokens=frozenset({SHARE, COIN, GOLD, OTHER})), contracts)
    assert [(each.meeting.met.contract, each.meeting.met.tokens) for each in found] == [(POOL, (SHARE, COIN))]


def test_what_a_token_answered_is_not_asked_again_but_its_silence_is() -> None:
    given = protocols(told("pool"), pool=POOL)
    asks: list[Call] = []

    def answer(ask: Read) -> Any:
        assert isinstance(ask, Call)
        asks.append(ask)
        return POOL if ask.to == SHARE else Reverted()

    for _ in range(2):
        answered(given.read(ME, Encounters(tokens=frozenset({SHARE, COIN}))), answer)
    assert [ask.to for ask in asks] == [SHARE, COIN, COIN]


# --- what is believed ---

VAULT = OURS["erc4626"]
HONEST = {(SHARE, ASSET): COIN, (SHARE, TOTAL): lambda raw: raw * 2, (SHARE, PREVIEW): lambda raw: raw * 2 - 1}


def test_a_vault_that_nobody_lists_is_believed_by_who_sent_it_the_asset() -> None:
    met = Encounters(tokens=frozenset({SHARE}), sent=frozenset({COIN}))
    assert supplied(unfolded(protocols(VAULT), met, HONEST, {SHARE: 10})) == [{COIN: 19}]


def test_a_vault_that_was_sent_to_a_wallet_is_not_believed() -> None:
    met = Encounters(tokens=frozenset({SHARE}), sent=frozenset({GOLD}))
    assert supplied(unfolded(protocols(VAULT), met, HONEST, {SHARE: 10**30})) == []


def test_a_vault_that_is_listed_needs_no_deposit() -> None:
    given = protocols(VAULT, vault=SHARE)
    assert supplied(unfolded(given, Encounters(), HONEST, {SHARE: 10})) == [{COIN: 19}]


def test_a_vault_that_will_not_preview_pays_what_its_shares_stand_for() -> None:
    contracts = {key: said for key, said in HONEST.items() if key[1] != PREVIEW}
    assert supplied(unfolded(protocols(VAULT, vault=SHARE), Encounters(), contracts, {SHARE: 10})) == [{COIN: 20}]


def test_a_preview_that_could_not_be_read_is_not_a_refusal() -> None:
    contracts = HONEST | {(SHARE, PREVIEW): Unknown("the node ran out of gas")}
    unfolding = unfolded(protocols(VAULT, vault=SHARE), Encounters(), contracts, {SHARE: 10})
    assert supplied(unfolding) == []
    (issue,) = unfolding.issues
    assert "previewRedeem" in issue.reason
    assert issue.spoils


PAIR = {
    (SHARE, "factory()(address)"): FARM, (SHARE, "token0()(address)"): COIN, (SHARE, "token1()(address)"): GOLD,
    (SHARE, "totalSupply()(uint256)"): 100, (SHARE, "kLast()(uint256)"): 0,
    (SHARE, "getReserves()(uint112,uint112)"): (1_000, 50), (FARM, "feeTo()(address)"): "0x" + "0" * 40,
    (COIN, "balanceOf(address)(uint256)"): 1_001, (GOLD, "balanceOf(address)(uint256)"): 50,
}  # fmt: skip
GENUINE = {(FARM, "getPair(address,address)(address)"): SHARE}


def test_a_pair_is_one_if_its_factory_knows_it() -> None:
    given = protocols(OURS["uniswap_v2"], factory=FARM)
    assert supplied(unfolded(given, Encounters(), PAIR | GENUINE, {SHARE: 10})) == [{COIN: 100, GOLD: 5}]
    fake = unfolded(given, Encounters(), PAIR | {(FARM, "getPair(address,address)(address)"): OTHER}, {SHARE: 10})
    assert (supplied(fake), fake.issues) == ([], [])  # a token that lies is a loose token like any other


def test_a_pair_of_another_factory_is_no_pair() -> None:
    given = protocols(OURS["uniswap_v2"], factory=OTHER)
    assert supplied(unfolded(given, Encounters(), PAIR | GENUINE, {SHARE: 10})) == []


# --- what lies behind shares ---


def test_shares_of_shares_are_unfolded_and_sums_are_made_once() -> None:
    given = Protocols([
        Row("pairs", OURS["uniswap_v2"], {"factory": (FARM,)}, {}),
        Row("vaults", VAULT, {"vault": (OTHER, COIN)}, {}),
    ])  # fmt: skip
    vaults = {
        (vault, call): (GOLD if call == ASSET else lambda raw: raw * 3)
        for vault in (OTHER, COIN)
        for call in (ASSET, TOTAL, PREVIEW)
    }
    assert supplied(unfolded(given, Encounters(), PAIR | GENUINE | vaults, {SHARE: 10})) == [{GOLD: 5 + 300}]


@pytest.mark.parametrize(
    ("inner", "why"), [({SHARE: SHARE}, "leads back to itself"), ({SHARE: OTHER, OTHER: SHARE}, "leads back to itself")]
)
def test_shares_that_go_in_circles_stay_what_they_are_and_are_said(inner: dict[str, str], why: str) -> None:
    contracts = {
        (vault, call): (asset if call == ASSET else lambda raw: raw)
        for vault, asset in inner.items()
        for call in (ASSET, TOTAL, PREVIEW)
    }
    given = Protocols([Row("vaults", VAULT, {"vault": tuple(inner)}, {})])
    unfolding = unfolded(given, Encounters(), contracts, {SHARE: 10})
    assert supplied(unfolding) == []  # the loose token stays
    assert [why in issue.reason for issue in unfolding.issues] == [True]


def test_shares_deeper_than_anybody_builds_are_left_and_said() -> None:
    chain = [f"0x{number:040x}" for number in range(1, 30)]
    contracts = {
        (vault, call): (asset if call == ASSET else lambda raw: raw)
        for vault, asset in pairwise(chain)
        for call in (ASSET, TOTAL, PREVIEW)
    }
    given = Protocols([Row("vaults", VAULT, {"vault": tuple(chain)}, {})])
    unfolding = unfolded(given, Encounters(), contracts, {chain[0]: 10})
    assert ["lie in each other" in issue.reason for issue in unfolding.issues] == [True]
    assert supplied(unfolding) == [{chain[8]: 10}]


# --- decoders that fail ---


def broken(what: str) -> Family:
    def position(met: Met) -> Decoding:
        if what == "raises at once":
            raise KeyError("pending")
        got = yield [Call(met.contract, "read()(uint256)"), Maybe(Call(met.contract, "maybe()(uint256)"))]
        found: dict[str, Any] = {
            "raises later": lambda: 1 // 0,
            "finds garbage": lambda: [Found("STAKED"), "a string"],
            "finds a number": lambda: 7,
            "finds a negative": lambda: Found("STAKED", supplied=(Part(COIN, -1),)),
            "finds a float": lambda: Found("STAKED", supplied=(Part(COIN, 0.5),)),  # type: ignore[arg-type]
            "asks for ever": lambda: None,
            "reads": lambda: Found("STAKED", supplied=(Part(COIN, got[0]),), unknown="" if got[1] else "its rewards"),
        }
        if what == "asks for ever":
            while True:
                yield [Call(met.contract, "read()(uint256)")]
        return found[what]()

    return Family("broken", (Counterparty("farm"),), position=position)


READS = {(FARM, "read()(uint256)"): 5, (FARM, "maybe()(uint256)"): 6}
MET = Encounters(exchanged={FARM: frozenset({COIN})})


@pytest.mark.parametrize(
    "what",
    [
        "raises at once",
        "raises later",
        "finds garbage",
        "finds a number",
        "finds a negative",
        "finds a float",
        "asks for ever",
    ],
)
def test_a_decoder_that_breaks_is_an_issue_and_nothing_is_found(what: str) -> None:
    (outcome,) = read(protocols(broken(what), farm=FARM), MET, READS)
    assert outcome.found == ()
    assert isinstance(outcome.issue, Issue)
    assert (outcome.issue.adapter, outcome.issue.subject, outcome.issue.spoils) == ("ours", FARM, True)
    assert ME in outcome.issue.reason


@pytest.mark.parametrize("said", [Reverted(b"no"), Unknown("out of gas"), Unknown("no contract", by_contract=True)])
def test_a_read_that_gives_nothing_is_never_a_position_of_zero(said: Any) -> None:
    (outcome,) = read(protocols(broken("reads"), farm=FARM), MET, READS | {(FARM, "read()(uint256)"): said})
    assert (outcome.found, outcome.issue is not None) == ((), True)


@pytest.mark.parametrize("said", [Reverted(b"no"), Unknown("no contract", by_contract=True)])
def test_what_a_contract_may_refuse_is_known_to_be_missing(said: Any) -> None:
    found = read(protocols(broken("reads"), farm=FARM), MET, READS | {(FARM, "maybe()(uint256)"): said})
    unfolding = unfolded(protocols(broken("reads"), farm=FARM), MET, {}, {}, found)
    assert supplied(unfolding) == [{COIN: 5}]
    assert [issue.reason for issue in unfolding.issues] == ["not known: its rewards"]


def test_what_may_be_refused_must_still_be_read() -> None:
    failed = {(FARM, "maybe()(uint256)"): Unknown("the node could not finish this read")}
    (outcome,) = read(protocols(broken("reads"), farm=FARM), MET, READS | failed)
    assert outcome.issue is not None


def test_reads_are_written_down_for_whoever_asks_where_a_number_is_from() -> None:
    (outcome,) = read(protocols(broken("reads"), farm=FARM), MET, READS)
    assert [(ask.signature, said) for ask, said in outcome.reads if isinstance(ask, Call)] == [
        ("read()(uint256)", 5), ("maybe()(uint256)", 6),
    ]  # fmt: skip


# --- which rows there are ---


def test_rows_are_of_the_chain_and_of_families_that_are_installed() -> None:
    registry = Registry([
        Protocol("here", "Here", {"local": {"factory": [FARM]}}, families=["uniswap_v2"]),
        Protocol("there", "There", {"other": {"factory": [OTHER]}}, families=["uniswap_v2"]),
        Protocol("missing", "Missing", {"local": {"x": [POOL]}}, families=["nobody has this"]),
        Protocol("everywhere", "Everywhere", {}, families=["erc4626"]),
    ])  # fmt: skip
    assert [(row.protocol, row.family.name) for row in rows("local", registry, OURS)] == [
        ("everywhere", "erc4626"), ("here", "uniswap_v2"),
    ]  # fmt: skip
