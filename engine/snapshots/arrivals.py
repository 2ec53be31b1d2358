"""Arrival of tokens by the index: in whose transactions they came, and to how many recipients at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from chainfolio.assets import Asset
from chainfolio.engine.rows import rows_at
from chainfolio.engine.snapshots.account_index import ZERO_RAW
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.portfolio.spam import TokenArrival
from chainfolio.tables import ACCOUNT_TRANSACTIONS, ACCOUNT_TRANSFERS, TRANSFERS

if TYPE_CHECKING:
    import polars as pl

    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail

TRANSACTION_KEY: Final = ("height", "tx_index")
ACCOUNT_TOKEN: Final = ("account", "token")
ACCOUNT_TRANSACTION: Final = ("account", *TRANSACTION_KEY)
KEY: Final = (*ACCOUNT_TRANSACTION, "log_index", "item", "direction")
TOKEN_AMOUNT: Final = ("token", "raw")
# How many transactions of an account are looked up in a table that does not lie by account, one row group each. The
# newest go first.
MAX_TRANSACTIONS: Final = 64


def arrivals_in(
    account_rows: AccountRows,
    tokens: Mapping[str, Collection[Asset]],
    trusted: Mapping[str, Collection[Asset]],
    listed_tokens: Collection[Asset] = (),
) -> dict[str, dict[Asset, TokenArrival]]:
    """Return how tokens first came to accounts, by account and asset; each account has an entry.

    Tokens without an indexed transfer are absent. An arrival counts as the account's own action as in
    `own_assets_in`, which has the same arguments.
    """
    import polars as pl

    lake, tail, chain = account_rows.index
    arrivals_by_account: dict[str, dict[Asset, TokenArrival]] = {account: {} for account in tokens}
    token_transfers, solicited = _solicited(account_rows, tokens, trusted, listed_tokens)
    if token_transfers.is_empty():
        return arrivals_by_account
    unsolicited = token_transfers.join(solicited, on=ACCOUNT_TOKEN, how="anti").filter(pl.col("direction") == "in")
    nonzero_counts = _by_pair(token_transfers.filter(pl.col("raw") != ZERO_RAW).group_by(ACCOUNT_TOKEN).len())
    recipients, own_pairs = _by_pair(_recipients(lake, tail, chain, unsolicited)), set(solicited.iter_rows())
    net = _net(token_transfers)
    assets = _by_reference(tokens)
    for pair in sorted(token_transfers.select(ACCOUNT_TOKEN).unique().iter_rows()):
        arrival = TokenArrival(nonzero_counts.get(pair, 0), pair in own_pairs, recipients.get(pair, 0), net[pair])
        arrivals_by_account[pair[0]][assets[pair]] = arrival
    return arrivals_by_account


def own_assets_in(
    account_rows: AccountRows,
    tokens: Mapping[str, Collection[Asset]],
    trusted: Mapping[str, Collection[Asset]],
    listed_tokens: Collection[Asset] = (),
) -> dict[str, set[Asset]]:
    """Return the tokens that accounts moved in their own actions, by account.

    An own action is a transaction that the account sent, or in which the native coin, or a token of `trusted` or
    `listed_tokens`, left the account. Logs of other contracts prove nothing.

    Args:
      account_rows: The rows of these accounts, and maybe others, up to the last height that counts.
      tokens: The tokens to look up, by account.
      trusted: Tokens that prove an own action when they leave, by account.
      listed_tokens: Tokens that prove it for every account.
    """
    assets = _by_reference(tokens)
    own_assets: dict[str, set[Asset]] = {account: set() for account in tokens}
    _, solicited = _solicited(account_rows, tokens, trusted, listed_tokens)
    for pair in solicited.iter_rows():
        own_assets[pair[0]].add(assets[pair])
    return own_assets


def _solicited(
    account_rows: AccountRows,
    tokens: Mapping[str, Collection[Asset]],
    trusted: Mapping[str, Collection[Asset]],
    listed_tokens: Collection[Asset],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the transfers of the tokens, and the accounts and tokens that moved in an own action.

    An own action is a transaction in which the account paid coins, a listed token or a trusted token. For a token
    without one, its newest transaction counts if the account sent it.
    """
    import polars as pl

    transfers = account_rows.of(ACCOUNT_TRANSFERS, list(tokens), (*KEY, *TOKEN_AMOUNT)).select(
        *ACCOUNT_TRANSACTION, "direction", *TOKEN_AMOUNT
    )
    token_transfers = transfers.join(_pairs(tokens), on=ACCOUNT_TOKEN, how="semi")
    if token_transfers.is_empty():
        return token_transfers, token_transfers.select(ACCOUNT_TOKEN)
    transactions = token_transfers.select(ACCOUNT_TRANSACTION).unique()
    outgoing = transfers.filter(pl.col("direction") == "out", pl.col("raw") != ZERO_RAW)
    coins = outgoing.filter(
        pl.col("token").is_null() | pl.col("token").is_in([asset.reference for asset in listed_tokens])
    )
    payments = pl.concat([coins, outgoing.join(_pairs(trusted), on=ACCOUNT_TOKEN, how="semi")])
    own_actions = payments.select(ACCOUNT_TRANSACTION).unique().join(transactions, on=ACCOUNT_TRANSACTION, how="semi")
    # No own action is known for these tokens yet: the account may have sent their newest transaction itself.
    undecided = token_transfers.join(
        token_transfers.join(own_actions, on=ACCOUNT_TRANSACTION, how="semi"), on=ACCOUNT_TOKEN, how="anti"
    )
    candidates = undecided.sort(TRANSACTION_KEY).unique(ACCOUNT_TOKEN, keep="last").select(ACCOUNT_TRANSACTION).unique()
    sent = account_rows.of(
        ACCOUNT_TRANSACTIONS, list(tokens), ACCOUNT_TRANSACTION, pl.col("sender") == pl.col("account")
    )
    own_actions = pl.concat([own_actions, candidates.join(sent, on=ACCOUNT_TRANSACTION, how="semi")])
    return token_transfers, token_transfers.join(own_actions, on=ACCOUNT_TRANSACTION, how="semi").select(
        ACCOUNT_TOKEN
    ).unique()


def _by_reference(tokens: Mapping[str, Collection[Asset]]) -> dict[tuple[str, str], Asset]:
    """Return the assets by account and reference."""
    return {(account, asset.reference): asset for account, assets in tokens.items() for asset in assets}


def _net(transfers: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Return received minus sent raw amounts, by account and token."""
    net: defaultdict[tuple[str, str], int] = defaultdict(int)
    for account, token, direction, raw in transfers.select(*ACCOUNT_TOKEN, "direction", "raw").iter_rows():
        net[account, token] += int.from_bytes(raw, "big") * (1 if direction == "in" else -1)
    return net


def _pairs(tokens: Mapping[str, Collection[Asset]]) -> pl.DataFrame:
    """Return one row for each account and token."""
    import polars as pl

    rows = [(account, asset.reference) for account, assets in tokens.items() for asset in assets]
    return pl.DataFrame(rows, schema=dict.fromkeys(ACCOUNT_TOKEN, pl.String), orient="row")


def _by_pair(counts: pl.DataFrame) -> dict[tuple[str, str], int]:
    return {(account, token): count for account, token, count in counts.iter_rows()}


def _recipients(lake: Lake, tail: Tail, chain: str, transfers: pl.DataFrame) -> pl.DataFrame:
    """Count the recipients of a token in the transaction that first moved it for an account.

    Only transfers of this token count, to any recipient, without those of zero.

    Returns:
        Rows of account, token and `count`. Pairs without such a transfer are missing.
    """
    import polars as pl

    # The first time is enough: what is sent to thousands at once is so from the start.
    first = _newest(transfers.sort(TRANSACTION_KEY).unique(ACCOUNT_TOKEN, keep="first"))
    key = ("token", *TRANSACTION_KEY)
    transfer_rows = [
        rows.join(first, on=key, how="semi")
        for rows in rows_at(
            lake, tail, chain, TRANSFERS, first["height"], (*key, "recipient"), pl.col("raw") != ZERO_RAW
        )
    ]
    if not transfer_rows:
        return first.select(ACCOUNT_TOKEN).clear().with_columns(pl.lit(0).alias("count"))
    counts = pl.concat(transfer_rows).group_by(key).agg(pl.col("recipient").n_unique().alias("count"))
    return first.join(counts, on=key).select(*ACCOUNT_TOKEN, "count")


def _newest(transactions: pl.DataFrame) -> pl.DataFrame:
    """Return the newest `MAX_TRANSACTIONS` transactions of each account."""
    newest = (
        transactions.sort(TRANSACTION_KEY, descending=True)
        .group_by("account", maintain_order=True)
        .head(MAX_TRANSACTIONS)
    )
    return newest.select(transactions.columns)
