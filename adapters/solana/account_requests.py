"""JSON-RPC requests for the state of accounts, before it is known which slot they ask for. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from chainfolio.adapters.solana.account_reads import ListRead
from chainfolio.adapters.solana.layouts import CLOCK, STAKE, TOKEN_PROGRAMS
from chainfolio.adapters.solana.reads import TreeRead
from chainfolio.transport.wire import Request

PAGE: Final = 100  # accounts per request
CLOCK_SIZE: Final = 40
MAX_TREE_BYTES: Final = 4 * 2**20  # trees per answer
STAKE_SIZE: Final = 200
WITHDRAWER_AT: Final = 44


@dataclass(frozen=True, slots=True)
class Program:
    """The parameter that selects token accounts by their program."""

    programId: str


@dataclass(frozen=True, slots=True)
class Options:
    """The last parameter of a request.

    Attributes:
        encoding: Of the accounts' data.
        size: The bytes that are read of each account; None for all.
        filters: Of a search, as in `ListRead.filters`.
    """

    encoding: str
    size: int | None = None
    filters: tuple[int | tuple[int, str], ...] = ()

    def at(self, commitment: str, slot: int) -> dict[str, object]:
        """Return the JSON parameter that asks for a state not older than `slot`."""
        options: dict[str, object] = {"encoding": self.encoding, "commitment": commitment, "minContextSlot": slot}
        if self.size is not None:
            options["dataSlice"] = {"offset": 0, "length": self.size}
        if self.filters:
            options |= {"withContext": True, "filters": [_filter(each) for each in self.filters]}
        return options


def _filter(condition: int | tuple[int, str]) -> dict[str, object]:
    if isinstance(condition, int):
        return {"dataSize": condition}
    return {"memcmp": {"offset": condition[0], "bytes": condition[1]}}


def at_slot(request: Request, commitment: str, slot: int) -> Request:
    """Return a request that asks for a state not older than `slot`."""
    return Request(request.method, (*request.params[:-1], request.params[-1].at(commitment, slot)))


def wallet_requests(accounts: Sequence[str], *, with_stakes: bool) -> Iterator[Request]:
    """Yield the requests for lamports, token accounts and, `with_stakes`, stake accounts."""
    for page in pages(accounts):
        yield lamports_request(page)
    for account in accounts:
        for program in TOKEN_PROGRAMS:
            yield tokens_request(account, program)
        if with_stakes:
            yield stakes_request(account)


def pages(accounts: Sequence[str], size: int = PAGE - 1) -> Iterator[tuple[str, ...]]:
    """Yield pages of accounts. The default size leaves room for the clock of the chain."""
    for first in range(0, len(accounts), size):
        yield tuple(accounts[first : first + size])


def tree_pages(trees: Sequence[TreeRead]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield pages of trees, each with the number of bytes to read per tree.

    A page has at most `PAGE` - 1 trees, all of one size, and at most `MAX_TREE_BYTES` unless it is a single tree.
    """
    addresses_by_size: dict[int, list[str]] = {}
    for tree in trees:
        addresses_by_size.setdefault(tree.size, []).append(tree.address)
    for size, addresses in addresses_by_size.items():
        for page in pages(addresses, max(1, min(PAGE - 1, MAX_TREE_BYTES // size))):
            yield size, page


def lamports_request(page: tuple[str, ...]) -> Request:
    """Return the request for the lamports of accounts, and the clock."""
    return contents_request(page, CLOCK_SIZE)


def contents_request(page: tuple[str, ...], size: int | None = None) -> Request:
    """Return the request for the first `size` bytes of accounts, and the clock."""
    return Request("getMultipleAccounts", ((*page, CLOCK), Options("base64", size=size)))


def tokens_request(account: str, program: str) -> Request:
    """Return the request for the token accounts of an owner in one token program."""
    return Request("getTokenAccountsByOwner", (account, Program(program), Options("jsonParsed")))


def stakes_request(account: str) -> Request:
    """Return the search for the stake accounts that an account may withdraw from."""
    filters = (STAKE_SIZE, (WITHDRAWER_AT, account))
    return Request("getProgramAccounts", (STAKE, Options("jsonParsed", filters=filters)))


def search_request(read: ListRead) -> Request:
    """Return the search for accounts of a program."""
    return Request("getProgramAccounts", (read.program, Options("base64", size=0, filters=read.filters)))
