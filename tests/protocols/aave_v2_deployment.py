"""Aave V2's market on the demo's tokens and feeds, from its published code."""

from __future__ import annotations

from chainfolio.localchain.deploy import AAVE_ASSETS, RAY, Deployer, Deployment, checked
from chainfolio.localchain.evm import MAX, ZERO
from chainfolio.localchain.node import LocalNode

LIBRARIES = ("GenericLogic", "ValidationLogic", "ReserveLogic")  # in the order in which they link each other
# Answers every question with one: the base of stable rates, before the market adds what it asks for.
ONE, RATES = "0x600160005260206000f3", "0x" + "1a" * 20
DEBT = ("address", "address", "string", "string", "address")  # pool, asset, name, symbol, who pays rewards


def aave_v2(node: LocalNode, deployment: Deployment) -> str:
    """The pool, with the deployer's supply of each asset in it, borrowed at either rate."""
    account = deployment.accounts["deployer"]
    deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
    with node.by_hand():
        libraries: dict[str, str] = {}
        for name in LIBRARIES:
            libraries[name] = deployer.create(name, f"AaveV2 {name}", libraries=libraries)
        provider = deployer.create("provider", "AaveV2 LendingPoolAddressesProvider", ("string",), "Local market")
        deployer.do(provider, "setPoolAdmin(address)", account)
        deployer.do(provider, "setEmergencyAdmin(address)", account)
        tokens = [deployment.tokens[symbol].address for symbol in AAVE_ASSETS]
        feeds = [deployment.feeds[feed] for feed, *_ in AAVE_ASSETS.values()]
        oracle = deployer.create(
            "oracle", "AaveV2 AaveOracle", ("address[]", "address[]", "address", "address"), tokens, feeds, ZERO, ZERO
        )
        deployer.do(provider, "setPriceOracle(address)", oracle)
        node.rpc("anvil_setCode", RATES, ONE)
        deployer.do(provider, "setLendingRateOracle(address)", RATES)
        code = deployer.create("pool's code", "AaveV2 LendingPool", libraries=libraries)
        deployer.do(provider, "setLendingPoolImpl(address)", code)
        code = deployer.create("configurator's code", "AaveV2 LendingPoolConfigurator")
        deployer.do(provider, "setLendingPoolConfiguratorImpl(address)", code)
        pool = checked(deployer.read(provider, "getLendingPool()(address)"))
        configurator = checked(deployer.read(provider, "getLendingPoolConfigurator()(address)"))
        _reserves(deployer, deployment, (provider, pool, configurator))
        deployer.settle()
    return pool


def _reserves(deployer: Deployer, deployment: Deployment, market: tuple[str, str, str]) -> None:
    provider, pool, configurator = market
    percent = RAY // 100
    rates = deployer.create(
        "rates",
        "AaveV2 DefaultReserveInterestRateStrategy",
        ("address", *["uint256"] * 6),
        provider,
        80 * percent,
        0,
        4 * percent,
        60 * percent,
        2 * percent,
        60 * percent,
    )
    for symbol, (_, loan_to_value, threshold, bonus, supply) in AAVE_ASSETS.items():
        token = deployment.tokens[symbol]
        code = [
            deployer.create(
                f"{kind} {symbol}",
                f"AaveV2 {kind}",
                types,
                pool,
                token.address,
                *extra_args,
                f"Aave {kind} {symbol}",
                f"{kind}{symbol}",
                ZERO,
            )
            for kind, types, extra_args in (
                ("AToken", ("address", *DEBT), (deployer.account,)),
                ("StableDebtToken", DEBT, ()),
                ("VariableDebtToken", DEBT, ()),
            )
        ]
        deployer.do(configurator, "initReserve(address,address,address,uint8,address)", *code, token.decimals, rates)
        collateral = "configureReserveAsCollateral(address,uint256,uint256,uint256)"
        deployer.do(configurator, collateral, token.address, loan_to_value, threshold, bonus)
        deployer.do(configurator, "enableBorrowingOnReserve(address,bool)", token.address, True)
        deployer.do(configurator, "setReserveFactor(address,uint256)", token.address, 1000)
        deployer.do(token.address, "approve(address,uint256)", pool, MAX)
        deposit = "deposit(address,uint256,address,uint16)"
        deployer.do(pool, deposit, token.address, token.units(supply), deployer.account, 0)
