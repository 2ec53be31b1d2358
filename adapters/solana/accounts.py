"""The account reader of Solana chains (`chainfolio.positions.AccountReader`).

A node lists all token accounts of an owner, so nothing depends on the index. Stake accounts, compressed NFTs, and
tokens and accounts of installed protocols are positions. Accounts of other programs are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from chainfolio.adapters.solana.facts import COMPRESSED, Facts
from chainfolio.adapters.solana.layouts import EXTENSION_NOTES, SYSTEM, TOKEN_2022, Mint
from chainfolio.adapters.solana.positions import ClaimedPosition, SnapshotPositions
from chainfolio.adapters.solana.reads import (
    MintRead,
    NameRead,
    Note,
    Reward,
    RewardRead,
    Wallet,
    WalletRead,
    WalletStake,
)
from chainfolio.adapters.solana.trees import Leaf
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import EpochReward, Issue, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, PlanGroup, Unknown, read_all
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState, Amounts, Describe, OpenPosition, TokenUri
from chainfolio.protocols import InstalledProtocols, TokenAmount
from chainfolio.reads import Read

Rewards = Mapping[RewardRead, Reward | Unknown | None]  # None: nothing was paid
STAKE_PROTOCOL, NFT_PROTOCOL = "solana_stake", "bubblegum"
NO_URI: Final = Unknown("the index of compressed NFTs is read for names only", cause="contract")
SHOWN_CHARACTERS: Final = 4  # at both ends of a validator's address


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts at the newest slot of a chain.

    Attributes:
        facts: The chain.
        installed: The protocols whose positions are read.
        events: The event filters that the index must have: none.
        finds_tokens: True, because a node lists all tokens of an account.
        reward_epochs: The number of past epochs whose stake rewards are read.
        positions: The positions of one snapshot.
    """

    facts: Facts
    installed: InstalledProtocols = field(default_factory=InstalledProtocols)
    events: Sequence[str] = ()
    finds_tokens: bool = True
    reward_epochs: int = 0
    positions: SnapshotPositions = field(default_factory=lambda: SnapshotPositions(()))

    @property
    def issues(self) -> Sequence[Issue]:
        """Issues about packages of protocols that cannot be used."""
        return self.installed.issues

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Yield nothing: `read` returns the issues of an account."""
        yield from ()

    def at(self, block: Block) -> Accounts:
        """Return a reader for one snapshot, which reads all its accounts at one slot."""
        return replace(self, positions=SnapshotPositions(self.installed.rows, self.facts.caip2))

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[None] | None = None,
    ) -> Plan[AccountState]:
        """Read an account as `chainfolio.positions.BlockReader` defines it."""
        group = _group()
        state = group.add(self._read_state(account, interactions, assets, describe))
        if prefetch is not None:
            group.add(prefetch)
        yield from group.run()
        return state.value

    def _read_state(
        self, account: str, interactions: Interactions, tokens: Sequence[Asset], describe_tokens: Describe | None
    ) -> Plan[AccountState]:
        """Read wallet, stakes, rewards and positions of an account; describe tokens that it holds if asked.

        Balances of `tokens` are 0 if it holds none. Proven compressed NFTs are positions too; empty positions are left
        out.
        """
        wallet, claimed_positions, issues = yield from self.positions.read(account, interactions.self_acquired)
        balances = {self.facts.token_asset(mint): each for mint, each in wallet.tokens.items() if each.raw}
        raws = dict.fromkeys(tokens, 0) | {asset: each.raw for asset, each in balances.items()}
        extended_mints = [asset.reference for asset, each in balances.items() if each.program == TOKEN_2022]
        group = _group()
        mints = group.add(_read_mints(extended_mints))
        reward_plan = group.add(_read_rewards(wallet, self.reward_epochs))
        if describe_tokens is not None:
            group.add(describe_tokens(balances))
        yield from group.run()
        notes = [self._issue(account, note) for note in wallet.notes]
        mint_issues = _extension_issues(account, self.facts.kind, mints.value)
        notes += [issue for issue in mint_issues if issue not in notes]
        rewards = reward_plan.value
        notes += _unknown_reward_issues(account, self.facts.kind, rewards)
        native = self.facts.native_asset
        stakes = tuple(
            stake_position(account, stake, native, self._epoch_rewards(stake, rewards)) for stake in wallet.stakes
        )
        positions = [
            each for each in map(partial(self._open_position, account), claimed_positions) if not each.is_empty
        ]
        leaves = tuple(self._nft_position(account, leaf) for leaf in self.positions.compressed.proven(account))
        return AccountState(wallet.lamports, raws, (*stakes, *positions, *leaves), (*notes, *issues), wallet.block)

    def _issue(self, account: str, note: Note) -> Issue:
        assets = (self.facts.token_asset(note.mint),) if note.mint else ()
        return Issue(self.facts.kind, note.subject, note.reason, note.is_partial, account, assets=assets)

    def _nft_position(self, account: str, leaf: Leaf) -> OpenPosition:
        """Return a compressed NFT as a position: one unit, with its tree as the pool."""
        asset = Asset(self.facts.caip2, COMPRESSED, leaf.id)
        return OpenPosition(
            account,
            NFT_PROTOCOL,
            "WALLET",
            f"Leaf {leaf.leaf_index}",
            {asset: 1},
            {},
            {},
            pool=leaf.tree,
            required_assets=frozenset([asset]),
        )

    def _open_position(self, account: str, claimed: ClaimedPosition) -> OpenPosition:
        """Return a decoded position with assets in place of mints. It replaces the token that stands for it."""
        position, asset = claimed.position, self._asset
        replaces, supplied = tuple(map(asset, position.replaces)), self._amounts(position.supplied)
        return OpenPosition(
            account,
            claimed.installed.protocol,
            position.position_type,
            position.name,
            supplied,
            self._amounts(position.borrowed),
            self._amounts(position.rewards),
            position.health,
            position.unlock_s,
            position.vault,
            position.pool,
            replaces,
            frozenset(replaces or supplied),
            frozenset([asset(claimed.claim.subject)] if position.is_unlisted else []),
            unverified=position.unverified,
            debts=tuple(map(asset, position.debts)),
        )

    def _amounts(self, amounts: Sequence[TokenAmount]) -> Amounts:
        """Return the sums of amounts by asset."""
        sums: dict[Asset, int] = {}
        for amount in amounts:
            asset = self._asset(amount.token)
            sums[asset] = sums.get(asset, 0) + amount.raw
        return sums

    def _asset(self, token: str) -> Asset:
        """Return the asset of a mint, or the native asset for the system program."""
        return self.facts.native_asset if token == SYSTEM else self.facts.token_asset(token)

    def _epoch_rewards(self, stake: WalletStake, rewards: Rewards) -> tuple[EpochReward, ...]:
        """Return the rewards of a stake account, one per epoch that paid any; unknown amounts are None."""
        decimals = self.facts.info.native.decimals
        assert decimals is not None, "coins have decimals"
        return tuple(
            EpochReward(read.epoch, reward.lamports, decimals, reward.slot, reward.time_s, reward.commission)
            if isinstance(reward, Reward)
            else EpochReward(read.epoch, None, decimals)
            for read, reward in rewards.items()
            if read.stake == stake.address and reward is not None
        )


def stake_position(
    account: str, stake: WalletStake, native: Asset, rewards: tuple[EpochReward, ...] = ()
) -> OpenPosition:
    """Return a stake account as a position with all its lamports: delegated or not, and the rent."""
    voter = f" with {stake.voter[:SHOWN_CHARACTERS]}…{stake.voter[-SHOWN_CHARACTERS:]}" if stake.voter else ""
    state = f" ({stake.state})" if stake.state else ""
    return OpenPosition(
        account,
        STAKE_PROTOCOL,
        "STAKED",
        f"Stake{voter}{state}",
        {native: stake.lamports},
        {},
        {},
        unlock_s=stake.unlock_s,
        pool=stake.address,
        has_trusted_assets=True,
        epoch_rewards=rewards,
    )


def _group() -> PlanGroup:
    """Return a group of plans with the limits of a whole account."""
    return PlanGroup("solana", MAX_ROUNDS, MAX_READS)


def _read_rewards(wallet: Wallet, epoch_count: int) -> Plan[Rewards]:
    """Read the rewards of stake accounts in the last finished epochs, the newest first."""
    reads = [
        RewardRead(stake.address, epoch)
        for epoch in range(wallet.epoch - 1, max(-1, wallet.epoch - 1 - epoch_count), -1)
        for stake in wallet.stakes
        if stake.reward_epochs and stake.reward_epochs[0] <= epoch <= stake.reward_epochs[1]
    ]
    return dict(zip(reads, (yield from read_all(reads)), strict=True))


def _unknown_reward_issues(account: str, adapter: str, rewards: Rewards) -> Iterator[Issue]:
    """Yield an issue per reason for unknown rewards.

    They make nothing partial, because the rewards are part of the stake accounts' lamports.
    """
    epochs_by_reason: dict[str, set[int]] = {}
    for read, reward in rewards.items():
        if isinstance(reward, Unknown):
            epochs_by_reason.setdefault(reward.reason, set()).add(read.epoch)
    for reason, epochs in epochs_by_reason.items():
        epoch_list = ", ".join(map(str, sorted(epochs)))
        text = f"what stake accounts earned is not known of epochs {epoch_list}: {reason}"
        yield Issue(adapter, account, text, makes_partial=False, account=account)


def _read_mints(addresses: Sequence[str]) -> Plan[Mapping[str, Mint | Unknown]]:
    results = yield from read_all([MintRead(address) for address in addresses])
    return dict(zip(addresses, results, strict=True))


def _extension_issues(account: str, adapter: str, mints: Mapping[str, Mint | Unknown]) -> Iterator[Issue]:
    """Yield an issue per mint whose extensions concern its holders."""
    for address, mint in mints.items():
        if isinstance(mint, Mint) and mint.extensions:
            reasons = "; ".join(EXTENSION_NOTES[number] for number in mint.extensions)
            yield Issue(adapter, address, reasons, makes_partial=False, account=account)


def describe(assets: Sequence[Asset]) -> Plan[Mapping[Asset, Token]]:
    """Read symbol, name and decimals of tokens, in one round.

    A token without a mint has no decimals (None). A compressed NFT always has 0.
    """
    results = yield from read_all([_token_read(asset) for asset in assets])
    return {asset: _token(asset, result) for asset, result in zip(assets, results, strict=True)}


def token_uris(collectibles: Sequence[Asset]) -> Plan[list[TokenUri]]:
    """Read the URIs in the metadata of mints, in one round and in order.

    Unknown for compressed NFTs, and for assets without a mint; empty if a mint has no metadata.
    """
    mints = [each for each in collectibles if each.kind != COMPRESSED]
    by_mint = dict(zip(mints, (yield from read_all([MintRead(each.reference) for each in mints])), strict=True))
    results = [by_mint.get(each, NO_URI) for each in collectibles]
    return [each.uri if isinstance(each, Mint) else each for each in results]


def _token_read(asset: Asset) -> Read[Mint | tuple[str, str] | Unknown]:
    return NameRead(asset.reference) if asset.kind == COMPRESSED else MintRead(asset.reference)


def _token(asset: Asset, result: Mint | tuple[str, str] | Unknown) -> Token:
    """Return the token of an asset; without decimals if its mint is unknown, nameless if nothing is known."""
    if asset.kind == COMPRESSED:
        symbol, name = result if isinstance(result, tuple) else ("", "")
        return Token(asset, symbol, name, 0)
    assert not isinstance(result, tuple), "a mint"
    if isinstance(result, Unknown):
        return Token(asset, "", "", None)
    return Token(asset, result.symbol, result.name, result.decimals)


def balances(pairs: Sequence[tuple[str, Asset]]) -> Plan[Sequence[int | Unknown]]:
    """Read the balances of accounts and assets in raw units, in one round and in the order of `pairs`.

    Unknown for compressed NFTs, which have no balance. 0 for a token that the account lacks.
    """
    accounts = list(dict.fromkeys(account for account, _ in pairs))
    wallets = dict(zip(accounts, (yield from read_all(list(map(WalletRead, accounts)))), strict=True))
    return [_balance(wallets[account], asset) for account, asset in pairs]


def _balance(wallet: Wallet, asset: Asset) -> int | Unknown:
    """Return a wallet's raw balance, 0 of a token that it lacks; Unknown for a compressed NFT."""
    if asset.is_native:
        return wallet.lamports
    if asset.kind == COMPRESSED:
        return Unknown("whose a compressed NFT is says its tree, and no balance")
    balance = wallet.tokens.get(asset.reference)
    return balance.raw if balance else 0
