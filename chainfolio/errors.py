"""The error tree: few kinds, each with a different remedy. Fields for programs, one sentence for people."""

from __future__ import annotations

from typing import Any, ClassVar


class ChainfolioError(Exception):
    """Anything Chainfolio raises on purpose. `remedy` says what the reader can do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross from one process to another with all their fields."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[ChainfolioError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> ChainfolioError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class SourceError(ChainfolioError):
    """A node or a price source did not answer as asked. Its own words are no part of the message: they may hold a key,
    an address or a name."""

    exit_code = 3

    def __init__(self, source: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{source}: {message}", remedy=remedy)
        self.source = source
        self.reason = message


class Unavailable(SourceError):
    """Trying again may help: timeout, refused connection, 429, 5xx, a page that is not JSON."""

    def __init__(self, source: str, message: str, *, retry_after_s: float | None = None, remedy: str = "") -> None:
        super().__init__(source, message, remedy=remedy)
        self.retry_after_s = retry_after_s


class NodeBehind(Unavailable):
    """The node does not have that block yet."""


class NoBlock(SourceError):
    """The height has no block and never will: it was skipped. The heights beside it may have one."""

    def __init__(self, source: str, height: int) -> None:
        super().__init__(source, f"height {height} has no block: it was skipped", remedy="take a height beside it")
        self.height = height


class BadAnswer(SourceError):
    """Trying again will not help: malformed, contradicts a hash, not what was asked."""


class Contradicted(BadAnswer):
    """What a source gave is contradicted: by a hash that covers it, or by a majority of the others. `asked`, `given`
    and `truth` are the evidence."""

    def __init__(self, source: str, asked: str, given: str, truth: str) -> None:
        super().__init__(source, f"{asked}: gave {given}; {truth}")
        self.asked, self.given, self.truth = asked, given, truth


class Disputed(BadAnswer):
    """Sources contradict each other, and no majority of them says the same."""


class WrongChain(BadAnswer):
    """The endpoint serves another chain than the settings say."""


class TooMuch(BadAnswer):
    """The node refuses the size of the question; a smaller one may pass. `max_span` is its hint, where it gave one."""

    def __init__(self, source: str, message: str, *, max_span: int | None = None, dense: bool = False) -> None:
        super().__init__(source, message)
        self.max_span = max_span
        self.dense = dense


class Unsupported(BadAnswer):
    """The node does not know this method or this form of it."""


class HistoryUnavailable(SourceError):
    """The node has pruned the state at that height: never to be read as zero."""

    def __init__(self, source: str, height: int, message: str) -> None:
        super().__init__(source, f"no state at block {height}: {message}", remedy="use an archive node for past blocks")
        self.height = height


class Reorged(SourceError):
    """The block that everything was pinned to has left the chain; start again at a new one."""

    def __init__(self, source: str, height: int, block_hash: str) -> None:
        super().__init__(source, f"block {height} {block_hash} is no longer on the chain")
        self.height = height
        self.block_hash = block_hash


class NotIndexed(ChainfolioError):
    """Nobody indexed that span: empty and missing are two things."""

    exit_code = 4

    def __init__(self, chain: str, dataset: str, first: int, last: int) -> None:
        super().__init__(
            f"{dataset} of {chain} are not indexed for blocks {first}..{last}",
            remedy=f"chainfolio index {chain} --from {first} --to {last}, or of single accounts: "
            f"chainfolio watch ADDRESS --chain {chain}",
        )
        self.chain, self.dataset, self.first, self.last = chain, dataset, first, last


class Unserved(ChainfolioError):
    """This server has nothing that could answer that: no beacon node, no source of transactions. `why` names what the
    server lacks, as a sentence without its full stop."""

    exit_code = 8

    def __init__(self, what: str, why: str = "", *, remedy: str = "") -> None:
        refusal = f"{what} cannot be answered by this server"
        super().__init__(f"{why}: {refusal}" if why else refusal, remedy=remedy)
        self.what = what


class Incapable(Unserved):
    """The chain lacks something that not every kind of chain has; `chainfolio doctor` shows what each one has."""

    def __init__(self, chain: str, capability: str) -> None:
        super().__init__(f"what needs `{capability}` of {chain}", remedy=f"{chain} lacks it: see `chainfolio doctor`")
        self.chain, self.capability = chain, capability


class NotFound(ChainfolioError):
    """What was asked for is well formed and does not exist: no such validator, no protocol at that contract."""

    exit_code = 9


class BadRequest(ChainfolioError):
    """The caller asked for something that cannot be meant: a malformed address, an unknown chain."""

    exit_code = 2

    def __init__(self, field: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{field}: {message}", remedy=remedy)
        self.field = field
        self.reason = message


class BadSettings(BadRequest):
    """The settings file or an environment variable is wrong; nothing was started."""


class StoreError(ChainfolioError):
    """The lake, the tail or the state store could not keep or give what it should."""

    exit_code = 5

    def __init__(self, store: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{store}: {message}", remedy=remedy)
        self.store = store


class StorageFull(StoreError):
    """No space left: nothing half-written is visible, and work resumes once there is room."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "no space left on the device", remedy="free some space; indexing resumes by itself")


class TooManyFiles(StoreError):
    """The process may open no more files: a limit of the machine, and no fault of what it wanted to open."""

    def __init__(self, store: str) -> None:
        remedy = "allow more: `ulimit -n 4096` in the same shell, or LimitNOFILE=4096 in the unit of systemd"
        super().__init__(store, "this process may not open more files at once", remedy=remedy)


class Busy(StoreError):
    """Another process holds what this one needs."""


class Damaged(StoreError):
    """A stored file is not what was written: no row of it is ever used."""

    def __init__(self, path: str, reason: str, table: str = "") -> None:
        place = f"{table}/{path}" if table else path
        super().__init__("lake", f"{place} is damaged: {reason}", remedy="chainfolio check --repair")
        self.table, self.path, self.reason = table, path, reason


class StaleTable(StoreError):
    """A table was written by another revision of its decoder."""

    def __init__(self, table: str, found: int, wanted: int, chain: str = "CHAIN") -> None:
        super().__init__(
            "lake",
            f"table {table} was written by decoder revision {found}, this release has {wanted}",
            remedy=f"chainfolio materialise {chain} --tables {table}",
        )
        self.table, self.found, self.wanted = table, found, wanted


class DeepReorg(ChainfolioError):
    """A chain left its finalised past: that chain halts, visibly, until the lake is repaired."""

    exit_code = 6

    def __init__(self, chain: str, height: int, ours: str, theirs: str) -> None:
        super().__init__(
            f"{chain}: finalised block {height} was {ours}, the node now says {theirs}",
            remedy=f"check the node, then: chainfolio index {chain} --rewind {height}",
        )
        self.chain, self.height, self.ours, self.theirs = chain, height, ours, theirs


class OverBudget(ChainfolioError):
    """What some work may ask of nodes is used up. What was read before is kept."""

    exit_code = 10

    def __init__(self, what: str, limit: int, *, remedy: str = "") -> None:
        super().__init__(
            f"the budget of {limit:,} {what} is used up",
            remedy=remedy or "start the same again with another budget: it goes on where this ended",
        )
        self.what, self.limit = what, limit


class Missing(ChainfolioError):
    """Something that must be installed is not there."""

    exit_code = 7
