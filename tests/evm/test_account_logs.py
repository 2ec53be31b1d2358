"""The logs that name accounts, on a real node and on nodes that fail."""

from __future__ import annotations

import pytest

from chainfolio.blocks import Span
from tests.evm.anvil import Local, chain_of
from tests.evm.scoped import Rows, indexed_rows, merged_rows, scoped

OF_LOGS = ("transfers", "approvals")


def named_in_topics(rows: Rows, account: str) -> Rows:
    """Return rows without token transfers whose parties are in the data of the event, not in topics."""
    hidden = {"indexed0": ("sender", "recipient"), "indexed1": ("recipient",)}
    transfers = [
        row
        for row in rows.get("transfers", [])
        if row["layout"] not in hidden
        or account in {row["sender"], row["recipient"]} - {row[n] for n in hidden[row["layout"]]}
    ]
    return {**rows, "transfers": transfers} if transfers else rows


@pytest.mark.node
@pytest.mark.parametrize("wallet_index", [0, 1, 2, 3])
async def test_the_rows_of_an_account_are_those_of_a_whole_index(local: Local, wallet_index: int) -> None:
    account = local.wallets[wallet_index]
    async with chain_of(local) as chain:
        await chain.heads()
        chain.node.finalized = local.node.height
        span = Span(0, local.node.height)
        pieces = await scoped(chain, span, [account], OF_LOGS)
        assert merged_rows(pieces) == named_in_topics(await indexed_rows(chain, span, [account], OF_LOGS), account)
        assert pieces[-1].read_methods == dict.fromkeys(OF_LOGS, "logs")
        assert pieces[-1].last is not None
        assert pieces[-1].last.height == span.last


@pytest.mark.node
async def test_blocks_that_may_still_go_are_linked_and_give_the_same_rows(local: Local) -> None:
    async with chain_of(local) as chain:
        await chain.heads()
        span = Span(1, local.node.height)
        before = await chain.block(0)
        (piece,) = await scoped(chain, span, local.wallets, OF_LOGS, before=before)
        assert piece.is_linked
        assert [block.height for block in piece.blocks] == list(range(1, span.last + 1))
        finished = await scoped(chain, span, local.wallets, OF_LOGS)
        assert merged_rows([piece]) == merged_rows(finished)
