"""What a Solana chain reads of accounts, as `chainfolio.positions.AccountReader` has it.

The chain lists all token accounts of an owner, so nothing depends on what was indexed. What lies in stake accounts is a
position, and so is what stands behind a token of its own in a protocol; an account of a program that nobody reads is
not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from adapters.solana.facts import COMPRESSED, Facts
from adapters.solana.layouts import MEANING, SYSTEM, TOKEN_2022, Mint
from adapters.solana.positions import Opened, Positions
from adapters.solana.reads import MintRead, NameRead, Note, Reward, RewardRead, Staking, Wallet, WalletRead
from adapters.solana.trees import Leaf
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Earning, Issue, Token
from chainfolio.errors import BadAnswer
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Report, Unknown, batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Amounts, Describe, OpenPosition
from chainfolio.protocols import InstalledProtocols, TokenAmount

Earned = Mapping[RewardRead, Reward | Unknown | None]
STAKES, LEAVES = "solana_stake", "bubblegum"  # the protocols
SHOWN = 4  # characters of a validator's address


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts, at whatever slot the chain is by then."""

    facts: Facts
    installed: InstalledProtocols = field(default_factory=InstalledProtocols)
    events: Sequence[str] = ()
    finds_tokens: bool = True
    reward_epochs: int = 0
    together: Positions = field(default_factory=lambda: Positions(()))

    @property
    def issues(self) -> Sequence[Issue]:
        """Which packages of protocols cannot be used."""
        return self.installed.issues

    def unknown(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """None: what is not seen of an account is said when it is read."""
        yield from ()

    def at(self, block: Block) -> Accounts:
        """The same for one snapshot, whose accounts are all read at one slot."""
        return replace(self, together=Positions(self.installed.rows, self.facts.caip2))

    def read(
        self,
        account: str,
        interactions: Interactions,
        wanted: Sequence[Asset],
        named: Describe | None = None,
        expected: Plan[Any, Any, None] | None = None,
    ) -> Plan[Any, Any, AccountState]:
        """As `chainfolio.positions.BlockReader` has it."""
        state: Plan[Any, Any, Any] = self._state(account, interactions, wanted, named)
        found = yield from _all({"state": state, **({"expected": expected} if expected else {})})
        read: AccountState = found["state"]
        return read

    def _state(
        self, account: str, interactions: Interactions, wanted: Sequence[Asset], named: Describe | None
    ) -> Plan[Any, Any, AccountState]:
        wallet, opened, unread = yield from self.together.read(account, interactions.own)
        held = {self.facts.token_asset(mint): each for mint, each in wallet.tokens.items() if each.raw}
        balances = dict.fromkeys(wanted, 0) | {asset: each.raw for asset, each in held.items()}
        special = [asset.reference for asset, each in held.items() if each.program == TOKEN_2022]
        plans: dict[str, Plan[Any, Any, Any]] = {"mints": _mints(special)}
        plans["earned"] = _earned(wallet, self.reward_epochs)
        if named is not None:
            plans["named"] = named(held)
        found = yield from _all(plans)
        notes = [self._note(account, each) for each in wallet.notes]
        notes += [each for each in _of_mints(account, self.facts.kind, found["mints"] or {}) if each not in notes]
        earned = found["earned"]
        notes += _unpaid(account, self.facts.kind, earned)
        native = self.facts.native_asset
        stakes = tuple(stake_position(account, each, native, self._earnings(each, earned)) for each in wallet.stakes)
        positions = [each for each in map(partial(self._opened, account), opened) if not each.empty]
        leaves = tuple(self._compressed(account, each) for each in self.together.compressed.proven(account))
        return AccountState(wallet.lamports, balances, (*stakes, *positions, *leaves), (*notes, *unread), wallet.block)

    def _note(self, account: str, note: Note) -> Issue:
        assets = (self.facts.token_asset(note.mint),) if note.mint else ()
        return Issue(self.facts.kind, note.subject, note.reason, note.is_partial, account, assets=assets)

    def _compressed(self, account: str, leaf: Leaf) -> OpenPosition:
        """A compressed NFT: one of itself, in the tree that the pool is."""
        asset = Asset(self.facts.caip2, COMPRESSED, leaf.id)
        return OpenPosition(
            account, LEAVES, "WALLET", f"Leaf {leaf.place}", {asset: 1}, {}, {}, pool=leaf.tree,
            ground=frozenset([asset]),
        )  # fmt: skip

    def _opened(self, account: str, each: Opened) -> OpenPosition:
        """A position of a protocol, in place of the token that stands for it."""
        found, asset = each.position, self._asset
        replaces, supplied = tuple(map(asset, found.replaces)), self._amounts(found.supplied)
        return OpenPosition(
            account, each.row.protocol, found.position_type, found.name, supplied, self._amounts(found.borrowed),
            self._amounts(found.rewards), found.health, found.unlock_s, found.vault, found.pool, replaces,
            frozenset(replaces or supplied), frozenset([asset(each.claim.subject)] if found.unlisted else []),
            unverified=found.unverified,
        )  # fmt: skip

    def _amounts(self, several: Sequence[TokenAmount]) -> Amounts:
        """By asset: what is there several times is added."""
        found: dict[Asset, int] = {}
        for each in several:
            asset = self._asset(each.token)
            found[asset] = found.get(asset, 0) + each.raw
        return found

    def _asset(self, token: str) -> Asset:
        """What decoders name by a mint; the system program stands for lamports."""
        return self.facts.native_asset if token == SYSTEM else self.facts.token_asset(token)

    def _earnings(self, staking: Staking, earned: Earned) -> tuple[Earning, ...]:
        """What a stake account earned, epoch by epoch; those in which it earned nothing are left out."""
        decimals = self.facts.info.native.decimals
        assert decimals is not None, "coins have decimals"
        return tuple(
            Earning(read.epoch, paid.lamports, decimals, paid.slot, paid.time_s, paid.commission)
            if isinstance(paid, Reward) else Earning(read.epoch, None, decimals)
            for read, paid in earned.items()
            if read.stake == staking.address and paid is not None
        )  # fmt: skip


def stake_position(account: str, staking: Staking, native: Asset, earned: tuple[Earning, ...] = ()) -> OpenPosition:
    """Everything in a stake account is its withdrawer's: what is delegated, what is not, and the rent."""
    to = f" with {staking.voter[:SHOWN]}…{staking.voter[-SHOWN:]}" if staking.voter else ""
    state = f" ({staking.state})" if staking.state else ""
    return OpenPosition(
        account, STAKES, "STAKED", f"Stake{to}{state}", {native: staking.lamports}, {}, {},
        unlock_s=staking.unlock_s, pool=staking.address, vouches=True, earned=earned,
    )  # fmt: skip


def _all(plans: Mapping[str, Plan[Any, Any, Any]]) -> Plan[Any, Any, dict[str, Any]]:
    """The results of all plans, in as many rounds as a whole account may take; the error of one is an error."""
    reports: Mapping[str, Report[Any]] = yield from batched(plans, max_rounds=MAX_ROUNDS, max_reads=MAX_READS)
    for report in reports.values():
        if report.status != "ok":
            raise report.error or BadAnswer("solana", report.reason)
    return {name: report.result for name, report in reports.items()}


def _earned(wallet: Wallet, epochs: int) -> Plan[Any, Any, Earned]:
    """What stake accounts earned in the last epochs that are over, the newest first."""
    reads = [
        RewardRead(staking.address, epoch)
        for epoch in range(wallet.epoch - 1, max(-1, wallet.epoch - 1 - epochs), -1)
        for staking in wallet.stakes
        if staking.earning and staking.earning[0] <= epoch <= staking.earning[1]
    ]
    return dict(zip(reads, (yield reads), strict=True)) if reads else {}


def _unpaid(account: str, adapter: str, earned: Earned) -> Iterator[Issue]:
    """Which rewards are not known. They lie in stake accounts already, so that no worth is in doubt."""
    unknown: dict[str, set[int]] = {}
    for read, paid in earned.items():
        if isinstance(paid, Unknown):
            unknown.setdefault(paid.reason, set()).add(read.epoch)
    for reason, epochs in unknown.items():
        shown = ", ".join(map(str, sorted(epochs)))
        said = f"what stake accounts earned is not known of epochs {shown}: {reason}"
        yield Issue(adapter, account, said, makes_partial=False, account=account)


def _mints(addresses: Sequence[str]) -> Plan[Any, Any, dict[str, Any]]:
    results = yield [MintRead(each) for each in addresses]
    return dict(zip(addresses, results, strict=True))


def _of_mints(account: str, adapter: str, mints: Mapping[str, Any]) -> Iterator[Issue]:
    """What the extensions of mints mean for who holds some."""
    for address, mint in mints.items():
        if isinstance(mint, Mint) and mint.extensions:
            reasons = "; ".join(MEANING[each] for each in mint.extensions)
            yield Issue(adapter, address, reasons, makes_partial=False, account=account)


def describe(assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
    """Symbol, name and decimals of tokens, in one round; no decimals where there is no such mint. A compressed NFT is
    one thing, whatever it is called."""
    told = yield [(NameRead if each.kind == COMPRESSED else MintRead)(each.reference) for each in assets]
    return {asset: _token(asset, each) for asset, each in zip(assets, told, strict=True)}


def _token(asset: Asset, told: Mint | tuple[str, str] | Unknown) -> Token:
    if asset.kind == COMPRESSED:
        symbol, name = told if isinstance(told, tuple) else ("", "")
        return Token(asset, symbol, name, 0)
    assert not isinstance(told, tuple), "a mint"
    if isinstance(told, Unknown):
        return Token(asset, "", "", None)
    return Token(asset, told.symbol, told.name, told.decimals)


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[Any, Any, Sequence[Any]]:
    """How much accounts have of assets, in one round, and in this order."""
    accounts = list(dict.fromkeys(account for account, _ in pairs))
    wallets = dict(zip(accounts, (yield [WalletRead(each) for each in accounts]), strict=True)) if pairs else {}
    return [_raw(wallets[account], asset) for account, asset in pairs]


def _raw(wallet: Wallet, asset: Asset) -> int | Unknown:
    if asset.is_native:
        return wallet.lamports
    if asset.kind == COMPRESSED:
        return Unknown("whose a compressed NFT is says its tree, and no balance")
    held = wallet.tokens.get(asset.reference)
    return held.raw if held else 0
