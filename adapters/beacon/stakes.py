"""What the validators of some addresses have at a block of the execution chain: each gwei once.

A balance holds all that the chain still owes its validator: what is staked, what is leaving, what can be withdrawn and
was not yet swept. Beside it stand only deposits that wait to be credited (EIP-7251). Both are read in the state after
the slot whose block carries the execution block, so that a deposit has left the account, and a withdrawal has reached
it, in that very block.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chainfolio.adapters.beacon.answers import BlockMessage, PendingDeposit, ValidatorState
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.adapters.beacon.registry import PIECE
from chainfolio.blocks import Block
from chainfolio.errors import Unavailable
from chainfolio.validators import Stake, address_of


async def stakes(reader: Reader, owners: Collection[str], candidates: Collection[str], block: Block) -> list[Stake]:
    """The stakes of some owners, by public key. Unavailable where the beacon node does not have the block (yet)."""
    message = await _carrier(reader, block)
    slot = message.slot
    queue: Sequence[PendingDeposit] = ()
    if reader.spec.is_at_least("electra", reader.spec.epoch(slot)):
        queue = await reader.pending_deposits(slot)
    asked = {each.pubkey.lower() for each in queue if address_of(each.withdrawal_credentials.lower()) in owners}
    registry = await _registry(reader, slot, sorted({*candidates, *asked}))
    if (await reader.header(slot)).header.message.state_root.lower() != message.state_root.lower():
        raise Unavailable(reader.nodes.key, "the chain changed while it was read")
    first: dict[str, str] = {}
    waiting: dict[str, int] = {}
    for each in queue:
        pubkey = each.pubkey.lower()
        first.setdefault(pubkey, each.withdrawal_credentials.lower())
        waiting[pubkey] = waiting.get(pubkey, 0) + each.amount
    # Who deposits first says to whom a new validator withdraws; of one that is there, its credentials say it.
    credentials = {key: first[key] for key in asked}
    credentials |= {key: each.validator.withdrawal_credentials.lower() for key, each in registry.items()}
    found = []
    for key in sorted(credentials):
        owner, known = address_of(credentials[key]), registry.get(key)
        if owner is not None and owner in owners:
            status, balance = (known.status, known.balance) if known else ("", 0)
            found.append(Stake(owner, key, status, balance, waiting.get(key, 0)))
    return found


async def _carrier(reader: Reader, block: Block) -> BlockMessage:
    """The block that carries an execution block: that of the slot which begins at its time. Unavailable where that
    carries another."""
    spec, source = reader.spec, reader.nodes.key
    slot, rest = divmod(block.time_us - spec.time_us(0), spec.slot_us)
    if rest or slot < 0:
        raise Unavailable(source, f"no slot begins at the time of block {block.height}: it is of another chain")
    message = await reader.block(slot)
    if message is None:
        raise Unavailable(source, f"its nodes have no block at slot {slot}, which is that of block {block.height}")
    payload = message.body.execution_payload
    if payload is None or payload.block_hash.lower() != block.hash:
        raise Unavailable(source, f"the block at slot {slot} does not carry block {block.height} as it was read")
    return message


async def _registry(reader: Reader, slot: int, ids: Sequence[str]) -> dict[str, ValidatorState]:
    """The validators that some ids name in the state after a slot, by public key."""
    found: dict[str, ValidatorState] = {}
    for start in range(0, len(ids), PIECE):
        for each in await reader.named(slot, ids[start : start + PIECE]):
            found[each.validator.pubkey.lower()] = each
    return found
