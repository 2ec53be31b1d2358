"""The error tree: few classes, each with a different remedy.

An error has fields for programs and one sentence for people.


Names of attributes are public: commands print them with `--json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class ChainfolioError(Exception):
    """Base class of all errors that Chainfolio raises on purpose. `remedy` tells the user a fix."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with all its fields."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[ChainfolioError], arguments: tuple[object, ...], fields: dict[str, object]) -> ChainfolioError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(fields)
    return error


class SourceError(ChainfolioError):
    """A node or a price source failed.

    Its own message is not included: it may hold a key, an address or a name.
    """

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
    """The height was skipped: it has no block and never will. Neighbouring heights may have one."""

    def __init__(self, source: str, height: int) -> None:
        super().__init__(source, f"height {height} has no block: it was skipped", remedy="take a height beside it")
        self.height = height


class BadAnswer(SourceError):
    """An answer that does not change if repeated: malformed, contradicting a hash, or for another request."""


class Contradiction(BadAnswer):
    """A source's response is contradicted by a hash that covers it, or by a majority of sources.

    `asked`, `given` and `truth` are the request, the response and the evidence.
    """

    def __init__(self, source: str, request: str, response: str, evidence: str) -> None:
        super().__init__(source, f"{request}: gave {response}; {evidence}")
        self.asked, self.given, self.truth = request, response, evidence


class NoQuorum(BadAnswer):
    """Sources contradict each other without a majority."""


class WrongChain(BadAnswer):
    """The endpoint serves another chain than the settings name."""


class ResponseTooLarge(BadAnswer):
    """The node refuses the size of the request; a smaller one may pass. `max_span` is its hint, or None."""

    def __init__(self, source: str, message: str, *, max_span: int | None = None, dense: bool = False) -> None:
        super().__init__(source, message)
        self.max_span = max_span
        self.dense = dense


class UnsupportedMethod(BadAnswer):
    """The node does not know this method or this form of it."""


class HistoryUnavailable(SourceError):
    """The node has pruned the state at that height: never to be read as zero."""

    def __init__(self, source: str, height: int, message: str) -> None:
        super().__init__(source, f"no state at block {height}: {message}", remedy="use an archive node for past blocks")
        self.height = height


class Reorged(SourceError):
    """The block to which all reads were pinned has left the chain; start again at a new one."""

    def __init__(self, source: str, height: int, block_hash: str) -> None:
        super().__init__(source, f"block {height} {block_hash} is no longer on the chain")
        self.height = height
        self.block_hash = block_hash


class NotIndexed(ChainfolioError):
    """The span is not indexed: different from an empty result."""

    exit_code = 4

    def __init__(self, chain: str, dataset: str, first: int, last: int) -> None:
        """Word the error; the remedy names the commands that index the blocks."""
        super().__init__(
            f"{dataset} of {chain} are not indexed for blocks {first}..{last}",
            remedy=f"chainfolio index {chain} --from {first} --to {last}, or of single accounts: "
            f"chainfolio watch ADDRESS --chain {chain}",
        )
        self.chain, self.dataset, self.first, self.last = chain, dataset, first, last


class NothingIndexed(ChainfolioError):
    """A table of the lake is empty because no chain was indexed for it: different from an empty result."""

    exit_code = 4

    def __init__(self, table: str) -> None:
        """Word the error; the message has the command that indexes a chain, because clients see no remedy."""
        super().__init__(
            f"nothing is indexed in the table {table}: the operator of this server fills it with "
            "`chainfolio index CHAIN`",
            remedy="chainfolio index CHAIN, with the datasets of the table in the settings of the chain",
        )
        self.table = table


class NotSupported(ChainfolioError):
    """This server cannot answer the request: it has no beacon node, or no source of transactions.

    `reason` names what the server lacks, as a sentence without its full stop.
    """

    exit_code = 8

    def __init__(self, feature: str, reason: str = "", *, remedy: str = "") -> None:
        refusal = f"{feature} cannot be answered by this server"
        super().__init__(f"{reason}: {refusal}" if reason else refusal, remedy=remedy)
        self.what = feature


class MissingCapability(NotSupported):
    """The chain lacks a capability; `chainfolio doctor` shows the capabilities of each."""

    def __init__(self, chain: str, capability: str) -> None:
        super().__init__(f"what needs `{capability}` of {chain}", remedy=f"{chain} lacks it: see `chainfolio doctor`")
        self.chain, self.capability = chain, capability


class NotFound(ChainfolioError):
    """A valid request for something that does not exist: no such validator, no protocol at that contract."""

    exit_code = 9


class BadRequest(ChainfolioError):
    """The request is invalid: a malformed address, an unknown chain."""

    exit_code = 2

    def __init__(self, field: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{field}: {message}", remedy=remedy)
        self.field = field
        self.reason = message


class BadSettings(BadRequest):
    """The settings file or an environment variable is wrong; nothing was started."""


class StoreError(ChainfolioError):
    """The lake, the tail or the state store could not write or read."""

    exit_code = 5

    def __init__(self, store: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{store}: {message}", remedy=remedy)
        self.store = store


class StorageFull(StoreError):
    """No space left: nothing half-written is visible, and work resumes once there is room."""

    def __init__(self, store: str) -> None:
        super().__init__(store, "no space left on the device", remedy="free some space; indexing resumes by itself")


class TooManyFiles(StoreError):
    """The process has reached the machine's limit of open files. The file itself is not the cause."""

    def __init__(self, store: str) -> None:
        remedy = "allow more: `ulimit -n 4096` in the same shell, or LimitNOFILE=4096 in the unit of systemd"
        super().__init__(store, "this process may not open more files at once", remedy=remedy)


class StoreUnavailable(StoreError):
    """The store does not answer, or asks for fewer requests. Nothing is lost; work is repeated later."""

    def __init__(self, store: str, message: str) -> None:
        super().__init__(store, message, remedy="indexing resumes by itself; a command has to be run again")


class AccessDenied(StoreError):
    """The store refuses the credentials of this process, or there are none."""


class Locked(StoreError):
    """Another process holds a lock or the store, this one lost a lock, or the store is away.

    `holder` is the process that has the lock; empty if there is no such lock, or the process is not known.
    """

    def __init__(self, store: str, message: str, *, remedy: str = "", holder: str = "") -> None:
        super().__init__(store, message, remedy=remedy)
        self.holder = holder


class CorruptFile(StoreError):
    """A stored file has changed: no row of it is ever used."""

    def __init__(self, path: str, reason: str, table: str = "") -> None:
        name = f"{table}/{path}" if table else path
        super().__init__("lake", f"{name} is damaged: {reason}", remedy="chainfolio check --repair")
        self.table, self.path, self.reason = table, path, reason


class StaleTable(StoreError):
    """A table was written by another revision of its decoder."""

    def __init__(self, table: str, stored_revision: int, revision: int) -> None:
        """Word the error for a table with another revision of its decoder than this release."""
        super().__init__(
            "lake",
            f"table {table} was written by decoder revision {stored_revision}, this release has {revision}",
            remedy="use the release of Chainfolio that wrote the data folder, or index into an empty one",
        )
        self.table, self.found, self.wanted = table, stored_revision, revision


class DeepReorg(ChainfolioError):
    """A chain left its finalised past: that chain halts, visibly, until the lake is repaired."""

    exit_code = 6

    def __init__(self, chain: str, height: int, stored_hash: str, node_hash: str) -> None:
        """Word the error for a final block with two hashes: the stored one and the node's."""
        super().__init__(
            f"{chain}: finalised block {height} was {stored_hash}, the node now says {node_hash}",
            remedy=f"check the node, then: chainfolio index {chain} --rewind {height}",
        )
        self.chain, self.height, self.ours, self.theirs = chain, height, stored_hash, node_hash


class OverBudget(ChainfolioError):
    """The budget of requests or compute units is used up. Results of earlier reads are stored."""

    exit_code = 10

    def __init__(self, unit: str, limit: int, *, remedy: str = "") -> None:
        """Word the error for a limit of some unit, such as requests."""
        super().__init__(
            f"the budget of {limit:,} {unit} is used up",
            remedy=remedy or "start the same again with another budget: it goes on where this ended",
        )
        self.what, self.limit = unit, limit


class MissingDependency(ChainfolioError):
    """A required package or program is not installed."""

    exit_code = 7


@contextmanager
def needs_extra(extra: str, feature: str) -> Iterator[None]:
    """Raise MissingDependency, which names the extra to install, if an import inside fails.

    `feature` is the thing that needs the extra, as the message names it: `a state store on PostgreSQL`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "chainfolio":  # a fault of ours, which no installation mends
            raise
        remedy = f'pip install "chainfolio[{extra}]"'
        raise MissingDependency(
            f"{feature} needs the package {error.name}, which is not installed", remedy=remedy
        ) from None
