"""Find shares of deposits, rewards and returned deposits in one record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from chainfolio.portfolio.pnl.containers import Containers
from chainfolio.portfolio.pnl.entries import Kind
from chainfolio.portfolio.pnl.record_kinds import DEPOSITS, INCOME, WITHDRAWALS
from chainfolio.portfolio.pnl.record_rows import RecordRows
from chainfolio.portfolio.pnl.trade_value import Side


@dataclass(frozen=True, slots=True)
class RecordShares:
    """The shares of one record.

    Attributes:
        rows: The rows of the record.
        containers: What the account deposited before.
        borrowers: Contracts that gave back a position in this record, which they had for nothing.
        order: The place of the record among all records.
        takers: Assets that left, as in `MovedPositions`.
    """

    rows: RecordRows
    containers: Containers
    borrowers: Collection[str]
    order: int
    takers: Mapping[tuple[str, str], int]

    @property
    def is_disposal(self) -> bool:
        """True if what this transaction deposits is sold, and what it withdraws is bought."""
        treatment = self.rows.treatment
        return treatment.deposits_are_disposals or (
            treatment.liquidity_is_disposal and self.rows.record.type in ("ADDLIQUIDITY", "REMOVELIQUIDITY")
        )

    def quantities(self, direction: str) -> dict[str, int]:
        """Return the shares that a deposit brought ("in"), or that a withdrawal gave back ("out"), by asset."""
        shares: dict[str, int] = {}
        for row in self.rows.external(direction):
            key = self.rows.asset_of(row)
            if self.is_share(key, direction) and (quantity := self.rows.quantity(row)):
                shares[key] = shares.get(key, 0) + quantity
        return shares

    def is_share(self, asset: str, direction: str) -> bool:
        """Return True if an asset stands for a deposit: it came with one, or left with a withdrawal.

        False if the same asset also moved the other way: then the difference counts. False for a share that others
        sent, or that they deposited for: it is acquired, and no part of own deposits.
        """
        if self.is_disposal:
            return False
        type_ = self.rows.record.type
        is_interest = direction == "in" and self._is_interest(asset)
        is_returned = direction == "out" and self._is_returned(asset)
        if not (is_interest or is_returned) and type_ not in (DEPOSITS if direction == "in" else WITHDRAWALS):
            return False
        if direction == "in" and (self.is_reward(asset) or not self.rows.is_asked):
            return False
        return not any(self.rows.asset_of(each) == asset for each in self.rows.of("out" if direction == "in" else "in"))

    def _is_interest(self, asset: str) -> bool:
        """Return True if a known share was issued with a withdrawal, or with a claim and has no price.

        False if it only came back from where it was. Claims at GMX stake points, which have no price.
        """
        type_ = self.rows.record.type
        if asset not in self.containers.by_share or type_ not in WITHDRAWALS | INCOME:
            return False
        is_issued = self.rows.senders(asset) <= {*self.rows.treatment.burn_addresses}
        return is_issued and (type_ in WITHDRAWALS or asset not in self.rows.prices())

    def _is_returned(self, asset: str) -> bool:
        """Return True if a known share's own contract burnt it in a call of no known type, and nothing else moved.

        Other contracts may have bridged it, and a transfer to a burn address destroys it.
        """
        return self._is_burnt_alone(asset) and self.rows.record.type == "INTERACTION" and self.rows.called == asset

    def has_unknown_burner(self, asset: str) -> bool:
        """Return True if a contract wallet's call of no known type burnt a known share: it may pay later."""
        is_untyped = self.rows.record.type in ("INTERACTION", "TRANSFEROUT")
        return is_untyped and self._is_by_contract_wallet and self._is_burnt_alone(asset)

    def _is_burnt_alone(self, asset: str) -> bool:
        """Return True if a share of a deposit left, and all that moved was burnt."""
        record, container = self.rows.record, self.containers.by_share.get(asset)
        recipients = {row.recipient for row in record.assets_out}
        is_burnt = recipients <= {*self.rows.treatment.burn_addresses} and not record.assets_in
        return container is not None and container.units > 0 and is_burnt

    @property
    def _is_by_contract_wallet(self) -> bool:
        """Return True if others sent the transaction, or called a wallet.

        The contract that the wallet then called is not known.
        """
        record = self.rows.record
        is_wallet_called = record.recipient in (*self.rows.own_wallets, *self.rows.treatment.gas_holders)
        return is_wallet_called or self.rows.sender != record.wallet

    @property
    def waiting_contract(self) -> str:
        """The key of the called or paying contract whose burnt shares wait for a payment.

        Payments that may be invented do not count.
        """
        chain = self.rows.record.chain
        payers = sorted(f"{chain}:{row.sender}" for row in self.rows.external("in") if not self.rows.is_doubtful(row))
        return next((each for each in (self.rows.called, *payers) if each in self.containers.waiting), self.rows.called)

    def is_reward(self, asset: str) -> bool:
        """Return True if an asset came with a deposit from a contract that gives no shares.

        That is one that took such deposits before, or another contract that pays when one takes more: it neither was
        called nor took anything.
        """
        record, senders = self.rows.record, self.rows.senders(asset)
        recipients = {row.recipient for row in record.assets_out}
        farms = self.containers.farms.keys() & recipients
        issuers = {*recipients, *self.rows.treatment.burn_addresses, record.recipient, asset.rpartition(":")[2]}
        return senders <= farms or (bool(farms) and senders.isdisjoint(issuers))

    def is_staked(self, asset: str) -> bool:
        """Return True if some of an asset that came is deposited at its sender, which gave no share for it."""
        senders = self.rows.senders(asset)
        return not self.is_disposal and any(self.containers.farms.get(each, {}).get(asset) for each in senders)

    def kind_of_untyped(self, asset: str) -> Kind:
        """Return the kind of what came in a call of no known type.

        `borrow` for a created asset that the called contract lent before, except for contract wallets; `withdraw` for a
        returned deposit; `income` if others called, as for a contract wallet, and anything came from a contract as a
        reward; else `received`.
        """
        is_created = self.rows.senders(asset) <= {*self.rows.treatment.burn_addresses}
        if is_created and not self._is_by_contract_wallet and (self.rows.called, asset) in self.containers.loans:
            return "borrow"
        share = self.waiting_contract
        if self.is_staked(asset) or (asset != share and self.containers.waiting.get(share, {}).get(asset)):
            return "withdraw"
        is_own_call = self.rows.sender == self.rows.record.wallet
        assets = {self.rows.asset_of(row) for row in self.rows.external("in")} if not is_own_call else ()
        is_reward = any(map(self._is_earned, assets)) or self.rows.senders(asset) <= {*self.borrowers}
        return "income" if is_reward and not self.is_disposal else "received"

    def repaid(self, losses: Sequence[Side]) -> set[str]:
        """Return the assets that left to repay a loan of the called contract, which lent them before.

        If a contract wallet was called in a transaction of no known type, there are none.
        """
        loans, type_ = self.containers.loans, self.rows.record.type
        if type_ in DEPOSITS:
            return self.rows.lent(losses, "out", loans)
        is_untyped = type_ in ("INTERACTION", "TRANSFEROUT") and not self._is_by_contract_wallet
        burnt = self.rows.burnt() if is_untyped else set()
        return {asset for asset in burnt if (self.rows.called, asset) in loans}

    def _is_earned(self, asset: str) -> bool:
        """Return True if all senders of an asset earn for the account.

        They took stakes, gave back a lent position, or are the contracts of shares of stakes that the account has; and
        they did not take this asset before, or later in a call of no known type, which would repay a loan.
        """
        senders, containers = self.rows.senders(asset), self.containers
        if any(self.takers.get((asset, each), self.order) < self.order for each in senders):
            return False
        keys = {f"{self.rows.record.chain}:{each}" for each in senders} & containers.stakes
        shares = [containers.by_share[each] for each in keys]
        is_of_shares = len(shares) == len(senders) and all(each.units and asset not in each.inside for each in shares)
        is_of_stakes = senders <= containers.stakes and containers.never_took(senders, asset)
        return is_of_stakes or senders <= {*self.borrowers} or is_of_shares

    def kind_of_withdrawn(self, side: Side, gains: Sequence[Side]) -> Kind:
        """Return `income` for an asset never deposited there if others were, or if all are of a stake; else `withdraw`.

        It is also income if its sender paid it as a reward before or gives back a lent position, and has none of it
        deposited. Removed liquidity is always `withdraw`, because it may have been exchanged. A minted asset is new
        only beside another deposit, or beside what contracts pay that took none of it. `borrow` if the called
        contract lent the minted asset before.
        """
        senders, containers, type_ = self.rows.senders(side.asset), self.containers, self.rows.record.type
        if side.asset in self.rows.lent(gains, "in", containers.loans):
            return "borrow"
        deposited = [each for each in gains if each.asset in containers.assets]
        paid_before = {(sender, side.asset) for sender in senders} <= containers.rewards
        if senders <= {*self.rows.treatment.burn_addresses}:
            is_new = any(each is not side for each in deposited) or self._is_beside_reward(side, gains)
            is_new = is_new and not self.is_staked(side.asset)
        else:
            is_new = containers.never_took(senders, side.asset)
        are_rewards = bool(deposited) or (type_ == "UNSTAKE" and any(self._is_earned(each.asset) for each in gains))
        is_reward = are_rewards and (side.asset not in containers.assets or is_new)
        is_reward = is_reward or ((paid_before or senders <= {*self.borrowers}) and not self.is_staked(side.asset))
        return "income" if is_reward and type_ != "REMOVELIQUIDITY" else "withdraw"

    def _is_beside_reward(self, side: Side, gains: Sequence[Side]) -> bool:
        """Return True if contracts without a stake of this asset paid others of `gains`.

        The called contract has no stake of it either: so a minted asset did not return from there.
        """
        record = self.rows.record
        payers = {sender for each in gains if each is not side for sender in self.rows.senders(each.asset)}
        payers -= {*self.rows.treatment.burn_addresses}
        farms = (self.containers.farms.get(each, {}) for each in (*payers, record.recipient))
        return record.type == "UNSTAKE" and bool(payers) and not any(each.get(side.asset) for each in farms)
