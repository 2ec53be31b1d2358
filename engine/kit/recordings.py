"""Recordings: what one account met of some protocols, every call with its answer at one block, and what was found.

A recording names no endpoint and needs none: replayed, the installed decoders are answered from it, and have to find
the same. It is as small as it can be: of what the account met, only what concerned a decoder is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from adapters.evm.call import decode, encode, encode_answer
from adapters.evm.positions.events import MAX_TOPICS, WORD
from adapters.evm.positions.found import Found, FoundPosition
from adapters.evm.positions.interactions import ContractInteractions
from adapters.evm.positions.matching import Protocols, RuleMatch
from adapters.evm.positions.reader import OneAccount
from adapters.evm.positions.shares import Shares
from chainfolio.assets import evm
from chainfolio.calls import Call, NativeBalance, Read, balance_of
from chainfolio.documents import ValidationError, strict
from chainfolio.errors import BadRequest, NotFound, Unavailable
from chainfolio.interactions import Interactions, NamedEvent, contract_of
from chainfolio.plans import Reverted, Unknown, run_batched, run_known
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.protocols import InstalledProtocol, ProtocolFamily, TokenAmount

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain
    from indexer.registry import Registry

FORMAT: Final = 3  # since 2, what was sent is told by whom it was sent to; since 3, keys have the words of today
NOT_RECORDED: Final = "it was not recorded"
AGAIN: Final = "record it again: chainfolio record ADDRESS --chain CHAIN --to FILE.json"
PURE: Final = "a decoder goes by nothing but what it is given and answered"
Key = tuple[str, ...]  # of a read: an account, or a contract, a function and its call data


class Amount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`raw` units of a token, as decimal text."""

    token: str
    raw: str


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A position with what lies behind its shares, in the units of contracts; `unlock` in Unix seconds."""

    protocol: str
    kind: str
    name: str = ""
    pool: str = ""
    vault: str = ""
    supplied: tuple[Amount, ...] = ()
    borrowed: tuple[Amount, ...] = ()
    rewards: tuple[Amount, ...] = ()
    health: str = ""
    unlock: int = 0
    replaces: tuple[str, ...] = ()
    unknown: str = ""
    unverified: str = ""


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a decoder could not say, about what, and why."""

    protocol: str
    subject: str
    reason: str


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decoders found."""

    positions: tuple[Position, ...] = ()
    issues: tuple[Failure, ...] = ()


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One read and its answer: return data (`gives`), revert data (`refuses`) or why there is neither (`unknown`).

    `gives` has the words of the outputs that `function` names; of an account's native coins, the number of units.
    """

    to: str
    function: str = ""
    data: str = ""
    gives: str | None = None
    refuses: str | None = None
    unknown: str | None = None
    cause: str = ""


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
        """The same as decoders' rules are told; ValueError where it is no log."""
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
            {each: tuple(map(str, sorted(found))) for each, found in sorted(interactions.ids.items())},
            {each: _ordered(moved) for each, moved in sorted(interactions.exchanged.items())},
            {each: _ordered(moved) for each, moved in sorted(interactions.sent.items())},
            {
                each: tuple(Event(named.place, named.topics, "0x" + named.data.hex()) for named in several)
                for each, several in sorted(interactions.events.items())
            },
            tuple(sorted(interactions.covered)),
        )

    def interactions(self) -> ContractInteractions:
        """What decoders are told; ValueError where it cannot be meant."""
        return ContractInteractions(
            frozenset(self.tokens),
            {each: frozenset(map(int, found)) for each, found in self.ids.items()},
            {each: frozenset(moved) for each, moved in self.exchanged.items()},
            {each: frozenset(moved) for each, moved in self.sent.items()},
            {each: tuple(event.named for event in several) for each, several in self.events.items()},
            frozenset(self.covered),
        )


class At(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The block that everything was read at; `time` in Unix seconds."""

    height: int
    hash: str
    time: int


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


class Replay(msgspec.Struct, frozen=True):
    """How a recording ended: `same`, `differs`, or `unplayable` for calls that were `missing` or a reason."""

    file: str
    status: Literal["same", "differs", "updated", "unplayable"]
    differences: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""
    found: Result = Result()

    @property
    def told(self) -> str:
        """All of it as text, a line each."""
        lines = [f"not recorded: {each}" for each in self.missing] or list(self.differences)
        return "\n".join([*([self.reason] if self.reason else []), *lines])


@dataclass(slots=True)
class _Said:
    """Answers by read, and which of them were asked for."""

    answers: dict[Key, Any] = field(default_factory=dict)
    asked: dict[Key, Read] = field(default_factory=dict)
    unaskable: list[str] = field(default_factory=list)

    def answer(self, ask: Read) -> Any:
        """What is known; nothing where it is not."""
        try:
            key = _key(ask)
        except BadRequest as error:
            self.unaskable.append(error.reason)
            return Unknown(error.reason)
        self.asked[key] = ask
        return self.answers.get(key, Unknown(NOT_RECORDED))

    @property
    def missing(self) -> tuple[str, ...]:
        """The reads that were asked for and are not known."""
        lost = [_worded(ask) for key, ask in self.asked.items() if key not in self.answers]
        return tuple(sorted({*lost, *self.unaskable}))


def named_interactions(written: list[str]) -> ContractInteractions:
    """What was named: each contract as a token that was met and sent to each of them, and as one with which tokens were
    exchanged."""
    contracts, ids = set(), dict[str, frozenset[int]]()
    for each in written:
        contract, numbered, number = each.partition("/")
        address = evm(contract)
        if not numbered:
            contracts.add(address)
        elif number.isascii() and number.isdigit():
            ids[address] = ids.get(address, frozenset()) | {int(number)}
        else:
            raise BadRequest("met", f"{each!r} is not CONTRACT or CONTRACT/NUMBER")
    interactions = frozenset(contracts)
    return ContractInteractions(
        interactions,
        ids,
        dict.fromkeys(contracts, frozenset()),
        dict.fromkeys(contracts, frozenset[str | None](interactions)),
    )


def by_contract(interactions: Interactions) -> ContractInteractions:
    """What an account met, as decoders know it."""
    return ContractInteractions.of(interactions)


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
    said, time_s = _Said(), block.time_us // 1_000_000

    async def answer(reads: list[Read]) -> Sequence[Any]:
        keys = [_key(ask) for ask in reads]
        given = await chain.answer(reads, block)
        said.answers |= zip(keys, given, strict=True)
        return given

    shares = Shares(Protocols(rows, plain))
    plan = OneAccount(shares, account, interactions, time_s).read_all(sorted(interactions.tokens))
    reports = await run_batched({"": plan}, answer, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
    if (error := reports[""].error) is not None:
        raise error
    concerned, used = _concerned(shares, account, interactions, said.answers)
    if not used:
        raise NotFound(
            f"{account} met none of these protocols on {chain.key} by block {block.height}",
            remedy=f"chainfolio index {chain.key}, or name what it met: --met CONTRACT, --met COLLECTION/NUMBER",
        )
    # Once more, from what was said, and with nothing but what matters: what is asked for now is what is kept.
    kept, own = _Said(said.answers), [row for row in rows if row.protocol in used]
    found = _read(own, plain, account, concerned, time_s, kept)
    if kept.missing or found.positions != _positions(reports[""].result):
        told = "; ".join(kept.missing) or "something else is found"
        raise BadRequest("decoder", f"asked the same again, it does otherwise: {told}", remedy=PURE)
    calls = tuple(sorted((_exchange(ask, kept.answers[key]) for key, ask in kept.asked.items()), key=_order))
    for call in calls:
        if call.cause == "read":
            what = f"{call.function.partition('(')[0] or 'the balance'} of {call.to}"
            raise Unavailable(chain.key, f"nothing was recorded, for {what} could not be read: {call.unknown}")
    at, plainly = At(block.height, block.hash, time_s), tuple(sorted(plain))
    return Recording(
        FORMAT, chain.key, account, at, _described(own), RecordedInteractions.of(concerned), calls, found, plainly
    )


def read(path: Path) -> Recording:
    """The recording in a file; BadRequest where it is none, or one of another format."""
    try:
        recording = strict(path.read_bytes(), Recording)
        _said(recording)
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


def replay(file: str, recording: Recording, registry: Registry, families: Mapping[str, ProtocolFamily]) -> Replay:
    """Run the installed decoders on a recording, with the protocols' files of this installation.

    A protocol that has no file for the chain here is read as its file was when it was recorded.
    """
    own = []
    for each in recording.protocols:
        now = _installed(each, recording.chain, registry)
        lacking = [name for name in now.families if name not in families]
        if lacking:
            return Replay(file, "unplayable", reason=f"no protocol family `{lacking[0]}` is installed")
        own += [
            InstalledProtocol(now.key, families[name], now.contracts, now.options, now.is_fork) for name in now.families
        ]
    said, plain = _said(recording), frozenset(recording.plain)
    found = _read(own, plain, recording.account, recording.interactions.interactions(), recording.block.time, said)
    if said.missing:
        return Replay(file, "unplayable", missing=said.missing, found=found)
    told = differences(recording.found, found)
    return Replay(file, "differs" if told else "same", told, found=found)


def _installed(was: Contracts, chain: str, registry: Registry) -> Contracts:
    """A protocol as its file here describes it; as it was recorded, where there is none with contracts on the chain."""
    for each in registry.protocols:
        if each.key == was.key and each.families and (each.contracts.get(chain) or not each.contracts):
            roles = {role: tuple(addresses) for role, addresses in each.contracts.get(chain, {}).items()}
            return Contracts(each.key, tuple(each.families), roles, dict(each.options), each.is_fork)
    return was


def differences(was: Result, now: Result) -> tuple[str, ...]:
    """What is no longer found as it was, a line each."""
    before, after = _facts(was), _facts(now)
    lines = []
    for key in sorted({*before, *after}):
        if key not in after:
            lines.append(f"no longer found: {key} {before[key]}".rstrip())
        elif key not in before:
            lines.append(f"newly found: {key} {after[key]}".rstrip())
        elif before[key] != after[key]:
            lines.append(f"{key}: {after[key]}, recorded {before[key]}")
    return tuple(lines)


def _facts(result: Result) -> dict[str, str]:
    """All that was found, a fact a line; equal positions are counted."""
    facts: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for each in result.positions:
        name = " ".join(filter(None, (each.protocol, each.kind, each.name, each.pool, each.vault)))
        seen[name] += 1
        name = f"{name} #{seen[name]}" if seen[name] > 1 else name
        facts[name] = ""
        for side in ("supplied", "borrowed", "rewards"):
            facts |= {f"{name}: {side} {part.token}": part.raw for part in getattr(each, side)}
        rest = {"health": each.health, "unlock": str(each.unlock or "")}
        rest |= {"unknown": each.unknown, "unverified": each.unverified}
        facts |= {f"{name}: {what}": value for what, value in rest.items() if value}
        facts |= {f"{name}: instead of {token}": "" for token in each.replaces}
    for failure in result.issues:
        facts[f"{failure.protocol} issue of {failure.subject}: {failure.reason}"] = ""
    return facts


def _read(
    rows: Sequence[InstalledProtocol],
    plain: frozenset[str],
    account: str,
    interactions: ContractInteractions,
    time_s: int,
    said: _Said,
) -> Result:
    read_all = run_known(
        OneAccount(Shares(Protocols(rows, plain)), account, interactions, time_s).read_all(sorted(interactions.tokens)),
        said.answer,
    )
    issues = [Failure(each.adapter, each.subject, each.reason) for each in read_all.issues]
    return Result(_positions(read_all), tuple(sorted(set(issues), key=msgspec.json.encode)))


def _concerned(
    shares: Shares, account: str, interactions: ContractInteractions, answers: Mapping[Key, Any]
) -> tuple[ContractInteractions, set[str]]:
    """Of what the account met, what concerned a decoder; and the protocols that were read."""
    contracts = list(shares.protocols.by_contract(account, interactions))
    contracts += shares.by_collection(account, interactions)
    tokens = list(shares.by_token(account, interactions.tokens, interactions.sent))
    for token in sorted(interactions.tokens):
        share = shares.share(account, token, interactions.sent)
        held = answers.get(_key(balance_of(token, account)))
        if share is not None and isinstance(held, int) and held:
            tokens.append(share)
    tokens += _led(shares, account, interactions)
    if not contracts and not tokens:
        return ContractInteractions(), set()
    behind = {key[0] for key in answers} - interactions.tokens
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
    for stranger in shares.strangers(account, interactions.tokens, interactions.sent):
        row = run_known(shares.whose(stranger), lambda ask: Unknown(NOT_RECORDED, "absent"))
        if row is not None:
            yield replace(stranger, row=row)


def _described(rows: Sequence[InstalledProtocol]) -> tuple[Contracts, ...]:
    keys = dict.fromkeys(row.protocol for row in rows)
    own = {key: [row for row in rows if row.protocol == key] for key in sorted(keys)}
    return tuple(
        Contracts(key, tuple(row.family.name for row in of), dict(of[0].contracts), dict(of[0].options), of[0].is_fork)
        for key, of in own.items()
    )


def _positions(read_all: Found | None) -> tuple[Position, ...]:
    found = () if read_all is None else read_all.positions
    return tuple(sorted((_position(each) for each in found), key=msgspec.json.encode))


def _position(each: FoundPosition) -> Position:
    found = each.found
    supplied, borrowed, rewards = _amounts(each.behind.parts.items()), _parts(found.borrowed), _parts(found.rewards)
    health = "" if found.health is None else f"{found.health:f}"
    return Position(
        each.protocol, found.position_type, found.name, found.pool, found.vault, supplied, borrowed, rewards, health,
        found.unlock_s, tuple(sorted(found.replaces)), found.unknown, found.unverified,
    )  # fmt: skip


def _parts(parts: Iterable[TokenAmount]) -> tuple[Amount, ...]:
    total: Counter[str] = Counter()
    for part in parts:
        total[part.token] += part.raw
    return _amounts(total.items())


def _amounts(raws: Iterable[tuple[str, int]]) -> tuple[Amount, ...]:
    return tuple(Amount(token, str(raw)) for token, raw in sorted(raws) if raw)


def _key(ask: Read) -> Key:
    if isinstance(ask, NativeBalance):
        return (ask.account,)
    try:
        return ask.to, ask.signature, "0x" + encode(ask.signature, ask.args).hex()
    except Exception as error:  # a third-party decoder may ask for anything
        said = f"{_worded(ask)} cannot be asked: {type(error).__name__}: {error}"
        raise BadRequest("decoder", said, remedy="correct the signature or the arguments in the decoder") from None


def _worded(ask: Read) -> str:
    if isinstance(ask, NativeBalance):
        return f"the balance of {ask.account}"
    return f"{ask.signature} of {ask.to} with ({', '.join(map(str, ask.args))})"


def _exchange(ask: Read, answer: Any) -> Exchange:
    to, function, data = (*_key(ask), "", "")[:3]
    if isinstance(answer, Reverted):
        return Exchange(to, function, data, refuses="0x" + answer.data.hex())
    if isinstance(answer, Unknown):
        return Exchange(to, function, data, unknown=answer.reason, cause=answer.cause)
    if isinstance(ask, NativeBalance):
        return Exchange(to, gives=str(answer))
    return Exchange(to, function, data, gives="0x" + encode_answer(function, answer).hex())


def _said(recording: Recording) -> _Said:
    """The answers of a recording; ValueError where one cannot be meant."""
    answers: dict[Key, Any] = {}
    for each in recording.calls:
        key = (each.to, each.function, each.data) if each.function else (each.to,)
        if sum(given is not None for given in (each.gives, each.refuses, each.unknown)) != 1:
            raise ValueError(f"{each.function} of {each.to} has not one answer")
        answers[key] = _answer(each)
    return _Said(answers)


def _answer(each: Exchange) -> Any:
    if each.refuses is not None:
        return Reverted(bytes.fromhex(each.refuses.removeprefix("0x")))
    if each.unknown is not None:
        if each.cause not in ("absent", "contract"):
            raise ValueError(f"`{each.cause}` is no cause of an answer")
        return Unknown(each.unknown, "absent" if each.cause == "absent" else "contract")
    assert each.gives is not None
    if not each.function:
        return int(each.gives)
    return decode(Call(each.to, each.function), bytes.fromhex(each.gives.removeprefix("0x")))


def _order(each: Exchange) -> tuple[str, str, str]:
    return each.to, each.function, each.data


def _ordered(tokens: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(sorted(tokens, key=lambda token: token or ""))
