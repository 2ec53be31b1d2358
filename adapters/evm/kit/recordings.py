"""Recordings of decoders: interactions of an account, calls and answers at one block, and positions.

A recording needs no endpoint: in a replay it answers the installed decoders, which must return the same positions. Of
the account's interactions, it has only those that concern a decoder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from chainfolio.adapters.evm.kit.exchanges import (
    NOT_RECORDED,
    Exchange,
    Key,
    ReadResult,
    RecordedResults,
    at_block,
    exchange_of,
    key_of,
    results_of,
    sort_key,
)
from chainfolio.adapters.evm.positions.events import MAX_TOPICS, WORD
from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols, RuleMatch
from chainfolio.adapters.evm.positions.reader import SingleAccountReader
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents, UnfoldedPosition
from chainfolio.adapters.evm.reads import balance_of
from chainfolio.documents import ValidationError, strict
from chainfolio.errors import BadRequest, NotFound, Unavailable
from chainfolio.interactions import contract_of
from chainfolio.plans import Plan, Unknown, run_batched, run_offline
from chainfolio.positions import MAX_READS, MAX_ROUNDS
from chainfolio.protocols import InstalledProtocol, ProtocolFamily, TokenAmount
from chainfolio.reads import Read as ChainRead
from chainfolio.recordings import (
    AGAIN,
    Amount,
    DescribedProtocol,
    Failure,
    Position,
    RecordedBlock,
    Replay,
    Result,
    differences,
)

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain

FORMAT: Final = 3  # since 2, transfers are listed by recipient; since 3, keys have their present names
IMPURE_DECODER: Final = "a decoder goes by nothing but what it is given and answered"


class Contracts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The description of a protocol on the chain of the recording."""

    key: str
    families: tuple[str, ...]
    contracts: dict[str, tuple[str, ...]]
    options: dict[str, str]
    is_fork: bool = False


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A log that names the account.

    `place` is the topic that names it, from 1; `topics` are the topics without the event, and `data` the data, as hex.
    """

    place: int
    topics: tuple[str, ...]
    data: str

    @property
    def named_event(self) -> NamedEvent:
        """The event in the form that rules use.

        Raises:
            ValueError: The topics or the data are not those of a log.
        """
        topics = [bytes.fromhex(topic.removeprefix("0x")) for topic in self.topics]
        if len(topics) > MAX_TOPICS or any(len(topic) != WORD for topic in topics):
            raise ValueError(f"an event has {MAX_TOPICS} topics of {WORD} bytes at most, besides the first")
        return NamedEvent(self.place, self.topics, bytes.fromhex(self.data.removeprefix("0x")))


class RecordedInteractions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The account's interactions.

    Attributes:
        tokens: Fungible tokens.
        ids: Ids of tokens by collection.
        exchanged: Tokens exchanged with each contract; null stands for native coins.
        sent: Tokens sent to each contract; null stands for native coins.
        events: Events that name the account, by `contract/topic`.
        covered: The events that were indexed completely.
    """

    tokens: tuple[str, ...] = ()
    ids: dict[str, tuple[str, ...]] = {}
    exchanged: dict[str, tuple[str | None, ...]] = {}
    sent: dict[str, tuple[str | None, ...]] = {}
    events: dict[str, tuple[Event, ...]] = {}
    covered: tuple[str, ...] = ()

    @classmethod
    def of(cls, interactions: ContractInteractions) -> RecordedInteractions:
        """Return interactions in recorded form, sorted; events stay in the order of the chain."""
        return cls(
            tuple(sorted(interactions.tokens)),
            {each: tuple(map(str, sorted(ids))) for each, ids in sorted(interactions.ids.items())},
            {each: _sort_tokens(tokens) for each, tokens in sorted(interactions.exchanged.items())},
            {each: _sort_tokens(tokens) for each, tokens in sorted(interactions.sent.items())},
            {
                each: tuple(Event(event.place, event.topics, "0x" + event.data.hex()) for event in events)
                for each, events in sorted(interactions.events.items())
            },
            tuple(sorted(interactions.covered)),
        )

    def interactions(self) -> ContractInteractions:
        """Return the interactions in the form that decoders use.

        Raises:
            ValueError: An id or an event is malformed.
        """
        return ContractInteractions(
            frozenset(self.tokens),
            {each: frozenset(map(int, ids)) for each, ids in self.ids.items()},
            {each: frozenset(tokens) for each, tokens in self.exchanged.items()},
            {each: frozenset(tokens) for each, tokens in self.sent.items()},
            {each: tuple(event.named_event for event in events) for each, events in self.events.items()},
            frozenset(self.covered),
        )


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a recording. `plain` are tokens that are known to be no shares, and were not asked."""

    format: int
    chain: str
    account: str
    block: RecordedBlock
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
    """Run decoders on a node and record their reads and positions.

    Args:
        chain: The chain to read.
        block: The block of all reads.
        account: The account in lower case.
        interactions: All interactions of the account.
        rows: The protocols to read.
        plain: Tokens that are known to be no shares.

    Raises:
        NotFound: The account has no interactions with these protocols.
        Unavailable: A read failed that a decoder needs.
        BadRequest: A decoder requests an impossible read, or behaves differently when it runs again.
        SourceError: No endpoint answers.
    """
    time_s = block.time_us // 1_000_000
    rows = [replace(row, family=replace(row.family, is_proven=True)) for row in rows]  # to be compared and then proven
    shares = Shares(Protocols(rows, plain))
    plan = SingleAccountReader(shares, account, interactions, time_s).read_all(sorted(interactions.tokens))
    results, contents = await _run(plan, chain, block)
    concerned, used = _relevant_interactions(shares, account, interactions, results)
    if not used:
        raise NotFound(
            f"{account} met none of these protocols on {chain.key} by block {block.height}",
            remedy=f"chainfolio index {chain.key}, or name what it met: --met CONTRACT, --met COLLECTION/NUMBER",
        )
    # Run again from these results with the relevant interactions only: the reads of this run are recorded.
    recorded, relevant_rows = RecordedResults(results), [row for row in rows if row.protocol in used]
    result = _read(relevant_rows, plain, account, concerned, time_s, recorded)
    if recorded.missing or result.positions != _positions(contents):
        reason = "; ".join(recorded.missing) or "something else is found"
        raise BadRequest("decoder", f"asked the same again, it does otherwise: {reason}", remedy=IMPURE_DECODER)
    return Recording(
        FORMAT,
        chain.key,
        account,
        RecordedBlock(block.height, block.hash, time_s),
        _contracts_of(relevant_rows),
        RecordedInteractions.of(concerned),
        _exchanges(chain.key, recorded, results),
        result,
        tuple(sorted(plain)),
    )


async def _run(
    plan: Plan[AccountContents], chain: Chain, block: Block
) -> tuple[dict[Key, ReadResult], AccountContents]:
    """Run a plan at a block; return the results of its reads, and its own result. Raises the plan's error."""
    results = dict[Key, ReadResult]()

    async def answer(requests: list[ChainRead[object]]) -> Sequence[ReadResult]:
        reads = [at_block(request) for request in requests]
        keys = [key_of(read) for read in reads]
        answers = await chain.answer(reads, block)
        results.update(zip(keys, answers, strict=True))
        return answers

    report = (await run_batched({"": plan}, answer, max_rounds=MAX_ROUNDS, max_reads=MAX_READS))[""]
    if report.error is not None:
        raise report.error
    assert report.result is not None, "a plan without an error has a result"
    return results, report.result


def _exchanges(chain: str, recorded: RecordedResults, results: Mapping[Key, ReadResult]) -> tuple[Exchange, ...]:
    """Return the requested reads with their results, in the order of the file.

    Raises:
        Unavailable: One of them failed.
    """
    exchanges = (exchange_of(read, results[key]) for key, read in recorded.requested.items())
    calls = tuple(sorted(exchanges, key=sort_key))
    for call in calls:
        if call.cause == "read":
            subject = f"{call.function.partition('(')[0] or 'the balance'} of {call.to}"
            raise Unavailable(chain, f"nothing was recorded, for {subject} could not be read: {call.unknown}")
    return calls


def read(path: Path) -> Recording:
    """Read a recording from a file.

    Raises:
        BadRequest: The file is no recording, or has another format version.
    """
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
    """Return the content of a recording's file; equal for equal recordings."""
    return msgspec.json.format(msgspec.json.encode(recording), indent=1) + b"\n"


def save(path: Path, recording: Recording) -> None:
    """Write a recording to a file, atomically; an existing file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.write_bytes(text(recording))
    draft.replace(path)


def updated(recording: Recording, found: Result) -> Recording:
    """Return the recording with another expected result."""
    return msgspec.structs.replace(recording, found=found)


def replay(
    file: str,
    recording: Recording,
    protocols: Iterable[DescribedProtocol],
    families: Mapping[str, ProtocolFamily],
) -> Replay:
    """Run the installed decoders on a recording and compare their positions.

    A protocol that this installation does not describe for the chain is read as it was recorded. `unplayable` is the
    status if a family is not installed, or a decoder needs a read that was not recorded.
    """
    rows, described = list[InstalledProtocol](), list(protocols)
    for each in recording.protocols:
        protocol = _installed_contracts(each, recording.chain, described)
        missing = [name for name in protocol.families if name not in families]
        if missing:
            return Replay(file, "unplayable", reason=f"no protocol family `{missing[0]}` is installed")
        rows += [
            InstalledProtocol(
                protocol.key,
                replace(families[name], is_proven=True),
                protocol.contracts,
                protocol.options,
                protocol.is_fork,
            )
            for name in protocol.families
        ]
    results, interactions = results_of(recording.calls), recording.interactions.interactions()
    result = _read(rows, frozenset(recording.plain), recording.account, interactions, recording.block.time, results)
    if results.missing:
        return Replay(file, "unplayable", missing=results.missing, result=result)
    lines = differences(recording.found, result)
    return Replay(file, "differs" if lines else "same", lines, result=result)


def _installed_contracts(recorded: Contracts, chain: str, described: Sequence[DescribedProtocol]) -> Contracts:
    """Return a protocol as this installation describes it for the chain, or else as it was recorded."""
    for each in described:
        if each.key == recorded.key and each.families and (each.contracts.get(chain) or not each.contracts):
            roles = {role: tuple(addresses) for role, addresses in each.contracts.get(chain, {}).items()}
            return Contracts(each.key, tuple(each.families), roles, dict(each.options), each.is_fork)
    return recorded


def _read(
    rows: Sequence[InstalledProtocol],
    plain: frozenset[str],
    account: str,
    interactions: ContractInteractions,
    time_s: int,
    results: RecordedResults,
) -> Result:
    """Decode positions and issues from recorded results only.

    A read that was not recorded is Unknown, and is added to `results.missing`.
    """
    read_all = run_offline(
        SingleAccountReader(Shares(Protocols(rows, plain)), account, interactions, time_s).read_all(
            sorted(interactions.tokens)
        ),
        results.answer,
    )
    issues = [Failure(each.adapter, each.subject, each.reason) for each in read_all.issues]
    return Result(_positions(read_all), tuple(sorted(set(issues), key=msgspec.json.encode)))


def _relevant_interactions(
    shares: Shares, account: str, interactions: ContractInteractions, results: Mapping[Key, ReadResult]
) -> tuple[ContractInteractions, set[str]]:
    """Return the interactions that concern a decoder, and the keys of the protocols that match.

    Both are empty if no contract and no token with a position or a balance matches.
    """
    contracts = list(shares.protocols.by_contract(account, interactions))
    contracts += shares.by_collection(account, interactions)
    tokens = list(shares.by_token(account, interactions.tokens, interactions.sent))
    for token in sorted(interactions.tokens):
        share = shares.share(account, token, interactions.sent)
        balance = results.get(key_of(balance_of(token, account)))
        if share is not None and isinstance(balance, int) and balance:
            tokens.append(share)
    tokens += _third_party_matches(shares, account, interactions)
    if not contracts and not tokens:
        return ContractInteractions(), set()
    other_contracts = {key[0] for key in results} - interactions.tokens
    inner = [share for token in sorted(other_contracts) if (share := shares.share(account, token, interactions.sent))]
    protocol_contracts = {each.match.contract for each in contracts}
    shares_read = {each.match.contract for each in (*tokens, *inner)}
    concerned = ContractInteractions(
        frozenset(token for each in tokens for token in each.match.tokens),
        {each: interactions.ids[each] for each in protocol_contracts & interactions.ids.keys()},
        {each: interactions.exchanged[each] for each in protocol_contracts & interactions.exchanged.keys()},
        {each: interactions.sent[each] for each in (protocol_contracts | shares_read) & interactions.sent.keys()},
        {each: events for each, events in interactions.events.items() if contract_of(each) in protocol_contracts},
        frozenset(each for each in interactions.covered if contract_of(each) in protocol_contracts),
    )
    return concerned, {each.row.protocol for each in (*contracts, *tokens, *inner)}


def _third_party_matches(shares: Shares, account: str, interactions: ContractInteractions) -> Iterator[RuleMatch]:
    """Yield the matches of tokens whose contracts the protocols' own contracts point to."""
    for third_party in shares.third_parties(account, interactions.tokens, interactions.sent):
        row = run_offline(shares.protocol_of(third_party), lambda read: Unknown(NOT_RECORDED, "absent"))
        if row is not None:
            yield replace(third_party, row=row)


def _contracts_of(rows: Sequence[InstalledProtocol]) -> tuple[Contracts, ...]:
    """Return the protocols of rows, by key, with their families, contracts and options, for a recording."""
    keys = dict.fromkeys(row.protocol for row in rows)
    rows_by_key = {key: [row for row in rows if row.protocol == key] for key in sorted(keys)}
    return tuple(
        Contracts(key, tuple(row.family.name for row in of), dict(of[0].contracts), dict(of[0].options), of[0].is_fork)
        for key, of in rows_by_key.items()
    )


def _positions(read_all: AccountContents | None) -> tuple[Position, ...]:
    positions = () if read_all is None else read_all.positions
    return tuple(sorted((_position(each) for each in positions), key=msgspec.json.encode))


def _position(each: UnfoldedPosition) -> Position:
    """Return a position as recordings have it, with sorted amounts as text.

    Supplied amounts are those of its underlying tokens.
    """
    decoded = each.decoded
    supplied, borrowed, rewards = (
        _amounts(each.underlying.parts.items()),
        _parts(decoded.borrowed),
        _parts(decoded.rewards),
    )
    health = "" if decoded.health is None else f"{decoded.health:f}"
    return Position(
        each.protocol,
        decoded.position_type,
        decoded.name,
        decoded.pool,
        decoded.vault,
        supplied,
        borrowed,
        rewards,
        health,
        decoded.unlock_s,
        tuple(sorted(decoded.replaces)),
        decoded.unknown,
        decoded.unverified,
    )


def _parts(parts: Iterable[TokenAmount]) -> tuple[Amount, ...]:
    total: Counter[str] = Counter()
    for part in parts:
        total[part.token] += part.raw
    return _amounts(total.items())


def _amounts(raws: Iterable[tuple[str, int]]) -> tuple[Amount, ...]:
    return tuple(Amount(token, str(raw)) for token, raw in sorted(raws) if raw)


def _sort_tokens(tokens: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(sorted(tokens, key=lambda token: token or ""))
