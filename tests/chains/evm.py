"""The EVM family's subject: a real node, published contracts, and a reading of it that shares no code with ours."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from chainfolio.adapters.evm.chain import EvmChain, build
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.settings import EvmSettings
from chainfolio.blocks import Span
from chainfolio.capabilities import Capability
from chainfolio.environment import Environment
from chainfolio.localchain.deploy import Deployment, deploy
from chainfolio.localchain.errors import RpcError
from chainfolio.localchain.evm import Tx, tx
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.transport.exchange import HttpResponse
from chainfolio.transport.http import HttpTransport
from tests.chains.evm_rows import rows_of_block
from tests.chains.index import EVERYTHING
from tests.chains.subject import FINALITY, RequestLog, Row

KEY = "local"
PLAIN = ("WETH", "USDC", "WBTC", "DAI", "UniswapV2Pair WETH/USDC", "UniswapV2Pair WETH/DAI", "Vault", "SUSHI")
MOVING = ("aWETH", "aUSDC", "aDAI", "variableDebtWETH", "variableDebtUSDC", "variableDebtDAI")  # interest has no event


@dataclass(slots=True)
class Recording:
    """A transport that counts what is asked, and can be pointed at another node."""

    request_log: RequestLog
    url: str
    _real: HttpTransport = field(default_factory=HttpTransport)

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One exchange with the node of the moment."""
        document = json.loads(body)
        self.request_log.count()
        for request in document if isinstance(document, list) else [document]:
            if request["method"] == "eth_getLogs" and "fromBlock" in request["params"][0]:
                log_filter = request["params"][0]
                span = Span(int(log_filter["fromBlock"], 16), int(log_filter["toBlock"], 16))
                self.request_log.spans.append((span, tuple(log_filter.get("address", ()))))
        return await self._real.post(source, self.url, body, timeout_s)

    async def close(self) -> None:
        """Let go of connections."""
        await self._real.close()


class EvmSubject:
    """Anvil with the contracts of `localchain`."""

    asks_each_block = False
    lacks = frozenset(
        [
            Capability.HEAD_EVENTS,
            Capability.OLDEST_BLOCK,
            Capability.PAST_COINS,
            Capability.PAST_POSITIONS,
            Capability.PROGRAM_CALLS,
            Capability.VALIDATORS,
        ]
    )
    no_rows: frozenset[str] = frozenset()
    datasets = EVERYTHING
    standards = frozenset(["native", "erc20", "erc721", "erc1155", "wrap", "unwrap"])
    approval_standards = frozenset(["erc20", "erc721", "operator"])

    def __init__(self, node: LocalNode, folder: Path, blocks: int) -> None:
        self.node, self.request_log, self._folder, self._blocks = node, RequestLog(), folder, blocks
        self.deployment: Deployment = deploy(node)
        if blocks:
            trade(node, self.deployment, blocks)
        self._spare: LocalNode | None = None
        self._second: LocalNode | None = None
        self._transports: list[Recording] = []

    # --- who and what ------------------------------------------------------------------------------------------------

    @cached_property
    def accounts(self) -> Sequence[str]:
        """Return the ten wallets, three contracts that hold tokens, and an address that holds nothing."""
        holders = [self.deployment.contracts[name] for name in (PLAIN[4], "Vault", "MasterChef")]
        return [each.lower() for each in (*self.deployment.accounts.values(), *holders, "0x" + "12" * 20)]

    @cached_property
    def tokens(self) -> Sequence[str]:
        """Plain tokens, and those of the lending market that grow by the second."""
        contracts = self.deployment.contracts
        return [*self.plain, *(contracts[name].lower() for name in MOVING if name in contracts)]

    @cached_property
    def plain(self) -> Sequence[str]:
        """Tokens whose balances follow from their events."""
        return [self.deployment.contracts[name].lower() for name in PLAIN]

    @cached_property
    def events(self) -> Sequence[str]:
        """Swaps and deposits of a pair, and only swaps of another one."""
        pair, swap_pair = (self.deployment.contracts[name].lower() for name in PLAIN[4:6])
        swap = parse_event("Swap(address indexed sender, uint256, uint256, uint256, uint256, address indexed to)")
        mint = parse_event("Mint(address indexed sender, uint256 amount0, uint256 amount1)")
        return [swap.filter(pair), mint.filter(pair), swap.filter(swap_pair)]

    @property
    def birth(self) -> int:
        """The last block of the deployment."""
        return self.deployment.height

    @property
    def height(self) -> int:
        """The newest block's height."""
        return self.node.height

    def token(self, symbol: str) -> str:
        """A token's address."""
        return self.deployment.tokens[symbol].address.lower()

    # --- the adapter -------------------------------------------------------------------------------------------------

    def facts(self, finality: int = FINALITY) -> Path:
        """The chain's file of facts, with the wrapped coin where it lies here."""
        path = self._folder / f"{KEY}-{finality}.toml"
        weth = self.deployment.tokens["WETH"].address.lower()
        path.write_text(
            f'key = "{KEY}"\nkind = "evm"\nchain_id = 31337\nname = "Local"\nblock_time_ms = 200\n'
            f"finality = {finality}\n"
            'native = {symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}\n'
            f'wrapped = {{address = "{weth}", symbol = "WETH"}}\n'
        )
        return path

    def chain(self, *, contracts: Sequence[str] = (), span: int = 25, finality: int = FINALITY) -> EvmChain:
        """A new adapter; what it asks is counted."""
        transport = Recording(self.request_log, self.node.url)
        self._transports.append(transport)
        settings = EvmSettings(
            rpc=[self.node.url], facts=str(self.facts(finality)), contracts=list(contracts), span=span, concurrency=3
        )
        return build(KEY, settings, Environment(), configs=self._folder, transport=transport)

    # --- control -----------------------------------------------------------------------------------------------------

    def mine(self, blocks: int) -> None:
        """Empty blocks."""
        self.node.mine(blocks)

    def trade(self, blocks: int, seed: int) -> None:
        """Payments, approvals and wrapping; the first script cannot go on where it ended."""
        chance = Random(seed)
        with self.node.by_hand():
            for _ in range(blocks):
                for each in self._actions(chance):
                    self.node.send(each)
                self.node.mine()

    def reorg(self, depth: int) -> None:
        """Other blocks in the place of the newest; the first of them moves each kind of thing."""
        self.node.reorg(depth, self._actions(Random(self.node.height)))

    def _actions(self, chance: Random) -> list[Tx]:
        alice, bob, carol = chance.sample([*self.deployment.accounts.values()], 3)
        token, weth = (self.deployment.tokens[symbol].address for symbol in (chance.choice(["USDC", "DAI"]), "WETH"))
        raw = chance.randrange(1, 10**6)
        return [
            Tx(alice, carol, value=raw, gas=21_000),
            tx(alice, token, "transfer(address,uint256)", bob, raw),
            tx(bob, token, "approve(address,uint256)", carol, raw),
            tx(carol, weth, "deposit()", value=raw),
            tx(carol, weth, "withdraw(uint256)", raw // 2),
        ]

    def fork(self, depth: int) -> None:
        """Run the same script on a second node, then another end."""
        assert self._spare is None, "there is a second node already"
        self._spare = self._second = LocalNode().start()
        twin = EvmSubject(self._spare, self._folder, self._blocks)
        assert twin.node.block()["hash"] == self.node.block()["hash"], "the same script gives the same chain"
        if depth:
            twin.reorg(depth)

    def switch(self) -> None:
        """The other node is the chain now."""
        assert self._spare is not None, "there is no second node"
        self.node, self._spare = self._spare, self.node
        for transport in self._transports:
            transport.url = self.node.url

    def close(self) -> None:
        """End the second node."""
        if self._second is not None:
            self._second.stop()

    # --- the truth ---------------------------------------------------------------------------------------------------

    def native(self, account: str, height: int) -> int:
        """`eth_getBalance`."""
        return int(self.node.rpc("eth_getBalance", account, hex(height)), 16)

    def balance(self, account: str, token: str, height: int) -> int | None:
        """`balanceOf`."""
        return self._number(token, "balanceOf(address)(uint256)", account, height=height)

    def allowance(self, owner: str, token: str, spender: str, height: int) -> int:
        """`allowance`."""
        allowance_raw = self._number(token, "allowance(address,address)(uint256)", owner, spender, height=height)
        assert allowance_raw is not None, f"{token} knows its allowances"
        return allowance_raw

    def _number(self, to: str, signature: str, *args: Any, height: int) -> int | None:
        if self.node.rpc("eth_getCode", to, hex(height)) == "0x":
            return None
        try:
            number: int = self.node.call(to, signature, *args, block=height)
        except RpcError:
            return None
        return number

    def rows(self, span: Span) -> Mapping[str, list[Row]]:
        """Block by block, receipt by receipt, log by log."""
        rows_by_table: dict[str, list[Row]] = {
            name: [] for name in ("blocks", "transactions", "transfers", "approvals", "logs")
        }
        weth = self.deployment.tokens["WETH"].address.lower()
        for height in range(span.first, span.last + 1):
            block = self.node.rpc("eth_getBlockByNumber", hex(height), True)
            receipts = self.node.rpc("eth_getBlockReceipts", hex(height))
            block_columns = {
                "chain": KEY,
                "height": height,
                "time": datetime.fromtimestamp(int(block["timestamp"], 16), UTC),
            }
            for name, rows in rows_of_block(block_columns, block, receipts, weth).items():
                rows_by_table[name] += rows
        return rows_by_table


@contextmanager
def evm(blocks: int, node: LocalNode | None = None) -> Iterator[EvmSubject]:
    """An EVM subject with so many blocks of trading, on a node of a special kind if one is given."""
    with tempfile.TemporaryDirectory() as folder, node or LocalNode() as running:
        subject = EvmSubject(running, Path(folder), blocks)
        try:
            yield subject
        finally:
            subject.close()
