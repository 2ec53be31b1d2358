"""What a Tron chain reads of accounts, as `chainfolio.positions.AccountReader` has it: coins, both kinds of tokens.

The chain lists its own tokens (TRC-10) with the account; those of contracts are asked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from adapters.tron.facts import TRC10, Facts
from adapters.tron.families import Families
from adapters.tron.forms import Wallet
from adapters.tron.one_block import OneBlock
from adapters.tron.reads import AssetRead, Call, Told, WalletRead, text, uint
from adapters.tron.stakes import notes, positions
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Token
from chainfolio.errors import BadAnswer
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Report, Unknown, all_of, batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Describe

MAX_DECIMALS: Final = 255
NO_AMOUNT: Final = Unknown("the contract answers what is no amount", "contract")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts, at whatever block the chain is by then. `families`: the protocols that are read, if there are
    any."""

    facts: Facts
    families: Families | None = None
    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens: bool = False

    def unknown(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """What an account had to do with contracts that nobody reads."""
        return iter(self.families.unknown(account, interactions) if self.families else ())

    def at(self, block: Block) -> AtBlock:
        """The same for the accounts of one snapshot."""
        return AtBlock(self.facts, self.families, block, OneBlock(self.facts.key))


@dataclass(frozen=True, slots=True)
class AtBlock:
    """Reads the accounts of one snapshot, all at one block: this one or a newer one."""

    facts: Facts
    families: Families | None
    block: Block
    together: OneBlock

    def read(
        self,
        account: str,
        interactions: Interactions,
        wanted: Sequence[Asset],
        named: Describe | None = None,
        expected: Plan[Any, Any, None] | None = None,
    ) -> Plan[Any, Any, AccountState]:
        """As `chainfolio.positions.BlockReader` has it."""
        state: AccountState = yield from self.together.read(
            lambda first: self._read(account, interactions, wanted, *((named, expected) if first else (None, None)))
        )
        return state

    def _read(
        self, account: str, interactions: Interactions, wanted: Sequence[Asset], named: Describe | None,
        expected: Plan[Any, Any, None] | None,
    ) -> Plan[Any, Any, AccountState]:  # fmt: skip
        """What the chain keeps of an account, with what protocols do."""
        plans: dict[str, Plan[Any, Any, Any]] = {"state": self._state(account, wanted, named)}
        if expected is not None:
            plans["expected"] = expected
        if self.families is not None:
            plans["families"] = self.families.read(account, interactions, wanted, named, self.block)
        found = yield from _ours(plans)
        read: AccountState = found["state"]
        if self.families is None:
            return read
        theirs: AccountState = found["families"]
        positions = (*read.positions, *theirs.positions)
        return replace(read, positions=positions, issues=(*read.issues, *theirs.issues))

    def _state(self, account: str, wanted: Sequence[Asset], named: Describe | None) -> Plan[Any, Any, AccountState]:
        tokens = [asset for asset in wanted if not asset.is_native]
        told, raws = yield from _read(account, tokens)
        own = {self.facts.token_asset(each.key): each.value for each in told.wallet.assetV2 if each.value}
        held = {**own, **dict(zip(tokens, raws, strict=True))}
        if named is not None:
            yield from named([asset for asset, raw in held.items() if raw != 0])
        stakes = positions(self.facts, account, told)
        return AccountState(told.wallet.balance, held, stakes, tuple(notes(self.facts, account, told)), told.block)


def _ours(plans: Mapping[str, Plan[Any, Any, Any]]) -> Plan[Any, Any, dict[str, Any]]:
    """The results of plans that may hold a whole account: what decoders raise inside them is an issue by then."""
    reports: Mapping[str, Report[Any]] = yield from batched(plans, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
    for report in reports.values():
        if report.status != "ok":
            raise report.error or BadAnswer("tron", report.reason)
    return {name: report.result for name, report in reports.items()}


def _read(account: str, assets: Sequence[Asset]) -> Plan[Any, Any, tuple[Told, list[Any]]]:
    """An account and how much it has of some tokens, in one round."""
    calls = [_balance(account, asset) for asset in assets if asset.kind != TRC10]
    told, *answers = yield [WalletRead(account), *calls]
    assert isinstance(told, Told), "an account is read or an error"
    given = iter(answers)
    raws = [
        own_tokens(told.wallet).get(asset.reference, 0) if asset.kind == TRC10 else _raw(account, asset, next(given))
        for asset in assets
    ]
    return told, raws


def own_tokens(wallet: Wallet) -> Mapping[str, int]:
    """How much an account has of the chain's own tokens, by their numbers."""
    return {each.key: each.value for each in wallet.assetV2}


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, list[Any]]:
    """How much accounts have of assets, in one round, and in this order: an int, or what came in its place. Of a
    collectible it is whether the account owns this one."""
    accounts = list(dict.fromkeys(account for account, _ in pairs))
    plans: dict[str, Plan[Any, Any, Any]] = {
        account: _read(account, [asset for each, asset in pairs if each == account and not asset.is_native])
        for account in accounts
    }
    found = yield from all_of(plans)
    tokens = {account: iter(found[account][1]) for account in accounts}
    return [
        found[account][0].wallet.balance if asset.is_native else next(tokens[account]) for account, asset in pairs
    ]  # fmt: skip


def _balance(account: str, asset: Asset) -> Call:
    if asset.kind == "trc721":
        return Call(asset.reference, "ownerOf(uint256)", (int(asset.token_id),))
    if asset.token_id:
        return Call(asset.reference, "balanceOf(address,uint256)", (account, int(asset.token_id)))
    return Call(asset.reference, "balanceOf(address)", (account,))


def _raw(account: str, asset: Asset, answer: Any) -> Any:
    if not isinstance(answer, bytes):
        return answer
    found = uint(answer)
    if found is None:
        return NO_AMOUNT
    return int(answer[:32] == Call("", "", (account,)).data[4:]) if asset.kind == "trc721" else found


def describe(assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
    """Symbol, name and decimals of tokens, in one round; no decimals where nobody says them."""
    reads = {asset: _questions(asset) for asset in assets}
    answers = iter((yield [each for asset in assets for each in reads[asset]]) if assets else ())
    return {asset: _token(asset, [next(answers) for _ in reads[asset]]) for asset in assets}


def _questions(asset: Asset) -> Sequence[Any]:
    if asset.kind == TRC10:
        return [AssetRead(asset.reference)]
    return [Call(asset.reference, function) for function in ("symbol()", "name()", "decimals()")]


def _token(asset: Asset, said: Sequence[Any]) -> Token:
    if asset.kind == TRC10:
        symbol, name, decimals = said[0] if isinstance(said[0], tuple) else ("", "", None)
    else:
        symbol, name = (text(each) if isinstance(each, bytes) else "" for each in said[:2])
        decimals = uint(said[2]) if isinstance(said[2], bytes) else None
    return Token(asset, symbol, name, decimals if decimals is not None and decimals <= MAX_DECIMALS else None)


def read_of(account: str, asset: Asset) -> Any:
    """The read that says how much an account has of an asset."""
    return WalletRead(account) if asset.is_native or asset.kind == TRC10 else _balance(account, asset)
