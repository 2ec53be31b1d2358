"""Transactions of an account that is a contract: calls of any sender, with or without transfers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.addresses import EVM
from chainfolio.blocks import Span, Spans
from chainfolio.engine.transactions.activities import read_activities
from chainfolio.errors import NotIndexed
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD
from chainfolio.localchain.evm import Tx, call_data, created_address, tx, words
from chainfolio.localchain.hostile import TRANSFER, Log, deploy_hostile, log_tx
from chainfolio.portfolio.transactions import TransactionDocument
from chainfolio.tables import ACCOUNT_TRANSACTIONS
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index
from tests.engine.test_transactions import LOGS, ask, filled, hashes, send_all, transaction_filter

pytestmark = pytest.mark.node
EXECUTE = "execTransaction(address,uint256,bytes)"


@dataclass(frozen=True)
class Wallet:
    """A contract wallet, and the hashes of what was done with it, by a word for each, the oldest first."""

    subject: EvmSubject
    address: str
    hashes_by_action: dict[str, str]

    @property
    def newest_first(self) -> list[str]:
        """Everything that was done with it."""
        return [*self.hashes_by_action.values()][::-1]

    def receipt(self, tx_hash: str) -> dict[str, str]:
        """Read the receipt of a transaction from the node."""
        receipt: dict[str, str] = self.subject.node.rpc("eth_getTransactionReceipt", tx_hash)
        return receipt


@contextmanager
def deployed() -> Iterator[Wallet]:
    """A wallet of alice's, and everything that can be done with it, a block each."""
    with evm(0) as subject:
        alice, bob, eve = (subject.deployment.accounts[name] for name in ("alice", "bob", "carol"))
        nonce = int(subject.node.rpc("eth_getTransactionCount", alice, "latest"), 16)
        wallet = created_address(alice, nonce)
        dai = subject.token("DAI")
        code = artifact("Wallet").creation(words(["address[]"], [alice]))
        pay_dai = bytes.fromhex(call_data("transfer(address,uint256)", bob, 7)[2:])
        look = bytes.fromhex(call_data("totalSupply()")[2:])
        transactions = {
            "created": Tx(alice, None, code),
            "an owner is added": tx(alice, wallet, "addOwner(address)", bob),
            "a stranger fails": tx(eve, wallet, "addOwner(address)", eve),
            "paid": Tx(eve, wallet, value=5, gas=50_000),
            "touched": Tx(eve, wallet, gas=50_000),
            "DAI comes": tx(alice, dai, "transfer(address,uint256)", wallet, WAD),
            "looked at a token": tx(bob, wallet, EXECUTE, dai, 0, look),
            "DAI leaves": tx(bob, wallet, EXECUTE, dai, 0, pay_dai),
            "more than there is": tx(bob, wallet, EXECUTE, eve, 6, b""),
        }
        hashes_by_action = dict(zip(transactions, send_all(subject, *transactions.values()), strict=True))
        assert subject.node.rpc("eth_getCode", wallet, "latest") != "0x"
        yield Wallet(subject, wallet.lower(), hashes_by_action)


@pytest.fixture(scope="module")
def wallet() -> Iterator[Wallet]:
    with deployed() as wallet:
        yield wallet


async def of_wallet(indexed: Index, wallet: Wallet) -> dict[str, TransactionDocument]:
    """Return the records of the wallet by action."""
    documents = {each.hash: each for each in await ask(indexed, [wallet.address])}
    return {action: documents[tx_hash] for action, tx_hash in wallet.hashes_by_action.items()}


@pytest.mark.slow("the same rows in another place", only=["the lake"])
@pytest.mark.parametrize("location", ["the tail", "the lake", "its history"])
async def test_every_call_to_a_contract_wallet_is_in_its_list_wherever_the_rows_lie(
    wallet: Wallet, tmp_path: Path, location: str
) -> None:
    last = {"the tail": wallet.subject.birth, "the lake": wallet.subject.height, "its history": wallet.subject.height}
    async with index(wallet.subject, tmp_path) as indexed:
        await indexed.fill(0, last[location])
        if location == "its history":
            await indexed.materialise()
        await indexed.follower().step()
        indexed_in_lake = {row["hash"] for row in indexed.stored("transactions").to_pylist()}
        assert indexed_in_lake.isdisjoint(wallet.newest_first) == (location == "the tail")
        assert bool(indexed.stored(ACCOUNT_TRANSACTIONS.name).num_rows) == (location == "its history")
        assert hashes(await ask(indexed, [wallet.address])) == wallet.newest_first
        oldest_first = await ask(indexed, [wallet.address], transaction_filter(newest_first=False))
        assert hashes(oldest_first) == wallet.newest_first[::-1]


async def test_the_record_of_a_call_to_a_wallet_is_what_its_receipt_says(wallet: Wallet, tmp_path: Path) -> None:
    async with index(wallet.subject, tmp_path) as indexed:
        await filled(indexed)
        documents = await of_wallet(indexed, wallet)
    assert {action: record.type for action, record in documents.items()} == {
        "created": "UNDEFINED",
        "an owner is added": "UNDEFINED",
        "a stranger fails": "FAILED",
        "paid": "TRANSFERIN",
        "touched": "UNDEFINED",
        "DAI comes": "TRANSFERIN",
        "looked at a token": "UNDEFINED",
        "DAI leaves": "TRANSFEROUT",
        "more than there is": "FAILED",
    }
    for action, record in documents.items():
        receipt = wallet.receipt(record.hash)
        fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        assert Decimal(record.fees) == Decimal(fee).scaleb(-18)
        assert (record.sender, record.recipient) == (receipt["from"], receipt["to"] or receipt["contractAddress"])
        assert record.user.address == wallet.address
        asset_counts = (len(record.assets_in), len(record.assets_out))
        assert asset_counts == {"paid": (1, 0), "DAI comes": (1, 0), "DAI leaves": (0, 1)}.get(action, (0, 0))


async def test_a_call_from_one_wallet_to_another_is_there_once_for_each_and_to_oneself_once(tmp_path: Path) -> None:
    with evm(0) as subject:
        alice, bob = (subject.deployment.accounts[name].lower() for name in ("alice", "bob"))
        call_to_bob, self_call = send_all(
            subject, Tx(alice, bob, "0x1234", gas=50_000), Tx(alice, alice, "0x1234", gas=50_000)
        )
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            documents = await ask(indexed, [alice, bob])
    calls = [(each.hash, each.user.address, each.type) for each in documents if each.hash in (call_to_bob, self_call)]
    assert sorted(calls) == sorted(
        [(call_to_bob, alice, "INTERACTION"), (call_to_bob, bob, "UNDEFINED"), (self_call, alice, "INTERACTION")]
    )


async def test_pages_of_a_wallets_calls_are_the_whole_and_a_full_page_goes_on(wallet: Wallet, tmp_path: Path) -> None:
    async with index(wallet.subject, tmp_path) as indexed:
        await filled(indexed)
        for size in (1, 2, 4):
            read_: list[str] = []
            while True:
                page = hashes(await ask(indexed, [wallet.address], transaction_filter(size, len(read_))))
                read_ += page
                if len(page) < size:
                    break
            assert read_ == wallet.newest_first
        failed = await ask(indexed, [wallet.address], transaction_filter(types=("FAILED",)))
        assert hashes(failed) == [
            wallet.hashes_by_action["more than there is"],
            wallet.hashes_by_action["a stranger fails"],
        ]


async def test_a_call_that_left_the_chain_left_the_list(tmp_path: Path) -> None:
    with deployed() as wallet:
        subject = wallet.subject
        async with index(subject, tmp_path) as indexed:
            follower = indexed.follower()
            await indexed.fill_final()
            await follower.step()
            assert hashes(await ask(indexed, [wallet.address])) == wallet.newest_first
            subject.node.reorg(2)
            (stayed,) = send_all(subject, Tx(subject.deployment.accounts["bob"], wallet.address, gas=50_000))
            await follower.step()
            remaining = [
                tx_hash for tx_hash in wallet.newest_first if subject.node.rpc("eth_getTransactionReceipt", tx_hash)
            ]
            assert len(remaining) == len(wallet.newest_first) - 2
            assert hashes(await ask(indexed, [wallet.address])) == [stayed, *remaining]


async def test_calls_that_are_not_indexed_are_said_to_be_missing(wallet: Wallet, tmp_path: Path) -> None:
    call = wallet.subject.node.rpc("eth_getTransactionByHash", wallet.hashes_by_action["a stranger fails"])
    height = int(call["blockNumber"], 16)
    async with index(wallet.subject, tmp_path) as indexed:
        await indexed.fill(height, wallet.subject.height)
        await indexed.fill(0, height - 1, (*LOGS, "native"))
        expected = wallet.newest_first[:-2]
        assert hashes(await ask(indexed, [wallet.address], transaction_filter(len(expected)))) == expected
        with pytest.raises(NotIndexed) as error:
            await ask(indexed, [wallet.address])
        assert (error.value.dataset, error.value.last) == ("transactions", height - 1)


async def test_whom_a_called_contract_dealt_with_is_not_what_its_callers_make_it_log(tmp_path: Path) -> None:
    """A stranger calls the contract, whose log then claims a transfer from it to another account."""
    with evm(0) as subject:
        eve, mark = (subject.deployment.accounts[name].lower() for name in ("carol", "dave"))
        account = deploy_hostile(subject.node)["transfer with 64 kB"].lower()
        log = Log(
            [TRANSFER, *("0x" + "00" * 12 + address[2:] for address in (account, mark))], words(["uint256"], 10**18)
        )
        (forged,) = send_all(subject, log_tx(eve, account, log))
        look_alike = mark[:6] + "0" * 32 + mark[-4:]
        async with index(subject, tmp_path) as indexed:
            await filled(indexed)
            heights = Spans([Span(0, subject.height)])
            activities = read_activities(
                indexed.lake, indexed.tail, indexed.key, indexed.chain.info, [account, eve], heights, 1_000
            )
    assert forged in {key.tx_hash for key in activities.keys if key.account == account}
    assert activities.counterparties_of(account, (), EVM).resembled(look_alike, (2**40, 0)) is None
    assert (
        activities.counterparties_of(account, (activities.info.token_asset(account),), EVM).resembled(
            look_alike, (2**40, 0)
        )
        == mark
    )
