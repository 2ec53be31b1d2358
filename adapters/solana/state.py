"""The state of accounts now, at one slot for a whole snapshot. Nodes keep no past state."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from chainfolio.adapters.solana import das
from chainfolio.adapters.solana.account_reads import AccountRead, ListRead
from chainfolio.adapters.solana.account_requests import (
    CLOCK_SIZE,
    PAGE,
    Options,
    at_slot,
    contents_request,
    lamports_request,
    pages,
    search_request,
    stakes_request,
    tokens_request,
    tree_pages,
    wallet_requests,
)
from chainfolio.adapters.solana.consistent_reads import (
    MAX_ATTEMPTS,
    PAUSE_S,
    ConsistentRead,
    accounts_in,
    addresses_in,
    is_tolerated,
    read_until_consistent,
    send,
    tolerate_failed_searches,
)
from chainfolio.adapters.solana.forms import Plain
from chainfolio.adapters.solana.layouts import STAKE_HISTORY, SYSTEM, TOKEN_PROGRAMS, Mint
from chainfolio.adapters.solana.mints import read_mints
from chainfolio.adapters.solana.node import Node, result
from chainfolio.adapters.solana.parsing import decoded, joined, slot_and_content, stake_accounts, token_accounts
from chainfolio.adapters.solana.reads import (
    LeafList,
    LeavesRead,
    MintRead,
    NameRead,
    Note,
    Reward,
    RewardRead,
    TreeRead,
    Wallet,
    WalletRead,
    WalletStake,
)
from chainfolio.adapters.solana.rewards import read_rewards
from chainfolio.adapters.solana.stakes import HISTORY_SIZE, StakeHistory, stake_history
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Unavailable
from chainfolio.plans import Unknown
from chainfolio.reads import Read, Value
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request

MAX_AGE_SLOTS: Final = 150  # about a minute: a block that is not older counts as now
PAST: Final = "nodes of Solana keep no old state: what this account said at that block is not known"
TREES_NEED_WALLETS: Final = Unknown("trees are read with wallets alone")
EMPTY_LIST: Final = b"[]"
ProgramRead = AccountRead | ListRead | TreeRead
ProgramResults = dict[ProgramRead, Any]


async def read_wallets(
    node: Node, accounts: Sequence[str], program_reads: Sequence[ProgramRead], block: Block, *, with_stakes: bool
) -> tuple[dict[str, Wallet], ProgramResults]:
    """Read wallets and program accounts consistently at one slot, not older than `block`.

    Args:
        node: The endpoints.
        accounts: The owners of the wallets.
        program_reads: Program accounts to read at the same slot.
        block: The oldest acceptable block.
        with_stakes: Search for stake accounts.

    Returns:
        The wallets by account, and the results of `program_reads`.

    Raises:
        Unavailable: The answers did not become consistent.
    """
    return await tolerate_failed_searches(
        node,
        with_stakes or _has_searches(program_reads),
        lambda endpoint, tolerates_failures: _read_wallets(
            node, endpoint, accounts, program_reads, block, with_stakes, tolerates_failures
        ),
    )


def _has_searches(reads: Sequence[ProgramRead]) -> bool:
    return any(isinstance(read, ListRead) for read in reads)


async def _read_wallets(
    node: Node,
    endpoint: Endpoint,
    accounts: Sequence[str],
    program_reads: Sequence[ProgramRead],
    block: Block,
    with_stakes: bool,
    tolerates_failures: bool,
) -> tuple[dict[str, Wallet], ProgramResults]:
    """Read wallets and program accounts consistently at one slot from one endpoint.

    If failures are tolerated, a search that failed is Unknown instead of an error.
    """
    account_reads = [read for read in program_reads if isinstance(read, AccountRead)]
    tree_reads = [read for read in program_reads if isinstance(read, TreeRead)]
    searches = {read: search_request(read) for read in program_reads if isinstance(read, ListRead)}
    addresses = list(dict.fromkeys(read.address for read in account_reads))
    account_requests = [contents_request(page) for page in pages(addresses)]
    tree_requests = [contents_request(page, size) for size, page in tree_pages(tree_reads)]
    requests = [
        *wallet_requests(accounts, with_stakes=with_stakes),
        *searches.values(),
        *account_requests,
        *tree_requests,
    ]
    read = ConsistentRead(requests, tolerates_failures=tolerates_failures)
    slot = await read_until_consistent(node, endpoint, read, block.height)
    native_accounts: dict[str, Plain | None] = {}
    for page in pages(accounts):
        native_accounts |= zip(page, read.responses[lamports_request(page)].content, strict=True)
    epoch, read_block = await _epoch_and_block(node, endpoint, block, slot, read.clocks)
    stake_responses = [read.responses[each] for each in map(stakes_request, accounts) if each in read.responses]
    has_stakes = any(bytes(response.content) != EMPTY_LIST for response in stake_responses)
    history = await _read_stake_history(node, endpoint, slot, epoch) if has_stakes else {}
    wallets = {
        account: _wallet(endpoint.name, account, native_accounts[account], read, read_block, epoch, history)
        for account in accounts
    }
    results: ProgramResults = {
        **_results(endpoint.name, account_reads, _contents(read, account_requests)),
        **_results(endpoint.name, tree_reads, _contents(read, tree_requests)),
    }
    for search, request in searches.items():
        refusal = read.refusals.get(request)
        results[search] = Unknown(refusal.reason) if refusal else read.responses[request].content
    return wallets, results


def _contents(
    read: ConsistentRead, requests: Sequence[Request]
) -> Iterable[tuple[Sequence[str], Sequence[Plain | None]]]:
    """Yield the addresses and the accounts of each page, without the clock."""
    for request in requests:
        yield request.params[0][:-1], read.responses[request].content


def _wallet(
    source: str,
    account: str,
    native_account: Plain | None,
    read: ConsistentRead,
    block: Block,
    epoch: int,
    history: StakeHistory,
) -> Wallet:
    """Return the wallet of an account from the responses of a consistent read.

    A note tells if its stake accounts could not be searched for, or if it belongs to a program. Raises BadAnswer for
    token or stake accounts of others.
    """
    notes: list[Note] = []
    balances = []
    for program in TOKEN_PROGRAMS:
        content = read.responses[tokens_request(account, program)].content
        program_balances, new_notes = token_accounts(source, content, account, program)
        balances.append(program_balances)
        notes += new_notes
    stakes: list[WalletStake] = []
    request = stakes_request(account)
    if request in read.responses:
        stakes, new_notes = stake_accounts(source, read.responses[request].content, account, epoch, history)
        notes += new_notes
    elif request in read.refusals:
        notes.append(Note(account, f"stake accounts were not found: {read.refusals[request].reason}", True))
    if native_account is not None and native_account.owner != SYSTEM:
        reason = f"the address is an account of the program {native_account.owner}, and no wallet"
        notes.append(Note(account, reason))
    lamports = native_account.lamports if native_account else 0
    return Wallet(block, lamports, joined(source, balances), tuple(stakes), tuple(notes), epoch)


async def stakes_of(node: Node, account: str, min_slot: int, endpoint: Endpoint) -> dict[str, WalletStake]:
    """Read the stake accounts that an account may withdraw from now, not before `min_slot`, by address.

    How much of each is active is not computed: `active` and `state` must not be used.

    Raises:
        NodeBehind: The endpoint has not reached `min_slot`.
        UnsupportedMethod: The endpoint does not list them.
        ResponseTooLarge: There are too many of them for one answer.
    """
    answer = await endpoint.ask_one(at_slot(stakes_request(account), node.commitment, min_slot))
    _, content = slot_and_content(endpoint.name, answer)
    return {stake.address: stake for stake in stake_accounts(endpoint.name, content, account, 0, {})[0]}


async def lamports_of(endpoint: Endpoint, accounts: Sequence[str], min_slot: int) -> dict[str, tuple[int, int]]:
    """Read the lamports of accounts, each with the final slot at which it was read; 0 without an account.

    Raises NodeBehind if `min_slot` is not final yet at the endpoint.
    """
    lamports: dict[str, tuple[int, int]] = {}
    for page in pages(accounts):
        answer = await endpoint.ask_one(at_slot(lamports_request(page), "finalized", min_slot))
        slot, content = slot_and_content(endpoint.name, answer)
        records = accounts_in(endpoint.name, content, len(page) + 1)[:-1]
        lamports |= {
            account: (record.lamports if record else 0, slot) for account, record in zip(page, records, strict=True)
        }
    return lamports


def _epoch_and_time(source: str, clock: Plain, slot: int) -> tuple[int, int]:
    """Return the epoch and the time of a slot, or raise BadAnswer for the clock of another slot."""
    content = decoded(source, clock)
    if len(content) != CLOCK_SIZE:
        raise BadAnswer(source, f"a clock of {len(content)} bytes")
    clock_slot, _, epoch, _, time_s = struct.unpack("<QqQQq", content)
    if clock_slot != slot or time_s < 0:
        raise BadAnswer(source, f"the clock of slot {clock_slot} in an answer of slot {slot}")
    return epoch, time_s


async def _epoch_and_block(
    node: Node, endpoint: Endpoint, block: Block, slot: int, clocks: Mapping[int, Plain]
) -> tuple[int, Block]:
    """Return the epoch and the block of a slot.

    Endpoints may serve a state before its block: it is awaited. The epoch is that of the newest clock.

    Raises:
        NodeBehind: The endpoint lacks the block after MAX_ATTEMPTS attempts.
    """
    times = {each: _epoch_and_time(endpoint.name, clock, each) for each, clock in clocks.items()}
    epoch = times[max(times)][0]
    if slot == block.height:
        return epoch, block
    for attempt in range(MAX_ATTEMPTS):
        try:
            header = await node.header_at(endpoint, slot)
        except NodeBehind:
            if attempt == MAX_ATTEMPTS - 1:
                raise
            await node.environment.clock.sleep(PAUSE_S * (attempt + 1))
            continue
        time_us = times[slot][1] * 1_000_000 if slot in times else header.time_us
        return epoch, Block(slot, header.hash, header.parent, time_us)
    raise AssertionError("unreachable: the last attempt returns or raises")


# --- accounts of programs ---------------------------------------------------------------------------------------------


async def read_program_accounts(node: Node, reads: Sequence[ProgramRead], block: Block) -> ProgramResults:
    """Read program accounts now, each page of them at one slot.

    Unknown for blocks that are older than `MAX_AGE_SLOTS`, and for trees, which are read with wallets.
    """
    if node.finalized - block.height > MAX_AGE_SLOTS:
        return dict.fromkeys(reads, Unknown(PAST, "absent"))
    results: ProgramResults = dict.fromkeys((read for read in reads if isinstance(read, TreeRead)), TREES_NEED_WALLETS)
    return results | await tolerate_failed_searches(
        node,
        _has_searches(reads),
        lambda endpoint, tolerates_failures: _read_pages(node, endpoint, reads, block, tolerates_failures),
    )


async def _read_pages(
    node: Node, endpoint: Endpoint, reads: Sequence[ProgramRead], block: Block, tolerates_failures: bool
) -> ProgramResults:
    """Return results by read at the block, or at most MAX_AGE_SLOTS later; all Unknown if later still.

    If failures are tolerated, a search that failed is Unknown. Raises NodeBehind for an older answer.
    """
    account_reads = [read for read in reads if isinstance(read, AccountRead)]
    addresses = list(dict.fromkeys(read.address for read in account_reads))
    searches = {search_request(read): read for read in reads if isinstance(read, ListRead)}
    requests = [Request("getMultipleAccounts", (page, Options("base64"))) for page in pages(addresses, PAGE)]
    requests += searches
    dated_requests = [at_slot(request, node.commitment, block.height) for request in requests]
    answers = await send(endpoint, dated_requests, block.height, separate_searches=tolerates_failures)
    contents: list[tuple[Sequence[str], Sequence[Plain | None]]] = []
    results: ProgramResults = {}
    for request, answer in zip(requests, answers, strict=True):
        if is_tolerated(answer, request, tolerates_failures):
            results[searches[request]] = Unknown(answer.reason)
            continue
        slot, content = slot_and_content(endpoint.name, result(answer))
        if slot < block.height:
            raise NodeBehind(endpoint.name, f"answered about slot {slot}, which is older than {block.height}")
        if slot - block.height > MAX_AGE_SLOTS:
            return dict.fromkeys(reads, Unknown(PAST, "absent"))
        if request in searches:
            results[searches[request]] = addresses_in(endpoint.name, content, request.params[0])
        else:
            page = request.params[0]
            contents.append((page, accounts_in(endpoint.name, content, len(page))))
    return {**results, **_results(endpoint.name, account_reads, contents)}


def _results(
    source: str,
    reads: Sequence[AccountRead | TreeRead],
    contents: Iterable[tuple[Sequence[str], Sequence[Plain | None]]],
) -> ProgramResults:
    """Return the results of reads from pages of addresses and accounts."""
    accounts = {
        address: account for addresses, page in contents for address, account in zip(addresses, page, strict=True)
    }
    data = {address: decoded(source, account) if account else b"" for address, account in accounts.items()}
    return {read: read.result(accounts[read.address], data[read.address]) for read in reads}


async def _read_stake_history(node: Node, endpoint: Endpoint, slot: int, epoch: int) -> StakeHistory:
    """Read the stake history of the epochs before `epoch`; empty if the chain has none.

    Raises BadAnswer if it is malformed.
    """
    options = Options("base64", size=HISTORY_SIZE).at(node.commitment, slot)
    answer = await endpoint.ask_one(Request("getMultipleAccounts", ([STAKE_HISTORY], options)), height=slot)
    (account,) = accounts_in(endpoint.name, slot_and_content(endpoint.name, answer)[1], 1)
    try:
        history = stake_history(decoded(endpoint.name, account)) if account is not None else {}
    except ValueError as error:
        raise BadAnswer(endpoint.name, str(error)) from None
    return {each: cluster for each, cluster in history.items() if each < epoch}


# --- all reads --------------------------------------------------------------------------------------------------------


async def answer(node: Node, reads: Sequence[Read[Value]], block: Block, *, with_stakes: bool) -> list[Value]:
    """Return the results of reads, in order. Reads of an unknown type have the result Unknown.

    Raises:
        SourceError: Wallets, mints or rewards could not be read.
    """
    accounts = [read.account for read in reads if isinstance(read, WalletRead)]
    mint_addresses = [read.mint for read in reads if isinstance(read, MintRead)]
    program_reads = [read for read in reads if isinstance(read, ProgramRead)]
    leaf_lists = {read.account: das.leaves(node, read.account) for read in reads if isinstance(read, LeavesRead)}
    state = _read_state(node, accounts, program_reads, block, with_stakes=with_stakes)
    (wallets, program_results), leaves = await asyncio.gather(state, asyncio.gather(*leaf_lists.values()))
    mints = await read_mints(node, mint_addresses, block.height) if mint_addresses else {}
    rewards = await read_rewards(node, [read for read in reads if isinstance(read, RewardRead)])
    leaves_by_account = dict(zip(leaf_lists, leaves, strict=True))
    results = _Results(wallets, leaves_by_account, mints, program_results, rewards, node.nft_names)
    return cast(list[Value], [results.get(read) for read in reads])


async def _read_state(
    node: Node, accounts: Sequence[str], program_reads: Sequence[ProgramRead], block: Block, *, with_stakes: bool
) -> tuple[Mapping[str, Wallet], ProgramResults]:
    """Return the wallets by account, and the results of program reads.

    Without accounts, only programs are read. All program reads are Unknown if they do not become consistent with the
    wallets, which are then read alone. They are Unknown with the cause `absent` if a wallet was read more than
    `MAX_AGE_SLOTS` after `block`.

    Raises:
        SourceError: The wallets could not be read, or without accounts, the programs.
    """
    if not accounts:
        return {}, await read_program_accounts(node, program_reads, block) if program_reads else {}
    try:
        wallets, results = await read_wallets(node, accounts, program_reads, block, with_stakes=with_stakes)
    except Unavailable as error:  # pools that change with every slot, on several pages
        if not program_reads:
            raise
        wallets, _ = await read_wallets(node, accounts, [], block, with_stakes=with_stakes)
        results = dict.fromkeys(program_reads, Unknown(error.reason))
    if any(wallet.block.height - block.height > MAX_AGE_SLOTS for wallet in wallets.values()):
        results = dict.fromkeys(program_reads, Unknown(PAST, "absent"))
    return wallets, results


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of all reads by kind."""

    wallets: Mapping[str, Wallet]
    leaves: Mapping[str, LeafList | Unknown]
    mints: Mapping[str, Mint | Unknown]
    program_accounts: Mapping[ProgramRead, Any]
    rewards: Mapping[RewardRead, Reward | Unknown | None]
    nft_names: Mapping[str, tuple[str, str]]

    def get(self, read: Read[object]) -> object:
        """Return the result of one read; Unknown for other types of reads, and for names that no list has."""
        match read:
            case RewardRead():
                return self.rewards[read]
            case AccountRead() | ListRead() | TreeRead():
                return self.program_accounts[read]
            case WalletRead(account):
                return self.wallets[account]
            case LeavesRead(account):
                return self.leaves[account]
            case MintRead(address):
                return self.mints[address]
            case NameRead(id):
                return self.nft_names.get(id, Unknown("no endpoint has listed it"))
        return Unknown(f"Solana chains know no {type(read).__name__}")
