"""A wallet with many scattered transactions among those of others; reproducible by its seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from chainfolio.localchain import actions as do
from chainfolio.localchain.actions import Action, Scene
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.evm import Tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.rented import LogId, log_id
from chainfolio.localchain.trade import HABITS, MOODS, Oracle, failures, market_news, next_action

APPROVAL = "0x8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"  # Approval(address,address,uint256)
TRANSACTIONS, BLOCKS = 140, 6_000
MORE = 3  # transactions of one deed, at most


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A node with such a wallet. `logs` are all logs of the chain, in its order, as the node gives them."""

    node: LocalNode
    deployment: Deployment
    wallet: str
    logs: Sequence[dict[str, Any]]

    def one_log_of(self, every: int = 500) -> frozenset[LogId]:
        """Return the ids of every `every`-th log; one names the wallet in the chain's second half."""
        indexes = self._log_indexes()
        start = next(at for at in indexes if at >= indexes[len(indexes) // 2]) % every
        return frozenset(log_id(log) for log in self.logs[start::every])

    def one_approval(self) -> frozenset[LogId]:
        """Return the id of the newest log of an approval by the wallet, as a set."""
        approvals = [at for at in self._log_indexes() if self.logs[at]["topics"][:2] == [APPROVAL, _topic(self.wallet)]]
        return frozenset([log_id(self.logs[approvals[-1]])])

    def _log_indexes(self) -> list[int]:
        """Return the indexes in `logs` of the logs that name the wallet."""
        return [at for at, log in enumerate(self.logs) if _topic(self.wallet) in log["topics"]]


def newcomer(node: LocalNode, *, transactions: int = TRANSACTIONS, blocks: int = BLOCKS, seed: int = 11) -> Newcomer:
    """Deploy everything on an empty node, then make `blocks` blocks with `transactions` of one wallet.

    Returns the node with the deployment, the wallet and every log.
    """
    deployment = deploy(node)
    random, wallet = Random(seed), deployment.accounts["alice"]
    oracles = {symbol: Oracle.of(node, deployment, symbol) for symbol in MOODS}
    scene = Scene(
        node,
        deployment,
        random,
        {name: deployment.accounts[name] for name in HABITS},
        {symbol: oracle.price for symbol, oracle in oracles.items()},
    )
    decks: dict[str, list[Action]] = {name: [] for name in HABITS}
    last = deployment.height + blocks
    with node.by_hand():
        for at in range(transactions):
            missing = transactions - _transaction_count(node, wallet)
            if missing <= 0:
                break
            gap = (last - node.height) // missing
            if gap > 1:
                node.mine(random.randrange(gap))
            own_txs = next_action(scene, wallet, "alice", decks["alice"]) if missing > MORE else do.wrap(scene, wallet)
            names = random.sample([name for name in HABITS if name != "alice"], 2)
            txs = [*market_news(scene, oracles, at), *own_txs]
            for name in names:
                txs += next_action(scene, scene.wallets[name], name, decks[name])
            _mine_block(node, txs)
        if node.height < last:
            node.mine(last - node.height)
    logs = node.rpc("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
    return Newcomer(node, deployment, wallet.lower(), logs)


def _mine_block(node: LocalNode, txs: Sequence[Tx]) -> None:
    """Mine a block of these transactions; TransactionReverted if one ends unexpectedly."""
    txs_by_hash = {node.send(each): each for each in txs}
    failures(node, node.mine(), txs_by_hash)


def _transaction_count(node: LocalNode, wallet: str) -> int:
    """Return the number of transactions that the wallet has sent."""
    return int(node.rpc("eth_getTransactionCount", wallet, "latest"), 16)


def _topic(address: str) -> str:
    return "0x" + address[2:].lower().rjust(64, "0")
