"""Read accounts: the native coin, TRC-10 tokens, tokens of contracts, stakes, and protocol positions.

The chain lists TRC-10 balances with the account; those of contracts take one call each. Implements
`chainfolio.positions.AccountReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chainfolio.adapters.tron.facts import TRC10, Facts
from chainfolio.adapters.tron.families import EvmProtocols
from chainfolio.adapters.tron.forms import Wallet
from chainfolio.adapters.tron.one_block import OneBlock
from chainfolio.adapters.tron.reads import (
    AssetRead,
    Call,
    WalletRead,
    WalletState,
    decode_text,
    decode_uint,
    encode_word,
)
from chainfolio.adapters.tron.stakes import borrowed_stake_issues, positions
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, PlanGroup, Reverted, Unknown, all_of, read_all, read_groups
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, BalanceResult, Describe, TokenUri
from chainfolio.reads import ReadResult

MAX_DECIMALS: Final = 255
NO_AMOUNT: Final = Unknown("the contract answers what is no amount", "contract")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts at the newest block. `protocols` is None if none is installed."""

    facts: Facts
    protocols: EvmProtocols | None = None
    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens: bool = False

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Yield an issue per protocol that an account used and that no decoder reads."""
        return iter(self.protocols.unread_protocols(account, interactions) if self.protocols else ())

    def at(self, block: Block) -> SnapshotAccounts:
        """Return a reader of the accounts of one snapshot."""
        return SnapshotAccounts(self.facts, self.protocols, block, OneBlock(self.facts.key))


@dataclass(frozen=True, slots=True)
class SnapshotAccounts:
    """Reads the accounts of one snapshot, all at one block: `block` or a newer one."""

    facts: Facts
    protocols: EvmProtocols | None
    block: Block
    one_block: OneBlock

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Read an account, as specified by `chainfolio.positions.BlockReader`."""
        state = yield from self.one_block.read(
            lambda is_first: self._read(
                account, interactions, assets, *((describe, prefetch) if is_first else (None, None))
            )
        )
        return state

    def at_same_block(self, plan: Callable[[], Plan[Output]]) -> Plan[Output]:
        """Run a plan together with the accounts, as specified by `chainfolio.positions.SameBlockReader`."""
        result = yield from self.one_block.read(lambda is_first: plan())
        return result

    def _read(
        self,
        account: str,
        interactions: Interactions,
        tokens: Sequence[Asset],
        describe: Describe | None,
        expected: Plan[None] | None,
    ) -> Plan[AccountState]:
        """Read the wallet and, if protocols are installed, their positions, and join both.

        `expected` runs beside them. The first error is raised.
        """
        group = PlanGroup("tron", MAX_ROUNDS, MAX_READS)
        states = [group.add(self._read_wallet(account, tokens, describe))]
        if expected is not None:
            group.add(expected)
        if self.protocols is not None:
            states.append(group.add(self.protocols.read(account, interactions, tokens, describe, self.block)))
        yield from group.run()
        return replace(
            states[0].value,
            positions=tuple(position for state in states for position in state.value.positions),
            issues=tuple(issue for state in states for issue in state.value.issues),
        )

    def _read_wallet(self, account: str, tokens: Sequence[Asset], describe: Describe | None) -> Plan[AccountState]:
        """Read the balances and stakes of an account, without protocols.

        All its TRC-10 tokens other than zero are included, and all `tokens`. `describe` gets those that are not zero.
        """
        tokens = [asset for asset in tokens if not asset.is_native]
        state, raws = yield from _read_balances(account, tokens)
        trc10 = {self.facts.token_asset(number): raw for number, raw in trc10_balances(state.wallet).items() if raw}
        balances = {**trc10, **dict(zip(tokens, raws, strict=True))}
        if describe is not None:
            yield from describe([asset for asset, raw in balances.items() if raw != 0])
        return AccountState(
            state.wallet.balance,
            balances,
            positions(self.facts, account, state),
            tuple(borrowed_stake_issues(self.facts, account, state)),
            state.block,
        )


def _read_balances(account: str, assets: Sequence[Asset]) -> Plan[tuple[WalletState, list[BalanceResult]]]:
    """Return an account and its balances of tokens in their order, in one round.

    Absent TRC-10 tokens are 0.
    """
    calls = [_balance_call(account, asset) for asset in assets if asset.kind != TRC10]
    [state], results = yield from read_groups([WalletRead(account)], calls)
    trc10, call_results = trc10_balances(state.wallet), iter(results)
    raws = [
        trc10.get(asset.reference, 0) if asset.kind == TRC10 else _decode_balance(account, asset, next(call_results))
        for asset in assets
    ]
    return state, raws


def trc10_balances(wallet: Wallet) -> Mapping[str, int]:
    """Return the TRC-10 balances of an account, by token number."""
    return {each.key: each.value for each in wallet.assetV2}


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[list[BalanceResult]]:
    """Return the balances of (account, asset) pairs, in order and in one round.

    Each is an int, or `Reverted` or `Unknown`. That of a collectible is 1 if the account owns it, else 0.
    """
    accounts = list(dict.fromkeys(account for account, _ in pairs))
    plans = {
        account: _read_balances(account, [asset for each, asset in pairs if each == account and not asset.is_native])
        for account in accounts
    }
    results = yield from all_of(plans)
    native = {account: results[account][0].wallet.balance for account in accounts}
    tokens = {account: iter(results[account][1]) for account in accounts}
    return [native[account] if asset.is_native else next(tokens[account]) for account, asset in pairs]


def _balance_call(account: str, asset: Asset) -> Call:
    """Return the call for a balance, of a collectible for its owner."""
    if asset.kind == "trc721":
        return Call(asset.reference, "ownerOf(uint256)", (int(asset.token_id),))
    if asset.token_id:
        return Call(asset.reference, "balanceOf(address,uint256)", (account, int(asset.token_id)))
    return Call(asset.reference, "balanceOf(address)", (account,))


def _decode_balance(account: str, asset: Asset, result: bytes | Unknown | Reverted) -> BalanceResult:
    """Return a raw balance, of a collectible 1 or 0; NO_AMOUNT if it is none. Errors stay results."""
    if not isinstance(result, bytes):
        return result
    raw = decode_uint(result)
    if raw is None:
        return NO_AMOUNT
    return int(result[:32] == encode_word(account)) if asset.kind == "trc721" else raw


def describe(assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
    """Return symbol, name and decimals of tokens, in one round. Decimals are None if they are unknown."""
    reads = {asset: _metadata_reads(asset) for asset in assets}
    results = iter((yield from read_all([each for asset in assets for each in reads[asset]])))
    return {asset: _decode_token(asset, [next(results) for _ in reads[asset]]) for asset in assets}


def token_uris(collectibles: Sequence[Asset]) -> Plan[list[TokenUri]]:
    """Read the `tokenURI` (TRC-721) or `uri` (TRC-1155) of collectibles, in one round and in order.

    A URI is empty if the result is no text. Reverted and Unknown results stay.
    """
    functions = {"trc721": "tokenURI(uint256)"}
    calls = [
        Call(each.reference, functions.get(each.kind, "uri(uint256)"), (int(each.token_id),)) for each in collectibles
    ]
    results = yield from read_all(calls)
    return [decode_text(each) if isinstance(each, bytes) else each for each in results]


def _metadata_reads(asset: Asset) -> Sequence[AssetRead | Call]:
    if asset.kind == TRC10:
        return [AssetRead(asset.reference)]
    return [Call(asset.reference, function) for function in ("symbol()", "name()", "decimals()")]


def _decode_token(asset: Asset, results: Sequence[object]) -> Token:
    """Return a token from the results of its reads.

    Unread texts are empty, unread or too large decimals None.
    """
    if asset.kind == TRC10:
        symbol, name, decimals = results[0] if isinstance(results[0], tuple) else ("", "", None)
    else:
        symbol, name = (decode_text(each) if isinstance(each, bytes) else "" for each in results[:2])
        decimals = decode_uint(results[2]) if isinstance(results[2], bytes) else None
    return Token(asset, symbol, name, decimals if decimals is not None and decimals <= MAX_DECIMALS else None)


def balance_read(account: str, asset: Asset) -> WalletRead | Call:
    """Return the read whose result holds an account's balance of an asset."""
    return WalletRead(account) if asset.is_native or asset.kind == TRC10 else _balance_call(account, asset)


def wallet_reads(holding: Holding) -> list[tuple[str, ReadResult]]:
    """Return the read behind a holding in a wallet, named by the number that it shows: balance, or owner."""
    asset = holding.token.asset
    label, result = ("owner", holding.account) if asset.kind == "trc721" else ("balance", holding.raw)
    return [(label, ReadResult(balance_read(holding.account, asset), result))]
