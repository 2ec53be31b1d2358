"""Strict parsing of answers about token accounts and stake accounts. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar

import msgspec
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.forms import (
    AnswerAtSlot,
    Extension,
    Key,
    ParsedStakeAccount,
    ParsedTokenAccount,
    Plain,
    StakeAccountData,
    TokenAccountData,
)
from chainfolio.adapters.solana.layouts import STAKE
from chainfolio.adapters.solana.reads import MintBalance, Note, WalletStake
from chainfolio.adapters.solana.stakes import StakeHistory, activation_status
from chainfolio.errors import BadAnswer
from chainfolio.transport.wire import typed

T = TypeVar("T")
KEY_SIZE: Final = 32
ZERO_DIGIT: Final = "A"  # base64 of zeros
ENCRYPTED_FIELDS: Final = ("pendingBalanceLo", "pendingBalanceHi", "availableBalance")
GENESIS_EPOCH: Final = 2**64 - 1  # the activation epoch of stake that was delegated in the first block


class _UndecodedAccount(msgspec.Struct):
    """An account whose data is not decoded yet."""

    pubkey: str
    account: msgspec.Raw


class _MintInfo(msgspec.Struct):
    mint: Key


class _MintParsed(msgspec.Struct):
    info: _MintInfo


class _MintData(msgspec.Struct):
    parsed: _MintParsed


class _MintOnlyAccount(msgspec.Struct):
    """The mint of a token account; its other fields are not decoded."""

    data: _MintData


class _EncodedAccount(msgspec.Struct):
    """Content and encoding of an account that the node did not parse; it begins with its mint."""

    data: tuple[str, Literal["base64"]]


def slot_and_content(source: str, answer: bytes) -> tuple[int, msgspec.Raw]:
    """Return the slot and the undecoded value of an answer."""
    result = typed(source, answer, AnswerAtSlot)
    return result.context.slot, result.value


def token_accounts(
    source: str, content: msgspec.Raw, account: str, program: str
) -> tuple[dict[str, MintBalance], list[Note]]:
    """Return the balances in all token accounts of one program by mint, and notes about them.

    An account that cannot be decoded gives a note and no balance.

    Args:
        source: The endpoint.
        content: The JSON list of the accounts.
        account: The owner that they must have.
        program: The token program that they must belong to.

    Raises:
        BadAnswer: An account has another owner or program, or a mint has two kinds of decimals.
    """
    accounts, notes = _decode_accounts(source, content, ParsedTokenAccount, "token account")
    sums: dict[str, int] = {}
    decimals: dict[str, int] = {}
    for each in accounts:
        token_account = each.account.data.parsed.info
        amount, mint = token_account.tokenAmount, token_account.mint
        if token_account.owner != account or each.account.owner != program:
            raise BadAnswer(source, f"a token account of {token_account.owner} in answer to those of {account}")
        if decimals.setdefault(mint, amount.decimals) != amount.decimals:
            raise BadAnswer(source, f"the mint {mint} has {decimals[mint]} and {amount.decimals} decimals")
        sums[mint] = sums.get(mint, 0) + int(amount.amount)
        if token_account.extensions or token_account.state != "initialized":
            notes += _notes(token_account)
    return {mint: MintBalance(raw, decimals[mint], program) for mint, raw in sums.items()}, notes


def _notes(token_account: TokenAccountData) -> Iterable[Note]:
    """Yield notes about one token account: frozen, not transferable, withheld fees, confidential balance.

    Only a confidential balance makes the answer partial.
    """
    if token_account.state == "frozen":
        raw = token_account.tokenAmount.amount
        yield Note(token_account.mint, f"{raw} of it are frozen: its issuer does not allow transfers of them")
    for each in token_account.extensions:
        if each.extension == "nonTransferableAccount":
            yield Note(token_account.mint, "it cannot be transferred")
        elif each.extension == "transferFeeAmount" and (withheld := _state(each).get("withheldAmount")):
            yield Note(token_account.mint, f"{withheld} more of it are withheld as fees, which the account cannot use")
        elif each.extension == "confidentialTransferAccount" and _may_be_confidential(each):
            reason = "a part of the balance is confidential: only its owner can know it"
            yield Note(token_account.mint, reason, True, token_account.mint)


def _state(extension: Extension) -> dict[str, object]:
    state = msgspec.json.decode(extension.state)
    return state if isinstance(state, dict) else {}


def _may_be_confidential(extension: Extension) -> bool:
    """Return True if an account may have a confidential balance: an encrypted amount is not all zeros."""
    state = _state(extension)
    return any(str(state.get(name, "?")).strip(f"{ZERO_DIGIT}=") for name in ENCRYPTED_FIELDS)


def stake_accounts(
    source: str, content: msgspec.Raw, account: str, epoch: int, history: StakeHistory
) -> tuple[list[WalletStake], list[Note]]:
    """Return the stake accounts of a withdrawer, sorted by address, and notes about them.

    Accounts without lamports are left out. An account that cannot be decoded gives a note alone.

    Args:
        source: The endpoint.
        content: The JSON list of the accounts.
        account: The withdrawer that they must have.
        epoch: The epoch of the slot.
        history: The stake history of the cluster.

    Raises:
        BadAnswer: An account has another withdrawer or program.
    """
    accounts, notes = _decode_accounts(source, content, ParsedStakeAccount, "stake account")
    stakes = []
    for each in accounts:
        info = each.account.data.parsed.info
        if info.meta.authorized.withdrawer != account or each.account.owner != STAKE:
            raise BadAnswer(source, f"the stake account {each.pubkey} is not one of {account}")
        if each.account.lamports:
            stakes.append(_wallet_stake(each.pubkey, each.account.lamports, info, epoch, history))
            notes += _activation_notes(stakes[-1])
    return sorted(stakes, key=lambda stake: stake.address), notes


def _activation_notes(stake: WalletStake) -> Iterable[Note]:
    """Yield a note if a delegation is partly active."""
    if 0 < stake.active < stake.delegated or stake.state == "deactivating":
        reason = f"{stake.active} of {stake.delegated} lamports of the delegation are active"
        yield Note(stake.address, reason)


def _wallet_stake(
    address: str, lamports: int, info: StakeAccountData, epoch: int, history: StakeHistory
) -> WalletStake:
    """Return a stake with its state at an epoch; inactive if it is not delegated.

    An inactive delegation keeps its voter and its reward epochs, but its delegated part is 0.
    """
    unlock_s = max(0, info.meta.lockup.unixTimestamp)
    if info.stake is None:
        return WalletStake(address, lamports, 0, 0, "", "inactive", unlock_s)
    delegation = info.stake.delegation
    activation, deactivation = int(delegation.activationEpoch), int(delegation.deactivationEpoch)
    status = activation_status(int(delegation.stake), activation, deactivation, epoch, history)
    return WalletStake(
        address,
        lamports,
        0 if status.state == "inactive" else int(delegation.stake),
        status.active,
        delegation.voter,
        status.state,
        unlock_s,
        (0 if activation == GENESIS_EPOCH else activation + 1, deactivation),
    )


@lru_cache(8)
def _decoder(kind: type[T]) -> msgspec.json.Decoder[list[T]]:
    """Return a cached decoder: building one takes as long as decoding a thousand accounts."""
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def _decode_accounts(source: str, content: msgspec.Raw, kind: type[T], label: str) -> tuple[list[T], list[Note]]:
    """Return the decoded accounts of a list, and notes about accounts that cannot be decoded.

    Raises BadAnswer if the list is malformed or has an account twice.
    """
    try:
        accounts: list[T] = _decoder(kind).decode(content)  # type: ignore[arg-type]  # every type can be hashed
        notes: list[Note] = []
    except msgspec.ValidationError:
        accounts, notes = _decode_one_by_one(source, content, kind, label)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(source, f"an answer of the wrong shape: {error}") from None
    if len({each.pubkey for each in accounts}) != len(accounts):  # type: ignore[attr-defined]
        raise BadAnswer(source, f"the same {label} twice")
    return accounts, notes


def _decode_one_by_one(source: str, content: msgspec.Raw, kind: type[T], label: str) -> tuple[list[T], list[Note]]:
    """Decode accounts one by one; return those that can be read, and notes about the others."""
    accounts, notes = [], []
    for item in typed(source, content, list[msgspec.Raw]):
        try:
            accounts.append(msgspec.json.decode(item, type=kind))
        except msgspec.ValidationError as error:
            undecoded = typed(source, item, _UndecodedAccount)
            reason = f"the {label} cannot be read: {error}"  # without its address: a flood is one reason
            mint = _mint_of(undecoded.account) if kind is ParsedTokenAccount else ""
            notes.append(Note(undecoded.pubkey, reason, True, mint))
    return accounts, notes


def _mint_of(account: bytes) -> str:
    """Return the mint of a token account that cannot be decoded; empty if the mint cannot be read."""
    try:
        return msgspec.json.decode(account, type=_MintOnlyAccount).data.parsed.info.mint
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        content, _ = msgspec.json.decode(account, type=_EncodedAccount).data
        return str(Pubkey.from_bytes(base64.b64decode(content)[:KEY_SIZE]))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


def joined(source: str, parts: Sequence[dict[str, MintBalance]]) -> dict[str, MintBalance]:
    """Return the balances of several token programs as one mapping, sorted by mint.

    A mint belongs to one program. If it was closed and created again by another program, empty accounts of the old
    program may be left.

    Raises:
        BadAnswer: A mint has balances in two programs.
    """
    balances: dict[str, MintBalance] = {}
    for mint, balance in (item for part in parts for item in part.items()):
        if balance.raw and mint in balances and balances[mint].raw:
            raise BadAnswer(source, "a mint that belongs to two programs")
        if balance.raw or mint not in balances:
            balances[mint] = balance
    return dict(sorted(balances.items()))


def decoded(source: str, account: Plain) -> bytes:
    """Return the bytes of an account.

    Raises:
        BadAnswer: Its data is not valid base64.
    """
    content, encoding = account.data
    if encoding != "base64":
        raise BadAnswer(source, "an account in another encoding than base64")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise BadAnswer(source, "an account that is no base64") from None


def key_bytes(address: str) -> bytes:
    """Return the 32 bytes of an address.

    Raises:
        ValueError: The text is no address.
    """
    return bytes(Pubkey.from_string(address))


def is_address(text: str) -> bool:
    """Return True if a text is an address."""
    try:
        key_bytes(text)
    except ValueError:
        return False
    return True
