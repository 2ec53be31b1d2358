"""A transaction as nodes write it, and what it changed: exact to the unit, per account and asset. No I/O.

A node says what every account had before and after. What changed is the difference; who gave it to whom is paired from
the differences, so that the sums of an account are exact whatever the programs did inside. The fee is kept apart.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from base58 import BITCOIN_ALPHABET, b58encode
from solana.constants import VOTE_PROGRAM_ID
from solders import compute_budget
from solders.transaction import VersionedTransaction
from spl.memo.constants import MEMO_PROGRAM_ID
from spl.token.constants import ASSOCIATED_TOKEN_PROGRAM_ID

from adapters.solana.forms import U64, Key
from adapters.solana.layouts import SYSTEM, TOKEN_PROGRAMS
from chainfolio.errors import BadAnswer, HistoryUnavailable

COMPUTE_BUDGET: Final = str(compute_budget.ID)
BASE_FEE: Final = 5_000  # lamports for each signature; what is above pays for priority
NATIVE: Final = ""  # the native coin, among mints
BASE58: Final = {chr(char): number for number, char in enumerate(BITCOIN_ALPHABET)}
BEGINNING, KNOWN_DIGITS = 8, 14  # bytes of data that are kept; digits that mostly say them
# Programs that others use: to pay, to open accounts, to move tokens, to write a note.
COMMON: Final = frozenset([SYSTEM, *TOKEN_PROGRAMS, str(ASSOCIATED_TOKEN_PROGRAM_ID), str(MEMO_PROGRAM_ID)])
# What these are given says nothing: who only pays or moves tokens does a plain transfer, and votes are many.
UNTYPED: Final = frozenset([None, str(VOTE_PROGRAM_ID)])
Index = Annotated[int, msgspec.Meta(ge=0, lt=256)]


class Units(msgspec.Struct, gc=False):
    """An amount of a token, in digits; its decimals are the mint's affair. That they are digits is checked where they
    are added up: to match a pattern takes as long as all the rest."""

    amount: Annotated[str, msgspec.Meta(min_length=1, max_length=20)]


class TokenBalance(msgspec.Struct, gc=False):
    """What a token account had, before or after. Old nodes do not say whose it is."""

    accountIndex: Index
    mint: Key
    uiTokenAmount: Units
    owner: Key | None = None


BALANCES: Final = msgspec.json.Decoder(list[TokenBalance] | None)
UNTOLD: Final = b"null"  # nodes that do not keep balances of tokens say null, or nothing
NOTHING: Final = (b"[]", UNTOLD)
NO_BALANCES: Final = msgspec.Raw(UNTOLD)


class Loaded(msgspec.Struct, gc=False):
    """Accounts that a transaction named by tables."""

    writable: list[Key] = []
    readonly: list[Key] = []


class Meta(msgspec.Struct, gc=False):
    """What came of a transaction. Balances of tokens are lists of `TokenBalance`, and still bytes: where nothing moved,
    both are the same and are never looked at."""

    fee: U64
    preBalances: list[U64]
    postBalances: list[U64]
    err: Any = None
    preTokenBalances: msgspec.Raw = NO_BALANCES
    postTokenBalances: msgspec.Raw = NO_BALANCES
    loadedAddresses: Loaded | None = None


class Called(msgspec.Struct, gc=False):
    """An instruction: which program it calls, and with which data, which a node that has parsed them leaves out."""

    programIdIndex: Index | None = None
    programId: Key | None = None
    data: str = ""


class Named(msgspec.Struct, gc=False):
    """An account as a node names it that has parsed the transaction."""

    pubkey: Key


class Header(msgspec.Struct, gc=False):
    """How many of the first accounts signed."""

    numRequiredSignatures: Index


class Message(msgspec.Struct, gc=False):
    """What was signed."""

    accountKeys: list[Key | Named]
    instructions: list[Called]
    header: Header | None = None


class Signed(msgspec.Struct, gc=False):
    """A message with its signatures."""

    signatures: list[str]
    message: Message


class Entry(msgspec.Struct, gc=False):
    """A transaction in a block, in the encoding `json`, `jsonParsed` or `base64`."""

    transaction: Signed | tuple[str, str]
    meta: Meta | None = None


class Found(Entry, gc=False):
    """A transaction that was asked for by its signature."""

    slot: U64 = 0
    blockTime: int | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """What one transaction changed. `native` and `tokens` are by account and by owner; of who paid the fee, without it.
    `program` is the one that it is about, `content` what that was given."""

    signature: str
    payer: str
    program: str | None
    fee: int
    failed: bool
    signatures: int
    native: Mapping[str, int]
    tokens: Mapping[str, Mapping[str, int]]
    content: bytes | None = None

    @property
    def priority_fee(self) -> int:
        """What of the fee was paid to be early."""
        return max(0, self.fee - BASE_FEE * self.signatures)

    def net(self, account: str, mint: str = NATIVE) -> int:
        """How an account's coins or tokens changed altogether, the fee included."""
        if mint:
            return self.tokens.get(mint, {}).get(account, 0)
        return self.native.get(account, 0) - (self.fee if account == self.payer else 0)


def change(source: str, entry: Entry, slot: int) -> Change:
    """What a transaction changed. BadAnswer where it contradicts itself, HistoryUnavailable where what came of it is
    not kept."""
    meta = entry.meta
    if meta is None:
        raise HistoryUnavailable(source, slot, "what came of a transaction is not kept")
    signatures, keys, calls = _read(source, entry.transaction)
    before, after = meta.preBalances, meta.postBalances
    if len(keys) != len(before) and meta.loadedAddresses:
        keys = [*keys, *meta.loadedAddresses.writable, *meta.loadedAddresses.readonly]
    if not signatures or not len(keys) == len(before) == len(after):
        raise BadAnswer(source, f"a transaction of slot {slot} with {len(keys)} accounts and other balances")
    native = {key: new - old for key, old, new in zip(keys, before, after, strict=True) if old != new}
    native[keys[0]] = native.get(keys[0], 0) + meta.fee
    tokens = _tokens(source, keys, meta)
    is_untold = not tokens and bytes(meta.preTokenBalances) == UNTOLD and meta.err is None
    if is_untold and any(each in keys for each in TOKEN_PROGRAMS):
        raise HistoryUnavailable(source, slot, "what token accounts had in a transaction is not kept")
    program, content = _main(source, keys, calls)
    failed = meta.err is not None
    return Change(signatures[0], keys[0], program, meta.fee, failed, len(signatures), native, tokens, content)


def _main(source: str, keys: Sequence[str], calls: Sequence[Called]) -> tuple[str | None, bytes | None]:
    """The program that a transaction is about, and the data that it was given: the first that does more than to pay,
    to open accounts and to move tokens, else the first. Of several calls of it, the one that was given most."""
    first = found = None
    content = ""
    for each in calls:
        at = each.programIdIndex
        program = each.programId if at is None else keys[at] if at < len(keys) else None
        if program is None or program == COMPUTE_BUDGET:
            continue
        first = first or program
        if program not in COMMON and found in (None, program):
            found = program
            if len(each.data) > len(content):
                content = each.data
    return found or first, beginning(source, content) if content and found not in UNTYPED else None


def beginning(source: str, text: str) -> bytes:
    """The first bytes that a text in base58 stands for; fewer where it has fewer. Its first digits say them, but where
    the rest could carry over into them."""
    digits = text.lstrip("1")
    rest = len(digits) - KNOWN_DIGITS
    try:
        number = 0
        for char in digits[:KNOWN_DIGITS]:
            number = number * 58 + BASE58[char]
        spread = _power(rest) if rest > 0 else 1
        low = number * spread
        size = (low.bit_length() + 7) // 8
        behind = 8 * max(0, size - BEGINNING)
        if low >> behind != low + spread - 1 >> behind:
            for char in digits[KNOWN_DIGITS:]:
                number = number * 58 + BASE58[char]
            low, size = number, (number.bit_length() + 7) // 8
            behind = 8 * max(0, size - BEGINNING)
    except KeyError:
        raise BadAnswer(source, "data of an instruction that is not in base58") from None
    found = (low >> behind).to_bytes(min(size, BEGINNING), "big")
    return found if digits is text else (bytes(len(text) - len(digits)) + found)[:BEGINNING]


@lru_cache(2048)
def _power(count: int) -> int:
    return int(58**count)


def _read(source: str, given: Signed | tuple[str, str]) -> tuple[list[str], list[str], list[Called]]:
    """The signatures, the accounts that the message names itself, and what it calls."""
    if not isinstance(given, Signed):
        return _unpacked(source, *given)
    message = given.message
    keys: Any = message.accountKeys
    if Named in map(type, keys):
        keys = [each.pubkey if isinstance(each, Named) else each for each in keys]
    return given.signatures, keys, message.instructions


def _unpacked(source: str, content: str, encoding: str) -> tuple[list[str], list[str], list[Called]]:
    if encoding != "base64":
        raise BadAnswer(source, "a transaction in an encoding that nobody asked for")
    try:
        found = VersionedTransaction.from_bytes(b64decode(content, validate=True))
    except Exception as error:  # the library raises whatever its parser does
        raise BadAnswer(source, f"a transaction that cannot be read: {type(error).__name__}") from None
    keys = [str(key) for key in found.message.account_keys]
    calls = [Called(each.program_id_index, None, written(bytes(each.data))) for each in found.message.instructions]
    return [str(each) for each in found.signatures], keys, calls


def written(content: bytes) -> str:
    """Return bytes as base58 text."""
    return b58encode(content).decode()


def _tokens(source: str, keys: Sequence[str], meta: Meta) -> dict[str, dict[str, int]]:
    """By mint and owner; a token account whose owner no node said is its own. One without lamports is closed, or not
    open yet, and holds nothing, whatever a node says of it."""
    sums: dict[str, dict[str, int]] = {}
    for is_after, several, lamports in _sides(source, meta):
        for each in several:
            at, amount = each.accountIndex, each.uiTokenAmount.amount
            if at >= len(keys):
                raise BadAnswer(source, "a balance of an account that the transaction does not name")
            if not (amount.isdigit() and amount.isascii()):
                raise BadAnswer(source, "a balance of a token that is no whole number")
            if not lamports[at]:
                continue
            raw = int(amount) if is_after else -int(amount)
            owner, own = each.owner or keys[at], sums.get(each.mint)
            if own is None:
                sums[each.mint] = {owner: raw}
            elif owner in own:
                own[owner] += raw
            else:
                own[owner] = raw
    return {mint: own for mint, own in sums.items() if any(own.values())}


def _sides(source: str, meta: Meta) -> Sequence[tuple[bool, Sequence[TokenBalance], Sequence[int]]]:
    """Whether it was after the transaction, what token accounts had, and their lamports, before and after. What is the
    same on both sides changes nothing and may be left out, but where an account opens or closes."""
    had, has = meta.preBalances, meta.postBalances
    stays = 0 not in had and 0 not in has
    if meta.preTokenBalances == meta.postTokenBalances:
        content = bytes(meta.preTokenBalances)
        if content in NOTHING or (stays and content[:1] == b"["):
            return ()
    elif UNTOLD in (bytes(meta.preTokenBalances), bytes(meta.postTokenBalances)):
        raise BadAnswer(source, "it tells what token accounts had on one side of a transaction alone")
    before, after = _balances(source, meta.preTokenBalances), _balances(source, meta.postTokenBalances)
    if stays and len(before) == len(after):
        changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        before, after = [pair[0] for pair in changed], [pair[1] for pair in changed]
    return (False, before, had), (True, after, has)


def _balances(source: str, content: msgspec.Raw) -> Sequence[TokenBalance]:
    """What token accounts had, on one side of a transaction."""
    try:
        return BALANCES.decode(content) or ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"balances of tokens of the wrong shape: {error}") from None


def token_accounts_of(source: str, entry: Entry) -> set[tuple[str, str]]:
    """The token accounts that a transaction had to do with, each behind its owner."""
    meta = entry.meta
    if meta is None:
        return set()
    balances = [*_balances(source, meta.preTokenBalances), *_balances(source, meta.postTokenBalances)]
    if not balances:
        return set()
    keys = _read(source, entry.transaction)[1]
    if len(keys) != len(meta.preBalances) and meta.loadedAddresses:
        keys = [*keys, *meta.loadedAddresses.writable, *meta.loadedAddresses.readonly]
    return {(each.owner, keys[each.accountIndex]) for each in balances if each.owner and each.accountIndex < len(keys)}


Moved = tuple[str, str, int]  # sender, recipient, raw


def moved(changes: Mapping[str, int], rest: str = SYSTEM) -> list[Moved]:
    """Who gave how much to whom, so that every account's sum is its change: those of equal amounts first, then in their
    order. What nobody gave or got is of `rest`, which mints and burns."""
    if len(changes) == 2:  # mostly one gave what the other got
        (one, raw), (other, opposite) = changes.items()
        if raw and raw + opposite == 0:
            return [(one, other, -raw) if raw < 0 else (other, one, raw)]
    givers: list[tuple[str, int]] = []
    takers: list[tuple[str, int]] = []
    for account, raw in changes.items():
        if raw > 0:
            takers.append((account, raw))
        elif raw:
            givers.append((account, -raw))
    found: list[Moved] = []
    if givers and takers:
        if len(givers) + len(takers) > 2 and not {raw for _, raw in givers}.isdisjoint([raw for _, raw in takers]):
            found = _equal(givers, takers)
        found += _in_order(givers, takers)
    found += [(sender, rest, raw) for sender, raw in givers]
    return found + [(rest, recipient, raw) for recipient, raw in takers]


def _equal(givers: list[tuple[str, int]], takers: list[tuple[str, int]]) -> list[Moved]:
    """Those that gave as much as another one got, who are taken out of both."""
    found: list[Moved] = []
    for giver in list(givers):
        equal = next((taker for taker in takers if taker[1] == giver[1]), None)
        if equal is not None:
            found.append((giver[0], *equal))
            givers.remove(giver)
            takers.remove(equal)
    return found


def _in_order(givers: list[tuple[str, int]], takers: list[tuple[str, int]]) -> list[Moved]:
    """Who gave what is given to who got some, in their order, until one side has no more; both are left with the
    rest."""
    found: list[Moved] = []
    givers.reverse()
    takers.reverse()
    while givers and takers:
        (sender, out), (recipient, into) = givers.pop(), takers.pop()
        if out > into:
            givers.append((sender, out - into))
            out = into
        elif into > out:
            takers.append((recipient, into - out))
        found.append((sender, recipient, out))
    givers.reverse()
    takers.reverse()
    return found
