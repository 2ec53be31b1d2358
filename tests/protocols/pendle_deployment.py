"""Pendle on a local chain: yield of the demo's vault, split at two expiries, and a market."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import WAD, Deployer, Deployment, checked
from chainfolio.localchain.evm import MAX, Tx, call_data, created_address, tx
from chainfolio.localchain.node import LocalNode

DAY_S, WEEK_S = 86_400, 7 * 86_400
GAS = 15_000_000
# What comes after it is stored as the code of a contract: factories keep long creation code in halves.
STORING = "0x602038038060206000396000f3fefefefefefefefefefefefefefefefefefefe"
HALVES = ("address", "uint256", "address", "uint256")
FEES = (DAY_S, 3 * WAD // 100, 3 * WAD // 100)
MINT, SWAP = "mint(address,uint256,uint256)", "swapExactPtForSy(address,uint256,bytes)"


@dataclass(frozen=True)
class Pendle:
    """The contracts by name: `soon` is what expires first, `late` what there is a market for."""

    contracts: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.contracts[name].lower()

    @property
    def file(self) -> str:
        """The protocol's file for this chain."""
        families = '["pendle_market", "pendle_sy", "pendle_yield", "voting_escrow"]'
        roles = {"market_factory": "markets", "yield_contract_factory": "yields", "voting_escrow": "escrow"}
        return (
            f'key = "pendle"\nname = "Pendle"\nfamilies = {families}\n'
            '[options]\nfees = "none"\nlocked = "positionData(address)(uint128,uint128)"\n[contracts.local]\n'
            + "".join(f'{role} = ["{self[name]}"]\n' for role, name in roles.items())
            + f'locked_token = ["{self["PENDLE"]}"]\n'
        )


def pendle(node: LocalNode, deployment: Deployment, *, current: bool) -> Pendle:
    """Deploy the `current` or an older release of Pendle, with two users.

    The vault earns yield before and after the first expiry.
    """
    owner = deployment.accounts["deployer"]
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    addresses = {"vault": deployment.contracts["Vault"], "DAI": deployment.tokens["DAI"].address}
    now = int(node.block()["timestamp"], 16)
    week = now // WEEK_S * WEEK_S
    deploy_common(deployer, addresses)
    (current_factories if current else older_factories)(deployer, addresses)
    for name, expiry in (("soon", week + 2 * WEEK_S), ("late", week + 30 * WEEK_S)):
        types = "createYieldContract(address,uint32,bool)"
        tokens = create_by_factory(
            deployer, addresses["yields"], types, "(address,address)", addresses["SY"], expiry, False
        )
        addresses |= dict(zip((f"{name} principal", f"{name} yield"), tokens, strict=True))
    create = "createNewMarket(address,int256,int256,uint80)"
    terms = (addresses["late principal"], 50 * WAD, 105 * WAD // 100, WAD // 2_000)
    (addresses["market"],) = create_by_factory(deployer, addresses["markets"], create, "(address)", *terms)
    incentives(deployer, addresses, week + 20 * WEEK_S)
    it = Pendle(addresses)
    for name in ("alice", "bob"):
        join_market(node, it, deployment.accounts[name])
    trade_yield(node, it, deployment.accounts["bob"])
    lock_pendle(node, it, deployment.accounts["carol"], week + 6 * WEEK_S)
    for days in (5, 3, 20):
        accrue_yield(deployer, addresses, days)
    return it


def deploy_common(deployer: Deployer, addresses: dict[str, str]) -> None:
    """Deploy Pendle's token, gauges and escrow, and a standardized yield."""
    me, text_types = deployer.account, ("string", "string", "uint8")
    addresses["PENDLE"] = deployer.create("PENDLE", "Token", text_types, "Pendle", "PENDLE", 18)
    gauges = deployer.create("gauges' code", "PendleGaugeControllerUpg", ("address",), addresses["PENDLE"])
    addresses["gauges"] = proxy(deployer, gauges, "initialize(address)", me)
    types = ("string", "string", "address")
    addresses["SY"] = deployer.create("SY", "PendleERC4626SY", types, "SY Vault", "SY-VAULT", addresses["vault"])
    escrow = ("address", "address", "uint256")
    addresses["escrow"] = deployer.create("escrow", "VotingEscrowPendleMainchain", escrow, addresses["PENDLE"], me, 0)
    addresses["OracleLib"] = deployer.create("OracleLib", "OracleLib")
    deployer.settle()


def current_factories(deployer: Deployer, addresses: dict[str, str]) -> None:
    """Deploy the current factories of yields and of markets."""
    me = deployer.account
    code = deploy_code(deployer, artifact("PendleYieldToken").creation())
    yields = deployer.create("yields' code", "PendleYieldContractFactoryUpg", HALVES, *code)
    addresses["yields"] = proxy(deployer, yields, "initialize(uint96,uint128,uint128,address,address)", *FEES, me, me)
    code = deploy_code(deployer, artifact("PendleMarketV7").creation(libraries=addresses))
    types = ("address", *HALVES, "address")
    args = (addresses["yields"], *code, addresses["gauges"])
    markets = deployer.create("markets' code", "PendleMarketFactoryV7Upg", types, *args)
    addresses["markets"] = proxy(deployer, markets, "initialize(address,address,uint8)", me, me, 80)
    deployer.settle()


def older_factories(deployer: Deployer, addresses: dict[str, str]) -> None:
    """Deploy the older factories, whose rewards depend on the tokens that an owner has locked."""
    me = deployer.account
    code = deploy_code(deployer, artifact("PendleYieldTokenV2").creation())
    yields = deployer.create("yields' code", "PendleYieldContractFactoryV2", HALVES, *code)
    addresses["yields"] = proxy(deployer, yields, "initialize(uint96,uint128,uint128,address)", *FEES, me)
    code = deploy_code(deployer, artifact("PendleMarketV3").creation(libraries=addresses))
    types = ("address", *HALVES, "address", "uint8", "address", "address")
    args = (addresses["yields"], *code, me, 80, addresses["escrow"], addresses["gauges"])
    addresses["markets"] = deployer.create("markets", "PendleMarketFactoryV3", types, *args)
    deployer.settle()


def proxy(deployer: Deployer, code: str, signature: str, *args: Any) -> str:
    """A proxy of some code, initialized."""
    call = bytes.fromhex(call_data(signature, *args)[2:])
    return deployer.create(f"proxy of {code}", "ERC1967Proxy", ("address", "bytes"), code, call)


def deploy_code(deployer: Deployer, code: str) -> tuple[str, int, str, int]:
    """Creation code in two contracts, and how much of it is in each."""
    content = code.removeprefix("0x")
    middle = len(content) // 4 * 2
    locations: list[Any] = []
    for chunk in (content[:middle], content[middle:]):
        locations += [created_address(deployer.account, deployer.nonce), len(chunk) // 2]
        deployer.add(Tx(deployer.account, None, STORING + chunk, gas=GAS, label="code"))
    return locations[0], locations[1], locations[2], locations[3]


def create_by_factory(deployer: Deployer, factory: str, signature: str, gives: str, *args: Any) -> Sequence[str]:
    """Create contracts with a factory and return their addresses."""
    deployer.settle()
    created = deployer.node.call(factory, signature + gives, *args, sender=deployer.account)
    deployer.do(factory, signature, *args, gas=GAS)
    deployer.settle()
    return [checked(each) for each in (created if isinstance(created, tuple) else (created,))]


def incentives(deployer: Deployer, addresses: dict[str, str], end_s: int) -> None:
    """Let the market's shares earn rewards until `end_s`."""
    deployer.do(addresses["PENDLE"], "mint(address,uint256)", addresses["gauges"], 10**7 * WAD)
    deployer.do(addresses["gauges"], "whitelistMarkets(address[],bool)", [addresses["market"]], True)
    rates = "setRewardDatas(address[],uint128[],uint128[])"
    deployer.do(addresses["gauges"], rates, [addresses["market"]], [WAD // 777], [end_s])
    deployer.settle()


def join_market(node: LocalNode, it: Pendle, me: str) -> None:
    """Split some yield of each expiry, and put a part of the later one into the market."""
    node.settle(
        [
            tx(me, it["DAI"], "approve(address,uint256)", it["SY"], MAX),
            tx(me, it["SY"], "deposit(address,address,uint256,uint256)", me, it["DAI"], 60_000 * WAD + 11, 0),
        ]
    )
    for name in ("soon", "late"):
        node.settle(
            [
                tx(me, it["SY"], "transfer(address,uint256)", it[f"{name} yield"], 20_000 * WAD),
                tx(me, it[f"{name} yield"], "mintPY(address,address)", me, me, gas=2_000_000),
            ]
        )
    node.settle(
        [
            tx(me, it["SY"], "transfer(address,uint256)", it["market"], 9_000 * WAD),
            tx(me, it["late principal"], "transfer(address,uint256)", it["market"], 9_000 * WAD),
            tx(me, it["market"], MINT, me, 9_000 * WAD, 9_000 * WAD, gas=2_000_000),
        ]
    )


def trade_yield(node: LocalNode, it: Pendle, me: str) -> None:
    """Principal is sold, so that a share is no longer what was put in for it."""
    node.settle(
        [
            tx(me, it["late principal"], "transfer(address,uint256)", it["market"], 700 * WAD),
            tx(me, it["market"], SWAP, me, 700 * WAD, b"", gas=2_000_000),
        ]
    )


def lock_pendle(node: LocalNode, it: Pendle, me: str, expiry_s: int) -> None:
    """Lock some PENDLE until `expiry_s`."""
    owner = node.accounts[0]
    node.settle(
        [
            tx(owner, it["PENDLE"], "mint(address,uint256)", me, 1_000 * WAD),
            tx(me, it["PENDLE"], "approve(address,uint256)", it["escrow"], MAX),
            tx(me, it["escrow"], "increaseLockPosition(uint128,uint128)", 333 * WAD + 1, expiry_s),
        ]
    )


def accrue_yield(deployer: Deployer, addresses: dict[str, str], days: int) -> None:
    """Let some days pass, and pay yield into the vault."""
    deployer.node.mine(1, days * DAY_S)
    deployer.do(addresses["DAI"], "transfer(address,uint256)", addresses["vault"], 301 * WAD + days)
    deployer.settle()
