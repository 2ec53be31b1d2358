"""What reads say now: a Solana node keeps no old state. All that concerns accounts is read at one slot.

Every answer says at which slot it was read. While they differ, those of older slots are asked again. What says the same
at two slots is taken to have been so between them, so that busy endpoints come together, too; answers that never do are
an error, and never a mixture.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard, TypeVar

from solders.pubkey import Pubkey

from adapters.solana import das
from adapters.solana.account_reads import AccountRead, ListRead
from adapters.solana.forms import Keyed, Plain
from adapters.solana.layouts import (
    CLOCK,
    METADATA,
    STAKE,
    STAKE_HISTORY,
    SYSTEM,
    TOKEN_PROGRAMS,
    BadLayout,
    Mint,
    metadata,
    mint,
)
from adapters.solana.node import Node, ask_each
from adapters.solana.parsing import (
    decoded,
    joined,
    key_bytes,
    slot_and_content,
    stake_accounts,
    token_accounts,
)
from adapters.solana.reads import (
    Leaves,
    LeavesRead,
    MintRead,
    NameRead,
    Note,
    Reward,
    RewardRead,
    Staking,
    TreeRead,
    Wallet,
    WalletRead,
)
from adapters.solana.rewards import rewards
from adapters.solana.stakes import HISTORY_SIZE, History, history
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, SourceError, TooMuch, Unavailable, Unsupported
from chainfolio.plans import Unknown
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed

T = TypeVar("T")
PAGE: Final = 100  # accounts that one request may name
TRIES: Final = 8
PAUSE_S: Final = 0.1
NOW_SLOTS: Final = 150  # about a minute: a block that is not older is now
PAST: Final = "nodes of Solana keep no old state: what this account said at that block is not known"
CLOCK_SIZE: Final = 40
TREE_BYTES: Final = 4 * 2**20  # of the trees of one answer
TOGETHER: Final = Unknown("trees are read with wallets alone")
STAKE_SIZE: Final = 200
WITHDRAWER_AT: Final = 44
NOTHING: Final = b"[]"  # no account
Placed = AccountRead | ListRead | TreeRead


@dataclass(slots=True)
class _Seen:
    """What one request gave, unchanged from one slot to another."""

    first: int
    last: int
    content: Any

    def again(self, slot: int, content: Any) -> _Seen:
        """The same with one more answer; one of an older slot than the last says nothing about now."""
        if content == self.content:
            return _Seen(min(self.first, slot), max(self.last, slot), content)
        return _Seen(slot, slot, content) if slot > self.last else self


@dataclass(slots=True)
class _Together:
    """What was asked, what each request gave and what an endpoint does not serve. `clocks` are those that came with
    accounts, by slot."""

    asked: Sequence[Request]
    found: dict[Request, _Seen] = field(default_factory=dict)
    refused: dict[Request, SourceError] = field(default_factory=dict)
    clocks: dict[int, Plain] = field(default_factory=dict)
    spared: bool = False  # whether searches that fail are left out

    @property
    def slot(self) -> int | None:
        """The newest slot at which all of it is known; None where there is none."""
        if len(self.found) + len(self.refused) < len(self.asked):
            return None
        newest = min(each.last for each in self.found.values())
        return newest if all(each.first <= newest for each in self.found.values()) else None

    def left(self) -> list[Request]:
        """What has to be asked again: what was read at an older slot than the rest, or not at all."""
        newest = max((each.last for each in self.found.values()), default=0)
        wanted = [each for each in self.asked if each not in self.refused]
        return [each for each in wanted if each not in self.found or self.found[each].last < newest]


async def wallets(
    node: Node, accounts: Sequence[str], beside: Sequence[Placed], block: Block, *, with_stakes: bool
) -> tuple[dict[str, Wallet], dict[Placed, Any]]:
    """What some accounts have, and what accounts of programs say, all at one slot: that of `block`, or a newer one."""
    return await _sparing(
        node, with_stakes or _looks(beside),
        lambda endpoint, spared: _wallets(node, endpoint, accounts, beside, block, with_stakes, spared),
    )  # fmt: skip


def _looks(reads: Sequence[Placed]) -> bool:
    return any(isinstance(each, ListRead) for each in reads)


async def _sparing(node: Node, looks: bool, read: Callable[[Endpoint, bool], Awaitable[T]]) -> T:
    """`read` at any endpoint. Where it looks for accounts, and no endpoint finds all of them, searches that fail are
    left out: they are what endpoints fail at first, and one of them says nothing about the others, or about balances.
    """
    try:
        return await node.with_any(lambda endpoint: read(endpoint, False), kind="state")
    except Unavailable:
        if not looks:
            raise
    return await node.with_any(lambda endpoint: read(endpoint, True), kind="state")


async def _wallets(
    node: Node, endpoint: Endpoint, accounts: Sequence[str], beside: Sequence[Placed], block: Block,
    with_stakes: bool, spared: bool,
) -> tuple[dict[str, Wallet], dict[Placed, Any]]:  # fmt: skip
    placed = [each for each in beside if isinstance(each, AccountRead)]
    trees = [each for each in beside if isinstance(each, TreeRead)]
    lists = {each: _list(each) for each in beside if isinstance(each, ListRead)}
    pages = [_contents(page) for page in _pages(list(dict.fromkeys(each.address for each in placed)))]
    rings = [_contents(page, size) for size, page in _of_one_size(trees)]
    read = _Together([*_requests(accounts, with_stakes), *lists.values(), *pages, *rings], spared=spared)
    slot = await _come_together(node, endpoint, read, block.height)
    lamports: dict[str, Plain | None] = {}
    for page in _pages(accounts):
        lamports |= zip(page, read.found[_lamports(page)].content, strict=True)
    epoch, read_at = await _block(node, endpoint, block, slot, read.clocks)
    staked = any(bytes(read.found[each].content) != NOTHING for each in map(_stakes, accounts) if each in read.found)
    past = await _stake_history(node, endpoint, slot, epoch) if staked else {}
    own = {
        account: _wallet(endpoint.name, account, lamports[account], read, read_at, epoch, past) for account in accounts
    }
    said: dict[Placed, Any] = {
        **_said(endpoint.name, placed, ((page.params[0][:-1], read.found[page].content) for page in pages)),
        **_said(endpoint.name, trees, ((page.params[0][:-1], read.found[page].content) for page in rings)),
    }
    for each, request in lists.items():
        refusal = read.refused.get(request)
        said[each] = Unknown(refusal.reason) if refusal else read.found[request].content
    return own, said


def _wallet(
    source: str,
    account: str,
    own: Plain | None,
    read: _Together,
    block: Block,
    epoch: int,
    past: History,
) -> Wallet:
    notes: list[Note] = []
    parts = []
    for program in TOKEN_PROGRAMS:
        tokens, said = token_accounts(source, read.found[_tokens(account, program)].content, account, program)
        parts.append(tokens)
        notes += said
    stakes: list[Staking] = []
    request = _stakes(account)
    if request in read.found:
        stakes, said = stake_accounts(source, read.found[request].content, account, epoch, past)
        notes += said
    elif request in read.refused:
        notes.append(Note(account, f"stake accounts were not found: {read.refused[request].reason}", True))
    if own is not None and own.owner != SYSTEM:
        notes.append(Note(account, f"the address is an account of the program {own.owner}, and nobody's wallet"))
    return Wallet(block, own.lamports if own else 0, joined(source, parts), tuple(stakes), tuple(notes), epoch)


async def stakes_of(node: Node, account: str, endpoint: Endpoint) -> dict[str, Staking]:
    """The stake accounts that an account may withdraw from now. Unsupported or TooMuch where nobody lists them."""
    request = _stakes(account)
    request = Request(request.method, (*request.params[:-1], request.params[-1].at(node.commitment, 0)))
    _, content = slot_and_content(endpoint.name, await endpoint.one(request))
    return {each.address: each for each in stake_accounts(endpoint.name, content, account, 0, {})[0]}


async def lamports_of(endpoint: Endpoint, accounts: Sequence[str]) -> dict[str, tuple[int, int]]:
    """What some accounts have in lamports, each at a final slot."""
    found: dict[str, tuple[int, int]] = {}
    for page in _pages(accounts):
        request = _lamports(page)
        asked = Request(request.method, (request.params[0], request.params[1].at("finalized", 0)))
        slot, content = slot_and_content(endpoint.name, await endpoint.one(asked))
        own = _listed(endpoint.name, content, len(page) + 1)[:-1]
        found |= {account: (each.lamports if each else 0, slot) for account, each in zip(page, own, strict=True)}
    return found


# --- what is asked ---------------------------------------------------------------------------------------------------


def _requests(accounts: Sequence[str], with_stakes: bool) -> Iterator[Request]:
    for page in _pages(accounts):
        yield _lamports(page)
    for account in accounts:
        for program in TOKEN_PROGRAMS:
            yield _tokens(account, program)
        if with_stakes:
            yield _stakes(account)


def _pages(accounts: Sequence[str], size: int = PAGE - 1) -> Iterator[tuple[str, ...]]:
    """With every page of accounts comes the clock of the chain."""
    for first in range(0, len(accounts), size):
        yield tuple(accounts[first : first + size])


def _lamports(page: tuple[str, ...]) -> Request:
    return Request("getMultipleAccounts", ((*page, CLOCK), _Options("base64", size=CLOCK_SIZE)))


def _contents(page: tuple[str, ...], size: int | None = None) -> Request:
    return Request("getMultipleAccounts", ((*page, CLOCK), _Options("base64", size=size)))


def _of_one_size(trees: Sequence[TreeRead]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Pages of trees of which as many bytes are read of each; what lies behind them may be more than they are."""
    sizes: dict[int, list[str]] = {}
    for each in trees:
        sizes.setdefault(each.size, []).append(each.address)
    for size, addresses in sizes.items():
        for page in _pages(addresses, max(1, min(PAGE - 1, TREE_BYTES // size))):
            yield size, page


def _tokens(account: str, program: str) -> Request:
    return Request("getTokenAccountsByOwner", (account, _Program(program), _Options("jsonParsed")))


def _stakes(account: str) -> Request:
    return Request(
        "getProgramAccounts", (STAKE, _Options("jsonParsed", filters=(STAKE_SIZE, (WITHDRAWER_AT, account))))
    )


def _list(read: ListRead) -> Request:
    return Request("getProgramAccounts", (read.program, _Options("base64", size=0, filters=read.filters)))


@dataclass(frozen=True, slots=True)
class _Program:
    """Whose token accounts are meant."""

    programId: str


@dataclass(frozen=True, slots=True)
class _Options:
    """The last parameter of a request, before it is known which slot is asked for."""

    encoding: str
    size: int | None = None
    filters: tuple[int | tuple[int, str], ...] = ()

    def at(self, commitment: str, slot: int) -> dict[str, Any]:
        """As nodes want it: of a slot that is no older than this one."""
        found: dict[str, Any] = {"encoding": self.encoding, "commitment": commitment, "minContextSlot": slot}
        if self.size is not None:
            found["dataSlice"] = {"offset": 0, "length": self.size}
        if self.filters:
            found |= {"withContext": True, "filters": [_filter(each) for each in self.filters]}
        return found


def _filter(wanted: int | tuple[int, str]) -> dict[str, Any]:
    if isinstance(wanted, int):
        return {"dataSize": wanted}
    return {"memcmp": {"offset": wanted[0], "bytes": wanted[1]}}


async def _come_together(node: Node, endpoint: Endpoint, read: _Together, slot: int) -> int:
    """Ask until everything is known of one slot, not older than `slot`; Unavailable where that never comes about."""
    for attempt in range(TRIES):
        if attempt:
            await node.seams.clock.sleep(PAUSE_S * attempt * (1 + node.seams.random.random()))
        least = max([slot, *(each.last for each in read.found.values())])
        left = read.left()
        sent = [Request(each.method, (*each.params[:-1], each.params[-1].at(node.commitment, least))) for each in left]
        for each, answer in zip(left, await _asked(endpoint, sent, least, read.spared), strict=True):
            _take(endpoint.name, read, each, answer)
        if (together := read.slot) is not None and together >= slot:
            return together
    raise Unavailable(endpoint.name, f"its answers are of different slots, {TRIES} times in a row")


async def _asked(endpoint: Endpoint, requests: Sequence[Request], height: int, spared: bool) -> list[Answer]:
    """An answer to each request, in their order; where searches are spared, each is sent by itself, and has its
    own error."""
    apart = [spared and _is_search(each) for each in requests]
    if not any(apart):
        return await ask_each(endpoint, requests, height=height)
    together = [each for each, own in zip(requests, apart, strict=True) if not own]
    rest = iter(await ask_each(endpoint, together, height=height))
    lists = [_one(endpoint, each, height) for each, own in zip(requests, apart, strict=True) if own]
    alone = iter(await asyncio.gather(*lists))
    return [next(alone if own else rest) for own in apart]


async def _one(endpoint: Endpoint, request: Request, height: int) -> Answer:
    try:
        return await endpoint.one(request, height=height)
    except SourceError as error:
        return error


def _is_search(request: Request) -> bool:
    return request.method == "getProgramAccounts"


def _is_left_out(answer: Answer, request: Request, spared: bool) -> TypeGuard[SourceError]:
    """Whether what was looked for is unknown, and the rest is not."""
    failed = isinstance(answer, Unsupported | TooMuch) or (spared and isinstance(answer, Unavailable))
    return failed and _is_search(request)


def _take(source: str, read: _Together, asked: Request, answer: Answer) -> None:
    if _is_left_out(answer, asked, read.spared):
        read.refused[asked] = answer
        read.found.pop(asked, None)
    elif isinstance(answer, NodeBehind):
        return
    elif isinstance(answer, SourceError):
        raise answer
    else:
        slot, content = slot_and_content(source, answer)
        if asked.method == "getMultipleAccounts":
            *own, clock = _listed(source, content, len(asked.params[0]))
            if clock is None:
                raise BadAnswer(source, "does not know what time it is on the chain")
            read.clocks[slot], content = clock, own
        elif asked.method == "getProgramAccounts" and asked.params[0] != STAKE:
            content = _addresses(source, content, asked.params[0])
        seen = read.found.get(asked)
        read.found[asked] = seen.again(slot, content) if seen else _Seen(slot, slot, content)


def _listed(source: str, content: Any, count: int) -> list[Plain | None]:
    """As many accounts as were asked for, in their order; None where there is none."""
    found: list[Plain | None] = typed(source, content, list[Plain | None])
    if len(found) != count:
        raise BadAnswer(source, f"{len(found)} accounts in answer to {count}")
    return found


def _addresses(source: str, content: Any, program: str) -> tuple[str, ...]:
    """Where the accounts of a list lie, each once and in their order."""
    found: list[Keyed[Plain]] = typed(source, content, list[Keyed[Plain]])
    if any(each.account.owner != program for each in found):
        raise BadAnswer(source, f"an account of another program among those of {program}")
    addresses = sorted({each.pubkey for each in found})
    if len(addresses) != len(found):
        raise BadAnswer(source, f"the same account of {program} twice")
    return tuple(addresses)


def _time(source: str, clock: Plain, slot: int) -> tuple[int, int]:
    """The epoch and the time of the slot that was read. BadAnswer where the clock is that of another slot."""
    content = decoded(source, clock)
    if len(content) != CLOCK_SIZE:
        raise BadAnswer(source, f"a clock of {len(content)} bytes")
    at, _, epoch, _, time_s = struct.unpack("<QqQQq", content)
    if at != slot or time_s < 0:
        raise BadAnswer(source, f"the clock of slot {at} in an answer of slot {slot}")
    return epoch, time_s


async def _block(
    node: Node, endpoint: Endpoint, block: Block, slot: int, clocks: Mapping[int, Plain]
) -> tuple[int, Block]:
    """The epoch and the block of the slot that was read: an endpoint may have its state a little before its block."""
    times = {at: _time(endpoint.name, clock, at) for at, clock in clocks.items()}
    epoch = times[max(times)][0]
    if slot == block.height:
        return epoch, block
    for attempt in range(TRIES):
        try:
            found = await node.header_at(endpoint, slot)
        except NodeBehind:
            if attempt == TRIES - 1:
                raise
            await node.seams.clock.sleep(PAUSE_S * (attempt + 1))
            continue
        time_us = times[slot][1] * 1_000_000 if slot in times else found.time_us
        return epoch, Block(slot, found.hash, found.parent, time_us)
    raise AssertionError("unreachable: the last attempt returns or raises")


# --- accounts of programs ---------------------------------------------------------------------------------------------


async def contents(node: Node, reads: Sequence[Placed], block: Block) -> dict[Placed, Any]:
    """What some accounts of programs say now, a hundred at one slot. Unknown of a block that is not of now."""
    if node.finalized - block.height > NOW_SLOTS:
        return dict.fromkeys(reads, Unknown(PAST, "absent"))
    said = dict.fromkeys((each for each in reads if isinstance(each, TreeRead)), TOGETHER)
    return said | await _sparing(
        node, _looks(reads), lambda endpoint, spared: _read_pages(node, endpoint, reads, block, spared)
    )


async def _read_pages(
    node: Node, endpoint: Endpoint, reads: Sequence[Placed], block: Block, spared: bool
) -> dict[Placed, Any]:
    placed = [each for each in reads if isinstance(each, AccountRead)]
    pages = list(_pages(list(dict.fromkeys(each.address for each in placed)), PAGE))
    options = _Options("base64")
    lists = {_list(each): each for each in reads if isinstance(each, ListRead)}
    asked = [Request("getMultipleAccounts", (page, options)) for page in pages] + list(lists)
    sent = [Request(each.method, (each.params[0], each.params[1].at(node.commitment, block.height))) for each in asked]
    found: list[tuple[Sequence[str], Sequence[Plain | None]]] = []
    said: dict[Placed, Any] = {}
    for each, answer in zip(asked, await _asked(endpoint, sent, block.height, spared), strict=True):
        if _is_left_out(answer, each, spared):
            said[lists[each]] = Unknown(answer.reason)
            continue
        if isinstance(answer, SourceError):
            raise answer
        slot, content = slot_and_content(endpoint.name, answer)
        if slot < block.height:
            raise NodeBehind(endpoint.name, f"answered about slot {slot}, which is older than {block.height}")
        if slot - block.height > NOW_SLOTS:
            return dict.fromkeys(reads, Unknown(PAST, "absent"))
        if each in lists:
            said[lists[each]] = _addresses(endpoint.name, content, each.params[0])
        else:
            found.append((each.params[0], _listed(endpoint.name, content, len(each.params[0]))))
    return {**said, **_said(endpoint.name, placed, found)}


def _said(
    source: str, reads: Sequence[AccountRead | TreeRead], pages: Iterable[tuple[Sequence[str], Sequence[Plain | None]]]
) -> dict[Placed, Any]:
    """What accounts say by their layouts."""
    accounts = {address: each for page, several in pages for address, each in zip(page, several, strict=True)}
    contents = {address: decoded(source, each) if each else b"" for address, each in accounts.items()}
    return {each: each.result(accounts[each.address], contents[each.address]) for each in reads}


async def _stake_history(node: Node, endpoint: Endpoint, slot: int, epoch: int) -> History:
    """What the chain tells of the epochs before one; nothing where it keeps no history."""
    options = _Options("base64", size=HISTORY_SIZE).at(node.commitment, slot)
    answer = await endpoint.one(Request("getMultipleAccounts", ([STAKE_HISTORY], options)), height=slot)
    (told,) = _listed(endpoint.name, slot_and_content(endpoint.name, answer)[1], 1)
    try:
        found = history(decoded(endpoint.name, told)) if told is not None else {}
    except ValueError as error:
        raise BadAnswer(endpoint.name, str(error)) from None
    return {each: moving for each, moving in found.items() if each < epoch}


# --- mints -----------------------------------------------------------------------------------------------------------


async def mints(node: Node, addresses: Sequence[str], slot: int) -> dict[str, Mint | Unknown]:
    """What some mints say of themselves, and their metadata."""
    return await node.with_any(lambda endpoint: _mints(node, endpoint, addresses, slot), kind="mints")


async def _mints(node: Node, endpoint: Endpoint, addresses: Sequence[str], slot: int) -> dict[str, Mint | Unknown]:
    pages = list(_pages(addresses, PAGE // 2))
    options = _Options("base64").at(node.commitment, slot)
    asked = [
        Request("getMultipleAccounts", ([*page, *(metadata_address(each) for each in page)], options)) for page in pages
    ]
    found: dict[str, Mint | Unknown] = {}
    for page, answer in zip(pages, await ask_each(endpoint, asked, height=slot), strict=True):
        if isinstance(answer, SourceError):
            raise answer
        listed = _listed(endpoint.name, slot_and_content(endpoint.name, answer)[1], 2 * len(page))
        for address, account, about in zip(page, listed, listed[len(page) :], strict=False):
            found[address] = _mint(endpoint.name, address, account, about)
    return found


def _mint(source: str, address: str, account: Plain | None, about: Plain | None) -> Mint | Unknown:
    if account is None:
        return Unknown("there is no such mint", "absent")
    try:
        found = mint(decoded(source, account), account.owner)
    except BadLayout as error:
        return Unknown(f"it is no mint: {error}", "contract")
    if found.symbol or found.name or about is None:
        return found
    try:
        symbol, name = metadata(decoded(source, about), about.owner, key_bytes(address))
    except BadLayout:
        return found
    return replace(found, symbol=symbol, name=name)


def metadata_address(of_mint: str) -> str:
    """Where the metadata of a mint lie."""
    program = Pubkey.from_string(METADATA)
    seeds = [b"metadata", bytes(program), key_bytes(of_mint)]
    return str(Pubkey.find_program_address(seeds, program)[0])


async def answer(node: Node, reads: Sequence[Any], block: Block, *, with_stakes: bool) -> list[Any]:
    """The results of some reads, in their order."""
    accounts = [each.account for each in reads if isinstance(each, WalletRead)]
    addresses = [each.mint for each in reads if isinstance(each, MintRead)]
    placed = [each for each in reads if isinstance(each, Placed)]
    listed = {each.account: das.leaves(node, each.account) for each in reads if isinstance(each, LeavesRead)}
    state = _state_of(node, accounts, placed, block, with_stakes=with_stakes)
    (own, said), *leaves = await asyncio.gather(state, *listed.values())
    issued = await mints(node, addresses, block.height) if addresses else {}
    earned = await rewards(node, [each for each in reads if isinstance(each, RewardRead)])
    told = _Told(own, dict(zip(listed, leaves, strict=True)), issued, said, earned, node.names)
    return [told.result(each) for each in reads]


async def _state_of(
    node: Node, accounts: Sequence[str], placed: Sequence[Placed], block: Block, *, with_stakes: bool
) -> tuple[Mapping[str, Wallet], Mapping[Placed, Any]]:
    """What some accounts have, and what accounts of programs say."""
    own: Mapping[str, Wallet] = {}
    said: Mapping[Placed, Any] = {}
    if accounts:
        try:
            own, said = await wallets(node, accounts, placed, block, with_stakes=with_stakes)
        except Unavailable as error:  # pools that change with every slot, on more pages than one
            if not placed:
                raise
            own, _ = await wallets(node, accounts, [], block, with_stakes=with_stakes)
            said = dict.fromkeys(placed, Unknown(error.reason))
        if any(each.block.height - block.height > NOW_SLOTS for each in own.values()):
            said = dict.fromkeys(placed, Unknown(PAST, "absent"))
    elif placed:
        said = await contents(node, placed, block)
    return own, said


@dataclass(frozen=True, slots=True)
class _Told:
    """All that was answered."""

    own: Mapping[str, Wallet]
    leaves: Mapping[str, Leaves | Unknown]
    issued: Mapping[str, Mint | Unknown]
    said: Mapping[Placed, Any]
    earned: Mapping[RewardRead, Reward | Unknown | None]
    names: Mapping[str, tuple[str, str]]

    def result(self, read: Any) -> Any:
        """The result of one read."""
        match read:
            case RewardRead():
                return self.earned[read]
            case AccountRead() | ListRead() | TreeRead():
                return self.said[read]
            case WalletRead(account):
                return self.own[account]
            case LeavesRead(account):
                return self.leaves[account]
            case MintRead(address):
                return self.issued[address]
            case NameRead(id):
                return self.names.get(id, Unknown("no endpoint has listed it"))
        return Unknown(f"Solana chains know no {type(read).__name__}")
