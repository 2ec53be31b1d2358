"""Real wallets, transactions and blocks of others, exact to the unit."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chainfolio.adapters.solana.layouts import TOKEN_PROGRAMS
from chainfolio.adapters.solana.parsing import joined, slot_and_content, token_accounts
from chainfolio.adapters.solana.rows import tables
from chainfolio.adapters.solana.spans import BlockChanges, parse_block
from chainfolio.adapters.solana.transactions import Change, FetchedTransaction, change, paired_transfers
from tests.solana.recorded import body, expected, lines, needs_recordings

pytestmark = needs_recordings


def test_balances_of_recorded_wallets_are_the_sums_of_their_token_accounts() -> None:
    balances: dict[str, Any] = {}
    for line in lines("balances.rpc.jsonl.gz"):
        account, program = line["params"][0], line["params"][1]["programId"]
        assert program in TOKEN_PROGRAMS
        _, content = slot_and_content("recorded", body(line["result"]))
        tokens, _ = token_accounts("recorded", content, account, program)
        balances[account] = joined("recorded", [balances.get(account, {}), tokens])
    expected_balances = expected("balances.expected.json")
    assert {
        account: {mint: {"raw": str(each.raw), "decimals": each.decimals} for mint, each in tokens.items() if each.raw}
        for account, tokens in balances.items()
        if any(each.raw for each in tokens.values())
    } == {account: tokens for account, tokens in expected_balances.items() if tokens}


def recorded() -> dict[str, Change]:
    """The recorded transactions by their signature."""
    changes = {}
    for line in lines("transactions.rpc.jsonl.gz"):
        entry = msgspec.json.decode(body(line["result"]), type=FetchedTransaction)
        changes[line["params"][0]] = change("recorded", entry, entry.slot)
    return changes


def test_every_recorded_transaction_changes_what_others_say_that_it_changed() -> None:
    changes = recorded()
    cases = lines("transactions.expected.jsonl.gz")
    assert len(cases) == len(changes) == 15
    for case in cases:
        change = changes[case["signature"]]
        assert change.signature == case["signature"]
        assert change.fee == case["fee_lamports"], case["id"]
        for account, net in case["net"].items():
            amounts = {f"spl:{mint}": change.net(account, mint) for mint in change.tokens if change.net(account, mint)}
            if native := change.net(account):
                amounts["native"] = native
            assert {name: str(raw) for name, raw in amounts.items()} == net, case["id"]


def test_the_movements_of_a_transaction_add_up_to_its_changes_for_every_account() -> None:
    for entry in recorded().values():
        for mint, changes in ({"": entry.native} | dict(entry.tokens)).items():
            sums: dict[str, int] = {}
            for sender, recipient, raw in paired_transfers(changes, "nobody"):
                assert raw > 0
                sums[sender] = sums.get(sender, 0) - raw
                sums[recipient] = sums.get(recipient, 0) + raw
            remainder = sums.pop("nobody", 0)
            assert {account: raw for account, raw in sums.items() if raw} == {k: v for k, v in changes.items() if v}
            if not mint:
                assert remainder == 0, "coins come from nowhere"


def block(name: str) -> BlockChanges:
    """A recorded block."""
    (line,) = lines(f"blocks/{name}.rpc.jsonl.gz")
    block_changes = parse_block(line["params"][0], "recorded", body(line["result"]))
    assert block_changes is not None
    return block_changes


@pytest.mark.parametrize("name", ["devnet_380876342", "devnet_314167369"])
def test_a_recorded_block_is_read_whole(name: str) -> None:
    expected_block, block_changes = expected("blocks.expected.json")[name], block(name)
    assert (block_changes.block.height, block_changes.block.hash) == (
        expected_block["slot"],
        expected_block["blockhash"],
    )
    assert block_changes.block.parent == expected_block["previous_blockhash"]
    assert block_changes.block.time_us == expected_block["block_time"] * 1_000_000
    changes = [each.change for each in block_changes.changes]
    assert len(changes) == expected_block["transactions"]
    assert sum(each.failed for each in changes) == expected_block["failed"]
    assert sum(each.fee for each in changes) == expected_block["total_fees_lamports"]
    rows = tables("solana", block_changes.changes, ("transactions", "native", "transfers"))
    assert rows["transactions"].num_rows == expected_block["transactions"]
    assert len({row["tx_index"] for row in rows["transactions"].to_pylist()}) == expected_block["transactions"]


def test_a_block_is_the_same_in_every_encoding() -> None:
    as_json, as_parsed, as_base64 = (block(f"devnet_147078734_{each}") for each in ("json", "jsonParsed", "base64"))
    assert as_json == as_parsed == as_base64
    assert len(as_json.changes) == 25
