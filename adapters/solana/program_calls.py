"""Parse calls of chosen programs in one transaction, and the movements of each. No I/O.

The runtime records which program executed each instruction, and token programs move exactly what their instructions
say. So nobody can imitate a call of another program. A movement belongs to the innermost call that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from solders.pubkey import Pubkey
from spl.token.constants import WRAPPED_SOL_MINT

from chainfolio.adapters.solana.call_forms import Call, CallEntry, CallMeta
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN, TOKEN_PROGRAMS
from chainfolio.adapters.solana.stake_calls import account_keys, instruction_data
from chainfolio.adapters.solana.transactions import NATIVE
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed

# Instructions of the token programs, by their first byte.
INITIALIZE, INITIALIZE_2, INITIALIZE_3 = 1, 16, 18
TRANSFER, MINT_TO, BURN, CLOSE = 3, 7, 8, 9
TRANSFER_CHECKED, MINT_TO_CHECKED, BURN_CHECKED, FEE_EXTENSION, BATCH = 12, 14, 15, 26, 255
WRAPPED: Final = str(WRAPPED_SOL_MINT)
TRANSFER_WITH_FEE: Final = 1  # of the extension
# Instructions of the system program, by their first four bytes.
CREATE, ASSIGN, SEND, CREATE_SEEDED, SEND_SEEDED = 0, 1, 2, 3, 11
KEY_SIZE: Final = 32


class Movement(NamedTuple):
    """A movement in raw units of a mint, or of lamports (`NATIVE`).

    Attributes:
        sender: The owner of the paying account; empty for created tokens.
        recipient: The owner of the account that was paid; empty for destroyed tokens.
        source: The paying account.
        target: The account that was paid.
    """

    mint: str
    raw: int
    sender: str
    recipient: str
    source: str
    target: str


class ProgramCall(NamedTuple):
    """A call of a program: its accounts in order, its data, and what it moved."""

    program: str
    accounts: tuple[str, ...]
    content: bytes
    movements: tuple[Movement, ...]


class Funding(NamedTuple):
    """Lamports that an account paid for a new account, and the program that owns the new account.

    `is_created` is False if lamports were sent to the account, which may have had some.
    """

    payer: str
    account: str
    lamports: int
    program: str
    is_created: bool


class ClosedAccount(NamedTuple):
    """The lamports of a closed account, and their recipient, which is empty if it is not known."""

    lamports: int
    recipient: str


class CallTransaction(NamedTuple):
    """The calls of a transaction.

    Attributes:
        calls: The calls of the chosen programs; None if the node did not record what programs called.
        holders: Owner and mint of each token account.
        funded: What accounts paid for new accounts.
        closed: Accounts without lamports afterwards, and those that were created again.
        accounts: All accounts that it names.
    """

    calls: tuple[ProgramCall, ...] | None
    holders: Mapping[str, tuple[str, str]]
    funded: Sequence[Funding]
    closed: Mapping[str, ClosedAccount]
    accounts: Sequence[str] = ()


class _Step(NamedTuple):
    """One instruction. `height` is 1 for those of the transaction itself, None if not recorded."""

    program: str
    accounts: tuple[str, ...]
    content: bytes
    height: int | None


def parse_calls(source: str, content: bytes, programs: Collection[str]) -> CallTransaction | None:
    """Return the calls of some programs in a transaction, with its new and closed accounts.

    Returns:
        None if the node did not record the outcome of the transaction. Without calls and accounts if it failed. Its
        `calls` are None if inner calls, or the depth that assigns movements to them, are not recorded.

    Raises:
        BadAnswer: The transaction contradicts itself.
    """
    entry = typed(source, content, CallEntry)
    meta, message = entry.meta, entry.transaction.message
    if meta is None:
        return None
    keys = account_keys(source, entry, meta)
    if meta.err is not None:
        return CallTransaction((), {}, [], {})
    inner = {each.index: each.instructions for each in meta.innerInstructions or ()}
    groups = [
        [
            step
            for each, height in _with_heights(outer, inner.get(number, ()))
            for step in _unbatch(source, _step(source, keys, each, height))
        ]
        for number, outer in enumerate(message.instructions)
    ]
    holders = _holders(source, keys, meta, [step for steps in groups for step in steps])
    is_whole = meta.innerInstructions is not None or not any(key in programs for key in keys)
    calls: list[ProgramCall] = []
    for steps in groups:
        found = _calls(steps, programs, holders)
        is_whole = is_whole and found is not None
        calls += found or ()
    wrapped = {
        keys[each.accountIndex]: int(each.uiTokenAmount.amount)
        for each in meta.postTokenBalances or ()
        if each.mint == WRAPPED
    }
    lamports = dict(zip(keys, zip(meta.preBalances, meta.postBalances, strict=True), strict=True))
    payments = list(_payments([step for steps in groups for step in steps]))
    funded = [
        each._replace(lamports=min(each.lamports, lamports[each.account][1] - wrapped.get(each.account, 0)))
        for each in payments
        if each.program and lamports[each.account][1]
    ]
    again = {each.account for each in payments if each.is_created and lamports[each.account][0]}
    lamports_of_closed = {key: before for key, (before, after) in lamports.items() if not after or key in again}
    receipts = _receipts(payments, lamports, {keys[0]: meta.fee})
    receipts = {key: raw for key, raw in receipts.items() if key not in holders}
    closed = _closed_accounts([step for steps in groups for step in steps], lamports_of_closed, receipts)
    return CallTransaction(tuple(calls) if is_whole else None, holders, funded, closed, keys)


def _with_heights(outer: Call, inner: Sequence[Call]) -> Iterator[tuple[Call, int | None]]:
    yield outer, 1
    for each in inner:
        yield each, each.stackHeight


def _step(source: str, keys: Sequence[str], call: Call, height: int | None) -> _Step:
    if max([call.programIdIndex, *call.accounts]) >= len(keys):
        raise BadAnswer(source, "an instruction with an account that the transaction does not name")
    accounts = tuple(keys[index] for index in call.accounts)
    return _Step(keys[call.programIdIndex], accounts, instruction_data(source, call.data), height)


def _unbatch(source: str, step: _Step) -> Iterator[_Step]:
    """Yield the instructions of a batch of the token program; any other instruction is yielded itself.

    Before each instruction stand the number of its accounts, which are the next ones of the batch, and the length of
    its data, in a byte each (p-token, `process_batch`). A batch contains no batches. Raises BadAnswer if it breaks off.
    """
    if step.program != TOKEN or step.content[:1] != bytes([BATCH]):
        yield step
        return
    accounts, content = step.accounts, step.content[1:]
    while content:
        if len(content) < 2 or len(content) < 2 + content[1] or len(accounts) < content[0]:
            raise BadAnswer(source, "a batch of token instructions that breaks off, and was executed")
        count, end = content[0], 2 + content[1]
        yield step._replace(accounts=accounts[:count], content=content[2:end])
        accounts, content = accounts[count:], content[end:]


def _holders(source: str, keys: Sequence[str], meta: CallMeta, steps: Sequence[_Step]) -> Mapping[str, tuple[str, str]]:
    """Return owner and mint of each token account, also of those that exist during the transaction only.

    An account whose owner changes has the owner "". Raises BadAnswer for an account that the transaction does not name.
    """
    holders: dict[str, tuple[str, str]] = {}
    for each in (*(meta.preTokenBalances or ()), *(meta.postTokenBalances or ())):
        if each.accountIndex >= len(keys):
            raise BadAnswer(source, "a balance of an account that the transaction does not name")
        key = keys[each.accountIndex]
        holder = (each.owner or key, each.mint)
        holders[key] = holder if holders.get(key, holder) == holder else ("", each.mint)
    for step in steps:
        kind = step.content[:1]
        if step.program not in TOKEN_PROGRAMS or len(step.accounts) < 2:
            continue
        if kind == bytes([INITIALIZE]) and len(step.accounts) > 2:
            holders.setdefault(step.accounts[0], (step.accounts[2], step.accounts[1]))
        elif kind in (bytes([INITIALIZE_2]), bytes([INITIALIZE_3])) and len(step.content) >= 33:
            holders.setdefault(step.accounts[0], (_key(step.content, 1), step.accounts[1]))
    return holders


@dataclass(slots=True)
class _Open:
    """A call whose inner instructions are being read."""

    step: _Step
    movements: list[Movement] = field(default_factory=list)


def _calls(
    steps: Sequence[_Step], programs: Collection[str], holders: Mapping[str, tuple[str, str]]
) -> list[ProgramCall] | None:
    """Return the calls in one instruction of a transaction and in those below it.

    None if the depth of inner instructions is not recorded, and several of the chosen programs took part.
    """
    of_programs = [step for step in steps if step.program in programs]
    has_heights = all(step.height is not None for step in steps)
    if not of_programs:
        return []
    if not has_heights and (len(of_programs) > 1 or steps[0] is not of_programs[0]):
        return None
    calls: list[_Open] = []
    stack: list[_Open] = []
    for step in steps:
        while has_heights and stack and (stack[-1].step.height or 0) >= (step.height or 0):
            stack.pop()
        if step.program in programs:
            calls.append(_Open(step))
            stack.append(calls[-1])
        elif stack and (movement := _movement(step, holders)) is not None:
            stack[-1].movements.append(movement)
    return [
        ProgramCall(each.step.program, each.step.accounts, each.step.content, tuple(each.movements)) for each in calls
    ]


def _movement(step: _Step, holders: Mapping[str, tuple[str, str]]) -> Movement | None:
    """Return the movement of one instruction: coins that are sent, or tokens of `MOVES`; None for others."""
    accounts, content = step.accounts, step.content
    if step.program == SYSTEM:
        if int.from_bytes(content[:4], "little") != SEND or len(accounts) < 2:
            return None
        sender, recipient = (holders.get(each, (each, ""))[0] for each in accounts[:2])
        return Movement(NATIVE, int.from_bytes(content[4:12], "little"), sender, recipient, *accounts[:2])
    if step.program not in TOKEN_PROGRAMS or len(accounts) < 3 or not content:
        return None
    ends = MOVES.get(content[0])
    start = 1
    if content[0] == FEE_EXTENSION:
        ends, start = (MOVES[TRANSFER_CHECKED], 2) if content[1:2] == bytes([TRANSFER_WITH_FEE]) else (None, 0)
    if ends is None:
        return None
    source, recipient, mint = ends(accounts)
    raw = int.from_bytes(content[start : start + 8], "little")
    held = holders.get(source or recipient, ("", ""))[1]
    payer, paid = (holders.get(each, (each, ""))[0] for each in (source, recipient))
    return Movement(mint or held, raw, payer, paid, source, recipient)


# By the first byte: the paying account, the account that is paid, and the mint. Empty texts for what there is not.
MOVES: Final[Mapping[int, Callable[[Sequence[str]], tuple[str, str, str]]]] = {
    TRANSFER: lambda accounts: (accounts[0], accounts[1], ""),
    TRANSFER_CHECKED: lambda accounts: (accounts[0], accounts[2], accounts[1]),
    MINT_TO: lambda accounts: ("", accounts[1], accounts[0]),
    MINT_TO_CHECKED: lambda accounts: ("", accounts[1], accounts[0]),
    BURN: lambda accounts: (accounts[0], "", accounts[1]),
    BURN_CHECKED: lambda accounts: (accounts[0], "", accounts[1]),
}


def _payments(steps: Sequence[_Step]) -> Iterator[Funding]:
    """Yield the payments by the system program; `program` is empty if the account is not new."""
    system = [(int.from_bytes(each.content[:4], "little"), each) for each in steps if each.program == SYSTEM]
    assigned = {each.accounts[0]: _key(each.content, 4) for kind, each in system if kind == ASSIGN and each.accounts}
    for kind, step in system:
        if kind not in (SEND, SEND_SEEDED, CREATE, CREATE_SEEDED) or len(step.accounts) < 2:
            continue
        account = step.accounts[-1] if kind == SEND_SEEDED else step.accounts[1]
        # A seeded creation has a key of 32 bytes and a text with its length of 8 bytes before the lamports.
        at = 44 + int.from_bytes(step.content[36:44], "little") if kind == CREATE_SEEDED else 4
        raw = int.from_bytes(step.content[at : at + 8], "little")
        is_created = kind in (CREATE, CREATE_SEEDED)
        program = _key(step.content, at + 16) if is_created else assigned.get(account, "")
        yield Funding(step.accounts[0], account, raw, program, is_created)


def _receipts(
    payments: Iterable[Funding], lamports: Mapping[str, tuple[int, int]], fee: Mapping[str, int]
) -> dict[str, int]:
    """Return by account the lamports that came without instructions of the system program, before the fee.

    Negative if they left.
    """
    receipts = {key: after - before + fee.get(key, 0) for key, (before, after) in lamports.items()}
    for each in payments:
        receipts[each.payer] += each.lamports
        receipts[each.account] -= each.lamports
    return receipts


def _closed_accounts(
    steps: Sequence[_Step], lamports_of_closed: Mapping[str, int], receipts: Mapping[str, int]
) -> dict[str, ClosedAccount]:
    """Return closed accounts with those that got their lamports.

    An instruction of a token program names that account. Other programs do not: then it is the one to which as much
    came in another way than by the system program, or the only one to which enough came.

    Args:
        steps: All instructions.
        lamports_of_closed: The lamports of closed accounts.
        receipts: As of `_receipts`, without token accounts, which move wrapped coins too.
    """
    by_tokens = {
        step.accounts[0]: step.accounts[1]
        for step in steps
        if step.program in TOKEN_PROGRAMS and step.content[:1] == bytes([CLOSE]) and len(step.accounts) > 1
    }
    left = dict(receipts)
    for account, recipient in by_tokens.items():
        left[recipient] = left.get(recipient, 0) - lamports_of_closed.get(account, 0)
    total = sum(raw for account, raw in lamports_of_closed.items() if account not in by_tokens)
    return {
        account: ClosedAccount(raw, by_tokens.get(account) or _recipient(raw, total, left))
        for account, raw in lamports_of_closed.items()
    }


def _recipient(raw: int, total: int, receipts: Mapping[str, int]) -> str:
    """Return the account that got the lamports of a closed account; empty if it is ambiguous.

    Args:
        raw: Lamports of the closed account.
        total: Lamports of all closed accounts whose recipient no instruction names.
        receipts: Lamports that each account received.
    """
    for amount in (raw, total):
        equal = [key for key, each in receipts.items() if each == amount]
        if len(equal) == 1:
            return equal[0]
    able = [key for key, each in receipts.items() if each >= raw]
    return able[0] if len(able) == 1 else ""


def _key(content: bytes, at: int) -> str:
    """Return the address at an offset of data; empty if the data breaks off."""
    return str(Pubkey.from_bytes(content[at : at + KEY_SIZE])) if len(content) >= at + KEY_SIZE else ""
