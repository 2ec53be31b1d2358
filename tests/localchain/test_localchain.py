"""The local chain keeps its promises: the same history each time, sane positions, no node left behind."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chainfolio.localchain import install
from chainfolio.localchain.deploy import MULTICALL3, Deployment, deploy, sqrt_price_x96
from chainfolio.localchain.errors import InstallFailed, NodeFailed, NodeJsMissing, RpcError, TransactionReverted
from chainfolio.localchain.evm import Tx, call_data, checksummed, created_address, result, tx
from chainfolio.localchain.hostile import TRANSFER, deploy_hostile
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import HABITS, TradingRun, set_price, trade

ROOT = Path(__file__).parents[2]
BLOCKS = 120
needs_node = pytest.mark.node


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as node:
        yield node


@pytest.fixture(scope="module")
def deployment(node: LocalNode) -> Deployment:
    return deploy(node)


@pytest.fixture(scope="module")
def traded(node: LocalNode, deployment: Deployment) -> TradingRun:
    return trade(node, deployment, BLOCKS)


@pytest.fixture
def fresh(node: LocalNode, traded: TradingRun) -> Iterator[LocalNode]:
    """The node after the trades, put back as it was when the test is over."""
    snapshot = node.snapshot()
    yield node
    node.revert(snapshot)


# --- history ---------------------------------------------------------------------------------------------------------


@needs_node
def test_the_same_script_gives_the_same_hashes(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    with LocalNode() as second:
        second_deployment = deploy(second)
        trade(second, second_deployment, BLOCKS)
        assert second_deployment == deployment
        assert second.block()["hash"] == node.block(traded.last)["hash"]


@needs_node
def test_a_connection_that_the_node_closed_while_it_was_idle_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalNode() as node:
        assert node.height == 0
        connection = node._connection
        assert connection is not None
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        monkeypatch.setattr("chainfolio.localchain.node.IDLE_S", 0.0)
        assert node.height == 0
        assert node._connection is not connection


@pytest.mark.slow("a second history of the local chain")
def test_another_seed_gives_another_history(node: LocalNode, traded: TradingRun) -> None:
    with LocalNode() as second:
        trade(second, deploy(second), BLOCKS, seed=8)
        assert second.block()["hash"] != node.block(traded.last)["hash"]


@needs_node
def test_trading_makes_as_many_blocks_as_asked(deployment: Deployment, traded: TradingRun) -> None:
    assert traded.first == deployment.height + 1
    assert traded.last == deployment.height + BLOCKS


@needs_node
def test_only_what_was_meant_to_fail_fails(node: LocalNode, traded: TradingRun) -> None:
    assert traded.failed
    receipts = node.batch(("eth_getTransactionReceipt", [failed]) for failed in traded.failed)
    assert {receipt["status"] for receipt in receipts} == {"0x0"}
    assert len(receipts) == sum(count for label, count in traded.transactions.items() if label.startswith("doomed"))


@needs_node
def test_blocks_are_twelve_seconds_apart_but_for_missed_slots(node: LocalNode, traded: TradingRun) -> None:
    times = [int(node.block(height)["timestamp"], 16) for height in range(traded.first, traded.last + 1)]
    steps = {later - earlier for earlier, later in pairwise(times)}
    assert steps <= {12, 24}


@needs_node
def test_every_kind_of_deed_happens(traded: TradingRun) -> None:
    kinds = {
        "send ether",
        "transfer",
        "approve",
        "transferFrom",
        "deposit",
        "withdraw",
        "swapExactTokensForTokens",
        "exactInputSingle",
        "addLiquidity",
        "removeLiquidity",
        "supply",
        "borrow",
        "repay",
        "redeem",
        "stake",
        "mint",
        "mintBatch",
        "safeTransferFrom",
        "safeBatchTransferFrom",
        "setApprovalForAll",
        "submit",
        "decreaseLiquidity",
    }
    assert kinds <= set(traded.transactions)


# --- positions -------------------------------------------------------------------------------------------------------


@needs_node
def test_multicall_lies_at_its_usual_address(node: LocalNode, deployment: Deployment) -> None:
    assert deployment.contracts["Multicall3"] == MULTICALL3
    assert node.call(MULTICALL3, "getChainId()(uint256)") == node.chain_id


@needs_node
def test_quiet_accounts_hold_what_they_were_given(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    for name in set(deployment.accounts) - set(HABITS) - {"deployer"}:
        account = deployment.accounts[name]
        for symbol, amount in {"WETH": 100, "USDC": 1_000_000, "DAI": 1_000_000, "WBTC": 50}.items():
            token = deployment.tokens[symbol]
            at_first = node.call(token.address, "balanceOf(address)(uint256)", account, block=deployment.height)
            assert at_first == token.units(amount)
            # Others may have sent them nothing: recipients are wallets that trade.
            assert node.call(token.address, "balanceOf(address)(uint256)", account) == at_first


@needs_node
def test_no_token_is_lost(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    transfers = node.rpc(
        "eth_getLogs", {"fromBlock": "0x0", "address": deployment.contracts["USDC"], "topics": [TRANSFER]}
    )
    holders = {"0x" + topic[-40:] for log in transfers for topic in log["topics"][1:]}
    balances = [node.call(deployment.contracts["USDC"], "balanceOf(address)(uint256)", holder) for holder in holders]
    assert sum(balances) == node.call(deployment.contracts["USDC"], "totalSupply()(uint256)")


@needs_node
def test_the_lender_is_solvent(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    signature = "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)"
    collateral, debt, *_, health = node.call(deployment.contracts["Pool"], signature, deployment.accounts["bob"])
    assert collateral > debt
    assert health > 10**18


@needs_node
def test_a_vault_share_is_worth_more_than_one(node: LocalNode, deployment: Deployment) -> None:
    assert node.call(deployment.contracts["Vault"], "convertToAssets(uint256)(uint256)", 10**18) > 10**18


@needs_node
def test_there_are_shares_positions_and_stakes(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    def balance(contract: str, name: str) -> int:
        balance: int = node.call(
            deployment.contracts[contract], "balanceOf(address)(uint256)", deployment.accounts[name]
        )
        return balance

    assert balance("NonfungiblePositionManager", "deployer") == 2
    assert balance("UniswapV2Pair WETH/USDC", "alice") + balance("UniswapV2Pair WETH/DAI", "alice") > 0
    chef = deployment.contracts["MasterChef"]
    staked, _ = node.call(chef, "userInfo(uint256,address)(uint256,uint256)", 0, deployment.accounts["erin"])
    assert staked + balance("StakingRewards", "erin") > 0


@needs_node
def test_feeds_answer_the_last_price(node: LocalNode, deployment: Deployment, traded: TradingRun) -> None:
    for symbol, price in traded.prices.items():
        assert node.call(deployment.feeds[symbol], "latestAnswer()(int256)") == price


@needs_node
def test_a_price_can_be_set(fresh: LocalNode, deployment: Deployment) -> None:
    set_price(fresh, deployment, "ETH", 1_234 * 10**8)
    assert fresh.call(deployment.feeds["ETH"], "latestAnswer()(int256)") == 1_234 * 10**8


def test_the_price_of_equal_amounts_is_one() -> None:
    assert sqrt_price_x96(5, 5) == 2**96


# --- the node --------------------------------------------------------------------------------------------------------


@needs_node
def test_a_reorg_replaces_blocks_and_keeps_the_height(fresh: LocalNode, deployment: Deployment) -> None:
    alice, bob = deployment.accounts["alice"], deployment.accounts["bob"]
    fresh.mine(3)
    before = [fresh.block(fresh.height - back)["hash"] for back in range(4)]
    height = fresh.height
    assert fresh.reorg(3, [Tx(alice, bob, value=1)]) == height
    after = [fresh.block(height - back) for back in range(4)]
    assert [old == new["hash"] for old, new in zip(before, after, strict=True)] == [False, False, False, True]
    assert [len(block["transactions"]) for block in after[:3]] == [0, 0, 1]


@needs_node
def test_mine_moves_chain_time(fresh: LocalNode) -> None:
    before = int(fresh.block()["timestamp"], 16)
    fresh.mine(3, seconds=100)
    fresh.mine(2)
    assert int(fresh.block()["timestamp"], 16) - before == 3 * 100 + 2 * 12


@needs_node
def test_settle_tells_what_reverted(fresh: LocalNode, deployment: Deployment) -> None:
    alice, bob = deployment.accounts["alice"], deployment.accounts["bob"]
    with pytest.raises(TransactionReverted) as failed:
        fresh.settle([tx(alice, deployment.contracts["USDC"], "transfer(address,uint256)", bob, 10**30)])
    assert failed.value.label == "transfer"


@needs_node
def test_settle_takes_more_than_a_block_holds(fresh: LocalNode, deployment: Deployment) -> None:
    alice, bob = deployment.accounts["alice"], deployment.accounts["bob"]
    height = fresh.height
    assert fresh.settle(Tx(alice, bob, value=1, gas=30_000_000) for _ in range(7)) == height + 3


@needs_node
def test_finality_is_as_deep_as_asked() -> None:
    with LocalNode(slots_in_an_epoch=1) as node:
        node.mine(10)
        assert [int(node.block(tag)["number"], 16) for tag in ("latest", "safe", "finalized")] == [10, 9, 8]


@needs_node
def test_without_mining_nothing_happens_until_it_is_mined() -> None:
    with LocalNode(no_mining=True) as node:
        first, second = node.accounts[:2]
        node.send(Tx(first, second, value=1))
        assert node.height == 0
        assert node.mine() == 1
        assert len(node.block()["transactions"]) == 1


@needs_node
def test_a_taken_port_is_said_so() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        node = LocalNode(port=listener.getsockname()[1])
        with pytest.raises(NodeFailed):
            node.start(timeout_s=5)
        node.stop()


def test_a_stopped_node_answers_nothing() -> None:
    with pytest.raises(NodeFailed, match="not running"):
        LocalNode().rpc("eth_chainId")


PARENT = """
import time
from chainfolio.localchain.node import LocalNode
print(LocalNode().start().port, flush=True)
time.sleep(600)
"""


@needs_node
def test_a_node_dies_with_its_parent_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        assert _listens(port)
        assert list(tmp_path.iterdir())
        parent.kill()
    end_s = time.monotonic() + 10
    while (_listens(port) or list(tmp_path.iterdir())) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not _listens(port)
    assert not list(tmp_path.iterdir())


@needs_node
def test_the_command_says_where_it_is_and_ends_when_told() -> None:
    command = [sys.executable, "-m", "chainfolio.localchain", "--blocks", "5", "--hostile"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdout is not None
        announcement = json.loads(running.stdout.readline())
        port = int(announcement["url"].rpartition(":")[2])
        assert _listens(port)
        assert {"contracts", "accounts", "tokens", "feeds"} <= set(announcement["deployment"])
        running.send_signal(signal.SIGTERM)
        assert running.wait(10) == 0
    assert not _listens(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# --- hostile tokens --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(node: LocalNode, traded: TradingRun) -> dict[str, str]:
    return deploy_hostile(node)


@needs_node
@pytest.mark.parametrize(
    ("name", "size"),
    [("balance of 0 bytes", 0), ("balance of 31 bytes", 31), ("balance of 64 bytes", 64), ("balance of 1 MB", 2**20)],
)
def test_a_hostile_balance_is_as_long_as_it_says(
    node: LocalNode, hostile: dict[str, str], name: str, size: int
) -> None:
    data = call_data("balanceOf(address)", node.accounts[1])
    assert len(node.rpc("eth_call", {"to": hostile[name], "data": data}, "latest")) == 2 + 2 * size


@needs_node
@pytest.mark.parametrize("name", ["balance reverts", "balance loops", "balance is invalid"])
def test_a_hostile_balance_can_fail(node: LocalNode, hostile: dict[str, str], name: str) -> None:
    with pytest.raises(RpcError):
        node.call(hostile[name], "balanceOf(address)(uint256)", node.accounts[1])
    assert node.call(hostile[name], "decimals()(uint8)") == 18


@needs_node
@pytest.mark.parametrize(
    ("name", "topics", "size"),
    [
        ("fake transfer from the victim", 3, 32),
        ("transfer without indexes", 1, 96),
        ("transfer with long data", 3, 64),
        ("transfer with short data", 3, 31),
        ("batch of unequal lengths", 4, 288),
    ],
)
def test_hostile_logs_are_shaped_as_they_say(
    node: LocalNode, hostile: dict[str, str], name: str, topics: int, size: int
) -> None:
    (log,) = node.rpc("eth_getLogs", {"address": hostile[name], "fromBlock": "0x0"})
    assert (len(log["topics"]), len(log["data"]) // 2 - 1) == (topics, size)


@needs_node
def test_a_hostile_name_arrives_unharmed(node: LocalNode, hostile: dict[str, str]) -> None:
    assert node.call(hostile["name: ANSI"], "symbol()(string)").startswith("\x1b[2J")
    assert len(node.call(hostile["name: 10 kB"], "name()(string)")) == 10_240
    assert node.call(hostile["decimals 256"], "decimals()(uint256)") == 256


# --- the rules of the EVM --------------------------------------------------------------------------------------------


def test_addresses_are_derived_as_the_chain_does() -> None:
    # From EIP-55 and the example that everyone quotes for CREATE.
    assert checksummed("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed") == "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
    sender = "0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0"
    assert [created_address(sender, nonce).lower() for nonce in (0, 1, 2)] == [
        "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d",
        "0x343c43a37d37dff08ae8c4a11544c718abb4fcf8",
        "0xf778b86fa74e846c4f0a1fbd1335fe81c00a0c91",
    ]


def test_a_signature_with_results_is_the_same_function() -> None:
    assert call_data("balanceOf(address)(uint256)", "0x" + "11" * 20) == call_data(
        "balanceOf(address)", "0x" + "11" * 20
    )
    assert call_data("transfer(address,uint256)", "0x" + "00" * 20, 0).startswith("0xa9059cbb")
    assert result("f()(uint256,bool)", "0x" + f"{7:064x}{1:064x}") == (7, True)


# --- installation ----------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for the installation."""
    monkeypatch.setenv("CHAINFOLIO_LOCALCHAIN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def steps(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the steps taken; a step only makes its folder."""
    steps_taken: list[str] = []

    def step(folder: str) -> None:
        steps_taken.append(folder)
        (elsewhere / folder).mkdir()

    monkeypatch.setattr(install, "_install_packages", lambda where, lock: step("node_modules"))
    monkeypatch.setattr(install, "_compile", lambda where, lock: step("compiled"))
    return steps_taken


@pytest.mark.usefixtures("elsewhere")
def test_without_node_js_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeJsMissing, match=r"Node.js 20 or newer is needed .*https://nodejs.org.*nvm install 22"):
        install.ensure()


@pytest.mark.usefixtures("elsewhere")
def test_an_old_node_js_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("node", "npm"):
        (tmp_path / program).write_text("#!/bin/sh\necho v18.19.1\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeJsMissing, match=r"v18\.19\.1"):
        install.ensure()


@pytest.mark.usefixtures("elsewhere")
def test_a_failed_npm_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").write_text("#!/bin/sh\necho v22.1.0\n")
    (tmp_path / "npm").write_text("#!/bin/sh\necho no such package; exit 1\n")
    for program in ("node", "npm"):
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(InstallFailed, match="no such package"):
        install.ensure()


@pytest.mark.usefixtures("elsewhere")
def test_a_step_that_stands_still_says_so_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Block as npm without a network does: the time is the limit of the test."""
    monkeypatch.setattr(install, "SAY_EVERY_S", 0.05)
    with pytest.raises(InstallFailed, match=r"npm install failed: it took longer than 0\.2 s"):
        install._run("npm install", ["sleep", "600"], tmp_path, 0, 0.2)
    assert "  npm install: 0 s\n" in capfd.readouterr().err


@pytest.mark.usefixtures("elsewhere")
def test_node_js_is_looked_for_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"Node\.js 20 or newer is needed"):
        install.main(["--check"])
    makefile = (ROOT / "Makefile").read_text()
    assert "install: ready $(INSTALLED)" in makefile


def test_what_is_installed_needs_no_node_js(steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install.ensure()
    monkeypatch.setenv("PATH", str(tmp_path))
    install.check()


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(report: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "ensure", interrupted)
    with pytest.raises(SystemExit) as ended:
        install.main([])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "stopped; the next run begins this step again\n"


def test_installing_twice_is_installing_once(steps: list[str]) -> None:
    assert install.ensure() == install.ensure()
    assert steps == ["node_modules", "compiled"]


def test_what_was_left_half_way_is_done_again(steps: list[str], elsewhere: Path) -> None:
    install.ensure()
    (elsewhere / "compiled" / install.STAMP).unlink()
    install.ensure()
    assert steps == ["node_modules", "compiled", "compiled"]


def test_two_at_once_take_turns(steps: list[str], elsewhere: Path) -> None:
    elsewhere.mkdir()
    waits = threading.Event()

    def report(line: str) -> None:
        if line.startswith("waiting"):
            waits.set()

    with (elsewhere / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=install.ensure, args=(report,))
        second.start()
        assert waits.wait(10)
        assert steps == []
    second.join(10)
    assert steps == ["node_modules", "compiled"]
