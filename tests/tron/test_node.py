"""The local node behaves as Tron: it accepts, charges and runs the official client's transactions.

The clients are the ones that people use: `tronweb` for JavaScript, `tronpy` for Python.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.tron_blocks import generated
from chainfolio.localchain import install
from chainfolio.localchain.tron.blocks import TransactionRejected, read_transaction
from chainfolio.localchain.tron.codec import decode, encode
from chainfolio.localchain.tron.forms import base58check, sha256, signer
from chainfolio.localchain.tron.node import TronNode
from chainfolio.localchain.tron.state import TRX, Legacy
from chainfolio.localchain.tron.wallet import Person, TronWeb
from tests.tron.conftest import RICH

People = tuple[Person, Person, Person]
HERE = Path(__file__).parent
RECORDED = HERE.parents[2] / "shared" / "data" / "tron"
FORTNIGHT_S = 14 * 86_400
SUPPLY = 10**12

pytestmark = pytest.mark.node


def post(node: TronNode, path: str, **body: Any) -> Any:
    """Send a body to a path of the node and return its answer."""
    request = urllib.request.Request(node.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def rpc(node: TronNode, method: str, *params: Any) -> Any:
    """Return the result or the error of a call of /jsonrpc."""
    answer = post(node, "/jsonrpc", jsonrpc="2.0", id=1, method=method, params=params)
    return answer.get("result", answer.get("error"))


def info(node: TronNode, txid: str) -> Any:
    return post(node, "/wallet/gettransactioninfobyid", value=txid)


def refusal_code(send: Callable[[], object]) -> str:
    with pytest.raises(TransactionRejected) as caught:
        send()
    return caught.value.code


def every_coin(node: TronNode) -> int:
    """Return the sum of all coins, bound ones included, plus burnt and less minted coins."""
    state, total = node.state, node.state.burnt - node.state.minted
    for account in state.accounts.values():
        total += account.balance + account.allowance + sum(each.sun for each in account.unfreezing)
        total += sum(account.staked(resource) for resource in ("BANDWIDTH", "ENERGY", "TRON_POWER"))
    pairs = (zip(pair.tokens, pair.balances, strict=True) for pair in state.exchanges.values())
    return total + sum(raw for pair in pairs for token, raw in pair if token == "_")


def token_made(node: TronNode, person: Person) -> str:
    """A new TRC-10 token of a person's."""
    start = 4_000_000_000_000  # the client compares it with the clock of the machine
    txid = person.send(
        "createToken",
        {
            "name": "Bell",
            "abbreviation": "BEL",
            "description": "rings",
            "url": "http://bell.test",
            "precision": 6,
            "totalSupply": SUPPLY,
            "trxRatio": 1,
            "tokenRatio": 1,
            "saleStart": start,
            "saleEnd": start + 1,
            "freeBandwidth": 0,
            "freeBandwidthLimit": 0,
            "frozenAmount": 0,
            "frozenDuration": 0,
        },
    )
    node.advance()
    return str(info(node, txid)["assetIssueID"])


@pytest.mark.skipif(not RECORDED.exists(), reason="the recordings are not here")
def test_recorded_transactions_of_the_main_chain_are_read_and_written_alike() -> None:
    """Real bytes give the recorded hash, signer and JSON, and encoding gives the same bytes."""
    count = 0
    for file in RECORDED.glob("*.http.jsonl.gz"):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            document = json.loads(line)["json"]
            for each in document.get("data", [document]):
                if "signature" in each:
                    raw = bytes.fromhex(each["raw_data_hex"])
                    read = decode("raw", raw)
                    assert sha256(raw).hex() == each["txID"]
                    owner = read["contract"][0]["parameter"]["value"]["owner_address"]
                    assert signer(each["txID"], each["signature"][0]) == owner
                    assert encode("raw", read) == encode("raw", decode("raw", raw, visible=True), visible=True) == raw
                    count += 1
    assert count == 27


def test_the_official_client_finds_its_transaction_as_it_built_it(node: TronNode, people: People, web: TronWeb) -> None:
    alice, bob, _ = people
    signed = alice.sign("sendTrx", bob.hex, 5, alice.hex, memo="thanks")
    result = web.ask(node, "trx", "sendRawTransaction", signed)
    assert (result["result"], result["txid"]) == (True, signed["txID"])
    node.advance(3)
    transaction = web.ask(node, "trx", "getConfirmedTransaction", signed["txID"])
    assert transaction["raw_data"] == signed["raw_data"]
    assert transaction["raw_data_hex"] == signed["raw_data_hex"]
    assert transaction["ret"] == [{"contractRet": "SUCCESS"}]
    assert web.ask(node, "trx", "getTransactionInfo", signed["txID"])["fee"] == TRX  # of the memo
    assert web.ask(node, "trx", "getBalance", bob.address) == RICH + 5
    assert web.ask(node, "trx", "getAccount", bob.address)["address"] == bob.hex
    block = web.ask(node, "trx", "getBlockByNumber", 2)
    assert [each["txID"] for each in block["transactions"]] == [signed["txID"]]


def test_the_id_of_a_block_is_the_hash_of_its_header_with_its_height(node: TronNode, people: People) -> None:
    node.advance(2)
    parent = ""
    for height in range(node.head.height + 1):
        block = post(node, "/wallet/getblockbynum", num=height)
        header = block["block_header"]["raw_data"]
        assert block["blockID"] == f"{height:016x}" + sha256(encode("Header", header)).hex()[16:]
        assert header["parentHash"] == parent or not height
        parent = block["blockID"]


SECOND_CLIENT = """
import json, sys
from tronpy import Tron
from tronpy.keys import PrivateKey
from tronpy.providers import HTTPProvider
url, key, token, to = sys.argv[1:]
tron, private = Tron(HTTPProvider(url)), PrivateKey(bytes.fromhex(key))
me = private.public_key.to_base58check_address()
held = tron.get_contract(token)
paid = tron.trx.transfer(me, to, 1_000).build().sign(private).broadcast()
moved = held.functions.transfer(to, 5).with_owner(me).fee_limit(100_000_000).build().sign(private).broadcast()
print(json.dumps({
    "balance": str(tron.get_account_balance(me)), "symbol": held.functions.symbol(),
    "held": held.functions.balanceOf(me), "paid": paid["txid"], "moved": moved["txid"],
}))
"""


@pytest.fixture(scope="session")
def second_python() -> Path:
    """An environment with the second client."""
    requirement = tomllib.loads((HERE / "requirements.toml").read_text())["package"]

    def fill(folder: Path, run: install.Run) -> None:
        run("a place for it", [sys.executable, "-m", "venv", str(folder / "client")])
        run(requirement, [str(folder / "client" / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement])

    environment = install.environments(HERE / "requirements.toml", install.home() / "tronpy", fill)
    return environment / "client" / "bin" / "python"


@pytest.mark.slow("installs one more client first; TronWeb signs, calls and reads in the other tests")
def test_a_second_client_reads_calls_and_pays(second_python: Path, web: TronWeb) -> None:
    """The client uses the machine's clock, so the node's clock begins now."""
    with TronNode(genesis_s=int(time.time()) // 3 * 3 - 30) as node:
        alice, bob = (Person(node, web, number) for number in range(2))
        node.endow(alice.hex, RICH)
        node.endow(bob.hex, RICH)
        token = alice.deploy("WETH9")
        node.advance()
        alice.call(token, "deposit()", sun=700)
        before = node.advance().height
        command = [str(second_python), "-c", SECOND_CLIENT, node.url, alice.key, base58check(token), bob.address]
        client_run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert client_run.returncode == 0, client_run.stderr
        report = json.loads(client_run.stdout)
        assert (report["symbol"], report["held"]) == ("WETH", 700)
        node.advance(2)
        infos = [info(node, report[name]) for name in ("paid", "moved")]
        assert [each["blockNumber"] for each in infos] == [before + 1] * 2
        assert int(infos[1]["log"][0]["data"], 16) == 5
        assert node.state.accounts[bob.hex].balance == RICH + 1_000


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_transaction_is_refused_with_the_code_of_its_fault(node: TronNode, people: People) -> None:
    alice, bob, carol = people
    good = alice.sign("sendTrx", bob.hex, 5, alice.hex)
    bobs_payment = bob.sign("sendTrx", alice.hex, 5, bob.hex)
    assert refusal_code(lambda: node.send({**good, "signature": bobs_payment["signature"]})) == "SIGERROR"
    assert refusal_code(lambda: node.send({**good, "signature": []})) == "SIGERROR"
    assert refusal_code(lambda: node.send({**good, "signature": ["00" * 65]})) == "SIGERROR"
    changed = good["raw_data_hex"].replace(bob.hex, carol.hex)
    assert refusal_code(lambda: node.send({**good, "raw_data_hex": changed})) == "SIGERROR"
    assert refusal_code(lambda: node.send({**good, "raw_data_hex": "ff"})) == "OTHER_ERROR"
    assert refusal_code(lambda: alice.pay(bob.hex, 2 * RICH)) == "CONTRACT_VALIDATE_ERROR"
    assert refusal_code(lambda: carol.pay(bob.hex, 1)) == "CONTRACT_VALIDATE_ERROR"
    assert refusal_code(lambda: alice.send("withdrawExpireUnfreeze", alice.hex)) == "CONTRACT_VALIDATE_ERROR"
    node.send(good)
    assert refusal_code(lambda: node.send(good)) == "DUP_TRANSACTION_ERROR"
    node.advance()
    assert refusal_code(lambda: node.send(good)) == "DUP_TRANSACTION_ERROR"
    late = alice.sign("sendTrx", bob.hex, 6, alice.hex, expires_ms=5_000)
    node.advance(2)
    assert refusal_code(lambda: node.send(late)) == "TRANSACTION_EXPIRATION_ERROR"
    assert refusal_code(lambda: alice.pay(bob.hex, 7, expires_ms=2 * 86_400_000)) == "TRANSACTION_EXPIRATION_ERROR"
    assert len([each for block in node.blocks[1:] for each in block.transactions]) == 1


def test_a_transaction_for_another_branch_is_refused(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    node.advance(4)
    signed = alice.sign("sendTrx", bob.hex, 5, alice.hex)
    node.fork(node.head.height)
    node.advance()
    assert refusal_code(lambda: node.send(signed)) == "TAPOS_ERROR"


def test_http_says_a_refusal_with_its_words_in_hex(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    signed = alice.sign("sendTrx", bob.hex, 5, alice.hex)
    assert post(node, "/wallet/broadcasttransaction", **signed) == {"result": True, "txid": signed["txID"]}
    refusal = post(node, "/wallet/broadcasttransaction", **signed)
    assert (refusal["code"], bytes.fromhex(refusal["message"])) == ("DUP_TRANSACTION_ERROR", b"Dup transaction.")
    assert post(node, "/wallet/gettransactionbyid", value="00" * 32) == {}
    assert post(node, "/wallet/getaccount", address="41" + "11" * 20) == {}
    assert post(node, "/wallet/getaccount", address="41" + "11" * 20, visible=True)["Error"]
    assert post(node, "/wallet/getaccount", address="T" + "1" * 33, visible=True)["Error"]


def test_two_keys_sign_where_the_account_wants_two(node: TronNode, people: People) -> None:
    alice, bob, carol = people
    keys = [{"address": each.hex, "weight": 1} for each in (alice, carol)]
    owner = {"type": 0, "permission_name": "owner", "threshold": 2, "keys": keys}
    active = {**owner, "type": 2, "permission_name": "daily", "threshold": 1, "operations": "02" + "00" * 31}
    alice.send("updateAccountPermissions", alice.hex, owner, None, [active])
    node.advance()
    assert post(node, "/wallet/getaccount", address=alice.hex)["owner_permission"]["threshold"] == 2
    assert refusal_code(lambda: alice.pay(bob.hex, 5)) == "SIGERROR"
    alice.pay(bob.hex, 5, permission=2)  # the daily permission is good for payments alone
    assert refusal_code(lambda: alice.send("freezeBalanceV2", TRX, "ENERGY", alice.hex, permission=2)) == "SIGERROR"
    both = alice.pay(bob.hex, 6, more=[carol.key])
    node.advance()
    assert node.state.accounts[bob.hex].balance == RICH + 11
    assert info(node, both)["fee"] >= TRX  # what many signatures cost


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_the_first_coins_open_an_account_and_its_sender_pays_for_that(node: TronNode, people: People) -> None:
    alice, _, carol = people
    txid = alice.pay(carol.hex, 3 * TRX)
    node.advance()
    receipt = info(node, txid)
    assert (receipt["fee"], receipt["receipt"]) == (1_100_000, {"net_fee": 100_000})
    assert node.state.accounts[carol.hex].balance == 3 * TRX
    assert node.state.accounts[alice.hex].balance == RICH - 4_100_000


def test_bandwidth_is_free_at_first_then_burnt_and_wears_off_in_a_day(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    fees = []
    for amount in range(4):
        txid = alice.pay(bob.hex, amount + 1)
        node.advance()
        fees.append(info(node, txid))
    assert "fee" not in fees[0]
    size = fees[0]["receipt"]["net_usage"]
    assert fees[-1]["receipt"] == {"net_fee": size * 1_000}
    assert fees[-1]["fee"] == size * 1_000
    node.wait(86_400)
    later = alice.pay(bob.hex, 9)
    node.advance()
    assert info(node, later)["receipt"] == {"net_usage": size}


def test_staked_bandwidth_and_energy_are_used_before_coins(node: TronNode, people: People) -> None:
    alice, _, _ = people
    token = alice.deploy("WETH9")
    before = node.advance().height
    alice.send("freezeBalanceV2", 20_000_000 * TRX, "BANDWIDTH", alice.hex)
    alice.send("freezeBalanceV2", 20_000_000 * TRX, "ENERGY", alice.hex)
    node.advance()
    txid = alice.call(token, "deposit()", sun=50)
    node.advance()
    receipt = info(node, txid)
    assert node.head.height == before + 2
    assert "fee" not in receipt
    assert receipt["receipt"]["energy_usage"] == receipt["receipt"]["energy_usage_total"] > 20_000
    resources = post(node, "/wallet/getaccountresource", address=alice.hex)
    assert resources["EnergyUsed"] == receipt["receipt"]["energy_usage"]
    assert resources["NetUsed"] >= receipt["receipt"]["net_usage"]
    assert resources["tronPowerLimit"] == 40_000_000


def test_a_call_that_fails_pays_all_the_same(node: TronNode, people: People) -> None:
    alice, _, _ = people
    token = alice.deploy("WETH9")
    node.advance()
    before = node.state.accounts[alice.hex].balance
    empty = alice.call(token, "withdraw(uint256)", ("uint256", 10**9))
    node.advance()
    short = alice.call(token, "deposit()", sun=50, limit=100 * 100)
    node.advance()
    first, second = info(node, empty), info(node, short)
    assert (first["result"], first["receipt"]["result"]) == ("FAILED", "REVERT")
    assert bytes.fromhex(first["resMessage"]) == b"REVERT opcode executed"
    assert (second["result"], second["receipt"]["result"]) == ("FAILED", "OUT_OF_ENERGY")
    assert second["receipt"]["energy_usage_total"] == 100
    assert node.state.accounts[alice.hex].balance == before - first["fee"] - second["fee"]
    assert node.head.results == ("OUT_OF_ENERGY",)
    assert post(node, "/wallet/gettransactionbyid", value=short)["ret"] == [{"contractRet": "OUT_OF_ENERGY"}]


# --- stakes -----------------------------------------------------------------------------------------------------------


def test_a_stake_earns_is_lent_and_comes_back_after_a_fortnight(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    witness = next(iter(node.state.witnesses))
    alice.send("freezeBalanceV2", 500 * TRX, "ENERGY", alice.hex)
    alice.send("freezeBalanceV2", 300 * TRX, "BANDWIDTH", alice.hex)
    node.advance()
    alice.send("vote", {base58check(witness): 700}, alice.hex)
    alice.send("delegateResource", 200 * TRX, bob.hex, "ENERGY", alice.hex, False, 0)
    alice.send("delegateResource", 50 * TRX, bob.hex, "BANDWIDTH", alice.hex, True, 100)
    node.advance()
    account = post(node, "/wallet/getaccount", address=alice.hex)
    assert account["frozenV2"] == [
        {"amount": 250 * TRX},
        {"type": "ENERGY", "amount": 300 * TRX},
        {"type": "TRON_POWER"},
    ]
    assert account["delegated_frozenV2_balance_for_bandwidth"] == 50 * TRX
    assert account["account_resource"]["delegated_frozenV2_balance_for_energy"] == 200 * TRX
    assert account["votes"] == [{"vote_address": witness, "vote_count": 700}]
    lent = post(node, "/wallet/getaccount", address=bob.hex)
    assert lent["acquired_delegated_frozenV2_balance_for_bandwidth"] == 50 * TRX
    records = post(node, "/wallet/getdelegatedresourcev2", fromAddress=alice.hex, toAddress=bob.hex)
    assert sum(each.get("frozen_balance_for_bandwidth", 0) for each in records["delegatedResource"]) == 50 * TRX
    assert refusal_code(lambda: alice.send("undelegateResource", 50 * TRX, bob.hex, "BANDWIDTH", alice.hex)) == (
        "CONTRACT_VALIDATE_ERROR"
    )
    alice.send("undelegateResource", 200 * TRX, bob.hex, "ENERGY", alice.hex)
    alice.send("unfreezeBalanceV2", 400 * TRX, "ENERGY", alice.hex)
    txids = [transaction.txid for transaction in node.pool]
    node.advance()
    assert info(node, txids[1])["unfreeze_amount"] == 400 * TRX
    assert post(node, "/wallet/getaccount", address=alice.hex)["votes"][0]["vote_count"] == 400  # of 800 are left 400
    assert refusal_code(lambda: alice.send("withdrawExpireUnfreeze", alice.hex)) == "CONTRACT_VALIDATE_ERROR"
    node.wait(FORTNIGHT_S)
    node.advance()
    before = node.state.accounts[alice.hex].balance
    txid = alice.send("withdrawExpireUnfreeze", alice.hex)
    node.advance()
    receipt = info(node, txid)
    assert receipt["withdraw_expire_amount"] == 400 * TRX
    assert node.state.accounts[alice.hex].balance == before + 400 * TRX - receipt.get("fee", 0)


def test_votes_earn_from_the_next_cycle_on_and_rewards_are_paid_once_a_day(node: TronNode, people: People) -> None:
    alice, _, _ = people
    witness = next(iter(node.state.witnesses))
    alice.send("freezeBalanceV2", 50_000_000 * TRX, "ENERGY", alice.hex)
    node.advance()
    alice.send("vote", {base58check(witness): 50_000_000}, alice.hex)
    node.advance(10 - node.head.height)
    assert post(node, "/wallet/getReward", address=alice.hex) == {"reward": 0}
    node.advance(10)
    reward = post(node, "/wallet/getReward", address=alice.hex)["reward"]
    # Ten blocks, of whose reward this witness has the share of its votes, and of that we have ours, less brokerage.
    votes = 1_050_000_000
    assert reward == pytest.approx(10 * 128 * TRX * votes / (votes + 2 * 10**9) * 0.8 * 50 / 1_050, rel=1e-6)
    before, minted_before = node.state.accounts[alice.hex].balance, node.state.minted
    txid = alice.send("withdrawBlockRewards", alice.hex)
    node.advance()
    receipt = info(node, txid)
    assert receipt["withdraw_amount"] == node.state.minted - minted_before == reward
    assert node.state.accounts[alice.hex].balance == before + reward - receipt.get("fee", 0)
    assert refusal_code(lambda: alice.send("withdrawBlockRewards", alice.hex)) == "CONTRACT_VALIDATE_ERROR"


def test_unfreezing_is_taken_back_and_old_stakes_end(web: TronWeb) -> None:
    with TronNode(lag=2) as node:
        alice = Person(node, web, 0)
        node.endow(alice.hex, RICH, {"BANDWIDTH": Legacy(9 * TRX, node.head.time_ms)})
        node.advance()
        assert post(node, "/wallet/getaccount", address=alice.hex)["frozen"][0]["frozen_balance"] == 9 * TRX
        old = alice.send("unfreezeBalance", "BANDWIDTH", alice.hex, alice.hex)
        alice.send("freezeBalanceV2", 50 * TRX, "ENERGY", alice.hex)
        node.advance()
        alice.send("unfreezeBalanceV2", 20 * TRX, "ENERGY", alice.hex)
        node.advance()
        back = alice.send("cancelUnfreezeBalanceV2", alice.hex)
        node.advance()
        assert info(node, old)["unfreeze_amount"] == 9 * TRX
        cancelled = {each["key"]: each["value"] for each in info(node, back)["cancel_unfreezeV2_amount"]}
        assert cancelled["ENERGY"] == 20 * TRX
        assert node.state.accounts[alice.hex].frozen["ENERGY"] == 50 * TRX
        assert every_coin(node) == RICH + 9 * TRX


# --- tokens and contracts ---------------------------------------------------------------------------------------------


def test_tokens_of_the_chain_are_issued_sent_and_traded(node: TronNode, people: People, web: TronWeb) -> None:
    alice, bob, carol = people
    token = token_made(node, alice)
    assert token == "1000001"
    transfer_id = alice.send("sendToken", carol.hex, 70, token, alice.hex)
    alice.send("sendToken", bob.hex, 10**9, token, alice.hex)
    alice.send("createTRXExchange", token, 10**9, 10**9, alice.hex)
    node.advance()
    assert info(node, transfer_id)["fee"] == 1_100_000  # it opened carol's account
    assert post(node, "/wallet/getaccount", address=carol.hex)["assetV2"] == [{"key": token, "value": 70}]
    assert web.ask(node, "trx", "getTokenByID", token)["abbr"] == "BEL"
    assert post(node, "/wallet/getassetissuebyid", value=token)["name"] == b"Bell".hex()
    before = node.state.accounts[bob.hex].balance
    txid = bob.send("tradeExchangeTokens", 1, token, 10**6, 1, bob.hex)
    node.advance()
    receipt = info(node, txid)
    received = receipt["exchange_received_amount"]
    assert 0.99 * 10**6 < received < 10**6
    assert node.state.accounts[bob.hex].balance == before + received - receipt.get("fee", 0)
    assert node.state.accounts[bob.hex].assets[token] == 10**9 - 10**6
    pair = post(node, "/wallet/getexchangebyid", id=1)
    assert (pair["first_token_balance"], pair["second_token_balance"]) == (10**9 + 10**6, 10**9 - received)


def test_real_contracts_run_log_and_pay_out(node: TronNode, people: People, web: TronWeb) -> None:
    alice, bob, _ = people
    token = alice.deploy("WETH9")
    node.advance()
    wrapped = alice.call(token, "deposit()", sun=900)
    node.advance()
    transfer_id = alice.call(token, "transfer(address,uint256)", ("address", bob.address), ("uint256", 300))
    node.advance()
    withdrawal_id = bob.call(token, "withdraw(uint256)", ("uint256", 200))
    node.advance()
    balances = {name: node.state.accounts[each].balance for name, each in (("token", token), ("bob", bob.hex))}
    assert balances == {"token": 700, "bob": RICH + 200 - info(node, withdrawal_id)["fee"]}
    (internal,) = info(node, withdrawal_id)["internal_transactions"]
    assert (internal["caller_address"], internal["transferTo_address"]) == (token, bob.hex)
    assert internal["callValueInfo"] == [{"callValue": 200}]
    logs = rpc(node, "eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "address": ["0x" + token[2:]]})
    assert [log["transactionHash"] for log in logs] == ["0x" + txid for txid in (wrapped, transfer_id, withdrawal_id)]
    block = post(node, "/wallet/getblockbynum", num=int(logs[0]["blockNumber"], 16))
    assert logs[0]["blockHash"] == "0x" + block["blockID"]
    data = f"0x70a08231{bob.hex[2:]:0>64}"
    assert int(rpc(node, "eth_call", {"to": "0x" + token[2:], "data": data}, "latest"), 16) == 100
    result = post(
        node,
        "/wallet/triggerconstantcontract",
        owner_address=bob.hex,
        contract_address=token,
        function_selector="balanceOf(address)",
        parameter=f"{bob.hex[2:]:0>64}",
    )
    assert int(result["constant_result"][0], 16) == 100
    assert web.ask(node, "trx", "getContract", base58check(token))["contract_address"] == token
    assert rpc(node, "eth_call", {"to": "0x" + token[2:], "data": data}, "0x1")["message"] == (
        "QUANTITY not supported, just support TAG as latest"
    )
    absent = rpc(node, "eth_call", {"to": "0x" + bob.hex[2:], "data": data}, "latest")
    assert absent["message"] == "Smart contract is not exist."


def test_a_second_call_of_the_same_sender_waits_for_the_next_block(node: TronNode, people: People) -> None:
    alice, _, _ = people
    token = alice.deploy("WETH9")
    node.advance()
    txids = [alice.call(token, "deposit()", sun=sun) for sun in (5, 6)]
    node.advance(2)
    assert [info(node, txid)["blockNumber"] for txid in txids] == [node.head.height - 1, node.head.height]
    assert node.state.accounts[token].balance == 11


# --- the chain --------------------------------------------------------------------------------------------------------


def test_no_coin_is_lost_or_made_whatever_people_do(node: TronNode, people: People) -> None:
    alice, bob, carol = people
    witness = base58check(next(iter(node.state.witnesses)))
    token = token_made(node, alice)
    wrapped = bob.deploy("WETH9")
    alice.send("freezeBalanceV2", 10**12, "ENERGY", alice.hex)
    alice.pay(carol.hex, 10**9)
    node.advance()
    alice.send("vote", {witness: 10**6}, alice.hex)
    alice.send("createTRXExchange", token, 10**9, 10**9, alice.hex)
    alice.send("unfreezeBalanceV2", 10**11, "ENERGY", alice.hex)
    carol.call(wrapped, "deposit()", sun=10**6)
    for _ in range(25):
        node.advance()
        assert every_coin(node) == 2 * RICH
    alice.send("withdrawBlockRewards", alice.hex)
    carol.call(wrapped, "withdraw(uint256)", ("uint256", 10**5))
    alice.send("tradeExchangeTokens", 1, "_", 10**6, 1, alice.hex)
    node.advance()
    assert len(node.head.transactions) == 3
    assert every_coin(node) == 2 * RICH


def test_final_blocks_are_behind_and_a_fork_takes_back_the_others(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    token = alice.deploy("WETH9")
    node.advance()
    alice.call(token, "deposit()", sun=5)
    node.advance(3)
    before = node.state.accounts[alice.hex].balance
    txid = alice.pay(bob.hex, 5_000)
    alice.call(token, "deposit()", sun=7)
    node.advance()
    orphan = node.head
    assert post(node, "/walletsolidity/getnowblock")["block_header"]["raw_data"]["number"] == node.head.height - 2
    assert post(node, "/walletsolidity/gettransactioninfobyid", value=txid) == {}
    assert post(node, "/walletsolidity/getaccount", address=alice.hex)["balance"] == before
    node.fork(orphan.height)
    assert info(node, txid) == {}
    assert node.state.accounts[alice.hex].balance == before
    node.advance()
    assert (node.head.height, node.head.header["parentHash"]) == (orphan.height, orphan.header["parentHash"])
    assert node.head.id != orphan.id
    data = f"0x70a08231{alice.hex[2:]:0>64}"
    assert int(rpc(node, "eth_call", {"to": "0x" + token[2:], "data": data}, "latest"), 16) == 5
    alice.call(token, "deposit()", sun=9)
    node.advance()
    assert int(rpc(node, "eth_call", {"to": "0x" + token[2:], "data": data}, "latest"), 16) == 14
    with pytest.raises(AssertionError):
        node.fork(1)


def test_a_balance_at_a_block_is_answered_where_the_node_keeps_it(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    alice.pay(bob.hex, 5_000)
    node.advance(2)
    for height, balance in ((1, RICH), (2, RICH + 5_000), (3, RICH + 5_000)):
        block_id = {"number": height, "hash": node.blocks[height].id}
        body = {"account_identifier": {"address": bob.hex}, "block_identifier": block_id}
        answer = post(node, "/wallet/getaccountbalance", **body)
        assert answer["balance"] == balance
        changed_height = min(height, 2) if height > 1 else 0
        assert answer["block_identifier"] == {"number": changed_height, "hash": node.blocks[changed_height].id}, (
            "where it last changed"
        )
    node.balances = False
    assert post(node, "/wallet/getaccountbalance", **body) == {"block_identifier": block_id}, "as of nobody"


def test_histories_come_page_by_page(node: TronNode, people: People) -> None:
    alice, bob, _ = people
    txids = []
    for number in range(5):
        txids.append(alice.pay(bob.hex, number + 1))
        node.advance()
    token = bob.deploy("WETH9")
    node.advance()
    bob.call(token, "deposit()", sun=50)
    node.advance()
    transfer_id = bob.call(token, "transfer(address,uint256)", ("address", alice.hex), ("uint256", 3))
    node.advance()

    def page(path: str) -> Any:
        with urllib.request.urlopen(f"{node.url}/v1/accounts/{alice.address}/{path}", timeout=30) as reply:
            return json.load(reply)

    listed_ids, mark = [], ""
    while True:
        answer = page(f"transactions?limit=2&order_by=block_timestamp,asc&fingerprint={mark}")
        listed_ids += [each["txID"] for each in answer["data"]]
        mark = answer["meta"].get("fingerprint", "")
        if not mark:
            break
    assert listed_ids == txids
    (transfer,) = page("transactions/trc20")["data"]
    assert (transfer["transaction_id"], transfer["value"], transfer["from"]) == (transfer_id, "3", bob.address)
    assert page("transactions/trc20?only_confirmed=true")["data"] == []


# --- blocks in bulk ---------------------------------------------------------------------------------------------------


def test_made_up_blocks_are_right_where_it_can_be_checked() -> None:
    """In blocks of the benchmark, ids follow from headers, hashes from bytes and signers from signatures."""
    parent = "00" * 32
    for block, records in generated(3, 12, tokens=5, wallet="41" + "11" * 20):
        content, infos = json.loads(block), json.loads(records)
        header = content["block_header"]["raw_data"]
        assert content["blockID"][16:] == sha256(encode("Header", header)).hex()[16:]
        assert header["parentHash"] == parent
        parent = content["blockID"]
        for transaction, record in zip(content["transactions"], infos, strict=True):
            parsed = read_transaction(transaction)
            assert parsed.txid == transaction["txID"] == record["id"]
            assert signer(parsed.txid, transaction["signature"][0]) == parsed.owner
