"""Published contracts of Compound V2 and Uniswap V2 and V3 on a Tron node, as JustLend and SunSwap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode as abi

from chainfolio.localchain.tron.forms import base58check, evm_address, tron
from chainfolio.localchain.tron.node import TronNode
from tests.chains.tron import Signer

WAD, MAX, FOREVER = 10**18, 2**256 - 1, 2**40
ZERO = "0x" + "00" * 20
PERMISSIONS = "0x" + "ac" * 20
YES = "0x600160005260206000f3"  # answers every question with yes: sender may change what is not what is tested
FEE = 3000
MINT = "mint((address,address,uint24,int24,int24,uint256,uint256,uint256,uint256,address,uint256))"


@dataclass
class Deployed:
    """The contracts, in hex; `rich` made them and lends, `poor` borrows dollars against coins."""

    node: TronNode
    rich: Signer
    poor: Signer

    def __post_init__(self) -> None:
        for each in (self.rich, self.poor):
            self.node.endow(each.hex, 10**15)
        self.node.advance()
        self.wrapped = self.deploy("WETH9")
        self.dollar = self.deploy("Token", ["string", "string", "uint8"], ["Dollar", "USD", 6])
        self.transact(self.dollar, "mint(address,uint256)", evm_address(self.rich.hex), 10**15)
        self.transact(self.wrapped, "deposit()", sun=10**13)
        self._pair()
        self._pool()
        self._markets()

    # --- how -------------------------------------------------------------------------------------------------------

    def deploy(self, name: str, types: list[str] | None = None, values: list[Any] | None = None) -> str:
        """Deploy a contract and return its address."""
        contract = self.rich.create(self.node, name, abi(types or [], values or []))
        self.node.advance()
        return contract

    def transact(self, contract: str, function: str, *args: Any, sun: int = 0, sender: Signer | None = None) -> None:
        """Call a contract in a block and check that the call succeeds."""
        (sender or self.rich).call(self.node, contract, function, *args, sun=sun)
        block = self.node.advance()
        assert block.results == ("SUCCESS",), (function, block.results)

    def read(self, contract: str, signature: str, *args: Any, height: int | None = None, sender: str = "") -> Any:
        """Return the answer of a contract at `height`, or at the latest block."""
        height = self.node.head.height if height is None else height
        return self.node.machine.node.call(
            evm_address(contract), signature, *args, block=height, **({"sender": sender} if sender else {})
        )

    # --- what ------------------------------------------------------------------------------------------------------

    def _pair(self) -> None:
        self.factory = self.deploy("UniswapV2Factory", ["address"], [evm_address(self.rich.hex)])
        self.transact(self.factory, "createPair(address,address)", evm_address(self.wrapped), evm_address(self.dollar))
        self.pair = tron(
            self.read(
                self.factory, "getPair(address,address)(address)", evm_address(self.wrapped), evm_address(self.dollar)
            )
        )
        for token, raw in ((self.wrapped, 4 * 10**12), (self.dollar, 10**12 + 7)):
            self.transact(token, "transfer(address,uint256)", evm_address(self.pair), raw)
        self.transact(self.pair, "mint(address)", evm_address(self.rich.hex))

    def _pool(self) -> None:
        self.factory3 = self.deploy("UniswapV3Factory")
        arguments = [evm_address(self.factory3), evm_address(self.wrapped), ZERO]
        self.manager = self.deploy("NonfungiblePositionManager", ["address"] * 3, arguments)
        for token in (self.wrapped, self.dollar):
            self.transact(token, "approve(address,uint256)", evm_address(self.manager), MAX)
        tokens = sorted((evm_address(self.wrapped), evm_address(self.dollar)), key=lambda each: int(each, 16))
        create = "createAndInitializePoolIfNecessary(address,address,uint24,uint160)"
        self.transact(self.manager, create, *tokens, FEE, 2**96)
        position = (*tokens, FEE, -6_000, 12_000, 10**9, 10**9, 0, 0, evm_address(self.rich.hex), FOREVER)
        self.transact(self.manager, MINT, position)

    def _markets(self) -> None:
        code, self.comptroller = self.deploy("Comptroller"), self.deploy("Unitroller")
        self.transact(self.comptroller, "_setPendingImplementation(address)", evm_address(code))
        self.transact(code, "_become(address)", evm_address(self.comptroller))
        self.node.machine.node.rpc("anvil_setCode", PERMISSIONS, YES)
        oracle = self.deploy("SimplePriceOracle")
        model = self.deploy("WhitePaperInterestRateModel", ["uint256"] * 2, [WAD // 20, WAD * 3 // 10])
        self.transact(self.comptroller, "_setAccessControl(address)", PERMISSIONS)
        self.transact(self.comptroller, "_setComptrollerLens(address)", evm_address(self.deploy("ComptrollerLens")))
        self.transact(self.comptroller, "_setCloseFactor(uint256)", WAD // 2)
        self.transact(self.comptroller, "_setPriceOracle(address)", evm_address(oracle))
        terms = [evm_address(self.comptroller), evm_address(model)]
        metadata_types = ["uint256", "string", "string", "uint8", "address"]
        self.dollars = self.deploy(
            "VBep20Immutable",
            ["address"] * 3 + metadata_types,
            [evm_address(self.dollar), *terms, 2 * 10**14, "Market of dollars", "jUSD", 8, evm_address(self.rich.hex)],
        )
        self.coins = self.deploy(
            "MockVBNB",
            ["address"] * 2 + metadata_types,
            [*terms, 2 * 10**14, "Market of coins", "vBNB", 8, evm_address(self.rich.hex)],
        )
        self.transact(oracle, "setDirectPrice(address,uint256)", evm_address(self.dollar), WAD)
        for market in (self.dollars, self.coins):
            self.transact(self.comptroller, "_supportMarket(address)", evm_address(market))
            self.transact(self.comptroller, "_setCollateralFactor(address,uint256)", evm_address(market), WAD * 7 // 10)
            self.transact(self.comptroller, "_setMarketSupplyCaps(address[],uint256[])", [evm_address(market)], [MAX])
            self.transact(market, "_setReserveFactor(uint256)", WAD // 10)
        self.transact(self.dollar, "approve(address,uint256)", evm_address(self.dollars), MAX)
        self.transact(self.dollars, "mint(uint256)", 10**13)
        self.transact(self.coins, "mint()", sun=5 * 10**12, sender=self.poor)
        self.transact(self.comptroller, "enterMarkets(address[])", [evm_address(self.coins)], sender=self.poor)
        self.transact(self.dollars, "borrow(uint256)", 10**9 + 1, sender=self.poor)
        self.node.advance(5)

    @property
    def files(self) -> dict[str, str]:
        """The protocols as files name them."""
        return {
            "justlend": _file("justlend", "JustLend", "compound_v2", comptroller=self.comptroller),
            "sunswap2": _file("sunswap2", "SunSwap V2", "uniswap_v2", factory=self.factory),
            "sunswap3": _file("sunswap3", "SunSwap V3", "uniswap_v3", position_manager=self.manager),
        }


def _file(key: str, name: str, family: str, **contracts: str) -> str:
    lines = [f'key = "{key}"', f'name = "{name}"', f'families = ["{family}"]', "[contracts.tron]"]
    return "\n".join([*lines, *(f'{role} = ["{base58check(each)}"]' for role, each in contracts.items())]) + "\n"
