"""Changes of one transaction, exact to the raw unit, per account and asset. No I/O.

A node returns the balances of each account before and after a transaction; the change is the difference. Senders and
recipients are paired from the differences, so the sums per account are exact, whatever the programs did. The fee is
kept apart.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, cast

import msgspec
from base58 import BITCOIN_ALPHABET, b58encode
from solana.constants import VOTE_PROGRAM_ID
from solders import compute_budget
from solders.transaction import VersionedTransaction
from spl.memo.constants import MEMO_PROGRAM_ID
from spl.token.constants import ASSOCIATED_TOKEN_PROGRAM_ID

from chainfolio.adapters.solana.forms import U64, Key
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN_PROGRAMS
from chainfolio.errors import BadAnswer, HistoryUnavailable

COMPUTE_BUDGET: Final = str(compute_budget.ID)
NATIVE: Final = ""  # the native coin, among mints
BASE58_DIGITS: Final = {chr(char): number for number, char in enumerate(BITCOIN_ALPHABET)}
PREFIX_SIZE: Final = 8  # bytes of instruction data that are kept
PREFIX_DIGITS: Final = 14  # base58 digits that usually determine them
# Programs that many transactions call on the side: to pay, to open accounts, to move tokens, to write a memo.
COMMON: Final = frozenset([SYSTEM, *TOKEN_PROGRAMS, str(ASSOCIATED_TOKEN_PROGRAM_ID), str(MEMO_PROGRAM_ID)])
# Main programs whose data is not kept: None means a plain transfer, and votes are too many.
NO_DATA: Final = frozenset([None, str(VOTE_PROGRAM_ID)])
Index = Annotated[int, msgspec.Meta(ge=0, lt=256)]


class TokenUnits(msgspec.Struct, gc=False):
    """An amount of a token in digits.

    The digits are checked when they are summed: a pattern would take as long as all other decoding.
    """

    amount: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]


class TokenBalance(msgspec.Struct, gc=False):
    """The balance of a token account before or after a transaction. Old nodes leave out the owner."""

    accountIndex: Index
    mint: Key
    uiTokenAmount: TokenUnits
    owner: Key | None = None


BALANCES: Final = msgspec.json.Decoder(list[TokenBalance] | None)
NOT_RECORDED: Final = b"null"  # from nodes that do not record token balances; others of them leave out the field
EMPTY: Final = (b"[]", NOT_RECORDED)
NO_BALANCES: Final = msgspec.Raw(NOT_RECORDED)


class LoadedAddresses(msgspec.Struct, gc=False):
    """Accounts that a transaction names by lookup tables."""

    writable: list[Key] = []
    readonly: list[Key] = []


class Meta(msgspec.Struct, gc=False):
    """The outcome of a transaction.

    Token balances are lists of `TokenBalance` that are not decoded yet: if no token moved, both lists are equal and are
    never decoded.
    """

    fee: U64
    preBalances: list[U64]
    postBalances: list[U64]
    err: Any = None
    preTokenBalances: msgspec.Raw = NO_BALANCES
    postTokenBalances: msgspec.Raw = NO_BALANCES
    loadedAddresses: LoadedAddresses | None = None


class Instruction(msgspec.Struct, gc=False):
    """An instruction: its program, and its data in base58 unless the node parsed it."""

    programIdIndex: Index | None = None
    programId: Key | None = None
    data: str = ""


class ParsedKey(msgspec.Struct, gc=False):
    """An account in the encoding `jsonParsed`."""

    pubkey: Key


class MessageHeader(msgspec.Struct, gc=False):
    """The number of leading accounts that signed."""

    numRequiredSignatures: Index


class Message(msgspec.Struct, gc=False):
    """The signed message of a transaction."""

    accountKeys: list[Key | ParsedKey]
    instructions: list[Instruction]
    header: MessageHeader | None = None


class SignedMessage(msgspec.Struct, gc=False):
    """A message with its signatures."""

    signatures: list[str]
    message: Message


class Entry(msgspec.Struct, gc=False):
    """A transaction in a block, in the encoding `json`, `jsonParsed` or `base64`."""

    transaction: SignedMessage | tuple[str, str]
    meta: Meta | None = None


class FetchedTransaction(Entry, gc=False):
    """A transaction that was requested by its signature."""

    slot: U64 = 0
    blockTime: int | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """The changes of one transaction.

    Attributes:
        signature: The first signature, which identifies the transaction.
        payer: The account that paid the fee.
        program: The main program; None if there is none.
        fee: In lamports.
        failed: True if the transaction failed.
        native: Lamports by account. The fee is not part of the payer's change.
        tokens: Raw units by mint and owner.
        content: The first bytes of the main program's instruction data; None if they are not kept.
    """

    signature: str
    payer: str
    program: str | None
    fee: int
    failed: bool
    native: Mapping[str, int]
    tokens: Mapping[str, Mapping[str, int]]
    content: bytes | None = None

    def net(self, account: str, mint: str = NATIVE) -> int:
        """Return the change of an account in raw units of a mint, or in lamports with the fee."""
        if mint:
            return self.tokens.get(mint, {}).get(account, 0)
        return self.native.get(account, 0) - (self.fee if account == self.payer else 0)


def change(source: str, entry: Entry, slot: int) -> Change:
    """Return the changes of a transaction.

    Args:
        source: The endpoint.
        entry: The transaction.
        slot: Its slot.

    Raises:
        BadAnswer: The transaction contradicts itself.
        HistoryUnavailable: The node did not record its outcome or its token balances.
    """
    meta = entry.meta
    if meta is None:
        raise HistoryUnavailable(source, slot, "what came of a transaction is not kept")
    signatures, keys, instructions = _message_parts(source, entry.transaction)
    before, after = meta.preBalances, meta.postBalances
    if len(keys) != len(before) and meta.loadedAddresses:
        keys = [*keys, *meta.loadedAddresses.writable, *meta.loadedAddresses.readonly]
    if not signatures or not len(keys) == len(before) == len(after):
        raise BadAnswer(source, f"a transaction of slot {slot} with {len(keys)} accounts and other balances")
    native = {key: new - old for key, old, new in zip(keys, before, after, strict=True) if old != new}
    native[keys[0]] = native.get(keys[0], 0) + meta.fee
    tokens = _tokens(source, keys, meta)
    is_unrecorded = not tokens and bytes(meta.preTokenBalances) == NOT_RECORDED and meta.err is None
    if is_unrecorded and any(each in keys for each in TOKEN_PROGRAMS):
        raise HistoryUnavailable(source, slot, "what token accounts had in a transaction is not kept")
    program, content = _main_program(source, keys, instructions)
    failed = meta.err is not None
    return Change(signatures[0], keys[0], program, meta.fee, failed, native, tokens, content)


def _main_program(
    source: str, keys: Sequence[str], instructions: Sequence[Instruction]
) -> tuple[str | None, bytes | None]:
    """Return the main program of a transaction, and the first bytes of its data.

    The main program is the first one that is not in `COMMON`, or else the first one; settings of the compute budget do
    not count. If it is called more than once, the call with the most data counts. The data is None for votes, for calls
    without data, and if all programs are in `COMMON`; both are None without a program. Raises BadAnswer.
    """
    first_program = main_program = None
    content = ""
    for each in instructions:
        index = each.programIdIndex
        program = each.programId if index is None else keys[index] if index < len(keys) else None
        if program is None or program == COMPUTE_BUDGET:
            continue
        first_program = first_program or program
        if program not in COMMON and main_program in (None, program):
            main_program = program
            if len(each.data) > len(content):
                content = each.data
    has_data = content and main_program not in NO_DATA
    return main_program or first_program, base58_prefix(source, content) if has_data else None


def base58_prefix(source: str, text: str) -> bytes:
    """Return the first `PREFIX_SIZE` bytes of a base58 text, or all if there are fewer.

    The first PREFIX_DIGITS digits are read and checked; the others only if they could change the result.

    Raises:
        BadAnswer: A digit that was read is not base58; `source` is the endpoint that sent it.
    """
    digits = text.lstrip("1")
    rest_count = len(digits) - PREFIX_DIGITS
    try:
        number = 0
        for char in digits[:PREFIX_DIGITS]:
            number = number * 58 + BASE58_DIGITS[char]
        spread = _power(rest_count) if rest_count > 0 else 1
        low = number * spread
        size = (low.bit_length() + 7) // 8
        dropped_bits = 8 * max(0, size - PREFIX_SIZE)
        if low >> dropped_bits != low + spread - 1 >> dropped_bits:
            for char in digits[PREFIX_DIGITS:]:
                number = number * 58 + BASE58_DIGITS[char]
            low, size = number, (number.bit_length() + 7) // 8
            dropped_bits = 8 * max(0, size - PREFIX_SIZE)
    except KeyError:
        raise BadAnswer(source, "data of an instruction that is not in base58") from None
    prefix = (low >> dropped_bits).to_bytes(min(size, PREFIX_SIZE), "big")
    return prefix if digits is text else (bytes(len(text) - len(digits)) + prefix)[:PREFIX_SIZE]


@lru_cache(2048)
def _power(count: int) -> int:
    return int(58**count)


def _message_parts(
    source: str, transaction: SignedMessage | tuple[str, str]
) -> tuple[list[str], list[str], list[Instruction]]:
    """Return the signatures, the accounts in the message itself, and the instructions."""
    if not isinstance(transaction, SignedMessage):
        return _unpack(source, *transaction)
    message = transaction.message
    keys = message.accountKeys
    if ParsedKey in map(type, keys):
        keys = [key.pubkey if isinstance(key, ParsedKey) else key for key in keys]
    return transaction.signatures, cast(list[str], keys), message.instructions


def _unpack(source: str, content: str, encoding: str) -> tuple[list[str], list[str], list[Instruction]]:
    """Return signatures, account keys and instructions of a base64 transaction; else raise BadAnswer."""
    if encoding != "base64":
        raise BadAnswer(source, "a transaction in an encoding that was not requested")
    try:
        transaction = VersionedTransaction.from_bytes(b64decode(content, validate=True))
    except Exception as error:  # the library raises whatever its parser does
        raise BadAnswer(source, f"a transaction that cannot be read: {type(error).__name__}") from None
    keys = [str(key) for key in transaction.message.account_keys]
    instructions = [
        Instruction(each.program_id_index, None, to_base58(bytes(each.data)))
        for each in transaction.message.instructions
    ]
    return [str(each) for each in transaction.signatures], keys, instructions


def to_base58(content: bytes) -> str:
    """Return bytes as base58 text."""
    return b58encode(content).decode()


def _tokens(source: str, keys: Sequence[str], meta: Meta) -> dict[str, dict[str, int]]:
    """Return the changes of tokens by mint and owner.

    A token account without a known owner counts as its own owner. A token account without lamports is closed, or not
    yet open, and counts as empty. Mints without a change are absent. Raises BadAnswer for a malformed balance.
    """
    sums: dict[str, dict[str, int]] = {}
    for is_after, balances, lamports in _sides(source, meta):
        for each in balances:
            index, amount = each.accountIndex, each.uiTokenAmount.amount
            if index >= len(keys):
                raise BadAnswer(source, "a balance of an account that the transaction does not name")
            if not (amount.isdigit() and amount.isascii()):
                raise BadAnswer(source, "a balance of a token that is no whole number")
            if not lamports[index]:
                continue
            raw = int(amount) if is_after else -int(amount)
            owner, raw_by_owner = each.owner or keys[index], sums.get(each.mint)
            if raw_by_owner is None:
                sums[each.mint] = {owner: raw}
            elif owner in raw_by_owner:
                raw_by_owner[owner] += raw
            else:
                raw_by_owner[owner] = raw
    return {mint: raw_by_owner for mint, raw_by_owner in sums.items() if any(raw_by_owner.values())}


def _sides(source: str, meta: Meta) -> Sequence[tuple[bool, Sequence[TokenBalance], Sequence[int]]]:
    """Return both sides of a transaction: True for after, the token balances, and the lamports.

    Balances that are the same on both sides are left out, unless an account opens or closes; () if all are.

    Raises:
        BadAnswer: Only one side was recorded.
    """
    lamports_before, lamports_after = meta.preBalances, meta.postBalances
    keeps_accounts = 0 not in lamports_before and 0 not in lamports_after
    if meta.preTokenBalances == meta.postTokenBalances:
        content = bytes(meta.preTokenBalances)
        if content in EMPTY or (keeps_accounts and content[:1] == b"["):
            return ()
    elif NOT_RECORDED in (bytes(meta.preTokenBalances), bytes(meta.postTokenBalances)):
        raise BadAnswer(source, "it tells what token accounts had on one side of a transaction alone")
    before, after = _balances(source, meta.preTokenBalances), _balances(source, meta.postTokenBalances)
    if keeps_accounts and len(before) == len(after):
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        before, after = [pair[0] for pair in changed], [pair[1] for pair in changed]
    return (False, before, lamports_before), (True, after, lamports_after)


def _balances(source: str, content: msgspec.Raw) -> Sequence[TokenBalance]:
    """Decode the token balances on one side of a transaction."""
    try:
        return BALANCES.decode(content) or ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"balances of tokens of the wrong shape: {error}") from None


def token_accounts_of(source: str, entry: Entry) -> set[tuple[str, str]]:
    """Return the pairs of owner and token account in the token balances of a transaction.

    Balances without an owner are left out. The set is empty if the node did not record balances.
    """
    meta = entry.meta
    if meta is None:
        return set()
    balances = [*_balances(source, meta.preTokenBalances), *_balances(source, meta.postTokenBalances)]
    if not balances:
        return set()
    keys = _account_keys(source, entry, meta)
    return {(each.owner, keys[each.accountIndex]) for each in balances if each.owner and each.accountIndex < len(keys)}


def ownerless_changes(source: str, entry: Entry) -> set[tuple[str, str]]:
    """Return token account and mint of each balance that a transaction changed without a recorded owner.

    Raises BadAnswer if only one side was recorded.
    """
    meta = entry.meta
    if meta is None:
        return set()
    keys = _account_keys(source, entry, meta)
    raws: dict[tuple[str, str], int] = {}
    for is_after, balances, lamports in _sides(source, meta):
        for each in balances:
            if not each.owner and each.accountIndex < len(keys) and lamports[each.accountIndex]:
                account = keys[each.accountIndex], each.mint
                raw = int(each.uiTokenAmount.amount)
                raws[account] = raws.get(account, 0) + (raw if is_after else -raw)
    return {account for account, raw in raws.items() if raw}


def _account_keys(source: str, entry: Entry, meta: Meta) -> list[str]:
    """Return all accounts of a transaction, including those that lookup tables name."""
    keys = _message_parts(source, entry.transaction)[1]
    if len(keys) != len(meta.preBalances) and meta.loadedAddresses:
        return [*keys, *meta.loadedAddresses.writable, *meta.loadedAddresses.readonly]
    return keys


Transfer = tuple[str, str, int]  # sender, recipient, raw


def paired_transfers(changes: Mapping[str, int], issuer: str = SYSTEM) -> list[Transfer]:
    """Return transfers between accounts that add up to each account's change.

    Equal amounts are paired first, then the others in order.

    Args:
        changes: The change of each account.
        issuer: The counterparty of what is left over: the mint for tokens, the system program for lamports.
    """
    if len(changes) == 2:  # usually one account sent what the other received
        (account_a, raw), (account_b, opposite) = changes.items()
        if raw and raw + opposite == 0:
            return [(account_a, account_b, -raw) if raw < 0 else (account_b, account_a, raw)]
    senders: list[tuple[str, int]] = []
    recipients: list[tuple[str, int]] = []
    for account, raw in changes.items():
        if raw > 0:
            recipients.append((account, raw))
        elif raw:
            senders.append((account, -raw))
    transfers: list[Transfer] = []
    if senders and recipients:
        has_equals = not {raw for _, raw in senders}.isdisjoint([raw for _, raw in recipients])
        if len(senders) + len(recipients) > 2 and has_equals:
            transfers = _pair_equal(senders, recipients)
        transfers += _pair_in_order(senders, recipients)
    transfers += [(sender, issuer, raw) for sender, raw in senders]
    return transfers + [(issuer, recipient, raw) for recipient, raw in recipients]


def _pair_equal(senders: list[tuple[str, int]], recipients: list[tuple[str, int]]) -> list[Transfer]:
    """Pair senders and recipients of equal amounts, and remove them from both lists."""
    transfers: list[Transfer] = []
    for sender in list(senders):
        equal = next((recipient for recipient in recipients if recipient[1] == sender[1]), None)
        if equal is not None:
            transfers.append((sender[0], *equal))
            senders.remove(sender)
            recipients.remove(equal)
    return transfers


def _pair_in_order(senders: list[tuple[str, int]], recipients: list[tuple[str, int]]) -> list[Transfer]:
    """Pair senders and recipients in order until one side is used up. Both lists keep what is left."""
    transfers: list[Transfer] = []
    senders.reverse()
    recipients.reverse()
    while senders and recipients:
        (sender, debit), (recipient, credit) = senders.pop(), recipients.pop()
        if debit > credit:
            senders.append((sender, debit - credit))
            debit = credit
        elif credit > debit:
            recipients.append((recipient, credit - debit))
        transfers.append((sender, recipient, debit))
    senders.reverse()
    recipients.reverse()
    return transfers
