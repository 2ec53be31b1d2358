"""Algebra's concentrated liquidity, deployed from the code that its authors publish."""

from __future__ import annotations

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.outcomes import Outcome
from chainfolio.adapters.evm.positions.rules import ProtocolMatch, run_decoder
from chainfolio.adapters.evm.protocols.algebra import POSITIONS, position
from chainfolio.adapters.evm.protocols.uniswap_v3 import NOT_COVERED, NOT_THERE
from chainfolio.localchain.evm import ZERO, created_address
from chainfolio.plans import Reverted
from chainfolio.protocols import DecodedPosition
from tests.protocols.artifact_deployment import ETH, PublishedChain
from tests.protocols.published import Overrides, amounts, needs_contracts, positions

pytestmark = needs_contracts
MAX_UINT128 = 2**128 - 1
SWAP = "exactInputSingle((address,address,address,uint256,uint256,uint256,uint160))"
COLLECT = "collect((uint256,address,uint128,uint128))(uint256,uint256)"
DECREASE = "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))(uint256,uint256)"
LIQUIDITY = "positions(uint256)(uint88,address,address,address,int24,int24,uint128)"
DEADLINE = 2**40


class Algebra:
    """A pool of two tokens in which Alice has three ranges: around, above and below the price; and trades."""

    def __init__(self, chain: PublishedChain) -> None:
        self.chain, owner, alice, bob = chain, chain.owner, chain.alice, chain.bob
        weth = chain.deploy("common/WETH9")
        nonce = int(chain.node.rpc("eth_getTransactionCount", owner, "latest"), 16)
        deployer = chain.deploy("algebra/AlgebraPoolDeployer", created_address(owner, nonce + 1), owner)
        self.factory = chain.deploy("algebra/AlgebraFactory", deployer)
        self.manager = chain.deploy("algebra/NonfungiblePositionManager", self.factory, weth, ZERO, deployer)
        self.router = chain.deploy("algebra/SwapRouter", self.factory, weth, deployer)
        self.tokens = a, b = sorted(chain.token(name, alice=10**24, bob=10**24) for name in "AB")
        create = "createAndInitializePoolIfNecessary(address,address,uint160)"
        chain.do(owner, self.manager, create, a, b, 2**96)
        self.pool = str(chain.read(self.factory, "poolByPair(address,address)(address)", a, b))
        spacing = chain.read(self.pool, "tickSpacing()(int24)")
        chain.approve(alice, self.manager, a, b)
        chain.approve(bob, self.router, a, b)
        mint = "mint((address,address,int24,int24,uint256,uint256,uint256,uint256,address,uint256))"
        for low, high in ((-100, 100), (10, 50), (-50, -10)):
            edges = low * spacing, high * spacing
            chain.do(alice, self.manager, mint, (a, b, *edges, 10**21, 10**21, 0, 0, alice, DEADLINE))
        for sold, bought in ((a, b), (b, a), (b, a)):
            chain.do(bob, self.router, SWAP, (sold, bought, bob, DEADLINE, 10**20, 0, 0))
        chain.wait(12)

    def run(self, account: str, *ids: int, overrides: Overrides | None = None, factory: str = "") -> list[Outcome]:
        """Run the family for an account that received these NFTs."""
        contracts = {"position_manager": [self.manager], "factory": [factory or self.factory]}
        received = ContractInteractions(ids={self.manager: frozenset(ids)})
        return self.chain.outcomes("algebra", contracts, account, received, overrides=overrides)

    def unlisted(self, account: str, *ids: int, overrides: Overrides | None = None) -> list[DecodedPosition]:
        """Decode the NFTs of a manager that no file names, as of one of the factory's forks."""
        match = ProtocolMatch(
            account,
            self.manager,
            answer=self.factory,
            ids=ids,
            contracts={"factory": (self.factory,)},
            is_fork=True,
        )
        decoded: list[DecodedPosition] = self.chain.run(run_decoder(position, match), overrides)
        return decoded


@pytest.fixture(scope="module")
def algebra(published_chain: PublishedChain) -> Algebra:
    return Algebra(published_chain)


@pytest.mark.parametrize("number", [1, 2, 3], ids=["around", "above", "below"])
def test_a_position_is_what_closing_it_pays(algebra: Algebra, number: int) -> None:
    chain, alice, (a, b) = algebra.chain, algebra.chain.alice, algebra.tokens
    liquidity = chain.read(algebra.manager, LIQUIDITY, number)[6]
    fees = chain.read(algebra.manager, COLLECT, (number, alice, MAX_UINT128, MAX_UINT128), sender=alice)
    amounts_out = chain.read(algebra.manager, DECREASE, (number, liquidity, 0, 0, DEADLINE), sender=alice)
    (position,) = positions(algebra.run(alice, number))
    assert [amounts([position], "supplied").get(token, 0) for token in (a, b)] == list(amounts_out)
    assert [amounts([position], "rewards").get(token, 0) for token in (a, b)] == list(fees)
    assert not position.remark


def test_fees_are_earned_and_a_closed_position_is_nothing(algebra: Algebra) -> None:
    chain, alice = algebra.chain, algebra.chain.alice
    snapshot = chain.node.rpc("evm_snapshot")
    (position,) = positions(algebra.run(alice, 1))
    assert min(amounts([position], "rewards").values()) > ETH // 1000
    liquidity = chain.read(algebra.manager, LIQUIDITY, 1)[6]
    chain.do(alice, algebra.manager, DECREASE.rpartition("(")[0], (1, liquidity, 0, 0, DEADLINE))
    chain.do(alice, algebra.manager, COLLECT.rpartition("(")[0], (1, alice, MAX_UINT128, MAX_UINT128))
    assert positions(algebra.run(alice, 1)) == []
    chain.node.rpc("evm_revert", snapshot)


def test_a_position_of_another_account_or_of_another_factory_is_nothing(algebra: Algebra) -> None:
    assert positions(algebra.run(algebra.chain.bob, 1)) == []
    assert positions(algebra.run(algebra.chain.alice, 1, factory=algebra.pool)) == []


def test_a_price_that_the_block_moved_does_not_count(algebra: Algebra) -> None:
    chain, alice, bob, (a, b) = algebra.chain, algebra.chain.alice, algebra.chain.bob, algebra.tokens
    snapshot = chain.node.rpc("evm_snapshot")
    (before,) = positions(algebra.run(alice, 1))
    chain.do(bob, algebra.router, SWAP, (a, b, bob, DEADLINE, 10**23, 0, 0))
    (position,) = positions(algebra.run(alice, 1))
    assert "moved" in position.remark
    assert amounts([position], "supplied") == amounts([before], "supplied")
    chain.node.rpc("evm_revert", snapshot)


def test_a_later_release_is_an_issue_and_not_read_wrongly(algebra: Algebra) -> None:
    (outcome,) = algebra.run(algebra.chain.alice, 1, overrides={(algebra.pool, "dataStorageOperator"): Reverted()})
    assert not outcome.positions
    assert "release" in outcome.issues[0].reason


def test_a_position_in_a_farm_says_that_the_farm_s_rewards_are_unknown(algebra: Algebra) -> None:
    farmed = {(algebra.manager, "tokenFarmedIn"): algebra.router}
    (position,) = positions(algebra.run(algebra.chain.alice, 1, overrides=farmed))
    assert "farm" in position.unknown


def test_positions_of_an_unlisted_manager_count_as_far_as_pools_keep_them(algebra: Algebra) -> None:
    alice = algebra.chain.alice
    expected = [position for number in (1, 2, 3) for position in positions(algebra.run(alice, number))]
    unlisted = algebra.unlisted(alice, 1, 2, 3)
    assert [(each.supplied, each.rewards) for each in unlisted] == [(each.supplied, each.rewards) for each in expected]
    assert {(each.is_unlisted, each.unverified) for each in unlisted} == {(True, "")}


def test_a_manager_that_claims_what_its_pool_does_not_keep_is_unverified(algebra: Algebra) -> None:
    alice = algebra.chain.alice
    record = algebra.chain.read(algebra.manager, POSITIONS, 1)
    claims = algebra.unlisted(alice, 1, 2, overrides={(algebra.manager, "positions"): record})
    assert [each.unverified for each in claims] == ["", NOT_THERE]
    empty = {(algebra.pool, "positions"): (0,) * 6}
    assert {each.unverified for each in algebra.unlisted(alice, 1, 2, overrides=empty)} == {NOT_THERE}
    drained = {(token, "balanceOf"): 0 for token in algebra.tokens}
    assert NOT_COVERED in {each.unverified for each in algebra.unlisted(alice, 1, overrides=drained)}
