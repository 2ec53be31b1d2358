"""Tables of validators and stakes: their rewards, proposals, deposits and withdrawals."""

from __future__ import annotations

from chainfolio.columns import CHAIN, TIME
from chainfolio.table import Column, Table

VALIDATOR = Column("validator", "long", "index of the validator")
VALIDATOR_BUCKET = Column("bucket", "int", "index of the validator, modulo 64")
EPOCH = Column("epoch", "long", "epoch of the beacon chain")
SLOT = Column("height", "long", "slot of the block in which it happened")
OF_VALIDATOR = ("chain", "bucket")
VALIDATORS = Table(
    "validators",
    "What the registry of a beacon chain says of a validator, where it changes: one row for each epoch at whose end "
    "something is different, without the balance.",
    (
        CHAIN,
        VALIDATOR_BUCKET,
        VALIDATOR,
        EPOCH,
        Column("height", "long", "slot of the first block after that epoch"),
        Column("pubkey", "text", "BLS public key"),
        Column("credentials", "text", "withdrawal credentials"),
        Column("effective", "long", "effective balance in gwei"),
        Column("slashed", "bool", "whether it was slashed"),
        Column("eligible", "long", "epoch from which it waits for activation", nullable=True),
        Column("activated", "long", "first epoch of its duties", nullable=True),
        Column("exited", "long", "first epoch without duties", nullable=True),
        Column("withdrawable", "long", "epoch from which all of its balance can be withdrawn", nullable=True),
    ),
    key=("chain", "validator", "epoch"),
    order=("validator", "epoch"),
    partitions=OF_VALIDATOR,
)
VALIDATOR_REWARDS = Table(
    "validator_rewards",
    "One row per validator and epoch: what its duties in that epoch brought and could have brought, in gwei. A penalty "
    "is negative. Attestations are paid two epochs later, in the block at `height`. What its blocks brought on the "
    "execution chain is joined when it is read: in SQL by `validator_rewards_of`.",
    (
        CHAIN,
        VALIDATOR_BUCKET,
        VALIDATOR,
        EPOCH,
        Column("height", "long", "slot of the first block after its attestations were paid"),
        Column("source", "long", "for the source vote"),
        Column("target", "long", "for the target vote"),
        Column("head", "long", "for the head vote"),
        Column("inactivity", "long", "penalty while the chain is not final; before Altair also the inclusion delay"),
        Column("ideal", "long", "what attesting could have brought; null where the node does not say", nullable=True),
        Column("sync", "long", "for the sync committee"),
        Column("sync_ideal", "long", "what the sync committee could have brought"),
        Column("sync_hits", "int", "seats in the sync committee that signed"),
        Column("sync_misses", "int", "seats that did not"),
        Column("proposals", "long", "for its blocks, on the beacon chain"),
        Column("proposed", "int", "blocks it proposed"),
        Column("missed", "int", "blocks that it was to propose and did not; null if unknown", nullable=True),
        Column("slashing", "long", "penalties for being slashed"),
        Column("effective", "long", "effective balance at the end of the epoch"),
        Column("unexplained", "long", "change of its balance in the epoch that nothing else here explains"),
    ),
    key=("chain", "validator", "epoch"),
    order=("validator", "epoch"),
    partitions=OF_VALIDATOR,
    group_rows=65_536,
)
PROPOSALS = Table(
    "proposals",
    "One row per block of a beacon chain, with the block of the execution chain inside it.",
    (
        CHAIN,
        VALIDATOR_BUCKET,
        VALIDATOR,
        EPOCH,
        SLOT,
        Column("execution_height", "long", "height of the execution block; null before the merge", nullable=True),
        Column("execution_hash", "text", "its hash", nullable=True),
        Column("fee_recipient", "text", "who gets the priority fees", nullable=True),
    ),
    key=("chain", "height"),
    order=("validator", "height"),
    partitions=OF_VALIDATOR,
)
WITHDRAWALS = Table(
    "withdrawals",
    "One row per withdrawal of a validator to the execution chain.",
    (
        CHAIN,
        VALIDATOR_BUCKET,
        VALIDATOR,
        EPOCH,
        SLOT,
        TIME,
        Column("number", "long", "number among all withdrawals of the chain"),
        Column("address", "text", "who received it"),
        Column("gwei", "long", "how much, in gwei"),
    ),
    key=("chain", "number"),
    order=("validator", "height", "number"),
    partitions=OF_VALIDATOR,
)
DEPOSITS = Table(
    "deposits",
    "One row per deposit that a block of a beacon chain names. Before Electra, and of the bridge, it is credited at "
    "once; since, it waits in a queue (`stake_changes` says when it was credited).",
    (
        CHAIN,
        Column("bucket", "int", "CRC-32 of the public key, modulo 64"),
        Column("pubkey", "text", "BLS public key that it is for, lower-case"),
        EPOCH,
        SLOT,
        TIME,
        Column("item", "int", "position in its block"),
        Column("number", "long", "number among all deposits; null for the bridge: no block says it", nullable=True),
        Column("kind", "text", "bridge (before EIP-6110) or request (EIP-6110)"),
        Column("credentials", "text", "withdrawal credentials that it names"),
        Column("gwei", "long", "how much, in gwei"),
    ),
    key=("chain", "height", "item"),
    order=("pubkey", "height", "item"),
    partitions=OF_VALIDATOR,
)
STAKE_CHANGES = Table(
    "stake_changes",
    "What changed the balances of validators beside rewards and withdrawals: deposits when they are credited, "
    "consolidations when stake moves, and stake that goes back into the queue.",
    (
        CHAIN,
        VALIDATOR_BUCKET,
        VALIDATOR,
        EPOCH,
        Column("height", "long", "slot of the first block after its attestations of that epoch were paid"),
        Column("item", "int", "position among the changes of the validator in that epoch"),
        Column("slot", "long", "slot after which the balance has it"),
        Column("kind", "text", "deposit, consolidation or queued"),
        Column("gwei", "long", "how much more there is, in gwei; negative: less"),
        Column("other", "long", "the other validator of a consolidation", nullable=True),
    ),
    key=("chain", "validator", "epoch", "item"),
    order=("validator", "epoch", "item"),
    partitions=OF_VALIDATOR,
)
STAKE_REQUESTS = Table(
    "stake_requests",
    "One row per request of the execution chain about a validator: to withdraw (EIP-7002) or to consolidate "
    "(EIP-7251). The beacon chain may ignore it.",
    (
        CHAIN,
        Column("bucket", "int", "CRC-32 of the public key, modulo 64"),
        Column("pubkey", "text", "BLS public key that it is about, lower-case"),
        EPOCH,
        SLOT,
        TIME,
        Column("item", "int", "position in its block"),
        Column("kind", "text", "withdrawal, exit or consolidation"),
        Column("address", "text", "who asked for it"),
        Column("target", "text", "public key to consolidate into", nullable=True),
        Column("gwei", "long", "how much to withdraw; 0: all of it", nullable=True),
    ),
    key=("chain", "height", "item"),
    order=("pubkey", "height", "item"),
    partitions=OF_VALIDATOR,
)
BEACON = (VALIDATORS, VALIDATOR_REWARDS, PROPOSALS, WITHDRAWALS, DEPOSITS, STAKE_CHANGES, STAKE_REQUESTS)
