"""Read tokens' names, decimals and balances from their contracts, cleaned of hostile text."""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.evm.facts import Facts
from chainfolio.adapters.evm.reads import (
    BALANCE_OF_ID,
    DECIMALS,
    OWNER,
    TOKEN_URI,
    URI_OF_ID,
    AbiValue,
    Call,
    NativeBalance,
    Read,
    balance_of,
)
from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Token
from chainfolio.plans import Plan, Reverted, Unknown, read_all
from chainfolio.positions import TokenUri
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from chainfolio.reads import ReadResult

SINGLE_OWNER_KIND = "erc721"  # tokens with one owner each: the owner is read instead of a balance
SIGNATURES = ("symbol()(*)", "name()(*)", "decimals()(*)")


def describe(facts: Facts, contracts: Sequence[str]) -> Plan[dict[str, Token]]:
    """Read the token of each contract in one round, by contract.

    Names that are unusable or unread become empty, such decimals None. Names and symbols are cleaned and shortened.
    """
    answers = yield from read_all([Call(contract, signature) for contract in contracts for signature in SIGNATURES])
    tokens = {}
    for k, contract in enumerate(contracts):
        symbol, name, decimals = answers[3 * k : 3 * k + 3]
        tokens[contract] = Token(
            facts.token_asset(contract), text(symbol, MAX_SYMBOL), text(name, MAX_NAME), decimals_of(decimals)
        )
    return tokens


def wallet_reads(holding: Holding) -> list[tuple[str, ReadResult]]:
    """Return the reads of a wallet's token, labelled `balance`, `decimal` or `owner`."""
    asset, decimals = holding.token.asset, holding.token.decimals
    if asset.is_native:
        return [("balance", ReadResult(NativeBalance(holding.account), holding.raw))]
    if asset.is_collectible:
        label, result = ("owner", holding.account) if _has_single_owner(asset) else ("balance", holding.raw)
        return [(label, ReadResult(_balance_read(holding.account, asset), result))]
    reads = [("balance", ReadResult(balance_of(asset.reference, holding.account), holding.raw))]
    if decimals is not None:
        reads.append(("decimal", ReadResult(Call(asset.reference, DECIMALS), decimals)))
    return reads


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[list[AbiValue]]:
    """Read the balances that accounts have of assets, in one round.

    A collectible with one owner counts 1 or 0; it is 0 if its contract refuses to name an owner (EIP-721). Otherwise a
    read without a value is Reverted or Unknown.
    """
    results = yield from read_all([_balance_read(account, asset) for account, asset in pairs])
    return [_balance(account, asset, result) for (account, asset), result in zip(pairs, results, strict=True)]


def token_uris(collectibles: Sequence[Asset]) -> Plan[list[TokenUri]]:
    """Read the `tokenURI` (ERC-721) or `uri` (ERC-1155) of collectibles, in one round and in order.

    A read without a value is Reverted or Unknown. Bytes that are not UTF-8 are replaced.
    """
    results = yield from read_all(
        [
            Call(each.reference, TOKEN_URI if _has_single_owner(each) else URI_OF_ID, (int(each.token_id),))
            for each in collectibles
        ]
    )
    return [each if isinstance(each, Unknown | Reverted) else each.decode("utf-8", "replace") for each in results]


def _balance_read(account: str, asset: Asset) -> Read:
    """Return the read of an asset's balance; of an NFT with a single owner, the read of that owner."""
    if asset.is_native:
        return NativeBalance(account)
    if _has_single_owner(asset):
        return Call(asset.reference, OWNER, (int(asset.token_id),))
    if asset.token_id:
        return Call(asset.reference, BALANCE_OF_ID, (account, int(asset.token_id)))
    return balance_of(asset.reference, account)


def _balance(account: str, asset: Asset, result: AbiValue) -> AbiValue:
    if not _has_single_owner(asset) or isinstance(result, Unknown):
        return result
    return int(result == account)


def _has_single_owner(asset: Asset) -> bool:
    return asset.kind == SINGLE_OWNER_KIND and asset.is_collectible


def decimals_of(answer: object) -> int | None:
    """Return decimals from 0 to 255; None for anything else."""
    if not isinstance(answer, bytes) or len(answer) < 32:
        return None
    value = int.from_bytes(answer[:32], "big")
    return value if value <= 255 else None


def text(answer: object, max_length: int) -> str:
    """Return a name as printable text, from an ABI string or the bytes32 of old tokens; otherwise empty.

    A text that is longer than `max_length` is cut and ends with `…`.
    """
    if not isinstance(answer, bytes):
        return ""
    content = _string(answer)
    if content is None:
        content = answer.rstrip(b"\0") if len(answer) == 32 else b""
    return clean(content.decode("utf-8", "replace"), max_length)


def _string(answer: bytes) -> bytes | None:
    """Return the bytes of an ABI string, as far as present; None if the value is none."""
    if len(answer) < 64 or int.from_bytes(answer[:32], "big") != 32:
        return None
    size = int.from_bytes(answer[32:64], "big")
    return answer[64 : 64 + min(size, 4096)]
