"""Recordings: what one account met of some protocols, every call with its answer at one block, and what was found.

A recording names no endpoint and needs none: replayed, the installed decoders are answered from it, and have to find
the same. It is as small as it can be: of what the account met, only what concerned a decoder is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from adapters.evm.kit.exchanges import (
    NOT_RECORDED,
    Exchange,
    Key,
    RecordedResults,
    at_block,
    exchange_of,
    key_of,
    place_of,
    results_of,
)
from adapters.evm.positions.events import MAX_TOPICS, WORD
from adapters.evm.positions.found import Found, FoundPosition
from adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from adapters.evm.positions.matching import Protocols, RuleMatch
from adapters.evm.positions.reader import OneAccount
from adapters.evm.positions.shares import Shares
from adapters.evm.reads import balance_of
from chainfolio.documents import ValidationError, strict
from chainfolio.errors import BadRequest, NotFound, Unavailable
from chainfolio.interactions import contract_of
from chainfolio.plans import Unknown, run_batched, run_known
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.protocols import InstalledProtocol, ProtocolFamily, TokenAmount
from chainfolio.recordings import AGAIN, Amount, At, DescribedProtocol, Failure, Position, Replay, Result, differences

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain

FORMAT: Final = 3  # since 2, what was sent is told by whom it was sent to; since 3, keys have the words of today
PURE: Final = "a decoder goes by nothing but what it is given and answered"


class Contracts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A protocol as its file describes it on the chain of the recording."""

    key: str
    families: tuple[str, ...]
    contracts: dict[str, tuple[str, ...]]
    options: dict[str, str]
    is_fork: bool = False


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log that names the account: in which topic, counted from 1; the topics but the first, and the data, as hex."""

    place: int
    topics: tuple[str, ...]
    data: str

    @property
    def named(self) -> NamedEvent:
        """The same as rules know it; ValueError where it is no log."""
        words = [bytes.fromhex(topic.removeprefix("0x")) for topic in self.topics]
        if len(words) > MAX_TOPICS or any(len(word) != WORD for word in words):
            raise ValueError(f"an event has {MAX_TOPICS} topics of {WORD} bytes at most, besides the first")
        return NamedEvent(self.place, self.topics, bytes.fromhex(self.data.removeprefix("0x")))


class RecordedInteractions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the account met: tokens; tokens of collections; with whom it exchanged which tokens (null: native coins),
    and which it sent to whom; events that name it, by `contract/topic`; `covered` are those that were indexed whole."""

    tokens: tuple[str, ...] = ()
    ids: dict[str, tuple[str, ...]] = {}
    exchanged: dict[str, tuple[str | None, ...]] = {}
    sent: dict[str, tuple[str | None, ...]] = {}
    events: dict[str, tuple[Event, ...]] = {}
    covered: tuple[str, ...] = ()

    @classmethod
    def of(cls, interactions: ContractInteractions) -> RecordedInteractions:
        """The same in a fixed order; events in the order of the chain."""
        return cls(
            tuple(sorted(interactions.tokens)),
            {each: tuple(map(str, sorted(ids))) for each, ids in sorted(interactions.ids.items())},
            {each: _ordered(moved) for each, moved in sorted(interactions.exchanged.items())},
            {each: _ordered(moved) for each, moved in sorted(interactions.sent.items())},
            {
                each: tuple(Event(named.place, named.topics, "0x" + named.data.hex()) for named in several)
                for each, several in sorted(interactions.events.items())
            },
            tuple(sorted(interactions.covered)),
        )

    def interactions(self) -> ContractInteractions:
        """The same as decoders know it; ValueError where it cannot be meant."""
        return ContractInteractions(
            frozenset(self.tokens),
            {each: frozenset(map(int, ids)) for each, ids in self.ids.items()},
            {each: frozenset(moved) for each, moved in self.exchanged.items()},
            {each: frozenset(moved) for each, moved in self.sent.items()},
            {each: tuple(event.named for event in several) for each, several in self.events.items()},
            frozenset(self.covered),
        )


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `plain`: tokens that are known to be no shares and were not asked."""

    format: int
    chain: str
    account: str
    block: At
    protocols: tuple[Contracts, ...]
    interactions: RecordedInteractions
    calls: tuple[Exchange, ...]
    found: Result
    plain: tuple[str, ...] = ()


async def record(
    chain: Chain,
    block: Block,
    account: str,
    interactions: ContractInteractions,
    rows: Sequence[InstalledProtocol],
    plain: frozenset[str],
) -> Recording:
    """Run decoders on a node. NotFound where the account met nothing of these protocols; Unavailable where a read
    failed that one of them needs; BadRequest where one asks for what cannot be asked; the errors of nodes."""
    results, time_s = dict[Key, Any](), block.time_us // 1_000_000

    async def answer(asked: list[Any]) -> Sequence[Any]:
        reads = [at_block(read) for read in asked]
        keys = [key_of(read) for read in reads]
        answers = await chain.answer(reads, block)
        results.update(zip(keys, answers, strict=True))
        return answers

    shares = Shares(Protocols(rows, plain))
    plan = OneAccount(shares, account, interactions, time_s).read_all(sorted(interactions.tokens))
    reports = await run_batched({"": plan}, answer, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
    if (error := reports[""].error) is not None:
        raise error
    concerned, used = _concerned(shares, account, interactions, results)
    if not used:
        raise NotFound(
            f"{account} met none of these protocols on {chain.key} by block {block.height}",
            remedy=f"chainfolio index {chain.key}, or name what it met: --met CONTRACT, --met COLLECTION/NUMBER",
        )
    # Once more, from these results, and with nothing but what matters: what is asked for now is what is kept.
    kept, own = RecordedResults(results), [row for row in rows if row.protocol in used]
    again = _read(own, plain, account, concerned, time_s, kept)
    if kept.missing or again.positions != _positions(reports[""].result):
        reason = "; ".join(kept.missing) or "something else is found"
        raise BadRequest("decoder", f"asked the same again, it does otherwise: {reason}", remedy=PURE)
    calls = tuple(sorted((exchange_of(each, results[key]) for key, each in kept.made.items()), key=place_of))
    for call in calls:
        if call.cause == "read":
            what = f"{call.function.partition('(')[0] or 'the balance'} of {call.to}"
            raise Unavailable(chain.key, f"nothing was recorded, for {what} could not be read: {call.unknown}")
    at, plainly = At(block.height, block.hash, time_s), tuple(sorted(plain))
    return Recording(
        FORMAT, chain.key, account, at, _described(own), RecordedInteractions.of(concerned), calls, again, plainly
    )


def read(path: Path) -> Recording:
    """The recording in a file; BadRequest where it is none, or one of another format."""
    try:
        recording = strict(path.read_bytes(), Recording)
        results_of(recording.calls)
        recording.interactions.interactions()
    except (ValidationError, ValueError, AssertionError) as error:
        raise BadRequest(path.name, f"this is no recording: {error}", remedy=AGAIN) from None
    if recording.format != FORMAT:
        raise BadRequest(path.name, f"format {recording.format} is not {FORMAT}", remedy=AGAIN)
    return recording


def text(recording: Recording) -> bytes:
    """The file of a recording: equal for equal recordings."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"


def save(path: Path, recording: Recording) -> None:
    """Write a recording, in place of what is there; never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.write_bytes(text(recording))
    draft.replace(path)


def updated(recording: Recording, found: Result) -> Recording:
    """The recording, as one of which this has to be found."""
    return msgspec.structs.replace(recording, found=found)


def replay(
    file: str,
    recording: Recording,
    protocols: Iterable[DescribedProtocol],
    families: Mapping[str, ProtocolFamily],
) -> Replay:
    """Run the installed decoders on a recording, with the protocols' files of this installation.

    A protocol that has no file for the chain here is read as its file was when it was recorded.
    """
    own, described = list[InstalledProtocol](), list(protocols)
    for each in recording.protocols:
        now = _installed(each, recording.chain, described)
        lacking = [name for name in now.families if name not in families]
        if lacking:
            return Replay(file, "unplayable", reason=f"no protocol family `{lacking[0]}` is installed")
        own += [
            InstalledProtocol(now.key, families[name], now.contracts, now.options, now.is_fork) for name in now.families
        ]
    kept, plain = results_of(recording.calls), frozenset(recording.plain)
    now_found = _read(own, plain, recording.account, recording.interactions.interactions(), recording.block.time, kept)
    if kept.missing:
        return Replay(file, "unplayable", missing=kept.missing, found=now_found)
    lines = differences(recording.found, now_found)
    return Replay(file, "differs" if lines else "same", lines, found=now_found)


def _installed(was: Contracts, chain: str, described: Sequence[DescribedProtocol]) -> Contracts:
    """A protocol as its file here describes it; as it was recorded, where there is none with contracts on the chain."""
    for each in described:
        if each.key == was.key and each.families and (each.contracts.get(chain) or not each.contracts):
            roles = {role: tuple(addresses) for role, addresses in each.contracts.get(chain, {}).items()}
            return Contracts(each.key, tuple(each.families), roles, dict(each.options), each.is_fork)
    return was


def _read(
    rows: Sequence[InstalledProtocol],
    plain: frozenset[str],
    account: str,
    interactions: ContractInteractions,
    time_s: int,
    kept: RecordedResults,
) -> Result:
    read_all = run_known(
        OneAccount(Shares(Protocols(rows, plain)), account, interactions, time_s).read_all(sorted(interactions.tokens)),
        kept.answer,
    )
    issues = [Failure(each.adapter, each.subject, each.reason) for each in read_all.issues]
    return Result(_positions(read_all), tuple(sorted(set(issues), key=msgspec.json.encode)))


def _concerned(
    shares: Shares, account: str, interactions: ContractInteractions, results: Mapping[Key, Any]
) -> tuple[ContractInteractions, set[str]]:
    """Of what the account met, what concerned a decoder; and the protocols that were read."""
    contracts = list(shares.protocols.by_contract(account, interactions))
    contracts += shares.by_collection(account, interactions)
    tokens = list(shares.by_token(account, interactions.tokens, interactions.sent))
    for token in sorted(interactions.tokens):
        share = shares.share(account, token, interactions.sent)
        held = results.get(key_of(balance_of(token, account)))
        if share is not None and isinstance(held, int) and held:
            tokens.append(share)
    tokens += _led(shares, account, interactions)
    if not contracts and not tokens:
        return ContractInteractions(), set()
    behind = {key[0] for key in results} - interactions.tokens
    inner = [share for token in sorted(behind) if (share := shares.share(account, token, interactions.sent))]
    places = {each.match.contract for each in contracts}
    unfolded = {each.match.contract for each in (*tokens, *inner)}
    concerned = ContractInteractions(
        frozenset(token for each in tokens for token in each.match.tokens),
        {each: interactions.ids[each] for each in places & interactions.ids.keys()},
        {each: interactions.exchanged[each] for each in places & interactions.exchanged.keys()},
        {each: interactions.sent[each] for each in (places | unfolded) & interactions.sent.keys()},
        {each: named for each, named in interactions.events.items() if contract_of(each) in places},
        frozenset(each for each in interactions.covered if contract_of(each) in places),
    )
    return concerned, {each.row.protocol for each in (*contracts, *tokens, *inner)}


def _led(shares: Shares, account: str, interactions: ContractInteractions) -> Iterator[RuleMatch]:
    """The meetings by tokens of contracts to which those of files lead, where that was asked."""
    for third_party in shares.third_parties(account, interactions.tokens, interactions.sent):
        row = run_known(shares.whose(third_party), lambda read: Unknown(NOT_RECORDED, "absent"))
        if row is not None:
            yield replace(third_party, row=row)


def _described(rows: Sequence[InstalledProtocol]) -> tuple[Contracts, ...]:
    keys = dict.fromkeys(row.protocol for row in rows)
    own = {key: [row for row in rows if row.protocol == key] for key in sorted(keys)}
    return tuple(
        Contracts(key, tuple(row.family.name for row in of), dict(of[0].contracts), dict(of[0].options), of[0].is_fork)
        for key, of in own.items()
    )


def _positions(read_all: Found | None) -> tuple[Position, ...]:
    positions = () if read_all is None else read_all.positions
    return tuple(sorted((_position(each) for each in positions), key=msgspec.json.encode))


def _position(each: FoundPosition) -> Position:
    decoded = each.found
    supplied, borrowed, rewards = _amounts(each.behind.parts.items()), _parts(decoded.borrowed), _parts(decoded.rewards)
    health = "" if decoded.health is None else f"{decoded.health:f}"
    return Position(
        each.protocol, decoded.position_type, decoded.name, decoded.pool, decoded.vault, supplied, borrowed, rewards,
        health, decoded.unlock_s, tuple(sorted(decoded.replaces)), decoded.unknown, decoded.unverified,
    )  # fmt: skip


def _parts(parts: Iterable[TokenAmount]) -> tuple[Amount, ...]:
    total: Counter[str] = Counter()
    for part in parts:
        total[part.token] += part.raw
    return _amounts(total.items())


def _amounts(raws: Iterable[tuple[str, int]]) -> tuple[Amount, ...]:
    return tuple(Amount(token, str(raw)) for token, raw in sorted(raws) if raw)


def _ordered(tokens: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(sorted(tokens, key=lambda token: token or ""))
