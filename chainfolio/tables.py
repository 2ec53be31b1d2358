"""The tables as values. `docs/tables.md` is generated from here; names, types, partitions are public.

Chains of every kind share these tables. Columns that only some kinds have, such as gas, are null for the others.
"""

from __future__ import annotations

from chainfolio.columns import BUCKET, CHAIN, HEIGHT, LOG_INDEX, TIME, TX_HASH, TX_INDEX
from chainfolio.staking_tables import BEACON
from chainfolio.table import Column, Table

REWARD = "reward"  # the standard of transfers that changed no balance
ACROSS_LOGS = ("chain", "height", "tx_index", "log_index")

BLOCKS = Table(
    "blocks",
    "One row per block.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        Column("hash", "text", "block hash"),
        Column("parent", "text", "hash of the block before"),
        Column("miner", "text", "fee recipient; null where a chain names none", nullable=True),
        Column("gas_used", "long", "gas used by all transactions; null where a chain has no gas", nullable=True),
        Column("gas_limit", "long", "gas limit; null where a chain has no gas", nullable=True),
        Column("base_fee", "raw", "base fee per gas in wei; null before EIP-1559, and without gas", nullable=True),
        Column("tx_count", "int", "number of transactions"),
    ),
    key=("chain", "height"),
    order=("chain", "height"),
)

TRANSACTIONS = Table(
    "transactions",
    "One row per transaction, with what its receipt says.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        TX_INDEX,
        Column("hash", "text", "transaction hash"),
        Column("sender", "text", "who signed it"),
        Column("recipient", "text", "who was called; null when a contract was created", nullable=True),
        Column("created", "text", "address of the created contract", nullable=True),
        Column("raw", "raw", "native coins sent, in the smallest unit"),
        Column("nonce", "long", "nonce of the sender; null where a chain counts none", nullable=True),
        Column("type", "int", "transaction type, 0 is legacy; null where a chain has no types", nullable=True),
        Column("status", "int", "1 done, 0 failed; null before Byzantium", nullable=True),
        Column("gas_used", "long", "gas used; null where a chain has no gas", nullable=True),
        Column("gas_price", "raw", "price per gas actually paid; null where a chain has no gas", nullable=True),
        Column("fee", "raw", "whole fee in the smallest unit: on the EVM gas used x price, L1 and blob parts included"),
        Column("input", "bytes", "call data (Solana: 8 bytes, Starknet: 4 of a selector); null: none", nullable=True),
    ),
    key=("chain", "height", "tx_index"),
    order=("chain", "height", "tx_index"),
)

TRANSFERS = Table(
    "transfers",
    "One row per movement of an asset: ERC-20/721/1155, native value, internal transfers of calls, "
    "payments of the protocol, and wrapping and unwrapping of the native coin.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        TX_INDEX,
        LOG_INDEX,
        Column(
            "item",
            "int",
            "position in the log, of an ERC-1155 batch; of internal ones, from 1 (2^30: uncounted); of a mint -1; "
            "of a withdrawal its position in the block's list; else 0",
        ),
        TX_HASH,
        Column(
            "standard",
            "text",
            "native, internal, erc20, erc721, erc1155, wrap, unwrap, withdrawal (of a validator: no transaction, so "
            "tx_hash is the block's and tx_index behind the last), mint (came with a deposit from another chain) or "
            "reward (what the stake account in `sender` earned and keeps: no balance of the recipient's changed; "
            "tx_hash is the block's and tx_index -1)",
        ),
        Column("token", "text", "contract of the token; null for the native coin", nullable=True),
        Column("operator", "text", "who moved it, where the event says so (ERC-1155)", nullable=True),
        Column("sender", "text", "from; the zero address mints"),
        Column("recipient", "text", "to; the zero address burns"),
        Column("token_id", "raw", "id of the token, for ERC-721 and ERC-1155", nullable=True),
        Column("raw", "raw", "how much, in the smallest unit; 1 for ERC-721"),
        Column(
            "layout",
            "text",
            "shape of the event where it is not the usual one: indexed0, indexed1 (parties in the data), "
            "batch (ERC-1155)",
            nullable=True,
        ),
    ),
    key=("chain", "height", "tx_index", "log_index", "item"),
    order=(*ACROSS_LOGS, "item"),
)

APPROVALS = Table(
    "approvals",
    "One row per approval event, as mined.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        TX_INDEX,
        LOG_INDEX,
        TX_HASH,
        Column("standard", "text", "erc20, erc721 (one token) or operator (ApprovalForAll of ERC-721 and ERC-1155)"),
        Column("token", "text", "contract of the token"),
        Column("owner", "text", "who allows"),
        Column("spender", "text", "who may spend"),
        Column("token_id", "raw", "id of the token, for erc721", nullable=True),
        Column("raw", "raw", "allowed amount, for erc20; 2^256-1 is unlimited", nullable=True),
        Column("approved", "bool", "granted or revoked, for operator", nullable=True),
    ),
    key=("chain", "height", "tx_index", "log_index"),
    order=ACROSS_LOGS,
)

LOGS = Table(
    "logs",
    "Raw logs that no row of another table stands for. Every fetched log is kept exactly once: decoded where the row "
    "says all that the log said, here where it does not.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        TX_INDEX,
        LOG_INDEX,
        TX_HASH,
        Column("address", "text", "contract that wrote the log"),
        Column("topic0", "text", "first topic, 0x + 64 hex digits", nullable=True),
        Column("topic1", "text", "second topic", nullable=True),
        Column("topic2", "text", "third topic", nullable=True),
        Column("topic3", "text", "fourth topic", nullable=True),
        Column("data", "bytes", "data"),
    ),
    key=("chain", "height", "tx_index", "log_index"),
    order=ACROSS_LOGS,
)

ACCOUNT_TRANSFERS = Table(
    "account_transfers",
    "Every transfer once per account and direction, in 64 buckets of the account, sorted by account: one account's "
    "history is one small read.",
    (
        CHAIN,
        BUCKET,
        Column("account", "text", "whose history this row belongs to"),
        HEIGHT,
        TIME,
        TX_INDEX,
        LOG_INDEX,
        Column("item", "int", "position inside the log"),
        Column("direction", "text", "in or out; a transfer to oneself has one row of each"),
        Column("counterparty", "text", "the other side"),
        TX_HASH,
        Column("standard", "text", "as in transfers"),
        Column("token", "text", "as in transfers", nullable=True),
        Column("token_id", "raw", "as in transfers", nullable=True),
        Column("raw", "raw", "as in transfers"),
    ),
    key=("chain", "account", "height", "tx_index", "log_index", "item", "direction"),
    order=("account", "height", "tx_index", "log_index", "item", "direction"),
    partitions=("chain", "bucket"),
    derived_from="transfers",
)

ACCOUNT_APPROVALS = Table(
    "account_approvals",
    "Every approval event again, in 64 buckets of the owner, sorted by account: one account's approvals are one "
    "small read.",
    (
        CHAIN,
        BUCKET,
        Column("account", "text", "who allows: the owner of the approval"),
        *(column for column in APPROVALS.columns if column.name not in ("chain", "owner")),
    ),
    key=("chain", "account", "height", "tx_index", "log_index"),
    order=("account", "height", "tx_index", "log_index"),
    partitions=("chain", "bucket"),
    derived_from="approvals",
)

ACCOUNT_TRANSACTIONS = Table(
    "account_transactions",
    "Every transaction once for each account that it names: who signed it, and who was called or created. In 64 "
    "buckets of the account, sorted by account: what one account sent, and what called it, is one small read.",
    (
        CHAIN,
        BUCKET,
        Column("account", "text", "the sender, or the recipient, or the created contract; to oneself: one row"),
        HEIGHT,
        TIME,
        TX_INDEX,
        TX_HASH,
        *(
            column
            for column in TRANSACTIONS.columns
            if column.name in ("sender", "recipient", "created", "raw", "status", "fee")
        ),
        Column("selector", "bytes", "first four bytes of the call data; null where a chain has none", nullable=True),
    ),
    key=("chain", "account", "height", "tx_index"),
    order=("account", "height", "tx_index"),
    partitions=("chain", "bucket"),
    derived_from="transactions",
)

ACCOUNT_EVENTS = Table(
    "account_events",
    "Every event that rules of protocols ask for, once for each account that an indexed parameter names. The "
    "table has 64 buckets and is sorted by account, so the events of one account are one small read.",
    (
        CHAIN,
        BUCKET,
        Column("account", "text", "whom the event names"),
        Column("place", "int", "which topic names it: 1, 2 or 3"),
        *(column for column in LOGS.columns if column.name != "chain"),
    ),
    key=("chain", "account", "height", "tx_index", "log_index", "place"),
    order=("account", "height", "tx_index", "log_index", "place"),
    partitions=("chain", "bucket"),
    derived_from="logs",
)

BALANCES = Table(
    "balances",
    "What each account holds of each fungible token by the events alone, at the last derived height. Tokens whose "
    "balance changes without events (rebasing, fee on transfer) differ from their contract: a snapshot reads the "
    "contract.",
    (
        CHAIN,
        HEIGHT,
        Column("account", "text", "holder"),
        Column("token", "text", "contract of the token"),
        Column("raw", "raw", "received minus sent; zero rows are kept"),
        Column(
            "short", "bool", "sent more than received: the token moves without events; raw is then how much is missing"
        ),
    ),
    key=("chain", "account", "token"),
    order=("account", "token"),
    derived_from="transfers",
)

ALLOWANCES = Table(
    "allowances",
    "The last ERC-20 approval of each owner, token and spender at the last derived height, as the event said it.",
    (
        CHAIN,
        HEIGHT,
        Column("owner", "text", "who allows"),
        Column("token", "text", "contract of the token"),
        Column("spender", "text", "who may spend"),
        Column("raw", "raw", "amount of the last approval"),
        Column("approved_height", "long", "block of that approval"),
    ),
    key=("chain", "owner", "token", "spender"),
    order=("owner", "token", "spender"),
    derived_from="approvals",
)

TOKENS = Table(
    "tokens",
    "What token contracts said about themselves when they were first asked, at `height`.",
    (
        CHAIN,
        Column("token", "text", "contract"),
        Column("symbol", "text", "symbol, made safe to print", nullable=True),
        Column("name", "text", "name, made safe to print", nullable=True),
        Column("decimals", "int", "decimals; null where the contract gives none that can be meant", nullable=True),
        HEIGHT,
    ),
    key=("chain", "token"),
    order=("token",),
)

SNAPSHOTS = Table(
    "snapshots",
    "What each account held on each chain as a day began (00:00 UTC), read at the last block before. A row is never "
    "changed: a day that is read again has a higher `attempt`, and the highest one counts.",
    (
        CHAIN,
        BUCKET,
        Column("account", "text", "whose snapshot it is"),
        Column("day", "time", "00:00 UTC of the day"),
        Column("attempt", "int", "0 for the first snapshot of that day, and one more each time the day is read again"),
        HEIGHT,
        TIME,
        Column("hash", "text", "block hash"),
        Column("taken", "time", "when it was taken"),
        Column("batch", "long", "which commit of the chain's snapshots it came with"),
        Column("completeness", "text", "complete, partial, or unreadable: no node has the state of that block"),
        Column("reason", "text", "what it lacks; null where it is complete", nullable=True),
        Column("retry", "bool", "whether a read failed, so that reading the day again may give more"),
        Column("unindexed", "text", "digest of what the index lacked; null where it lacked nothing", nullable=True),
        Column("value", "text", "net worth in USD, an exact decimal number; null where unreadable", nullable=True),
        Column("digest", "text", "SHA-256 of the document", nullable=True),
        Column("document", "text", "the portfolio of the account on this chain, as JSON", nullable=True),
    ),
    key=("chain", "account", "day", "attempt"),
    order=("account", "day", "attempt"),
    partitions=("chain", "bucket"),
)

SNAPSHOT_HOLDINGS = Table(
    "snapshot_holdings",
    "One row per asset of a snapshot: loose in the wallet, or a part of a position. Made from the snapshot's document.",
    (
        CHAIN,
        BUCKET,
        *(column for column in SNAPSHOTS.columns if column.name in ("account", "day", "attempt", "height")),
        Column("item", "int", "position in the document, from 0"),
        Column("protocol", "text", "key of the protocol; `wallet` for what lies loose"),
        Column("position", "text", "type of the position, such as WALLET or LIQUIDITYPOOL"),
        Column("name", "text", "name of the position; empty for what lies loose"),
        Column("side", "text", "owned, supplied, borrowed or reward; what is borrowed has a positive amount and value"),
        Column("asset", "text", "contract as answers show it; the native coin has the zero address"),
        Column("symbol", "text", "symbol"),
        Column("decimals", "int", "decimals; null where they are not known", nullable=True),
        Column("raw", "raw", "how much, in the smallest unit; null where the amount is not known", nullable=True),
        Column("price", "text", "price in USD, an exact decimal number; null without a price", nullable=True),
        Column("value", "text", "worth in USD, an exact decimal number; null without a price", nullable=True),
        Column("spam", "bool", "whether it is taken for spam, and so is in no sum"),
    ),
    key=("chain", "account", "day", "attempt", "item"),
    order=("account", "day", "attempt", "item"),
    partitions=("chain", "bucket"),
    derived_from="snapshots",
)


RESOURCES = Table(
    "resources",
    "What each transaction of Tron used of staked energy and bandwidth, and what it burnt for the rest, in sun. With "
    "the cost of an activation, a memo or several signatures, the burnt amounts are the fee in `transactions`.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        TX_INDEX,
        TX_HASH,
        Column("account", "text", "whose transaction it is"),
        Column("energy", "long", "energy that it used in all; 0 where no contract ran"),
        Column("energy_staked", "long", "of it, what the account has staked for"),
        Column("energy_of_contract", "long", "of it, what the owner of the contract has staked for"),
        Column("energy_penalty", "long", "of it, what calls of a busy contract cost more"),
        Column("energy_fee", "long", "burnt for energy, in sun"),
        Column("bandwidth", "long", "bytes that were free or paid by stakes"),
        Column("bandwidth_fee", "long", "burnt for bytes instead, in sun"),
    ),
    key=("chain", "height", "tx_index"),
    order=("chain", "height", "tx_index"),
)


PRICES = Table(
    "prices",
    "Every price that an answer used, once for each asset and final block; it is never changed.",
    (
        CHAIN,
        HEIGHT,
        TIME,
        Column("asset", "text", "CAIP-19 name of the asset"),
        Column("usd", "text", "USD per whole unit, as an exact decimal"),
        Column("source", "text", "price source that gave it"),
        Column("observed", "time", "when it was observed"),
        Column("confidence", "text", "how sure the source is, from 0 to 1"),
        Column("depth_usd", "text", "how much its market could pay; null where it comes from no market", nullable=True),
        Column("detail", "text", "what the source said about it: the feed and its round, the way through markets"),
        Column("others", "text", "what other sources said of the same block, as JSON"),
        Column("calls", "text", "the reads that it follows from, as JSON"),
    ),
    key=("chain", "height", "asset"),
    order=("height", "asset"),
)

FIAT_RATES = Table(
    "fiat_rates",
    "Reference rates of currencies by day, as they were told first; a row is never changed. They belong to no chain: "
    "`chain` is who publishes them, and `height` counts days.",
    (
        Column("chain", "text", "who publishes them: `ecb`, the European Central Bank"),
        Column("height", "long", "days from 1970-01-01 to the day"),
        Column("day", "time", "00:00 UTC of the day"),
        Column("currency", "text", "ISO 4217 code, such as `USD`"),
        Column("per_euro", "text", "units per euro, as an exact decimal; null where none was published", nullable=True),
        Column("asked", "time", "when the publisher was asked"),
    ),
    key=("chain", "height", "currency"),
    order=("height", "currency"),
)

TABLES = {
    table.name: table
    for table in (
        BLOCKS,
        TRANSACTIONS,
        TRANSFERS,
        APPROVALS,
        LOGS,
        ACCOUNT_TRANSFERS,
        ACCOUNT_APPROVALS,
        ACCOUNT_TRANSACTIONS,
        ACCOUNT_EVENTS,
        BALANCES,
        ALLOWANCES,
        TOKENS,
        PRICES,
        FIAT_RATES,
        SNAPSHOTS,
        SNAPSHOT_HOLDINGS,
        RESOURCES,
        *BEACON,
    )
}
