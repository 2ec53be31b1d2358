"""The lake's tables as DuckDB views: the files as they are, with a DECIMAL beside each 32-byte amount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.amounts import MAX_DEC38
from chainfolio.table import BUCKETS, Table
from chainfolio.tables import TABLES

ONES = 0xFFFFFFFF
# What blocks brought their proposers on the execution chain, by the rule of `engine.block_income`: in wei. Known of a
# block whose transactions are all in the lake; a block without a payload brought nothing.
VALIDATOR_REWARDS_OF = f"""
CREATE OR REPLACE MACRO validator_rewards_of(who) AS TABLE WITH
own AS (SELECT * FROM validator_rewards WHERE bucket = who % {BUCKETS} AND validator = who),
carried AS (SELECT * FROM proposals WHERE bucket = who % {BUCKETS} AND validator = who),
signed AS (
    SELECT p.chain, p.height, b.chain AS chain_paid, b.miner, b.tx_count, t.tx_index, t.raw_dec,
        t.gas_used::HUGEINT * (t.gas_price_dec::HUGEINT - coalesce(b.base_fee_dec, 0)::HUGEINT) AS tip,
        t.sender = b.miner AND t.recipient <> b.miner AND t.raw_dec > 0 AND t.status IS DISTINCT FROM 0 AS pays
    FROM carried p JOIN blocks b ON b.height = p.execution_height AND b.hash = p.execution_hash
    LEFT JOIN transactions t ON t.chain = b.chain AND t.height = b.height),
summed AS (
    SELECT chain, height, count(tip) = any_value(tx_count) AND count(raw_dec) = any_value(tx_count) AS is_whole,
        coalesce(sum(tip), 0) AS fees, arg_max({{'pays': coalesce(pays, false), 'raw': raw_dec}}, tx_index) AS last
    FROM signed GROUP BY chain, height, chain_paid),
brought AS (
    SELECT chain, height, max(if(last.pays, 0, fees)) AS fees, max(if(last.pays, last.raw, 0)) AS paid
    FROM summed WHERE is_whole GROUP BY chain, height),
by_epoch AS (
    SELECT p.chain, p.epoch, sum(if(p.execution_hash IS NULL, 0, fees)) AS execution,
        sum(if(p.execution_hash IS NULL, 0, paid)) AS mev, count(if(p.execution_hash IS NULL, 0, fees)) AS known
    FROM carried p LEFT JOIN brought USING (chain, height) GROUP BY p.chain, p.epoch)
SELECT own.*, CASE WHEN proposed = coalesce(known, 0) THEN coalesce(execution, 0)::DECIMAL(38, 0) END AS execution,
    CASE WHEN proposed = coalesce(known, 0) THEN coalesce(mev, 0)::DECIMAL(38, 0) END AS mev
FROM own LEFT JOIN by_epoch USING (chain, epoch);"""


def views(files: Mapping[str, Sequence[str]], refused: Mapping[str, str] | None = None) -> list[str]:
    """One CREATE VIEW a table, and macros for the tables by account; a table without files gets an empty view of the
    right columns. `refused` names tables that cannot be read, and why: their views raise that error when queried."""
    reasons = refused or {}
    made = (_view(table, files.get(name, ()), reasons.get(name)) for name, table in TABLES.items())
    return [*made, *_macros()]


def _view(table: Table, files: Sequence[str], refused: str | None) -> str:
    shown = [pair for column in table.columns for pair in _types(column.name, column.type)]
    if refused is not None:  # every column and the condition are the error: no query can be answered without it
        columns = ", ".join(f"refused::{kind} AS {_quoted(name)}" for name, kind in shown)
        error = f"SELECT error({literal(refused)})::VARCHAR AS refused"
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM ({error}) WHERE refused IS NULL;"
    if not files:
        columns = ", ".join(f"NULL::{kind} AS {_quoted(name)}" for name, kind in shown)
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} WHERE false;"
    names = ", ".join(map(literal, files))
    columns = ", ".join(column for each in table.columns for column in _columns(each.name, each.type))
    # Named, or DuckDB guesses from the folders' names: a chain called 1 would be a number.
    parts = {column.name: column.type for column in table.columns if column.name in table.partitions}
    types = ", ".join(f"{literal(name)}: {kind}" for part in parts.items() for name, kind in _types(*part))
    return (
        f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM read_parquet([{names}], "
        f"hive_partitioning = true, hive_types = {{{types}}}, union_by_name = true);"
    )


def _columns(name: str, kind: str) -> list[str]:
    column = _quoted(name)
    return [column, f"{decimal_of(column)} AS {_quoted(name + '_dec')}"] if kind == "raw" else [column]


def decimal_of(column: str) -> str:
    """DECIMAL(38,0) from 32 big-endian bytes, in the SQL of DuckDB 1.3 and newer; null where it does not fit."""
    limit = "".join(f"\\x{byte:02X}" for byte in MAX_DEC38.to_bytes(32, "big"))
    return f"CASE WHEN {column} <= '{limit}'::BLOB THEN {column}[17:32]::BIT::HUGEINT::DECIMAL(38, 0) END"


def total_of(column: str) -> str:
    """DECIMAL(38,0) of the sum of 32-byte amounts, whatever is among them; null where it does not fit. Limbs of 64 bits
    are summed, so that no row can overflow the sum of others, and none is left out."""
    limbs = [f"sum({column}[{1 + 8 * at}:{8 + 8 * at}]::BIT::UBIGINT::HUGEINT)" for at in range(4)]
    upper, lower = divmod(MAX_DEC38, 2**64)
    # The lowest may be larger than 64 bits: what it carries is compared before anything is multiplied.
    high, low = f"{limbs[2]} + {limbs[3]} // {2**64}", f"{limbs[3]} % {2**64}"
    fits = f"{limbs[0]} + {limbs[1]} = 0 AND ({high} < {upper} OR {high} = {upper} AND {low} <= {lower})"
    return f"CASE WHEN {fits} THEN (least({high}, {upper}) * {2**64} + {low})::DECIMAL(38, 0) END"


def _macros() -> list[str]:
    """`total(raw)`, the exact sum; `bucket_of(account)`, and for each table by account `<table>_of(account)`: its rows,
    from its own bucket alone. An address with the capitals of its checksum is found too. `validator_rewards_of(index)`
    has the two columns of the execution chain besides."""
    account = "CASE WHEN account LIKE '0x%' THEN lower(account) ELSE account END"
    shares = "list_transform(range(1, length(account) + 1), lambda i: ascii(account[i])::UBIGINT)"
    step = f"lambda crc, byte: xor(crc // 256, {_crc_table()}[(xor(crc % 256, byte) + 1)::INTEGER])"
    crc = f"xor(list_reduce(list_concat([{ONES}::UBIGINT], {shares}), {step}), {ONES}::UBIGINT)"
    return [
        f"CREATE OR REPLACE MACRO total(raw) AS {total_of('raw')};",
        f"CREATE OR REPLACE MACRO canonical(account) AS {account};",
        f"CREATE OR REPLACE MACRO bucket_of(account) AS ({crc} % {BUCKETS})::INTEGER;",
        *(
            f"CREATE OR REPLACE MACRO {table.name}_of(who) AS TABLE SELECT * FROM {table.name} "
            "WHERE bucket = bucket_of(canonical(who)) AND account = canonical(who);"
            for table in TABLES.values()
            if "account" in table.key and "bucket" in table.partitions
        ),
        VALIDATOR_REWARDS_OF.strip(),
    ]


def _crc_table() -> list[int]:
    """What each byte does to a CRC-32, which DuckDB has no function for."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ 0xEDB88320 if value & 1 else value >> 1 for value in table]
    return table


def literal(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _types(name: str, kind: str) -> list[tuple[str, str]]:
    if kind == "raw":
        return [(name, "BLOB"), (name + "_dec", "DECIMAL(38, 0)")]
    types = {"text": "VARCHAR", "int": "INTEGER", "long": "BIGINT", "bool": "BOOLEAN", "time": "TIMESTAMPTZ"}
    return [(name, types.get(kind, "BLOB"))]
