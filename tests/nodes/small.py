"""A subject that an old EVM can run, too: three coins of canonical-weth, wrapped, paid and approved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WALLETS, Deployment, Token
from chainfolio.localchain.evm import Tx, created_address, tx
from chainfolio.localchain.node import LocalNode
from tests.chains.evm import EvmSubject
from tests.chains.subject import FINALITY, RequestLog

SYMBOLS = ("WETH", "USDC", "DAI")
BLOCKS = 12


class SmallSubject(EvmSubject):
    """The whole subject's wallets and deeds, without its markets. `maker` is whose node it is."""

    def __init__(self, node: LocalNode, folder: Path, maker: str) -> None:
        self.node, self.request_log, self._folder, self.maker = node, RequestLog(), folder, maker
        self.deployment = deploy_coins(node)
        self._spare = self._second = None
        self._transports = []
        self.trade(BLOCKS, 1)
        node.mine(FINALITY)

    @cached_property
    def accounts(self) -> Sequence[str]:
        """Return the wallets, and an address that holds nothing."""
        return [*(each.lower() for each in self.deployment.accounts.values()), "0x" + "12" * 20]

    @cached_property
    def tokens(self) -> Sequence[str]:
        """The coins."""
        return self.plain

    @cached_property
    def plain(self) -> Sequence[str]:
        """The coins."""
        return [self.token(symbol) for symbol in SYMBOLS]

    @property
    def events(self) -> Sequence[str]:
        """None."""
        return ()


def deploy_coins(node: LocalNode) -> Deployment:
    """The coins, and some of each for every wallet."""
    accounts = dict(zip(WALLETS, node.accounts, strict=False))
    maker, code = accounts["deployer"], artifact("WETH9").creation()
    coins = {symbol: created_address(maker, nonce) for nonce, symbol in enumerate(SYMBOLS)}
    node.settle([Tx(maker, None, code, gas=3_000_000) for _ in SYMBOLS])
    node.settle(
        [tx(account, coin, "deposit()", value=10**18) for account in accounts.values() for coin in coins.values()]
    )
    tokens = {symbol: Token(coin, symbol, 18) for symbol, coin in coins.items()}
    return Deployment(coins, accounts, tokens, {}, node.height)
