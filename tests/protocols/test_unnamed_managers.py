"""Position managers that no file names, of a named factory: a hostile one can answer anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.reader import SingleAccountReader
from chainfolio.adapters.evm.positions.rules import ProtocolMatch
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.positions.unfolded import AccountContents
from chainfolio.adapters.evm.protocols.uniswap_v3 import FAMILY, NOT_COVERED, NOT_THERE, PositionRecord, position
from chainfolio.adapters.evm.reads import Call, NativeBalance, Read
from chainfolio.contracts import Snapshot
from chainfolio.engine.snapshots.share_trust import UNSOLICITED_SHARE
from chainfolio.localchain.artifacts import artifact
from chainfolio.localchain.deploy import FOREVER, MINT_POSITION, POOL_FEE, Deployment, deploy
from chainfolio.localchain.evm import MAX, ZERO, Tx, created_address, topic_of, tx, words
from chainfolio.localchain.hostile import GOOD, TRANSFER, Log, gives, log_tx
from chainfolio.localchain.node import LocalNode
from chainfolio.plans import Reverted, Unknown, run_offline
from chainfolio.portfolio.valuation import valuate
from chainfolio.protocols import DecodedPosition, InstalledProtocol, TokenAmount
from tests.protocols.scripted import decode
from tests.protocols.world import World

FILE = """
key = "uniswap3"
name = "Uniswap V3"
families = ["uniswap_v3"]
[contracts.local]
factory = ["{factory}"]
"""
ME, MANAGER, FACTORY, POOL, ZERO_TOKEN, ONE_TOKEN, OTHER = ("0x" + letter * 40 for letter in "1234567")
LIQUIDITY, Q128 = 10**20, 1 << 128
KEY = PositionRecord(0, ZERO, ZERO_TOKEN, ONE_TOKEN, 500, -60, 60, LIQUIDITY, 0, 0, 0, 0)


@dataclass(frozen=True)
class Managed:
    """Snapshots of a bystander who was given positions, and of an actor who opened one."""

    bystander: Snapshot
    before: Snapshot
    actor: Snapshot
    hostile: str


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """Open a position for the bystander; a hostile manager claims half the pool for the bystander."""
    with LocalNode() as node:
        deployment = deploy(node)
        accounts, at = deployment.accounts, deployment.contracts
        operator, bystander, actor = accounts["ivan"], accounts["grace"], accounts["heidi"]
        factory, manager = at["UniswapV3Factory"], at["NonfungiblePositionManager"]
        pool = at["UniswapV3Pool WETH/USDC"]
        token0, token1 = sorted((deployment.tokens["WETH"].address, deployment.tokens["USDC"].address), key=str.lower)
        nonce = int(node.rpc("eth_getTransactionCount", operator, "pending"), 16)
        hostile = created_address(operator, nonce)
        answers = {
            **GOOD,
            "factory()": gives("address", factory),
            "ownerOf(uint256)": gives("address", bystander),
            "positions(uint256)": gives(
                "uint96",
                0,
                "address",
                ZERO,
                "address",
                token0,
                "address",
                token1,
                "uint24",
                POOL_FEE,
                "int24",
                -887_220,
                "int24",
                887_220,
                "uint128",
                node.call(pool, "liquidity()(uint128)") // 2,
                "uint256",
                0,
                "uint256",
                0,
                "uint128",
                10**30,
                "uint128",
                10**30,
            ),
        }
        rows = [answer.row(signature) for signature, answer in answers.items()]
        code = artifact("Hostile").creation(words(["(bytes4,uint8,uint256,bytes)[]"], rows))
        node.settle([Tx(operator, None, code, gas=5_000_000, label="manager")])
        topics = [TRANSFER, topic_of(ZERO), topic_of(bystander), "0x" + "00" * 31 + "07"]
        node.settle([log_tx(operator, hostile, Log(topics))])
        for giver, owner in ((operator, bystander), (actor, actor)):
            node.settle(
                [
                    *(tx(giver, token, "approve(address,uint256)", manager, MAX) for token in (token0, token1)),
                    tx(
                        giver,
                        manager,
                        MINT_POSITION,
                        (
                            token0,
                            token1,
                            POOL_FEE,
                            -887_220,
                            887_220,
                            *_amounts(deployment, token0),
                            0,
                            0,
                            owner,
                            FOREVER,
                        ),
                    ),
                ]
            )
        files = {"uniswap3": FILE.format(factory=factory.lower())}
        world = World(node, deployment, tmp_path_factory.mktemp("managed"), files)
        without = World(node, deployment, tmp_path_factory.mktemp("before"), {"uniswap3": FILE.format(factory=OTHER)})
        yield Managed(world.snapshot(bystander), without.snapshot(bystander), world.snapshot(actor), hostile.lower())


def _amounts(deployment: Deployment, token0: str) -> tuple[int, int]:
    weth, usdc = deployment.tokens["WETH"], deployment.tokens["USDC"]
    amounts = weth.units(1), usdc.units(2_000)
    return amounts if token0 == weth.address else amounts[::-1]


def test_nobody_is_worth_more_for_positions_that_a_manager_says_or_somebody_else_opened(managed: Managed) -> None:
    reasons = {each.unverified for each in managed.bystander.positions}
    assert reasons == {NOT_THERE, UNSOLICITED_SHARE}
    assert all(part.raw for each in managed.bystander.positions for part in each.supplied)
    assert valuate([managed.bystander]).value_usd == valuate([managed.before]).value_usd > 0
    assert not any(issue.makes_partial for issue in managed.bystander.issues)


def test_a_position_that_the_account_opened_counts_although_no_file_names_its_manager(managed: Managed) -> None:
    (position,) = managed.actor.positions
    assert (position.protocol, position.unverified, position.type) == ("uniswap3", "", "LIQUIDITYPOOL")
    assert all(part.raw for part in position.supplied)


# --- answers that no real chain gives ---


def claims(*stored: PositionRecord, pool_position: tuple[int, ...], balance: int = 10**30) -> list[DecodedPosition]:
    """Decode positions 1 to n of one manager, in a pool at tick 0 that grew by 1 for each unit."""
    answers: dict[tuple[Any, ...], Any] = {
        (MANAGER, "ownerOf"): ME,
        (FACTORY, "getPool"): POOL,
        (POOL, "slot0"): (1 << 96, 0),
        (POOL, "feeGrowthGlobal0X128"): Q128,
        (POOL, "feeGrowthGlobal1X128"): Q128,
        (POOL, "ticks"): (0, 0, 0, 0),
        (POOL, "positions"): pool_position,
        (ZERO_TOKEN, "balanceOf"): balance,
        (ONE_TOKEN, "balanceOf"): balance,
    }
    answers |= {(MANAGER, "positions", number): each for number, each in enumerate(stored, 1)}
    match = ProtocolMatch(ME, MANAGER, answer=FACTORY, ids=tuple(range(1, len(stored) + 1)))
    positions: list[DecodedPosition] = decode(position, match, says=answers)
    return positions


def test_two_positions_are_not_borne_out_by_the_liquidity_of_one() -> None:
    positions = claims(KEY, KEY, pool_position=(LIQUIDITY, 0, 0, 0, 0))
    assert [each.unverified for each in positions] == ["", NOT_THERE]
    assert [each.unverified for each in claims(KEY, KEY, pool_position=(2 * LIQUIDITY, 0, 0, 0, 0))] == ["", ""]


def test_fees_are_never_more_than_the_pool_owes_the_manager() -> None:
    first, second = claims(
        KEY._replace(tokens_owed0=10**25),
        KEY._replace(tokens_owed1=10**25),
        pool_position=(2 * LIQUIDITY, 0, Q128, 7, 5),
    )
    assert first.rewards == (TokenAmount(ZERO_TOKEN, 2 * LIQUIDITY + 7), TokenAmount(ONE_TOKEN, 5))
    assert second.rewards == (TokenAmount(ZERO_TOKEN, 0), TokenAmount(ONE_TOKEN, 0))


def test_positions_are_no_more_than_the_pool_has_for_all_of_them() -> None:
    pool_position = (2 * LIQUIDITY, Q128, Q128, 0, 0)
    (alone,) = claims(KEY, pool_position=pool_position)
    enough = alone.supplied[0].raw
    assert [each.unverified for each in claims(KEY, KEY, pool_position=pool_position, balance=2 * enough)] == ["", ""]
    assert [each.unverified for each in claims(KEY, KEY, pool_position=pool_position, balance=2 * enough - 1)] == [
        "",
        NOT_COVERED,
    ]


@pytest.mark.parametrize("ticks", [(60, -60), (60, 60), (-900_000, 60), (-60, 900_000)])
def test_a_position_between_ticks_that_no_pool_has_is_none(ticks: tuple[int, int]) -> None:
    assert claims(KEY._replace(tick_lower=ticks[0], tick_upper=ticks[1]), pool_position=(LIQUIDITY, 0, 0, 0, 0)) == []


def read_all(says: Any, reads: list[Call]) -> AccountContents:
    """Read an account with two tokens of one collection; `says` is the collection's answer to `factory()`."""
    row = InstalledProtocol("uniswap3", FAMILY, {"factory": (FACTORY,)}, {})

    def answer(ask: Read) -> Any:
        if isinstance(ask, NativeBalance):
            return 0
        reads.append(ask)
        return says if ask.signature.startswith("factory()") else Reverted()

    match = ContractInteractions(ids={MANAGER: frozenset({1, 2})})
    return run_offline(SingleAccountReader(Shares(Protocols([row])), ME, match).read_all([]), answer)


@pytest.mark.parametrize("says", [OTHER, Reverted(), Unknown("there is no contract", "absent")])
def test_a_collection_of_no_listed_factory_is_asked_one_question(says: Any) -> None:
    reads: list[Call] = []
    assert read_all(says, reads) == AccountContents(0, {}, (), ())
    assert [ask.to for ask in reads] == [MANAGER]


def test_a_collection_that_could_not_be_asked_is_said() -> None:
    (issue,) = read_all(Unknown("time is up"), []).issues
    assert (issue.subject, issue.makes_partial) == (MANAGER, True)
    assert "positions is unknown" in issue.reason


def test_a_manager_that_answers_nothing_else_spoils_no_answer() -> None:
    contents = read_all(FACTORY, [])
    assert contents.positions == ()
    assert not any(issue.makes_partial for issue in contents.issues)
