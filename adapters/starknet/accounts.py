"""Read accounts: the native coin, tokens and delegated coins.

New token contracts name their functions in snake case, old ones in camel case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import U128, decode_string, u256
from chainfolio.adapters.starknet.staking import delegated_positions
from chainfolio.adapters.starknet.state import Call, Result, is_missing_function
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, PlanGroup, Reverted, Unknown, read_all
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Describe, TokenUri
from chainfolio.reads import ReadResult

SNAKE_CASE: Final = {
    "balanceOf": "balance_of",
    "ownerOf": "owner_of",
    "totalSupply": "total_supply",
    "getApproved": "get_approved",
    "isApprovedForAll": "is_approved_for_all",
    "supportsInterface": "supports_interface",
    "tokenURI": "token_uri",
}
MAX_DECIMALS: Final = 255
ERC721: Final = (0x80AC58CD, 0x33EB2F84C309543403FD69F0D0F363781EF06EF6FAEB0131FF16EA3175BD943)  # ERC-165, SNIP-5
Balance: TypeAlias = int | Reverted | Unknown


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts at any block."""

    facts: Facts
    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens: bool = False

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Return no issues: the contracts of other protocols are not known."""
        return iter(())

    def at(self, block: Block) -> Accounts:
        """Return this reader, which stores nothing about a block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Read an account, as specified by `chainfolio.positions.BlockReader.read`."""
        group = PlanGroup("starknet", MAX_ROUNDS, MAX_READS)
        balances = group.add(self._balances(account, assets, describe))
        delegations = group.add(delegated_positions(self.facts, account, interactions))
        if prefetch is not None:
            group.add(prefetch)
        yield from group.run()
        return AccountState(*balances.value, *delegations.value)

    def _balances(
        self, account: str, assets: Sequence[Asset], describe: Describe | None
    ) -> Plan[tuple[Balance, Mapping[Asset, Balance]]]:
        """Read the balances of the native coin and of tokens, then describe tokens that are not known as zero.

        The balances of tokens include zero and unread ones, and exclude the coin.
        """
        coin = self.facts.native_asset
        tokens = [asset for asset in assets if asset != coin and self.facts.contract_of(asset) != self.facts.coin]
        coins, *raws = yield from balances(self.facts, [(account, asset) for asset in (coin, *tokens)])
        token_balances = dict(zip(tokens, raws, strict=True))
        if describe is not None:
            yield from describe([asset for asset, raw in token_balances.items() if raw != 0])
        return coins, token_balances


def call_with_fallback(calls: Sequence[Call]) -> Plan[list[Result]]:
    """Return the results of calls, in order.

    If a contract lacks a function of `SNAKE_CASE`, the name in snake case is called in a second round.
    """
    results = list((yield from read_all(calls)))
    repeated = {
        index: _in_snake_case(call)
        for index, call in enumerate(calls)
        if call.function in SNAKE_CASE and is_missing_function(results[index])
    }
    if repeated:
        for index, result in zip(repeated, (yield from read_all(list(repeated.values()))), strict=True):
            results[index] = result
    return results


def call_both_spellings(calls: Sequence[Call]) -> Plan[list[Result]]:
    """Return the results of calls, in order, from one round with both spellings of their functions.

    All functions must be keys of SNAKE_CASE.
    """
    pairs = [spelling for call in calls for spelling in (call, _in_snake_case(call))]
    results = yield from read_all(pairs)
    return [
        snake if is_missing_function(camel) else camel for camel, snake in zip(results[::2], results[1::2], strict=True)
    ]


def _in_snake_case(call: Call) -> Call:
    return Call(call.contract, SNAKE_CASE[call.function], call.args)


def balances(
    facts: Facts,
    pairs: Sequence[tuple[str, Asset]],
    call: Callable[[Sequence[Call]], Plan[list[Result]]] = call_with_fallback,
) -> Plan[list[Balance]]:
    """Return the balances of (account, asset) pairs, in order.

    A single collectible has 1 or 0, a collection the number of its items. A failed call gives its Reverted or Unknown,
    a malformed amount Unknown. `call` handles both spellings of functions.
    """
    results = yield from call([_balance_call(facts, account, asset) for account, asset in pairs])
    return [_decode_balance(account, asset, result) for (account, asset), result in zip(pairs, results, strict=True)]


def _balance_call(facts: Facts, account: str, asset: Asset) -> Call:
    """Return the call for a balance, of a single item for its owner."""
    contract, owner = facts.contract_of(asset), int(account, 16)
    token_id = split_u256(int(asset.token_id)) if asset.token_id else ()
    if _is_single_item(asset):
        return Call(contract, "ownerOf", token_id)
    return Call(contract, "balanceOf", (owner, *token_id))


def wallet_reads(facts: Facts, holding: Holding) -> list[tuple[str, ReadResult]]:
    """Return the call behind a holding in a wallet, named by the number that it shows: balance, or owner."""
    is_single = _is_single_item(holding.token.asset)
    call = _balance_call(facts, holding.account, holding.token.asset)
    return [("owner" if is_single else "balance", ReadResult(call, holding.account if is_single else holding.raw))]


def _is_single_item(asset: Asset) -> bool:
    """Return True for one collectible of an ERC-721 collection, False for a whole collection."""
    return asset.kind == "erc721" and bool(asset.token_id)


def _decode_balance(account: str, asset: Asset, result: Result) -> Balance:
    """Return a raw balance, of a single item 1 or 0; a result that is no amount is Unknown.

    Reverted and Unknown results stay.
    """
    if not isinstance(result, tuple):
        return result
    if _is_single_item(asset):
        return int(result == (int(account, 16),))
    amount = decode_amount(result)
    return Unknown("the contract answers what is no amount", "contract") if amount is None else amount


def decode_amount(result: object) -> int | None:
    """Return the number in a result of one felt, or of two halves; None for any other result."""
    if not isinstance(result, tuple):
        return None
    return result[0] if len(result) == 1 else u256(*result) if len(result) == 2 else None


def split_u256(number: int) -> tuple[int, int]:
    """Return the low and high half of a 256-bit number, as functions take it."""
    return number % U128, number >> 128


def describe(facts: Facts, assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
    """Return symbol, name and decimals of all `assets`.

    Decimals are None if the contract has no valid ones.
    """
    calls = [
        Call(facts.contract_of(asset), function) for asset in assets for function in ("symbol", "name", "decimals")
    ]
    results = yield from call_with_fallback(calls)
    return {asset: _decode_token(asset, results[3 * at : 3 * at + 3]) for at, asset in enumerate(assets)}


def token_uris(facts: Facts, collectibles: Sequence[Asset]) -> Plan[list[TokenUri]]:
    """Read the `token_uri` (ERC-721) or `uri` (ERC-1155) of collectibles, in order.

    A URI is empty if the result is no text. Reverted and Unknown results stay.
    """
    calls = [
        Call(
            facts.contract_of(each),
            "tokenURI" if _is_single_item(each) else "uri",
            split_u256(int(each.token_id)),
        )
        for each in collectibles
    ]
    results = yield from call_with_fallback(calls)
    return [decode_string(each) if isinstance(each, tuple) else each for each in results]


def _decode_token(asset: Asset, results: Sequence[Result]) -> Token:
    """Return a token from the results of symbol, name and decimals, each of which is decoded alone.

    An unreadable text is empty. Decimals are None if they are unreadable or above `MAX_DECIMALS`.
    """
    symbol, name = (decode_string(each) if isinstance(each, tuple) else "" for each in results[:2])
    match results[2]:
        case (decimals,) if decimals <= MAX_DECIMALS:
            return Token(asset, symbol, name, decimals)
    return Token(asset, symbol, name, None)


def detect_collections(contracts: Sequence[str]) -> Plan[Mapping[str, bool]]:
    """Return by contract whether it is an ERC-721 collection.

    A collection supports the interface, or has the function `ownerOf` and no function `decimals`.
    """
    functions: list[tuple[str, tuple[int, ...]]] = [("decimals", ()), ("ownerOf", (0, 0))]
    functions += [("supportsInterface", (each,)) for each in ERC721]
    results = yield from call_with_fallback([Call(each, *function) for each in contracts for function in functions])
    is_collection = {}
    for at, contract in enumerate(contracts):
        decimals, owner, *supports = results[at * len(functions) : (at + 1) * len(functions)]
        is_collection[contract] = (1,) in supports or (is_missing_function(decimals) and not is_missing_function(owner))
    return is_collection
