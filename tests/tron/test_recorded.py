"""Rows of recorded transactions have exactly the movements and fees of an independent tool."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from chainfolio.adapters.tron.addresses import ZERO, hex_address
from chainfolio.adapters.tron.datasets import NATIVE
from chainfolio.adapters.tron.forms import Header, RawHeader, SignedHeader, Transaction, TransactionInfo, Wallet
from chainfolio.adapters.tron.rows import BlockRows, decode_operation, empty_rows
from chainfolio.adapters.tron.signers import recover_signers
from chainfolio.blocks import Block
from tests.tron.recorded import FACTS, expected, lines, list_transactions, needs_recordings, sends

SETS = ("wallet_TFFr", "trc20_sends")
# Headers of the main chain and of a test chain, as the documents of three providers show them.
HEADERS = """
66987565 1777445121000 34
41b2f713d57dbcec679d93a8849fa0cd0e4db594ba
faf8fe3858339ead25cc892461c82a59b84dca4a51c45b026676bf3f45a352a2
0000000003fe262c85cd6b02033f4c3e5c1efa35de256a17bd906dc61fb1aeed
0000000003fe262d52bfa4b2814f816fd2e57af5b98a33d60d8630a03a908e0e

30864544 1623055923000 21
41c81107148e5fa4b4a2edf3d5354db6c6be5b5549
cc12586dc14ca32175ff230931dfad4e2f57b71850948edae7ef1c7a7de08881
0000000001d6f49f615231bdeeddd8b563c746188d5e270a58afc87b059f29de
0000000001d6f4a09f60c27befccff6fe3cc593b2d6c46cdc79d3fd4f55db859

200 1575594618000 9
41f16412b9a17ee9408646e2a21e16478f72ed1e95
0000000000000000000000000000000000000000000000000000000000000000
00000000000000c7d4d47132f21fd0b74e2f8bcb0c2e9130f7cab35b5d38af9f
00000000000000c86d2473411771f83db5e314c01bc8f8cf0dc2f8892be6fd7f
"""


def recorded(name: str) -> list[tuple[Transaction, TransactionInfo]]:
    """The transactions of a recording with their receipts."""
    return sends() if name == "trc20_sends" else list_transactions(name)


def rows(transaction: Transaction, info: TransactionInfo) -> BlockRows:
    """Return the rows of a transaction, as the only one of its block."""
    block_rows = empty_rows("node", Block(info.blockNumber, "", "", 1_700_000_000_000_000), FACTS)
    block_rows.add(0, 0, transaction, info)
    return block_rows


@needs_recordings
@pytest.mark.parametrize("name", SETS)
def test_every_movement_and_every_fee_is_a_row(name: str) -> None:
    truth = expected(name)
    account, txids = truth["account"], set()
    for transaction, info in recorded(name):
        facts = truth["txs"][transaction.txID]
        block_rows = rows(transaction, info)
        ((*_, sender, _recipient, _created, _raw, _type, status, _energy, fee, _input),) = block_rows.transactions
        assert (int.from_bytes(fee, "big"), status) == (facts["fee_sun"], 1)
        net: Counter[str] = Counter()
        for row in block_rows.transfers:
            token, standard, giver, taker, raw = row[5:10]
            if ZERO in (giver, taker):  # what is staked is the owner's still: the collector counts it so
                assert standard == NATIVE
                continue
            asset = "TRX" if token is None else f"{standard}:{token}"
            net[asset] += raw * ((taker == account) - (giver == account))
        if sender == account:
            net["TRX"] -= facts["fee_sun"]
        assert {asset: str(raw) for asset, raw in net.items() if raw} == facts["net"]
        txids.add(transaction.txID)
    assert txids == truth["txs"].keys()


@needs_recordings
@pytest.mark.parametrize("name", SETS)
def test_hashes_and_signers_are_computed_again(name: str) -> None:
    for transaction, info in recorded(name):
        _, operation = decode_operation("node", transaction, info)
        assert recover_signers(transaction) == (operation.owner,)


@needs_recordings
def test_what_is_frozen_leaves_the_account_and_says_how_much() -> None:
    (block_rows,) = [
        rows(transaction, info)
        for transaction, info in list_transactions("wallet_TFFr")
        if decode_operation("node", transaction, info)[0] == 11
    ]
    ((*_, token, standard, sender, recipient, raw, _id, _operator, _item),) = block_rows.transfers
    assert (token, standard, recipient, raw) == (None, NATIVE, ZERO, 278_000_000)
    assert sender == expected("wallet_TFFr")["account"]


@needs_recordings
def test_energy_of_a_transaction_is_its_gas() -> None:
    assert [rows(transaction, info).transactions[0][-3] for transaction, info in sends()] == [31_895] * 3


@needs_recordings
def test_what_recorded_transactions_used_up_and_burnt() -> None:
    """Two paid for energy and bandwidth; the third had staked for bandwidth and some energy."""
    resources = [rows(transaction, info).resources[0][5:] for transaction, info in sends()]
    assert resources == [
        (31_895, 2, 0, 17_245, 13_395_060, 0, 345_000),
        (31_895, 1, 0, 17_245, 13_395_480, 0, 345_000),
        (31_895, 4_610, 0, 17_245, 11_459_700, 345, 0),
    ]
    fees = [expected("trc20_sends")["txs"][transaction.txID]["fee_sun"] for transaction, _ in sends()]
    assert [each[4] + each[6] for each in resources] == fees


@needs_recordings
def test_the_recorded_account_is_read() -> None:
    body = next(each["json"] for each in lines("wallet_TFFr") if each["path"].count("/") == 3)["data"][0]
    wallet, account = msgspec.convert(body, Wallet), expected("wallet_TFFr")["account"]
    wallet.check("node", account)
    assert (wallet.address, wallet.balance, wallet.allowance) == (hex_address(account), 278_720_000, 848_829)
    assert {each.key: each.value for each in wallet.assetV2} == {
        "1002000": 10_189_204_891,
        "1002798": 10_000_000,
        "1002814": 10_000_000,
    }


@pytest.mark.parametrize("text", HEADERS.strip().split("\n\n"))
def test_the_id_of_a_real_block_is_that_of_its_header(text: str) -> None:
    height, time_ms, version, witness, root, parent, block_id = text.split()
    raw = RawHeader(parent, root, witness, int(height), int(time_ms), version=int(version))
    block = Header(block_id, SignedHeader(raw)).block("node", int(height))
    assert block == Block(int(height), block_id, parent, int(time_ms) * 1_000)
