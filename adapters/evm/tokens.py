"""What token contracts say about themselves, made safe: names are hostile until cleaned, decimals until checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.evm.facts import Facts
from adapters.evm.reads import BALANCE_OF_ID, DECIMALS, OWNER, Call, NativeBalance, Read, balance_of
from chainfolio.assets import Asset
from chainfolio.contracts import Holding, Token
from chainfolio.plans import Plan, Unknown
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from chainfolio.reads import ReadResult

SINGLE = "erc721"  # the standard of what is one of a kind: who has it is asked, not how many
SIGNATURES = ("symbol()(*)", "name()(*)", "decimals()(*)")


def describe(facts: Facts, contracts: Sequence[str]) -> Plan[Read, Any, dict[str, Token]]:
    """The token behind each contract, in one round. Who says nothing usable gets an empty name and no decimals."""
    answers = yield [Call(contract, signature) for contract in contracts for signature in SIGNATURES]
    tokens = {}
    for k, contract in enumerate(contracts):
        symbol, name, decimals = answers[3 * k : 3 * k + 3]
        tokens[contract] = Token(
            facts.token_asset(contract), text(symbol, MAX_SYMBOL), text(name, MAX_NAME), decimals_of(decimals)
        )
    return tokens


def wallet_reads(holding: Holding) -> list[tuple[str, ReadResult]]:
    """The reads behind a loose holding, by the numbers that they say: its balance, and a token's decimals."""
    asset, decimals = holding.token.asset, holding.token.decimals
    if asset.is_native:
        return [("balance", ReadResult(NativeBalance(holding.account), holding.raw))]
    reads = [("balance", ReadResult(balance_of(asset.reference, holding.account), holding.raw))]
    if decimals is not None:
        reads.append(("decimal", ReadResult(Call(asset.reference, DECIMALS), decimals)))
    return reads


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[Read, Any, list[Any]]:
    """How much accounts have of assets, in one round. What cannot be owned by two is owned or not: a collectible that
    its contract refuses to name an owner of is nobody's (EIP-721)."""
    results = yield [_held(account, asset) for account, asset in pairs]
    return [_raw(account, asset, result) for (account, asset), result in zip(pairs, results, strict=True)]


def _held(account: str, asset: Asset) -> Read:
    if asset.is_native:
        return NativeBalance(account)
    if _is_single(asset):
        return Call(asset.reference, OWNER, (int(asset.token_id),))
    if asset.token_id:
        return Call(asset.reference, BALANCE_OF_ID, (account, int(asset.token_id)))
    return balance_of(asset.reference, account)


def _raw(account: str, asset: Asset, result: Any) -> Any:
    if not _is_single(asset) or isinstance(result, Unknown):
        return result
    return int(result == account)


def _is_single(asset: Asset) -> bool:
    return asset.kind == SINGLE and asset.is_collectible


def decimals_of(answer: object) -> int | None:
    """Decimals as a number from 0 to 255, or None: never a guess."""
    if not isinstance(answer, bytes) or len(answer) < 32:
        return None
    value = int.from_bytes(answer[:32], "big")
    return value if value <= 255 else None


def text(answer: object, longest: int) -> str:
    """A name as printable text: an ABI string, or the bytes32 of old tokens; "" where it is neither."""
    if not isinstance(answer, bytes):
        return ""
    content = _string(answer)
    if content is None:
        content = answer.rstrip(b"\0") if len(answer) == 32 else b""
    return clean(content.decode("utf-8", "replace"), longest)


def _string(answer: bytes) -> bytes | None:
    """The bytes of an ABI string, as far as they came; None where the answer is none."""
    if len(answer) < 64 or int.from_bytes(answer[:32], "big") != 32:
        return None
    size = int.from_bytes(answer[32:64], "big")
    return answer[64 : 64 + min(size, 4096)]
