"""Recordings of decoders: results, comparisons with a replay, and the kit of a kind of chain.

The reads and interactions in a recording have the format of its kind of chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from chainfolio.errors import BadRequest

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chain_results import ChainInfo
    from chainfolio.chains import Chain
    from chainfolio.interactions import Interactions
    from chainfolio.protocols import InstalledProtocol, ProtocolFamily

AGAIN: Final = "record it again: chainfolio record ADDRESS --chain CHAIN --to FILE.json"


class Amount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`raw` units of a token, as decimal text."""

    token: str
    raw: str


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """A position with the underlying amounts of its shares, in contract units; `unlock` in Unix seconds."""

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
    """A subject that a decoder could not decode, with the reason."""

    protocol: str
    subject: str
    reason: str


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The positions and failures of decoders."""

    positions: tuple[Position, ...] = ()
    issues: tuple[Failure, ...] = ()


class RecordedBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The block that everything was read at; `time` in Unix seconds."""

    height: int
    hash: str
    time: int


class Replay(msgspec.Struct, frozen=True):
    """The result of a replay: `same`, `differs`, `updated` or `unplayable`.

    An unplayable recording lacks calls (`missing`), or has a `reason`.
    """

    file: str
    status: Literal["same", "differs", "updated", "unplayable"]
    differences: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    reason: str = ""
    result: Result = Result()

    @property
    def summary(self) -> str:
        """The reason, and the missing calls or differences, one per line."""
        lines = [f"not recorded: {each}" for each in self.missing] or list(self.differences)
        return "\n".join([*([self.reason] if self.reason else []), *lines])


class Recording(Protocol):
    """The common part of recordings: chain, block, the reads with their results, and the decoders' result."""

    @property
    def chain(self) -> str:
        """The key of the chain."""

    @property
    def block(self) -> RecordedBlock:
        """The block of all reads."""

    @property
    def calls(self) -> Sequence[object]:
        """The reads with their results."""

    @property
    def found(self) -> Result:
        """The result of the decoders."""


class DescribedProtocol(Protocol):
    """A protocol as its file in this installation describes it."""

    @property
    def key(self) -> str:
        """The protocol's key."""

    @property
    def families(self) -> Sequence[str]:
        """The families that read its positions."""

    @property
    def contracts(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        """Addresses by chain and role."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options of the protocol for its decoders."""

    @property
    def is_fork(self) -> bool:
        """True if the code of its contracts was not reviewed."""


class DecoderKit(Protocol):
    """The tools of a kind of chain for developers of decoders, from `chainfolio.kinds.decoder_kit`."""

    def interactions(self, info: ChainInfo, written: Sequence[str]) -> Interactions:
        """Return contracts or tokens of collections, named by a developer, as an account's interactions.

        Raises:
            BadRequest: a name is not valid.
        """

    async def record(
        self, chain: Chain, block: Block, account: str, interactions: Interactions, rows: Sequence[InstalledProtocol]
    ) -> Recording:
        """Run decoders for an account at a block, and return a recording of their reads and results.

        Raises:
            NotFound: the account has no interaction with these protocols.
            Unavailable: a read failed.
            BadRequest: a decoder cannot be recorded.
            SourceError: a node failed.
        """

    def read(self, path: Path) -> Recording:
        """Return the recording in a file.

        Raises:
            BadRequest: the file is no recording, or has another format.
        """

    def save(self, path: Path, recording: Any) -> None:
        """Write a recording atomically, replacing the file."""

    def updated(self, recording: Any, result: Result) -> Recording:
        """Return the recording with `result` as the expected result."""

    def replay(
        self,
        file: str,
        recording: Any,
        protocols: Iterable[DescribedProtocol],
        families: Mapping[str, ProtocolFamily],
    ) -> Replay:
        """Run the installed families on a recording, with the protocols of this installation."""

    def scaffold(self, key: str, title: str) -> str:
        """Return the source of a minimal decoder, which finds accounts by contracts in the role `pool`."""


class _Head(msgspec.Struct):
    chain: str


def chain_of(path: Path) -> str:
    """Return the key of a recording's chain.

    Raises:
        BadRequest: the file is no recording.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Head).chain
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(path.name, f"this is no recording: {error}", remedy=AGAIN) from None


def differences(was: Result, now: Result) -> tuple[str, ...]:
    """Return the differences between two results, one line each; empty if they are equal."""
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
    """Return a result as facts, with an empty value if the name says all; equal positions are numbered."""
    facts: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for each in result.positions:
        name = " ".join(filter(None, (each.protocol, each.kind, each.name, each.pool, each.vault)))
        counts[name] += 1
        name = f"{name} #{counts[name]}" if counts[name] > 1 else name
        facts[name] = ""
        for side in ("supplied", "borrowed", "rewards"):
            facts |= {f"{name}: {side} {part.token}": part.raw for part in getattr(each, side)}
        properties = {"health": each.health, "unlock": str(each.unlock or "")}
        properties |= {"unknown": each.unknown, "unverified": each.unverified}
        facts |= {f"{name}: {property_name}": value for property_name, value in properties.items() if value}
        facts |= {f"{name}: instead of {token}": "" for token in each.replaces}
    for failure in result.issues:
        facts[f"{failure.protocol} issue of {failure.subject}: {failure.reason}"] = ""
    return facts
