"""Compute rewards that no node serves, from committees, votes in blocks, and the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from chainfolio.adapters.beacon import voting
from chainfolio.adapters.beacon.block_responses import AttestedBlock, BlockMessage, SignedAttestedBlock
from chainfolio.adapters.beacon.memo import Memo
from chainfolio.adapters.beacon.responses import Checkpoints, Committee
from chainfolio.adapters.beacon.state_reader import StateReader
from chainfolio.adapters.beacon.validator_table import Array, ValidatorTable
from chainfolio.adapters.beacon.voting import Committees, NetworkStake, Seat, TimelyVotes
from chainfolio.errors import BadAnswer, UnsupportedMethod
from chainfolio.transport.rest import ResourceNotFound

LIMITS: Final = {"committees": 6, "votes": 8, "blocks": 8, "stakes": 6}


@dataclass(slots=True)
class ComputedRewards:
    """Rewards by the rules of Altair and later. Its methods raise UnsupportedMethod for earlier epochs.

    Attributes:
        network: Reads all validators, as a reward depends on the stake of all.
        is_used: Whether any reward had to be computed so far.
    """

    network: StateReader
    is_used: bool = False
    _memo: Memo = field(default_factory=lambda: Memo(LIMITS))

    async def attestations(self, epoch: int) -> tuple[dict[int, int], Array]:
        """Return the ideal rewards by effective balance, and the rewards of all validators with duties.

        Both are as in `Reader.attestations`, but inactivity penalties are 0.
        """
        self._use(epoch)
        spec, reader = self.network.spec, self.network
        flags = (await self._timely_votes(epoch, epoch + 1)).flags
        slot = (epoch + 2) * spec.slots_per_epoch
        checkpoints = await reader.read(slot, f"/eth/v1/beacon/states/{slot}/finality_checkpoints", Checkpoints)
        is_leak = epoch - checkpoints.finalized.epoch > spec.number("MIN_EPOCHS_TO_INACTIVITY_PENALTY")
        registry = await reader.validators(epoch + 1)
        flags = _extend(flags, len(registry))
        rows, ideal = voting.attestation_rewards(spec, epoch, registry, flags, is_leak=is_leak)
        return ideal, rows

    async def proposal(self, block: BlockMessage) -> int:
        """Return the consensus reward of a block's proposer, in gwei: votes, sync committee and slashings."""
        spec = self.network.spec
        epoch = spec.epoch(block.slot)
        self._use(epoch)
        stake, reward = await self._network_stake(epoch), 0
        for target in range(max(0, epoch - 1), epoch + 1):
            reward += (await self._timely_votes(target, epoch)).proposer_rewards.get(block.slot, 0)
        if block.body.sync_aggregate is not None:
            bits = bytes.fromhex(block.body.sync_aggregate.sync_committee_bits[2:])
            divisor = voting.DENOMINATOR - voting.PROPOSER_WEIGHT
            share = stake.seat_reward(spec) * voting.PROPOSER_WEIGHT // divisor
            reward += share * sum(each.bit_count() for each in bits)
        return reward + await self._slashing_rewards(block, epoch)

    async def sync_rewards(self, block: BlockMessage, seats: Sequence[Seat]) -> dict[int, int]:
        """Return the sync committee rewards of a block for some seats, in gwei by validator.

        A seat that did not sign counts negative.

        Raises:
            UnsupportedMethod: The block is from before Altair.
        """
        epoch = self.network.spec.epoch(block.slot)
        self._use(epoch)
        return voting.sync_rewards(block, seats, (await self._network_stake(epoch)).seat_reward(self.network.spec))

    def _use(self, epoch: int) -> None:
        self.is_used = True
        if not self.network.spec.is_at_least("altair", epoch):
            raise UnsupportedMethod(self.network.nodes.key, f"no node says the rewards of epoch {epoch}, before Altair")

    async def _slashing_rewards(self, block: BlockMessage, epoch: int) -> int:
        """Return a proposer's gwei for validators that its block slashed and that were not slashed before.

        Earlier blocks of the epoch count as before.
        """
        if not (accused := block.accused_validators):
            return 0
        spec, reader = self.network.spec, self.network
        before = await reader.select_validators(epoch - 1, sorted(set(accused)))
        slashed_before = {int(each) for each in before.index[before.slashed]}
        for slot in range(epoch * spec.slots_per_epoch, block.slot):
            if (earlier := await reader.block(slot)) is not None:
                slashed_before |= set(earlier.accused_validators)
        now = await reader.select_validators(epoch, sorted(set(accused)))
        is_new = now.slashed & ~np.isin(now.index, list(slashed_before))
        return sum(voting.whistleblower_reward(spec, epoch, each) for each in now.effective_balance[is_new].tolist())

    # --- inputs ------------------------------------------------------------------------------------------------------

    async def _network_stake(self, epoch: int) -> NetworkStake:
        async def read() -> NetworkStake:
            return voting.network_stake(self.network.spec, epoch, await self._registry(epoch))

        return await self._memo.get("stakes", epoch, read)

    async def _registry(self, epoch: int) -> ValidatorTable:
        registry = await self.network.validators(epoch)
        if not np.array_equal(registry.index, np.arange(len(registry))):
            raise BadAnswer(self.network.nodes.key, "a registry with a gap")
        return registry

    async def _timely_votes(self, target: int, epoch: int) -> TimelyVotes:
        """Return the votes for a target in the blocks up to the end of an epoch: the target or the next."""
        return await self._memo.get("votes", (target, epoch), lambda: self._count_votes(target, epoch))

    async def _count_votes(self, target: int, epoch: int) -> TimelyVotes:
        """Return the timely votes for a target epoch in earlier blocks and those of `epoch`, it or the next."""
        flags = np.zeros(0, np.uint8) if epoch == target else (await self._timely_votes(target, target)).flags
        stake, blocks = await self._network_stake(epoch), await self._blocks(epoch)
        roots = await self._roots(target, epoch)
        flags = _extend(flags, len(stake.increments))
        committees = await self._committees(target)
        return voting.count_votes(self.network.spec, target, blocks, roots, committees, stake, flags)

    async def _roots(self, target: int, epoch: int) -> dict[int, str]:
        """Return the root of the newest block at each slot of a target.

        Slots are missing if no later block up to the end of `epoch` names the root as its parent.
        """
        slots, roots = self.network.spec.slots_per_epoch, dict[int, str]()
        blocks = [*await self._blocks(target), *(await self._blocks(epoch) if epoch > target else ())]
        slot = target * slots
        for block in blocks:
            while slot < min(block.slot, (target + 1) * slots):
                roots[slot], slot = block.parent_root.lower(), slot + 1
        return roots

    async def _blocks(self, epoch: int) -> tuple[AttestedBlock, ...]:
        return await self._memo.get("blocks", epoch, lambda: self._read_blocks(epoch))

    async def _read_blocks(self, epoch: int) -> tuple[AttestedBlock, ...]:
        """Read the blocks of an epoch, without empty slots; raise BadAnswer if a block disappeared."""
        blocks = []
        for slot in range(epoch * self.network.spec.slots_per_epoch, self.network.last_slot(epoch) + 1):
            if await self.network.block(slot) is None:
                continue
            try:
                block = await self.network.nodes.read(f"/eth/v2/beacon/blocks/{slot}", SignedAttestedBlock)
            except ResourceNotFound:
                raise BadAnswer(self.network.nodes.key, f"the block of slot {slot} is gone") from None
            blocks.append(block.message)
        return tuple(blocks)

    async def _committees(self, epoch: int) -> Committees:
        return await self._memo.get("committees", epoch, lambda: self._read_committees(epoch))

    async def _read_committees(self, epoch: int) -> Committees:
        slot = self.network.last_slot(epoch)
        path = f"/eth/v1/beacon/states/{slot}/committees?epoch={epoch}"
        committees = await self.network.read(slot, path, list[Committee])
        return {(each.slot, each.index): np.array(each.validators, np.int64) for each in committees}

    def close(self) -> None:
        """Cancel all requests."""
        self._memo.close()


def _extend(flags: Array, count: int) -> Array:
    """Return flags with zeros for validators that came later."""
    return np.concatenate([flags, np.zeros(count - len(flags), np.uint8)]) if len(flags) < count else flags
