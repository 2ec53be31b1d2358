// Gathers every contract that is deployed as OUT/<Name>.json: {abi, bytecode, links}.
//   node compile.cjs SRC OUT          (run where package.json's node_modules lies)
// Packages that ship bytecode are taken as published; the others, and our few wrappers in SRC, are compiled here.
const fs = require("fs"), path = require("path");
const { createRequire } = require("module");

const [src, out] = process.argv.slice(2);
const here = createRequire(path.join(process.cwd(), "x.js")); // packages lie in the working directory, not beside us
const inPackages = (name) => path.join("node_modules", name);

const aave = (folder) => (name) => `@aave/core-v3/artifacts/contracts/${folder}/${name}.sol/${name}.json`;
const uniswapV3 = (name) => `@uniswap/v3-periphery/artifacts/contracts/${name}`;
const uniswapV4 = (name) => `@uniswap/v4-periphery/foundry-out/${name}`;
const balancer = (name) => `@balancer-labs/v2-deployments/dist/tasks/${name}`;
const PUBLISHED = [
  "canonical-weth/build/contracts/WETH9.json",
  "@uniswap/v2-core/build/UniswapV2Factory.json",
  "@uniswap/v2-core/build/UniswapV2Pair.json",
  "@uniswap/v2-periphery/build/UniswapV2Router02.json",
  "@uniswap/v3-core/artifacts/contracts/UniswapV3Factory.sol/UniswapV3Factory.json",
  "@uniswap/v3-core/artifacts/contracts/UniswapV3Pool.sol/UniswapV3Pool.json",
  uniswapV3("NonfungiblePositionManager.sol/NonfungiblePositionManager.json"),
  uniswapV3("SwapRouter.sol/SwapRouter.json"),
  uniswapV3("lens/QuoterV2.sol/QuoterV2.json"),
  uniswapV3("lens/TickLens.sol/TickLens.json"),
  "@uniswap/liquidity-staker/build/StakingRewards.json",
  "@uniswap/v3-staker/artifacts/contracts/UniswapV3Staker.sol/UniswapV3Staker.json",
  uniswapV4("PoolManager.sol/PoolManager.default.json"),
  uniswapV4("PoolSwapTest.sol/PoolSwapTest.default.json"),
  uniswapV4("PositionManager.sol/PositionManager.json"),
  uniswapV4("StateView.sol/StateView.json"),
  "@pancakeswap-libs/pancake-swap-core/build/PancakeFactory.json",
  balancer("20210418-authorizer/artifact/Authorizer.json"),
  balancer("20220725-protocol-fee-percentages-provider/artifact/ProtocolFeePercentagesProvider.json"),
  balancer("20230206-weighted-pool-v3/artifact/WeightedPoolFactory.json"),
  balancer("20230206-composable-stable-pool-v3/artifact/ComposableStablePoolFactory.json"),
  balancer("deprecated/20210624-stable-pool/artifact/StablePoolFactory.json"),
  ...["VotingEscrow", "GaugeController", "BalancerMinter"].map((name) =>
    balancer(`20220325-gauge-controller/artifact/${name}.json`)),
  ...["LiquidityGaugeV5", "LiquidityGaugeFactory"].map((name) =>
    balancer(`20220822-mainnet-gauge-factory-v2/artifact/${name}.json`)),
  balancer("20220325-balancer-token-admin/artifact/BalancerTokenAdmin.json"),
  balancer("20220325-test-balancer-token/artifact/TestBalancerToken.json"),
  balancer("20220325-ve-delegation/artifact/VotingEscrowDelegationProxy.json"),
  ...["SupplyLogic", "BorrowLogic", "LiquidationLogic", "EModeLogic", "BridgeLogic", "PoolLogic", "FlashLoanLogic",
    "ConfiguratorLogic"].map(aave("protocol/libraries/logic")),
  ...["PoolAddressesProvider", "ACLManager"].map(aave("protocol/configuration")),
  ...["AaveProtocolDataProvider", "AaveOracle"].map(aave("misc")),
  ...["Pool", "PoolConfigurator", "DefaultReserveInterestRateStrategy"].map(aave("protocol/pool")),
  ...["AToken", "StableDebtToken", "VariableDebtToken"].map(aave("protocol/tokenization")),
];

const venus = (name) => `@venusprotocol/venus-protocol/artifacts/contracts/${name}`;
const aaveV2 = (name) => `@aave/protocol-v2/artifacts/contracts/${name}.sol/${name.split("/").pop()}.json`;
const rewards = (name) => `@aave/periphery-v3/artifacts/contracts/rewards/${name}.sol/${name.split("/").pop()}.json`;
const pendle = (name) => `@pendle/core-v2/build/artifacts/contracts/${name}.sol/${name.split("/").pop()}.json`;
const PUBLISHED_FOR_TESTS = [
  "@openzeppelin/contracts/build/contracts/ERC1967Proxy.json",
  ...["LiquidityMining/GaugeController/PendleGaugeControllerUpg",
    "LiquidityMining/VotingEscrow/VotingEscrowPendleMainchain", "core/Market/OracleLib",
    "core/Market/PendleMarketFactoryV7Upg", "core/Market/PendleMarketV7",
    "core/YieldContracts/PendleYieldContractFactoryUpg", "core/YieldContracts/PendleYieldToken",
    "core/Market/v3/PendleMarketFactoryV3", "core/Market/v3/PendleMarketV3",
    "core/YieldContractsV2/PendleYieldContractFactoryV2", "core/YieldContractsV2/PendleYieldTokenV2",
    "core/StandardizedYield/implementations/PendleERC4626SY"].map(pendle),
  ...["RewardsController", "EmissionManager", "transfer-strategies/PullRewardsTransferStrategy"].map(rewards),
  ...["Comptroller/Comptroller", "Comptroller/Unitroller", "InterestRateModels/WhitePaperInterestRateModel",
    "Lens/ComptrollerLens", "Tokens/VTokens/VBep20Immutable", "test/MockVBNB", "test/SimplePriceOracle"]
    .map((name) => venus(`${name}.sol/${name.split("/").pop()}.json`)),
];
// Contracts of an older release that have the names of a newer one's.
const RENAMED = {
  "AaveV2 ": ["misc/AaveOracle", "misc/AaveProtocolDataProvider",
    ...["configuration/LendingPoolAddressesProvider", "lendingpool/DefaultReserveInterestRateStrategy",
      "lendingpool/LendingPool", "lendingpool/LendingPoolConfigurator", "libraries/logic/GenericLogic",
      "libraries/logic/ReserveLogic", "libraries/logic/ValidationLogic", "tokenization/AToken",
      "tokenization/StableDebtToken", "tokenization/VariableDebtToken"].map((name) => `protocol/${name}`)].map(aaveV2),
  "Balancer ": [balancer("20210418-vault/artifact/Vault.json")],
};

const COMPILED = [
  { solc: "solc", evmVersion: "cancun", sources: fs.readdirSync(src).filter((name) => name.endsWith(".sol")).sort(),
    wanted: ["Token", "Vault", "Savings", "Collectible", "Edition", "Hostile", "Meddler", "Wallet",
      "UniversalResolver"] },
  { solc: "solc-0.6.12", evmVersion: "istanbul", sources: ["@sushiswap/core/contracts/MasterChef.sol"],
    wanted: ["MasterChef", "SushiToken"], instead: ["@openzeppelin/contracts/", "@openzeppelin/contracts-v3/"] },
  { solc: "solc-0.6.12", evmVersion: "istanbul", sources: ["uniswap/ConcentratedLiquidity.sol"],
    wanted: ["ConcentratedLiquidity"] },
  { solc: "solc-0.6.6", evmVersion: "istanbul", wanted: ["FluxAggregator", "EACAggregatorProxy"],
    sources: ["FluxAggregator", "EACAggregatorProxy"].map((name) => `@chainlink/contracts/src/v0.6/${name}.sol`) },
  { solc: "solc-0.8.19", evmVersion: "paris", wanted: ["Morpho", "IrmMock", "OracleMock"],
    sources: ["Morpho", "mocks/IrmMock", "mocks/OracleMock"].map((name) => `@morpho-org/morpho-blue/src/${name}.sol`) },
];

function write(name, abi, bytecode, links = {}) {
  const hex = bytecode.startsWith("0x") ? bytecode : "0x" + bytecode;
  fs.writeFileSync(path.join(out, name + ".json"), JSON.stringify({ abi, bytecode: hex, links }));
}

// {file: {Library: [{start, length}]}} as compilers write it, to {Library: [start]}
function places(linkReferences = {}) {
  const links = Object.values(linkReferences).flatMap((file) => Object.entries(file));
  return Object.fromEntries(links.map(([library, at]) => [library, at.map((place) => place.start)]));
}

function published(file, prefix = "") {
  const { abi, bytecode, linkReferences, evm } = JSON.parse(fs.readFileSync(inPackages(file), "utf8"));
  const name = prefix + path.basename(file).split(".")[0];
  write(name, abi, bytecode?.object ?? bytecode ?? evm.bytecode.object, places(linkReferences));
}

function compiled({ solc, evmVersion, sources, wanted, instead: [from, to] = ["", ""] }) {
  const read = (name) => {
    const own = path.join(src, name);
    if (fs.existsSync(own)) return fs.readFileSync(own, "utf8");
    return fs.readFileSync(inPackages(from && name.startsWith(from) ? to + name.slice(from.length) : name), "utf8");
  };
  const find = (name) => {
    try { return { contents: read(name) }; } catch (error) { return { error: error.message }; }
  };
  const input = {
    language: "Solidity",
    sources: Object.fromEntries(sources.map((name) => [name, { content: read(name) }])),
    settings: { optimizer: { enabled: true, runs: 200 }, evmVersion,
                outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } } },
  };
  const result = JSON.parse(here(solc).compile(JSON.stringify(input), { import: find }));
  const errors = (result.errors ?? []).filter((error) => error.severity === "error");
  if (errors.length) throw new Error(errors.map((error) => error.formattedMessage).join("\n"));
  const contracts = Object.assign({}, ...Object.values(result.contracts));
  for (const name of wanted) write(name, contracts[name].abi, contracts[name].evm.bytecode.object);
}

function multicall3() {
  // viem carries the bytecode, but does not export it: hence the path into the package instead of its name.
  const viem = path.resolve(inPackages("viem/_cjs/constants"));
  write("Multicall3", here(path.join(viem, "abis.js")).multicall3Abi,
        here(path.join(viem, "contracts.js")).multicall3Bytecode);
}

fs.mkdirSync(out, { recursive: true });
[...PUBLISHED, ...PUBLISHED_FOR_TESTS].forEach((file) => published(file));
Object.entries(RENAMED).forEach(([prefix, files]) => files.forEach((file) => published(file, prefix)));
COMPILED.forEach(compiled);
multicall3();
