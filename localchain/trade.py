"""Generate some hundred blocks of ordinary activity, identical to the hash for the same seed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from chainfolio.localchain import actions as do
from chainfolio.localchain.actions import DOOMED, Action, Scene
from chainfolio.localchain.deploy import Deployment
from chainfolio.localchain.errors import TransactionReverted
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode

ANYBODY: tuple[Action, ...] = (
    do.send_ether,
    do.send_token,
    do.send_token,
    do.swap_v2,
    do.swap_v3,
    do.swap_ether_v2,
    do.swap_for_ether_v2,
    do.wrap,
    do.unwrap,
    do.revoke,
)
HABITS: Mapping[str, tuple[Action, ...]] = {  # the other accounts stay quiet: they hold what they were given
    "alice": (
        do.add_liquidity_v2,
        do.add_liquidity_v2,
        do.remove_liquidity_v2,
        do.open_position_v3,
        do.open_position_v3,
        do.collect_v3,
        do.close_position_v3,
        do.allow_a_friend,
    ),
    "bob": (
        do.supply_aave,
        do.supply_aave,
        do.borrow_aave,
        do.repay_aave,
        do.withdraw_aave,
        do.deposit_vault,
        do.redeem_vault,
    ),
    "carol": (do.swap_v2, do.swap_v3, do.swap_v3, do.supply_aave, do.borrow_aave, do.ask_too_much, do.overspend),
    "dave": (
        do.mint_collectible,
        do.mint_collectible,
        do.send_collectible,
        do.allow_collectible,
        do.allow_all,
        do.mint_editions,
        do.send_edition,
        do.send_editions,
    ),
    "erin": (
        do.add_liquidity_v2,
        do.add_liquidity_v2,
        do.stake_chef,
        do.leave_chef,
        do.stake_rewards,
        do.claim_rewards,
        do.deposit_vault,
    ),
    "frank": (
        do.pull_token,
        do.allow_a_friend,
        do.allow_all,
        do.mint_editions,
        do.send_editions,
        do.send_collectible,
        do.mint_collectible,
        do.overspend,
        do.run_out_of_gas,
    ),
}
# symbol -> blocks between two answers of its feed, and how far it moves at most, in hundredths of a percent
MOODS = {"ETH": (10, 150), "WBTC": (15, 120), "USDC": (50, 10), "DAI": (60, 15)}


@dataclass(frozen=True)
class TradingRun:
    """Summary of the generated blocks."""

    first: int  # the first block
    last: int
    transactions: Mapping[str, int]  # label -> how many
    failed: tuple[str, ...]  # the transactions that failed, each of them on purpose
    prices: Mapping[str, int]  # symbol -> the feed's last answer


def trade(
    node: LocalNode,
    deployment: Deployment,
    blocks: int = 300,
    seed: int = 7,
    seconds_per_block: int | None = None,
    *,
    may_fail: bool = False,
) -> TradingRun:
    """Make blocks in which the wallets act at random, by a seed, and return a summary.

    Args:
        may_fail: Go on if a transaction ends unexpectedly. After thousands of blocks pools may have nothing to lend.

    Raises:
        TransactionReverted: A transaction ended unexpectedly, and `may_fail` is False.
    """
    random = Random(seed)
    wallets = {name: deployment.accounts[name] for name in HABITS}
    oracles = {symbol: Oracle.of(node, deployment, symbol) for symbol in MOODS}
    prices = {symbol: oracle.price for symbol, oracle in oracles.items()}
    scene = Scene(node, deployment, random, wallets, prices)
    decks: dict[str, list[Action]] = {name: [] for name in HABITS}
    first = node.height + 1
    slot = seconds_per_block or node.seconds_per_block
    labels: Counter[str] = Counter()
    failed: list[str] = []
    with node.by_hand():
        for at in range(blocks):
            txs = [*market_news(scene, oracles, at), *block_transactions(scene, decks)]
            txs_by_hash = {node.send(each): each for each in txs}
            missed = random.random() < 0.03  # a slot without a block
            height = node.mine(1, 2 * slot if missed else slot)
            failed += failures(node, height, txs_by_hash, may_fail=may_fail)
            labels.update(each.label for each in txs)
    return TradingRun(first, node.height, dict(labels), tuple(failed), dict(scene.prices))


def block_transactions(scene: Scene, decks: Mapping[str, list[Action]]) -> list[Tx]:
    """Return the transactions of a few wallets for one block, one action per wallet."""
    if scene.random.random() < 0.04:
        return []
    txs: list[Tx] = []
    for name in scene.random.sample(list(HABITS), scene.random.randint(2, 5)):
        txs += next_action(scene, scene.wallets[name], name, decks[name])
    return txs


def next_action(scene: Scene, wallet: str, name: str, deck: list[Action]) -> list[Tx]:
    """Return the transactions of the next action that is possible now.

    Actions are taken from `deck`, which is refilled in random order, so that each action gets a turn.
    """
    while True:
        if not deck:
            deck += scene.random.sample([*ANYBODY, *HABITS[name]], len(ANYBODY) + len(HABITS[name]))
        if txs := deck.pop()(scene, wallet):
            return txs


def failures(node: LocalNode, height: int, txs_by_hash: Mapping[str, Tx], *, may_fail: bool = False) -> list[str]:
    """Return the hashes of the failed transactions of a block.

    Raises:
        TransactionReverted: A transaction of `txs_by_hash` ended unexpectedly or is not in the block, and `may_fail` is
            False.
    """
    receipts = node.rpc("eth_getBlockReceipts", hex(height))
    succeeded_by_hash = {receipt["transactionHash"]: receipt["status"] == "0x1" for receipt in receipts}
    for transaction, each in txs_by_hash.items():
        if not may_fail and succeeded_by_hash.get(transaction) is not (not each.label.startswith(DOOMED)):
            raise TransactionReverted(transaction, each.label)
    return [transaction for transaction, succeeded in succeeded_by_hash.items() if not succeeded]


# --- prices ----------------------------------------------------------------------------------------------------------


@dataclass
class Oracle:
    """The oracle account of a price feed."""

    account: str
    aggregator: str
    round: int
    price: int

    @classmethod
    def of(cls, node: LocalNode, deployment: Deployment, symbol: str) -> "Oracle":
        """Return the oracle of a symbol with the newest round and price of its feed."""
        aggregator = deployment.contracts[f"{symbol} FluxAggregator"]
        last = node.call(aggregator, "latestRound()(uint256)")
        return cls(deployment.accounts["deployer"], aggregator, last, node.call(aggregator, "latestAnswer()(int256)"))

    def submit(self, price: int) -> Tx:
        """Count up the round, and return the transaction that answers it with a price."""
        self.round, self.price = self.round + 1, price
        return tx(self.account, self.aggregator, "submit(uint256,int256)", self.round, price)


def market_news(scene: Scene, oracles: Mapping[str, Oracle], at: int) -> Sequence[Tx]:
    """Return the price updates of block number `at`, and set their prices in the scene."""
    txs = []
    for symbol, (every, max_move) in MOODS.items():
        if at % every == every - 1:
            scene.prices[symbol] = (
                oracles[symbol].price * (10_000 + scene.random.randint(-max_move, max_move)) // 10_000
            )
            txs.append(oracles[symbol].submit(scene.prices[symbol]))
    return txs


def set_price(node: LocalNode, deployment: Deployment, symbol: str, price: int) -> None:
    """Set the price of a feed, in its decimals, in a separate block."""
    node.settle([Oracle.of(node, deployment, symbol).submit(price)])
