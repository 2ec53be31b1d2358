"""Pendle on a local chain: standardized yield of the demo's vault, split until two times, and a market of the later."""

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
    """Everything there is of it, of now or of some years ago, with two who use it; the yield goes on after the first of
    the expiries."""
    owner = deployment.accounts["deployer"]
    deployer = Deployer(node, owner, int(node.rpc("eth_getTransactionCount", owner, "pending"), 16))
    made = {"vault": deployment.contracts["Vault"], "DAI": deployment.tokens["DAI"].address}
    now = int(node.block()["timestamp"], 16)
    week = now // WEEK_S * WEEK_S
    common(deployer, made)
    (current_factories if current else older_factories)(deployer, made)
    for name, expiry in (("soon", week + 2 * WEEK_S), ("late", week + 30 * WEEK_S)):
        types = "createYieldContract(address,uint32,bool)"
        found = made_by(deployer, made["yields"], types, "(address,address)", made["SY"], expiry, False)
        made |= dict(zip((f"{name} principal", f"{name} yield"), found, strict=True))
    create = "createNewMarket(address,int256,int256,uint80)"
    terms = (made["late principal"], 50 * WAD, 105 * WAD // 100, WAD // 2_000)
    (made["market"],) = made_by(deployer, made["markets"], create, "(address)", *terms)
    incentives(deployer, made, week + 20 * WEEK_S)
    it = Pendle(made)
    for name in ("alice", "bob"):
        joined(node, it, deployment.accounts[name])
    traded(node, it, deployment.accounts["bob"])
    locked(node, it, deployment.accounts["carol"], week + 6 * WEEK_S)
    for days in (5, 3, 20):
        earned(deployer, made, days)
    return it


def common(deployer: Deployer, made: dict[str, str]) -> None:
    """Its token, its gauges and its escrow, and a standardized yield."""
    me, named = deployer.account, ("string", "string", "uint8")
    made["PENDLE"] = deployer.create("PENDLE", "Token", named, "Pendle", "PENDLE", 18)
    gauges = deployer.create("gauges' code", "PendleGaugeControllerUpg", ("address",), made["PENDLE"])
    made["gauges"] = proxy(deployer, gauges, "initialize(address)", me)
    types = ("string", "string", "address")
    made["SY"] = deployer.create("SY", "PendleERC4626SY", types, "SY Vault", "SY-VAULT", made["vault"])
    escrow = ("address", "address", "uint256")
    made["escrow"] = deployer.create("escrow", "VotingEscrowPendleMainchain", escrow, made["PENDLE"], me, 0)
    made["OracleLib"] = deployer.create("OracleLib", "OracleLib")
    deployer.settle()


def current_factories(deployer: Deployer, made: dict[str, str]) -> None:
    """The factories of yields and of markets."""
    me = deployer.account
    code = stored(deployer, artifact("PendleYieldToken").creation())
    yields = deployer.create("yields' code", "PendleYieldContractFactoryUpg", HALVES, *code)
    made["yields"] = proxy(deployer, yields, "initialize(uint96,uint128,uint128,address,address)", *FEES, me, me)
    code = stored(deployer, artifact("PendleMarketV7").creation(libraries=made))
    types = ("address", *HALVES, "address")
    given = (made["yields"], *code, made["gauges"])
    markets = deployer.create("markets' code", "PendleMarketFactoryV7Upg", types, *given)
    made["markets"] = proxy(deployer, markets, "initialize(address,address,uint8)", me, me, 80)
    deployer.settle()


def older_factories(deployer: Deployer, made: dict[str, str]) -> None:
    """The same, when what a market's shares earn still went by what their owner has locked."""
    me = deployer.account
    code = stored(deployer, artifact("PendleYieldTokenV2").creation())
    yields = deployer.create("yields' code", "PendleYieldContractFactoryV2", HALVES, *code)
    made["yields"] = proxy(deployer, yields, "initialize(uint96,uint128,uint128,address)", *FEES, me)
    code = stored(deployer, artifact("PendleMarketV3").creation(libraries=made))
    types = ("address", *HALVES, "address", "uint8", "address", "address")
    given = (made["yields"], *code, me, 80, made["escrow"], made["gauges"])
    made["markets"] = deployer.create("markets", "PendleMarketFactoryV3", types, *given)
    deployer.settle()


def proxy(deployer: Deployer, code: str, signature: str, *args: Any) -> str:
    """A proxy of some code, initialized."""
    call = bytes.fromhex(call_data(signature, *args)[2:])
    return deployer.create(f"proxy of {code}", "ERC1967Proxy", ("address", "bytes"), code, call)


def stored(deployer: Deployer, code: str) -> tuple[str, int, str, int]:
    """Creation code in two contracts, and how much of it is in each."""
    content = code.removeprefix("0x")
    middle = len(content) // 4 * 2
    found: list[Any] = []
    for half in (content[:middle], content[middle:]):
        found += [created_address(deployer.account, deployer.nonce), len(half) // 2]
        deployer.add(Tx(deployer.account, None, STORING + half, gas=GAS, label="code"))
    return found[0], found[1], found[2], found[3]


def made_by(deployer: Deployer, factory: str, signature: str, gives: str, *args: Any) -> Sequence[str]:
    """What a factory makes."""
    deployer.settle()
    found = deployer.node.call(factory, signature + gives, *args, sender=deployer.account)
    deployer.do(factory, signature, *args, gas=GAS)
    deployer.settle()
    return [checked(each) for each in (found if isinstance(found, tuple) else (found,))]


def incentives(deployer: Deployer, made: dict[str, str], until: int) -> None:
    """The market's shares earn something beside."""
    deployer.do(made["PENDLE"], "mint(address,uint256)", made["gauges"], 10**7 * WAD)
    deployer.do(made["gauges"], "whitelistMarkets(address[],bool)", [made["market"]], True)
    rates = "setRewardDatas(address[],uint128[],uint128[])"
    deployer.do(made["gauges"], rates, [made["market"]], [WAD // 777], [until])
    deployer.settle()


def joined(node: LocalNode, it: Pendle, me: str) -> None:
    """Somebody splits some yield of either expiry, and puts a part of the later one into the market."""
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


def traded(node: LocalNode, it: Pendle, me: str) -> None:
    """Principal is sold, so that a share is no longer what was put in for it."""
    node.settle(
        [
            tx(me, it["late principal"], "transfer(address,uint256)", it["market"], 700 * WAD),
            tx(me, it["market"], SWAP, me, 700 * WAD, b"", gas=2_000_000),
        ]
    )


def locked(node: LocalNode, it: Pendle, me: str, until: int) -> None:
    """Somebody locks some of its token."""
    owner = node.accounts[0]
    node.settle(
        [
            tx(owner, it["PENDLE"], "mint(address,uint256)", me, 1_000 * WAD),
            tx(me, it["PENDLE"], "approve(address,uint256)", it["escrow"], MAX),
            tx(me, it["escrow"], "increaseLockPosition(uint128,uint128)", 333 * WAD + 1, until),
        ]
    )


def earned(deployer: Deployer, made: dict[str, str], days: int) -> None:
    """Some days pass, and the vault has earned something."""
    deployer.node.mine(1, days * DAY_S)
    deployer.do(made["DAI"], "transfer(address,uint256)", made["vault"], 301 * WAD + days)
    deployer.settle()
