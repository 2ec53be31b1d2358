"""A statement closes: a wallet's lots less its deposits in positions are its balances on the chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.evm import ZERO
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.portfolio.pnl.gains import RemainingLots
from tests.gains.conftest import World
from tests.gains.ledger import ETH, Wallet

pytestmark = pytest.mark.node
WALLETS = ("alice", "bob", "carol", "dave", "erin", "frank")
GENESIS = 10_000 * 10**18  # coins of the first block


def test_lots_outside_of_positions_are_the_balances_of_every_wallet(tmp_path: Path) -> None:
    with LocalNode() as node:
        deployment = deploy(node)
        trade(node, deployment, blocks=160, seed=5)
        world = World(node, deployment, tmp_path)
        manager = deployment.contracts["NonfungiblePositionManager"].lower()
        for name in WALLETS:
            wallet = Wallet(node, deployment, deployment.accounts[name].lower(), world.wallet().assets)
            lots = {each.asset.partition(":")[2]: each for each in world.lots(wallet)}
            balances = wallet.balances()
            balances[ETH] -= GENESIS
            for symbol in (ETH, "USDC", "DAI", "WBTC"):
                token = ZERO if symbol == ETH else deployment.contracts[symbol].lower()
                remaining = lots.get(token, RemainingLots(token, "", 0, 0))
                assert remaining.quantity - remaining.short - remaining.deposited == balances[symbol], (
                    name,
                    symbol,
                    remaining,
                )
            positions = [each for asset, each in lots.items() if asset.startswith(f"{manager}:") and each.quantity]
            assert positions == [], "a position has no lot of its own"
