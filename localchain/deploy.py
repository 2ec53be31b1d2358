"""Deploys published contracts and opens their markets: what a wallet of the DeFi years could meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.evm import MAX, ZERO, Tx, checksummed, created_address, tx, words
from chainfolio.localchain.node import LocalNode

WAD, RAY = 10**18, 10**27
MULTICALL3 = "0xcA11bde05977b3631167028862bE2a173976CA11"
WALLETS = ("deployer", "alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan")
FEED_DECIMALS = 8
PRICES = {"ETH": 2_000 * 10**8, "USDC": 10**8, "DAI": 10**8, "WBTC": 40_000 * 10**8}  # US dollars, in feed decimals
POOL_FEE = 3000  # of the Uniswap V3 pools, in millionths
FOREVER = MAX  # a deadline


@dataclass(frozen=True)
class Token:
    """An ERC-20 and how it is written."""

    address: str
    symbol: str
    decimals: int

    def units(self, amount: int) -> int:
        """Return the raw amount of whole tokens."""
        raw: int = amount * 10**self.decimals
        return raw


@dataclass(frozen=True)
class Deployment:
    """Addresses of the deployed contracts, tokens and accounts."""

    contracts: Mapping[str, str]  # name -> address, tokens and markets included
    accounts: Mapping[str, str]  # deployer, alice, bob, ... -> address
    tokens: Mapping[str, Token]  # symbol -> token
    feeds: Mapping[str, str]  # symbol -> Chainlink feed (the proxy) in US dollars
    height: int  # the last block of the deployment


@dataclass
class Deployer:
    """Collects transactions whose results are known beforehand, and mines them together."""

    node: LocalNode
    account: str
    nonce: int
    contracts: dict[str, str] = field(default_factory=dict)
    waiting: list[Tx] = field(default_factory=list)

    def create(
        self,
        label: str,
        name: str,
        types: Sequence[str] = (),
        *args: object,
        libraries: Mapping[str, str] | None = None,
        gas: int = 7_000_000,
    ) -> str:
        """Queue the creation of a contract, store its future address under `label`, and return it."""
        data = artifact(name).creation(words(types, *args), libraries)
        address = created_address(self.account, self.nonce)
        self.add(Tx(self.account, None, data, gas=gas, label=label))
        self.contracts[label] = address
        return address

    def do(self, to: str, signature: str, *args: object, value: int = 0, gas: int = 5_500_000) -> None:
        """Queue a call of a function."""
        self.add(tx(self.account, to, signature, *args, value=value, gas=gas))

    def settle(self) -> None:
        """Mine the queued transactions; TransactionReverted if one fails."""
        self.node.settle(self.waiting)
        self.waiting.clear()

    def read(self, to: str, signature: str, *args: object) -> Any:
        """Mine the queued transactions, then call a contract and return its results."""
        if self.waiting:
            self.settle()
        return self.node.call(to, signature, *args)

    def add(self, transaction: Tx) -> None:
        """Queue a transaction of the account, and count up its nonce."""
        self.waiting.append(transaction)
        self.nonce += 1


def deploy(node: LocalNode) -> Deployment:
    """Deploy and mine everything, with tokens for each wallet and liquidity for each market."""
    accounts = dict(zip(WALLETS, node.accounts, strict=False))
    account = accounts["deployer"]
    deployer = Deployer(node, account, int(node.rpc("eth_getTransactionCount", account, "pending"), 16))
    with node.by_hand():
        multicall3(deployer)
        tokens = erc20_tokens(deployer, list(accounts.values()))
        collections(deployer)
        feeds = price_feeds(deployer, PRICES)
        uniswap_v2(deployer, tokens)
        uniswap_v3(deployer, tokens)
        aave_v3(deployer, tokens, feeds)
        vault(deployer, tokens["DAI"])
        farms(deployer, tokens["DAI"])
        deployer.settle()
    return Deployment(deployer.contracts, accounts, tokens, feeds, node.height)


def multicall3(deployer: Deployer) -> None:
    """Create Multicall3, mine it, and copy its code to its usual address."""
    here = deployer.create("Multicall3", "Multicall3")
    deployer.settle()
    deployer.node.rpc("anvil_setCode", MULTICALL3, deployer.node.rpc("eth_getCode", here, "latest"))
    deployer.contracts["Multicall3"] = MULTICALL3


def erc20_tokens(deployer: Deployer, holders: Sequence[str]) -> dict[str, Token]:
    """Queue WETH9 and tokens of 6, 8 and 18 decimals, with a balance for every holder; return them."""
    tokens = {"WETH": Token(deployer.create("WETH", "WETH9"), "WETH", 18)}
    for symbol, name, decimals, supply in (
        ("USDC", "USD Coin", 6, 1_000_000),
        ("WBTC", "Wrapped BTC", 8, 50),
        ("DAI", "Dai Stablecoin", 18, 1_000_000),
    ):
        address = deployer.create(symbol, "Token", ("string", "string", "uint8"), name, symbol, decimals)
        tokens[symbol] = Token(address, symbol, decimals)
        for holder in holders:
            # The deployer's are what the markets begin with.
            amount = supply * 100 if holder == deployer.account else supply
            deployer.do(address, "mint(address,uint256)", holder, tokens[symbol].units(amount))
    deployer.do(tokens["WETH"].address, "deposit()", value=5_000 * WAD)
    for holder in holders:
        if holder != deployer.account:
            deployer.do(tokens["WETH"].address, "transfer(address,uint256)", holder, 100 * WAD)
    return tokens


def collections(deployer: Deployer) -> None:
    """Queue an empty ERC-721 and an empty ERC-1155 collection."""
    deployer.create("Collectible", "Collectible", ("string", "string"), "Local Collectible", "LOCAL")
    deployer.create("Edition", "Edition", ("string",), "ipfs://edition/{id}.json")


# --- Chainlink -------------------------------------------------------------------------------------------------------


def price_feeds(deployer: Deployer, prices: Mapping[str, int]) -> dict[str, str]:
    """Queue a price feed with a first price for each symbol; return the proxies by symbol.

    A FluxAggregator with one oracle is behind each EACAggregatorProxy, as on mainnet before OCR.
    """
    feeds = {}
    for symbol, price in prices.items():
        flux = deployer.create(
            f"{symbol} FluxAggregator",
            "FluxAggregator",
            ("address", "uint128", "uint32", "address", "int256", "int256", "uint8", "string"),
            ZERO,
            0,
            600,
            ZERO,
            0,
            10**30,
            FEED_DECIMALS,
            f"{symbol} / USD",
        )
        oracle = [deployer.account]
        deployer.do(
            flux, "changeOracles(address[],address[],address[],uint32,uint32,uint32)", [], oracle, oracle, 1, 1, 0
        )
        deployer.do(flux, "submit(uint256,int256)", 1, price)
        feeds[symbol] = deployer.create(f"{symbol} feed", "EACAggregatorProxy", ("address", "address"), flux, ZERO)
    return feeds


# --- Uniswap ---------------------------------------------------------------------------------------------------------


def uniswap_v2(deployer: Deployer, tokens: Mapping[str, Token]) -> None:
    """Deploy factory, router and the pairs of WETH with USDC and DAI, with first liquidity."""
    weth = tokens["WETH"]
    factory = deployer.create("UniswapV2Factory", "UniswapV2Factory", ("address",), deployer.account)
    router = deployer.create("UniswapV2Router02", "UniswapV2Router02", ("address", "address"), factory, weth.address)
    for symbol in ("WETH", "USDC", "DAI"):
        deployer.do(tokens[symbol].address, "approve(address,uint256)", router, MAX)
    for token in (tokens["USDC"], tokens["DAI"]):
        deployer.do(
            router,
            "addLiquidity(address,address,uint256,uint256,uint256,uint256,address,uint256)",
            weth.address,
            token.address,
            weth.units(500),
            token.units(1_000_000),
            0,
            0,
            deployer.account,
            FOREVER,
        )
    for token in (tokens["USDC"], tokens["DAI"]):
        pair = deployer.read(factory, "getPair(address,address)(address)", weth.address, token.address)
        deployer.contracts[f"UniswapV2Pair WETH/{token.symbol}"] = checked(pair)


def uniswap_v3(deployer: Deployer, tokens: Mapping[str, Token]) -> None:
    """Deploy factory, position manager, router, lenses and two pools with a full-range position each."""
    weth = tokens["WETH"]
    two = ("address", "address")
    factory = deployer.create("UniswapV3Factory", "UniswapV3Factory")
    manager = deployer.create(
        "NonfungiblePositionManager", "NonfungiblePositionManager", (*two, "address"), factory, weth.address, ZERO
    )
    deployer.create("SwapRouter", "SwapRouter", two, factory, weth.address)
    deployer.create("QuoterV2", "QuoterV2", two, factory, weth.address)
    deployer.create("TickLens", "TickLens")
    for symbol in ("WETH", "USDC", "WBTC"):
        deployer.do(tokens[symbol].address, "approve(address,uint256)", manager, MAX)
    for token, raw in ((tokens["USDC"], 1_000_000), (tokens["WBTC"], 25)):
        amounts = {weth.address: weth.units(500), token.address: token.units(raw)}
        token0, token1 = sorted(amounts, key=lambda address: int(address, 16))
        deployer.do(
            manager,
            "createAndInitializePoolIfNecessary(address,address,uint24,uint160)",
            token0,
            token1,
            POOL_FEE,
            sqrt_price_x96(amounts[token0], amounts[token1]),
        )
        deployer.do(
            manager,
            MINT_POSITION,
            (
                token0,
                token1,
                POOL_FEE,
                -887_220,
                887_220,
                amounts[token0],
                amounts[token1],
                0,
                0,
                deployer.account,
                FOREVER,
            ),
        )
    for token in (tokens["USDC"], tokens["WBTC"]):
        find = "getPool(address,address,uint24)(address)"
        pool = deployer.read(factory, find, weth.address, token.address, POOL_FEE)
        deployer.contracts[f"UniswapV3Pool WETH/{token.symbol}"] = checked(pool)


MINT_POSITION = "mint((address,address,uint24,int24,int24,uint256,uint256,uint256,uint256,address,uint256))"


def sqrt_price_x96(raw0: int, raw1: int) -> int:
    """Return the V3 price at which two raw amounts are worth the same.

    It is sqrt(raw1 / raw0) * 2**96, rounded down.
    """
    return isqrt((raw1 << 192) // raw0)


# --- Aave V3 ---------------------------------------------------------------------------------------------------------

AAVE_LIBRARIES = (  # in the order in which they link each other
    "SupplyLogic",
    "BorrowLogic",
    "LiquidationLogic",
    "EModeLogic",
    "BridgeLogic",
    "PoolLogic",
    "ConfiguratorLogic",
    "FlashLoanLogic",
)
AAVE_ASSETS = {  # symbol -> feed, loan to value, liquidation threshold and bonus in basis points, first supply
    "USDC": ("USDC", 8000, 8500, 10500, 10_000_000),
    "WETH": ("ETH", 8000, 8250, 10500, 1_000),
    "DAI": ("DAI", 7500, 8000, 10500, 10_000_000),
    "WBTC": ("WBTC", 7000, 7500, 11000, 100),
}


def aave_v3(deployer: Deployer, tokens: Mapping[str, Token], feeds: Mapping[str, str]) -> None:
    """Deploy an Aave market, and list the tokens in AAVE_ASSETS."""
    libraries: dict[str, str] = {}
    for name in AAVE_LIBRARIES:
        libraries[name] = deployer.create(name, name, libraries=libraries)
    provider = deployer.create(
        "PoolAddressesProvider", "PoolAddressesProvider", ("string", "address"), "Local market", deployer.account
    )
    aave_administration(deployer, provider)
    assets = [tokens[symbol].address for symbol in AAVE_ASSETS]
    oracle = deployer.create(
        "AaveOracle",
        "AaveOracle",
        ("address", "address[]", "address[]", "address", "address", "uint256"),
        provider,
        assets,
        [feeds[feed] for feed, *_ in AAVE_ASSETS.values()],
        ZERO,
        ZERO,
        10**FEED_DECIMALS,
    )
    deployer.do(provider, "setPriceOracle(address)", oracle)
    pool = deployer.create("Pool implementation", "Pool", ("address",), provider, libraries=libraries)
    deployer.do(provider, "setPoolImpl(address)", pool)
    configurator = deployer.create("PoolConfigurator implementation", "PoolConfigurator", libraries=libraries)
    deployer.do(provider, "setPoolConfiguratorImpl(address)", configurator)
    deployer.contracts["Pool"] = checked(deployer.read(provider, "getPool()(address)"))
    deployer.contracts["PoolConfigurator"] = checked(deployer.read(provider, "getPoolConfigurator()(address)"))
    aave_reserves(deployer, provider, tokens)


def aave_administration(deployer: Deployer, provider: str) -> None:
    """Make the deployer the administrator of the Aave market."""
    data = deployer.create("AaveProtocolDataProvider", "AaveProtocolDataProvider", ("address",), provider)
    deployer.do(provider, "setPoolDataProvider(address)", data)
    deployer.do(provider, "setACLAdmin(address)", deployer.account)
    manager = deployer.create("ACLManager", "ACLManager", ("address",), provider)
    deployer.do(provider, "setACLManager(address)", manager)
    for role in ("PoolAdmin", "EmergencyAdmin", "RiskAdmin", "AssetListingAdmin"):
        deployer.do(manager, f"add{role}(address)", deployer.account)


def aave_reserves(deployer: Deployer, provider: str, tokens: Mapping[str, Token]) -> None:
    """List the assets with the deployer's supply in each, so that others can borrow."""
    pool, configurator = deployer.contracts["Pool"], deployer.contracts["PoolConfigurator"]
    kinds = ("AToken", "StableDebtToken", "VariableDebtToken")
    code = [deployer.create(f"{kind} implementation", kind, ("address",), pool) for kind in kinds]
    percent = RAY // 100
    rates = deployer.create(
        "DefaultReserveInterestRateStrategy",
        "DefaultReserveInterestRateStrategy",
        ("address", *["uint256"] * 9),
        provider,
        80 * percent,
        0,
        4 * percent,
        60 * percent,
        percent // 2,
        60 * percent,
        percent,
        8 * percent,
        20 * percent,
    )
    for symbol, (_, loan_to_value, threshold, bonus, supply) in AAVE_ASSETS.items():
        token = tokens[symbol]
        deployer.do(
            configurator,
            INIT_RESERVES,
            [
                (
                    *code,
                    token.decimals,
                    rates,
                    token.address,
                    deployer.account,
                    ZERO,
                    f"Aave {symbol}",
                    f"a{symbol}",
                    f"Aave variable debt {symbol}",
                    f"variableDebt{symbol}",
                    f"Aave stable debt {symbol}",
                    f"stableDebt{symbol}",
                    b"",
                )
            ],
        )
        terms = (loan_to_value, threshold, bonus)
        deployer.do(
            configurator, "configureReserveAsCollateral(address,uint256,uint256,uint256)", token.address, *terms
        )
        deployer.do(configurator, "setReserveBorrowing(address,bool)", token.address, True)
        deployer.do(configurator, "setReserveFactor(address,uint256)", token.address, 1000)
        deployer.do(token.address, "approve(address,uint256)", pool, MAX)
        deployer.do(
            pool, "supply(address,uint256,address,uint16)", token.address, token.units(supply), deployer.account, 0
        )
    for symbol in AAVE_ASSETS:
        signature = "getReserveTokensAddresses(address)(address,address,address)"
        data = deployer.contracts["AaveProtocolDataProvider"]
        supplied, _, debt = deployer.read(data, signature, tokens[symbol].address)
        deployer.contracts[f"a{symbol}"] = checked(supplied)
        deployer.contracts[f"variableDebt{symbol}"] = checked(debt)


INIT_RESERVES = (
    "initReserves((address,address,address,uint8,address,address,address,address,"
    "string,string,string,string,string,string,bytes)[])"
)

# --- vault, farms ----------------------------------------------------------------------------------------------------


def vault(deployer: Deployer, asset: Token) -> None:
    """Deploy an ERC-4626 vault whose share is worth more than one unit of the asset."""
    address = deployer.create(
        "Vault", "Vault", ("address", "string", "string"), asset.address, f"Vault {asset.symbol}", f"v{asset.symbol}"
    )
    deployer.do(asset.address, "approve(address,uint256)", address, MAX)
    deployer.do(address, "deposit(uint256,address)", asset.units(10_000), deployer.account)
    deployer.do(asset.address, "transfer(address,uint256)", address, asset.units(500))


def farms(deployer: Deployer, reward: Token) -> None:
    """Deploy Sushi's MasterChef and Synthetix' StakingRewards for shares of the WETH/USDC pair."""
    pair = deployer.contracts["UniswapV2Pair WETH/USDC"]
    sushi = deployer.create("SUSHI", "SushiToken")
    chef = deployer.create(
        "MasterChef", "MasterChef", ("address", "address", *["uint256"] * 3), sushi, deployer.account, WAD, 0, 0
    )
    deployer.do(sushi, "transferOwnership(address)", chef)
    deployer.do(chef, "add(uint256,address,bool)", 100, pair, True)
    staking = deployer.create(
        "StakingRewards", "StakingRewards", ("address",) * 3, deployer.account, reward.address, pair
    )
    deployer.do(reward.address, "transfer(address,uint256)", staking, reward.units(60_000))
    deployer.do(staking, "notifyRewardAmount(uint256)", reward.units(60_000))


def checked(address: str) -> str:
    """Return an address with a checksum; AssertionError if it is zero."""
    assert address != ZERO, "the contract does not exist"
    return checksummed(address)
