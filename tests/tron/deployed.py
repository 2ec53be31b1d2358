"""Published contracts of Compound V2's kind and of Uniswap V2 and V3 on a Tron node: JustLend's and SunSwap's."""

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
YES = "0x600160005260206000f3"  # answers every question with yes: who may change what is not what is tested
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
        self.wrapped = self.made("WETH9")
        self.dollar = self.made("Token", ["string", "string", "uint8"], ["Dollar", "USD", 6])
        self.done(self.dollar, "mint(address,uint256)", evm_address(self.rich.hex), 10**15)
        self.done(self.wrapped, "deposit()", sun=10**13)
        self._pair()
        self._pool()
        self._markets()

    # --- how -------------------------------------------------------------------------------------------------------

    def made(self, name: str, types: list[str] | None = None, values: list[Any] | None = None) -> str:
        """A new contract."""
        contract = self.rich.create(self.node, name, abi(types or [], values or []))
        self.node.advance()
        return contract

    def done(self, contract: str, function: str, *args: Any, sun: int = 0, who: Signer | None = None) -> None:
        """Calls a contract, which must not refuse."""
        (who or self.rich).call(self.node, contract, function, *args, sun=sun)
        block = self.node.advance()
        assert block.results == ("SUCCESS",), (function, block.results)

    def said(self, contract: str, signature: str, *args: Any, height: int | None = None, who: str = "") -> Any:
        """What a contract answers at a block."""
        height = self.node.head.height if height is None else height
        return self.node.machine.node.call(
            evm_address(contract), signature, *args, block=height, **({"sender": who} if who else {})
        )

    # --- what ------------------------------------------------------------------------------------------------------

    def _pair(self) -> None:
        self.factory = self.made("UniswapV2Factory", ["address"], [evm_address(self.rich.hex)])
        self.done(self.factory, "createPair(address,address)", evm_address(self.wrapped), evm_address(self.dollar))
        self.pair = tron(
            self.said(
                self.factory, "getPair(address,address)(address)", evm_address(self.wrapped), evm_address(self.dollar)
            )
        )
        for token, raw in ((self.wrapped, 4 * 10**12), (self.dollar, 10**12 + 7)):
            self.done(token, "transfer(address,uint256)", evm_address(self.pair), raw)
        self.done(self.pair, "mint(address)", evm_address(self.rich.hex))

    def _pool(self) -> None:
        self.factory3 = self.made("UniswapV3Factory")
        given = [evm_address(self.factory3), evm_address(self.wrapped), ZERO]
        self.manager = self.made("NonfungiblePositionManager", ["address"] * 3, given)
        for token in (self.wrapped, self.dollar):
            self.done(token, "approve(address,uint256)", evm_address(self.manager), MAX)
        tokens = sorted((evm_address(self.wrapped), evm_address(self.dollar)), key=lambda each: int(each, 16))
        create = "createAndInitializePoolIfNecessary(address,address,uint24,uint160)"
        self.done(self.manager, create, *tokens, FEE, 2**96)
        wanted = (*tokens, FEE, -6_000, 12_000, 10**9, 10**9, 0, 0, evm_address(self.rich.hex), FOREVER)
        self.done(self.manager, MINT, wanted)

    def _markets(self) -> None:
        code, self.comptroller = self.made("Comptroller"), self.made("Unitroller")
        self.done(self.comptroller, "_setPendingImplementation(address)", evm_address(code))
        self.done(code, "_become(address)", evm_address(self.comptroller))
        self.node.machine.node.rpc("anvil_setCode", PERMISSIONS, YES)
        oracle = self.made("SimplePriceOracle")
        model = self.made("WhitePaperInterestRateModel", ["uint256"] * 2, [WAD // 20, WAD * 3 // 10])
        self.done(self.comptroller, "_setAccessControl(address)", PERMISSIONS)
        self.done(self.comptroller, "_setComptrollerLens(address)", evm_address(self.made("ComptrollerLens")))
        self.done(self.comptroller, "_setCloseFactor(uint256)", WAD // 2)
        self.done(self.comptroller, "_setPriceOracle(address)", evm_address(oracle))
        terms = [evm_address(self.comptroller), evm_address(model)]
        named = ["uint256", "string", "string", "uint8", "address"]
        self.dollars = self.made(
            "VBep20Immutable",
            ["address"] * 3 + named,
            [evm_address(self.dollar), *terms, 2 * 10**14, "Market of dollars", "jUSD", 8, evm_address(self.rich.hex)],
        )
        self.coins = self.made(
            "MockVBNB",
            ["address"] * 2 + named,
            [*terms, 2 * 10**14, "Market of coins", "vBNB", 8, evm_address(self.rich.hex)],
        )
        self.done(oracle, "setDirectPrice(address,uint256)", evm_address(self.dollar), WAD)
        for market in (self.dollars, self.coins):
            self.done(self.comptroller, "_supportMarket(address)", evm_address(market))
            self.done(self.comptroller, "_setCollateralFactor(address,uint256)", evm_address(market), WAD * 7 // 10)
            self.done(self.comptroller, "_setMarketSupplyCaps(address[],uint256[])", [evm_address(market)], [MAX])
            self.done(market, "_setReserveFactor(uint256)", WAD // 10)
        self.done(self.dollar, "approve(address,uint256)", evm_address(self.dollars), MAX)
        self.done(self.dollars, "mint(uint256)", 10**13)
        self.done(self.coins, "mint()", sun=5 * 10**12, who=self.poor)
        self.done(self.comptroller, "enterMarkets(address[])", [evm_address(self.coins)], who=self.poor)
        self.done(self.dollars, "borrow(uint256)", 10**9 + 1, who=self.poor)
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
