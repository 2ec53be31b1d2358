"""Rewards of nodes that do not say them: from committees, the votes in blocks, and the registry. Each is read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chainfolio.adapters.beacon import voting
from chainfolio.adapters.beacon.answers import AttestedBlock, BlockMessage, Checkpoints, Committee, SignedAttestedBlock
from chainfolio.adapters.beacon.memo import Memo
from chainfolio.adapters.beacon.states import States
from chainfolio.adapters.beacon.voting import Committees, Stakes, Voted
from chainfolio.errors import BadAnswer, UnsupportedMethod
from chainfolio.transport.rest import Absent

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.reader import Reader

LIMITS: Final = {"committees": 6, "votes": 8, "blocks": 8, "stakes": 6}


@dataclass(slots=True)
class Computed:
    """What duties brought by the rules. `everybody` reads the whole network: a reward depends on all of its stake."""

    everybody: Reader
    is_used: bool = False
    _memo: Memo = field(default_factory=lambda: Memo(LIMITS))

    async def attestations(self, epoch: int) -> tuple[dict[int, int], Any]:
        """As `Reader.attestations`, of all validators."""
        self._check(epoch)
        spec, reader = self.everybody.spec, self.everybody
        flags = (await self._voted(epoch, epoch + 1)).flags
        slot = (epoch + 2) * spec.slots
        final = (await reader.of(slot, f"/eth/v1/beacon/states/{slot}/finality_checkpoints", Checkpoints)).finalized
        is_leak = epoch - final.epoch > spec.number("MIN_EPOCHS_TO_INACTIVITY_PENALTY")
        after = await reader.states(epoch + 1)
        rows, ideal = voting.attestation_rewards(spec, epoch, after, _grown(flags, len(after)), is_leak=is_leak)
        return ideal, rows

    async def proposal(self, block: BlockMessage) -> int:
        """What a block brought its proposer on the beacon chain."""
        spec = self.everybody.spec
        epoch = spec.epoch(block.slot)
        self._check(epoch)
        stakes, found = await self._stakes(epoch), 0
        for target in range(max(0, epoch - 1), epoch + 1):
            found += (await self._voted(target, epoch)).brought.get(block.slot, 0)
        if block.body.sync_aggregate is not None:
            bits = bytes.fromhex(block.body.sync_aggregate.sync_committee_bits[2:])
            share = stakes.seat(spec) * voting.PROPOSER_WEIGHT // (voting.DENOMINATOR - voting.PROPOSER_WEIGHT)
            found += share * sum(each.bit_count() for each in bits)
        return found + await self._reported(block, epoch)

    async def sync(self, block: BlockMessage, places: tuple[tuple[int, int], ...]) -> dict[int, int]:
        """What a block brought the members of the sync committee that sit at some places, or cost them."""
        epoch = self.everybody.spec.epoch(block.slot)
        self._check(epoch)
        return voting.seated(block, places, (await self._stakes(epoch)).seat(self.everybody.spec))

    def _check(self, epoch: int) -> None:
        self.is_used = True
        if not self.everybody.spec.is_at_least("altair", epoch):
            raise UnsupportedMethod(
                self.everybody.nodes.key, f"no node says the rewards of epoch {epoch}, before Altair"
            )

    async def _reported(self, block: BlockMessage, epoch: int) -> int:
        """What the slashings of a block brought: of those who were slashed by it, and not before."""
        if not (named := block.accused):
            return 0
        spec, reader = self.everybody.spec, self.everybody
        before = await reader.some(epoch - 1, sorted(set(named)))
        done = {int(each) for each in before.index[before.slashed]}
        for slot in range(epoch * spec.slots, block.slot):
            if (older := await reader.block(slot)) is not None:
                done |= set(older.accused)
        now = await reader.some(epoch, sorted(set(named)))
        fresh = now.slashed & ~np.isin(now.index, list(done))
        return sum(voting.slashing_gain(spec, epoch, each) for each in now.effective_balance[fresh].tolist())

    # --- what it rests on --------------------------------------------------------------------------------------------

    async def _stakes(self, epoch: int) -> Stakes:
        async def read() -> Stakes:
            return voting.stakes_in(self.everybody.spec, epoch, await self._registry(epoch))

        return await self._memo.get("stakes", epoch, read)

    async def _registry(self, epoch: int) -> States:
        found = await self.everybody.states(epoch)
        if not np.array_equal(found.index, np.arange(len(found))):
            raise BadAnswer(self.everybody.nodes.key, "a registry with a gap")
        return found

    async def _voted(self, target: int, epoch: int) -> Voted:
        """The votes for a target in the blocks up to the end of an epoch: of that target or the one after it."""
        return await self._memo.get("votes", (target, epoch), lambda: self._votes(target, epoch))

    async def _votes(self, target: int, epoch: int) -> Voted:
        flags = np.zeros(0, np.uint8) if epoch == target else (await self._voted(target, target)).flags
        stakes, blocks = await self._stakes(epoch), await self._blocks(epoch)
        roots = await self._roots(target, epoch)
        flags = _grown(flags, len(stakes.increments))
        return voting.voted(self.everybody.spec, target, blocks, roots, await self._committees(target), stakes, flags)

    async def _roots(self, target: int, epoch: int) -> dict[int, str]:
        """The root of the newest block at each slot of a target, as far as blocks up to the end of an epoch tell: each
        names the one before it."""
        slots, found = self.everybody.spec.slots, dict[int, str]()
        blocks = [*await self._blocks(target), *(await self._blocks(epoch) if epoch > target else ())]
        slot = target * slots
        for block in blocks:
            while slot < min(block.slot, (target + 1) * slots):
                found[slot], slot = block.parent_root.lower(), slot + 1
        return found

    async def _blocks(self, epoch: int) -> tuple[AttestedBlock, ...]:
        return await self._memo.get("blocks", epoch, lambda: self._read_blocks(epoch))

    async def _read_blocks(self, epoch: int) -> tuple[AttestedBlock, ...]:
        found = []
        for slot in range(epoch * self.everybody.spec.slots, self.everybody.end(epoch) + 1):
            if await self.everybody.block(slot) is None:
                continue
            try:
                block = await self.everybody.nodes.data(f"/eth/v2/beacon/blocks/{slot}", SignedAttestedBlock)
            except Absent:
                raise BadAnswer(self.everybody.nodes.key, f"the block of slot {slot} is gone") from None
            found.append(block.message)
        return tuple(found)

    async def _committees(self, epoch: int) -> Committees:
        return await self._memo.get("committees", epoch, lambda: self._read_committees(epoch))

    async def _read_committees(self, epoch: int) -> Committees:
        slot = self.everybody.end(epoch)
        path = f"/eth/v1/beacon/states/{slot}/committees?epoch={epoch}"
        found = await self.everybody.of(slot, path, list[Committee])
        return {(each.slot, each.index): np.array(each.validators, np.int64) for each in found}

    def close(self) -> None:
        """Ask for nothing any more."""
        self._memo.close()


def _grown(flags: Any, count: int) -> Any:
    """Flags with room for validators that came later."""
    return np.concatenate([flags, np.zeros(count - len(flags), np.uint8)]) if len(flags) < count else flags
