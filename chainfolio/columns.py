"""Columns that many tables have."""

from __future__ import annotations

from chainfolio.table import Column

BUCKET = Column("bucket", "int", "CRC-32 of the account, modulo 64")
CHAIN = Column("chain", "text", "key of the chain, such as `ethereum`")
HEIGHT = Column("height", "long", "block height")
TIME = Column("time", "time", "time of the block")
TX_INDEX = Column("tx_index", "int", "position of the transaction in its block")
TX_HASH = Column("tx_hash", "text", "transaction hash")
LOG_INDEX = Column(
    "log_index",
    "int",
    "position of the log in its block; -1 where there is no log (native; fees of Starknet that no event shows)",
)
