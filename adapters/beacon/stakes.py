"""Read the stake of withdrawal addresses at a block of the execution chain, each gwei once.

A balance has everything that the chain owes its validator: staked, exiting, and withdrawable coins that were not swept
yet. Only deposits in the queue (EIP-7251) are not part of it. Both are read in the state after the slot whose block
carries the execution block: in that very block, a deposit has left the account and a withdrawal has reached it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chainfolio.adapters.beacon.block_responses import BlockMessage
from chainfolio.adapters.beacon.reader import Reader
from chainfolio.adapters.beacon.registry import PAGE_SIZE
from chainfolio.adapters.beacon.responses import PendingDeposit, ValidatorState
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, Unavailable
from chainfolio.validators import Stake, address_of


async def stakes(reader: Reader, owners: Collection[str], candidates: Collection[str], block: Block) -> list[Stake]:
    """Return the stakes of withdrawal addresses, sorted by public key, with balances in gwei.

    Pending deposits of keys without a validator are included, with an empty status.

    Args:
        owners: Withdrawal addresses.
        candidates: Indexes and public keys of validators that may belong to them.
        block: A block of the execution chain.

    Raises:
        Unavailable: The node does not have the block yet, or the chain changed meanwhile.
        SourceError: The state could not be read.
    """
    message = await _carrier(reader, block)
    slot = message.slot
    queue: Sequence[PendingDeposit] = ()
    if reader.spec.is_at_least("electra", reader.spec.epoch(slot)):
        queue = await reader.pending_deposits(slot)
    own_keys = {each.pubkey.lower() for each in queue if address_of(each.withdrawal_credentials.lower()) in owners}
    validators = await _read_validators(reader, slot, sorted({*candidates, *own_keys}))
    if (await reader.header(slot)).header.message.state_root.lower() != message.state_root.lower():
        raise Unavailable(reader.nodes.key, "the chain changed while it was read")
    first_credentials: dict[str, str] = {}
    pending: dict[str, int] = {}
    for each in queue:
        pubkey = each.pubkey.lower()
        first_credentials.setdefault(pubkey, each.withdrawal_credentials.lower())
        pending[pubkey] = pending.get(pubkey, 0) + each.amount
    # The first deposit sets the credentials of a new validator; an existing one has its own.
    credentials = {key: first_credentials[key] for key in own_keys}
    credentials |= {key: each.validator.withdrawal_credentials.lower() for key, each in validators.items()}
    stakes = []
    for key in sorted(credentials):
        owner, validator = address_of(credentials[key]), validators.get(key)
        if owner is not None and owner in owners:
            status, balance = (validator.status, validator.balance) if validator else ("", 0)
            stakes.append(Stake(owner, key, status, balance, pending.get(key, 0)))
    return stakes


async def _carrier(reader: Reader, block: Block) -> BlockMessage:
    """Return the beacon block that carries an execution block: that of the slot which begins at its time.

    Raises:
        Unavailable: No slot begins at its time, or the slot has no block, or one that carries another execution block.
    """
    spec, source = reader.spec, reader.nodes.key
    slot, remainder = divmod(block.time_us - spec.time_us(0), spec.slot_us)
    if remainder or slot < 0:
        raise Unavailable(source, f"no slot begins at the time of block {block.height}: it is of another chain")
    message = await reader.block(slot)
    if message is None:
        raise Unavailable(source, f"its nodes have no block at slot {slot}, which is that of block {block.height}")
    payload = message.body.execution_payload
    if payload is None or payload.block_hash.lower() != block.hash:
        raise Unavailable(source, f"the block at slot {slot} does not carry block {block.height} as it was read")
    return message


async def _read_validators(reader: Reader, slot: int, ids: Sequence[str]) -> dict[str, ValidatorState]:
    """Return the validators with some indexes or public keys in the state after a slot, by public key.

    Raises BadAnswer if one with a lower index than another is left out: indexes have no gaps.
    """
    validators: dict[str, ValidatorState] = {}
    for start in range(0, len(ids), PAGE_SIZE):
        for each in await reader.find_validators(slot, ids[start : start + PAGE_SIZE]):
            validators[each.validator.pubkey.lower()] = each
    present = {each.index for each in validators.values()}
    missing = {int(each) for each in ids if each.isdecimal()} - present
    if missing and present and min(missing) < max(present):
        raise BadAnswer(reader.nodes.key, f"leaves out validator {min(missing)}: later ones exist")
    return validators
