"""From answers about an account's token accounts and stake accounts to what it has. Strict, and no I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar

import msgspec
from solders.pubkey import Pubkey

from adapters.solana.forms import Extension, Holder, Key, Plain, ReadAt, StakeAccount, Staked, TokenAccount
from adapters.solana.layouts import STAKE
from adapters.solana.reads import Held, Note, Staking
from adapters.solana.stakes import History, share
from chainfolio.errors import BadAnswer
from transport.wire import typed

T = TypeVar("T")
KEY_SIZE: Final = 32
NO_CIPHER: Final = "A"  # what base64 writes for zeros
SEALED: Final = ("pendingBalanceLo", "pendingBalanceHi", "availableBalance")
ALWAYS: Final = 2**64 - 1  # the epoch in which stake began that is there since the first block


class _Shell(msgspec.Struct):
    """An account of which nothing is believed yet."""

    pubkey: str
    account: msgspec.Raw


class _MintInfo(msgspec.Struct):
    mint: Key


class _MintParsed(msgspec.Struct):
    info: _MintInfo


class _MintData(msgspec.Struct):
    parsed: _MintParsed


class _Minted(msgspec.Struct):
    """A token account of which only the mint is read."""

    data: _MintData


class _Encoded(msgspec.Struct):
    """The same where the node does not know its layout: content and encoding. The mint comes first."""

    data: tuple[str, Literal["base64"]]


def slot_and_content(source: str, answer: bytes) -> tuple[int, Any]:
    """At which slot something was read, and what."""
    found = typed(source, answer, ReadAt)
    return found.context.slot, found.value


def token_accounts(source: str, content: Any, account: str, program: str) -> tuple[dict[str, Held], list[Note]]:
    """What all token accounts of one program hold, by mint, and what has to be said about it."""
    several, notes = _each(source, content, TokenAccount, "token account")
    sums: dict[str, int] = {}
    decimals: dict[str, int] = {}
    for each in several:
        outer = each.account
        holder = outer.data.parsed.info
        held, mint = holder.tokenAmount, holder.mint
        if holder.owner != account or outer.owner != program:
            raise BadAnswer(source, f"a token account of {holder.owner} in answer to those of {account}")
        if decimals.setdefault(mint, held.decimals) != held.decimals:
            raise BadAnswer(source, f"the mint {mint} has {decimals[mint]} and {held.decimals} decimals")
        sums[mint] = sums.get(mint, 0) + int(held.amount)
        if holder.extensions or holder.state != "initialized":
            notes += _notes(holder)
    return {mint: Held(raw, decimals[mint], program) for mint, raw in sums.items()}, notes


def _notes(holder: Holder) -> Iterable[Note]:
    """What has to be said beside the amount of one token account."""
    if holder.state == "frozen":
        yield Note(
            holder.mint, f"{holder.tokenAmount.amount} of it are frozen: whoever issues it lets nobody move them"
        )
    for each in holder.extensions:
        if each.extension == "nonTransferableAccount":
            yield Note(holder.mint, "it cannot be transferred")
        elif each.extension == "transferFeeAmount" and (kept := _state(each).get("withheldAmount")):
            yield Note(holder.mint, f"{kept} more of it are withheld as fees, which the account cannot use")
        elif each.extension == "confidentialTransferAccount" and _is_sealed(each):
            yield Note(
                holder.mint, "a part of the balance is confidential: only its owner can know it", True, holder.mint
            )


def _state(extension: Extension) -> dict[str, Any]:
    found = msgspec.json.decode(extension.state)
    return found if isinstance(found, dict) else {}


def _is_sealed(extension: Extension) -> bool:
    """Whether an account may have a confidential balance: what is encrypted is not all zeros."""
    state = _state(extension)
    return any(str(state.get(name, "?")).strip(f"{NO_CIPHER}=") for name in SEALED)


def stake_accounts(
    source: str, content: Any, account: str, epoch: int, past: History
) -> tuple[list[Staking], list[Note]]:
    """The stake accounts that an account may withdraw from, in the order of their addresses."""
    several, notes = _each(source, content, StakeAccount, "stake account")
    found = []
    for each in several:
        info = each.account.data.parsed.info
        if info.meta.authorized.withdrawer != account or each.account.owner != STAKE:
            raise BadAnswer(source, f"the stake account {each.pubkey} is not one of {account}")
        if each.account.lamports:
            found.append(_staking(each.pubkey, each.account.lamports, info, epoch, past))
            notes += _underway(found[-1])
    return sorted(found, key=lambda each: each.address), notes


def _underway(staking: Staking) -> Iterable[Note]:
    """What has to be said of a delegation that is active in part."""
    if 0 < staking.active < staking.delegated or staking.state == "deactivating":
        said = f"{staking.active} of {staking.delegated} lamports of the delegation are active"
        yield Note(staking.address, said)


def _staking(address: str, lamports: int, info: Staked, epoch: int, past: History) -> Staking:
    unlock_s = max(0, info.meta.lockup.unixTimestamp)
    if info.stake is None:
        return Staking(address, lamports, 0, 0, "", "inactive", unlock_s)
    given = info.stake.delegation
    found = share(int(given.stake), int(given.activationEpoch), int(given.deactivationEpoch), epoch, past)
    delegated = 0 if found.state == "inactive" else int(given.stake)
    begun, ended = int(given.activationEpoch), int(given.deactivationEpoch)
    first = 0 if begun == ALWAYS else begun + 1
    return Staking(address, lamports, delegated, found.active, given.voter, found.state, unlock_s, (first, ended))


@lru_cache(8)
def _decoder(kind: type[T]) -> msgspec.json.Decoder[list[T]]:
    """Made once: to look at the type takes as long as to read a thousand accounts."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _each(source: str, content: Any, kind: type[T], what: str) -> tuple[list[T], list[Note]]:
    """The accounts of a list. One that is not what its program writes is left out, and said."""
    try:
        found: list[T] = _decoder(kind).decode(content)  # type: ignore[arg-type]  # every type can be hashed
        notes: list[Note] = []
    except msgspec.ValidationError:
        found, notes = _sound(source, content, kind, what)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
    if len({each.pubkey for each in found}) != len(found):  # type: ignore[attr-defined]
        raise BadAnswer(source, f"the same {what} twice")
    return found, notes


def _sound(source: str, content: Any, kind: type[T], what: str) -> tuple[list[T], list[Note]]:
    found, notes = [], []
    for shell in typed(source, content, list[msgspec.Raw]):
        try:
            found.append(msgspec.json.decode(shell, type=kind))
        except msgspec.ValidationError as error:
            given = typed(source, shell, _Shell)
            reason = f"the {what} cannot be read: {error}"  # without its address: a flood is one reason
            notes.append(Note(given.pubkey, reason, True, _mint_of(given.account) if kind is TokenAccount else ""))
    return found, notes


def _mint_of(account: bytes) -> str:
    """Return the mint of a token account that cannot be read as a whole: empty if not even that can be read."""
    try:
        return msgspec.json.decode(account, type=_Minted).data.parsed.info.mint
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        content, _ = msgspec.json.decode(account, type=_Encoded).data
        return str(Pubkey.from_bytes(base64.b64decode(content)[:KEY_SIZE]))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


def joined(source: str, parts: Sequence[dict[str, Held]]) -> dict[str, Held]:
    """The tokens of several programs, in the order of their mints. A mint belongs to one program; where another one had
    it before, and closed it, accounts of that one may be left, with nothing in them."""
    found: dict[str, Held] = {}
    for mint, held in (each for part in parts for each in part.items()):
        if held.raw and mint in found and found[mint].raw:
            raise BadAnswer(source, "a mint that belongs to two programs")
        if held.raw or mint not in found:
            found[mint] = held
    return dict(sorted(found.items()))


def decoded(source: str, account: Plain) -> bytes:
    """The bytes of an account."""
    content, encoding = account.data
    if encoding != "base64":
        raise BadAnswer(source, "an account in another encoding than base64")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise BadAnswer(source, "an account that is no base64") from None


def key_bytes(address: str) -> bytes:
    """The 32 bytes of an address."""
    return bytes(Pubkey.from_string(address))


def is_address(written: str) -> bool:
    """Whether a text is an address."""
    try:
        key_bytes(written)
    except ValueError:
        return False
    return True
