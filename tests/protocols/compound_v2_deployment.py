"""Venus' core pool (a published fork of Compound V2): markets of two tokens and of the native coin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chainfolio.localchain.deploy import WAD, Deployer, Deployment
from chainfolio.localchain.evm import MAX, Tx, tx
from chainfolio.localchain.node import LocalNode

# Where the published comptroller has its reward token and its market of it, whatever chain it is on.
REWARD = "0xcF6BB5389c92Bdda8a3747Ddb454cB7a64626C63"
# A contract that answers every question with yes: who may change what is not what is tested.
YES = "0x600160005260206000f3"
PERMISSIONS = "0x" + "ac" * 20
SPEEDS = "_setVenusSpeeds(address[],uint256[],uint256[])"


@dataclass(frozen=True)
class Venus:
    """Addresses of the comptroller and of its markets."""

    comptroller: str
    markets: Mapping[str, str]  # symbol -> market


def venus(node: LocalNode, deployment: Deployment) -> Venus:
    """Opens the markets, with the deployer's supply in each, so that others can borrow."""
    account = deployment.accounts["deployer"]
    deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
    with node.by_hand():
        comptroller = _comptroller(deployer)
        oracle = deployer.create("oracle", "SimplePriceOracle")
        deployer.do(comptroller, "_setPriceOracle(address)", oracle)
        model = deployer.create("rates", "WhitePaperInterestRateModel", ("uint256",) * 2, WAD // 20, WAD * 3 // 10)
        terms = (comptroller, model)
        markets = {symbol: _market(deployer, deployment, terms, symbol, rate) for symbol, rate in RATES.items()}
        markets["ETH"] = deployer.create(
            "vETH",
            "MockVBNB",
            ("address", "address", "uint256", "string", "string", "uint8", "address"),
            *terms,
            2 * 10**26,
            "Market of ether",
            "vBNB",
            8,
            account,
        )
        for symbol in RATES:
            deployer.do(oracle, "setDirectPrice(address,uint256)", deployment.tokens[symbol].address, PRICES[symbol])
        _list(deployer, comptroller, markets)
        _reward(deployer, deployment, comptroller)
        deployer.settle()
    return Venus(comptroller, markets)


RATES = {"USDC": 2 * 10**14, "DAI": 2 * 10**26}  # what a market's token is worth at first, times 10**18
PRICES = {"USDC": 10**30 // 2000, "DAI": WAD // 2000, "ETH": WAD}  # of a raw unit, in wei, times 10**18


def _comptroller(deployer: Deployer) -> str:
    code = deployer.create("comptroller's code", "Comptroller")
    comptroller = deployer.create("comptroller", "Unitroller")
    deployer.do(comptroller, "_setPendingImplementation(address)", code)
    deployer.do(code, "_become(address)", comptroller)
    deployer.node.rpc("anvil_setCode", PERMISSIONS, YES)
    deployer.do(comptroller, "_setAccessControl(address)", PERMISSIONS)
    deployer.do(comptroller, "_setComptrollerLens(address)", deployer.create("lens", "ComptrollerLens"))
    deployer.do(comptroller, "_setCloseFactor(uint256)", WAD // 2)
    return comptroller


def _market(deployer: Deployer, deployment: Deployment, terms: tuple[str, str], symbol: str, rate: int) -> str:
    token = deployment.tokens[symbol]
    return deployer.create(
        f"v{symbol}",
        "VBep20Immutable",
        ("address", "address", "address", "uint256", "string", "string", "uint8", "address"),
        token.address,
        *terms,
        rate,
        f"Market of {symbol}",
        f"v{symbol}",
        8,
        deployer.account,
    )


def _list(deployer: Deployer, comptroller: str, markets: Mapping[str, str]) -> None:
    for market in markets.values():
        deployer.do(comptroller, "_supportMarket(address)", market)
        deployer.do(comptroller, "_setCollateralFactor(address,uint256)", market, WAD * 7 // 10)
        deployer.do(comptroller, "_setMarketSupplyCaps(address[],uint256[])", [market], [MAX])
        deployer.do(market, "_setReserveFactor(uint256)", WAD // 10)


def _reward(deployer: Deployer, deployment: Deployment, comptroller: str) -> None:
    """A token where the comptroller looks for its own; it has no speeds yet."""
    deployer.settle()
    token = deployment.tokens["DAI"].address
    deployer.node.rpc("anvil_setCode", REWARD, deployer.node.rpc("eth_getCode", token, "latest"))
    deployer.do(REWARD, "mint(address,uint256)", comptroller, 10**6 * WAD)


def supply(account: str, venus: Venus, deployment: Deployment, symbol: str, raw: int) -> list[Tx]:
    """Return the transactions that supply `raw` units of a token as collateral."""
    market = venus.markets[symbol]
    enter = tx(account, venus.comptroller, "enterMarkets(address[])", [market])
    if symbol == "ETH":
        return [tx(account, market, "mint()", value=raw), enter]
    return [
        tx(account, deployment.tokens[symbol].address, "approve(address,uint256)", market, MAX),
        tx(account, market, "mint(uint256)", raw),
        enter,
    ]
