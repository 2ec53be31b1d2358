"""A beacon chain of one validator, number 7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from chainfolio.engine.validators.results import (
    Range,
    Rows,
    ValidatorBalance,
    ValidatorDeposit,
    ValidatorDetails,
    ValidatorId,
    ValidatorIdentity,
    ValidatorLifecycle,
    ValidatorReward,
    ValidatorWithdrawal,
    Window,
    WithdrawalCredentials,
    validator_not_found,
)

PUBKEY = "0x" + "ab" * 48
OWNER = "0x" + "b9" * 20
CREDENTIALS = "0x01" + "00" * 11 + "b9" * 20
DETAILS = ValidatorDetails(
    validator=ValidatorIdentity(index=7, pubkey=PUBKEY, slashed=False, status="active_ongoing"),
    lifecycle=ValidatorLifecycle(
        activation_epoch=200, activation_timestamp=1_606_900_823, exit_epoch=None, withdrawable_epoch=None
    ),
    balance=ValidatorBalance(actual="32004512345000000000", effective="32000000000000000000"),
    withdrawal_credentials=WithdrawalCredentials(prefix=1, credential=CREDENTIALS, address=OWNER),
)
REWARD = ValidatorReward(
    epoch_start=1,
    epoch_end=2,
    timestamp_start=3,
    timestamp_end=4,
    date_start="2024-12-07",
    date_end="2024-12-08",
    consensus_reward="-5",
    consensus_potential_reward="6",
    consensus_efficiency=msgspec.Raw(b"0.987654321987654321"),
    execution_reward="7",
    end_effective_balance="8",
    attestations_included=9,
    attestations_missed=10,
    sync_participations=11,
    sync_missed=12,
    proposed_blocks=13,
    missed_blocks=14,
    mev_blocks=15,
)
WITHDRAWAL = ValidatorWithdrawal(slot=1, epoch=2, timestamp=3, index=4, amount="5", address=OWNER)
DEPOSIT = ValidatorDeposit(
    slot=1,
    epoch=2,
    timestamp=3,
    deposit_index=4,
    amount="5",
    withdrawal_credentials=CREDENTIALS,
    withdrawal_address=None,
)


@dataclass
class FakeValidators:
    """The validators of a FakeEngine, which records the calls and raises its `failure`."""

    engine: Any

    async def _record_call(self, name: str, validator: ValidatorId, *arguments: object) -> None:
        await self.engine._record_call(name, validator, *arguments)
        if validator not in (7, PUBKEY):
            raise validator_not_found(validator)

    async def details(self, validator: ValidatorId) -> ValidatorDetails:
        await self._record_call("details", validator)
        return DETAILS

    async def rewards(self, validator: ValidatorId, within: Range, window: Window) -> Rows[ValidatorReward]:
        await self._record_call("rewards", validator, within, window)
        return Rows([REWARD], 21)

    async def withdrawals(self, validator: ValidatorId, window: Window) -> Rows[ValidatorWithdrawal]:
        await self._record_call("withdrawals", validator, window)
        return Rows([WITHDRAWAL], 20)

    async def deposits(self, validator: ValidatorId, window: Window) -> Rows[ValidatorDeposit]:
        await self._record_call("deposits", validator, window)
        return Rows([], 0)
