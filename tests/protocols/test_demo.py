"""Each position of the demo is worth what closing it pays, to the unit, by the contracts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from chainfolio.contracts import Position, Snapshot
from chainfolio.localchain.evm import MAX, Tx, tx
from tests.protocols.world import World, parts

Closing = Callable[[World, Position], Sequence[Tx]]
POSITIONS = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
MAX128 = (1 << 128) - 1


@pytest.fixture(scope="module")
def snapshot(demo_world: World) -> Snapshot:
    wallets = [account for name, account in demo_world.deployment.accounts.items() if name != "deployer"]
    return demo_world.snapshot(*wallets)


def of(snapshot: Snapshot, protocol: str) -> Iterator[Position]:
    """Yield the positions in a protocol; fail if there are none."""
    positions = [each for each in snapshot.positions if each.protocol == protocol]
    assert positions, f"nobody has anything in {protocol}: the test would show nothing"
    yield from positions


def balance_of(snapshot: Snapshot, account: str, token: str) -> int:
    return next(
        each.raw for each in snapshot.holdings if each.account == account and each.token.asset.shown_contract == token
    )


def read(world: World, snapshot: Snapshot, to: str, signature: str, *args: Any) -> Any:
    return world.node.call(to, signature, *args, block=snapshot.block.height)


def test_everything_was_read(snapshot: Snapshot) -> None:
    assert [issue for issue in snapshot.issues if issue.makes_partial] == []
    assert {each.protocol for each in snapshot.positions} == {
        "aave3",
        "erc4626",
        "sushi",
        "synthetix",
        "uniswap2",
        "uniswap3",
    }
    assert all(each.calls for each in snapshot.positions)


def test_a_pair_s_shares_pay_what_they_are_said_to(demo_world: World, snapshot: Snapshot) -> None:
    for position in of(snapshot, "uniswap2"):
        me, pair = position.account, position.pool
        shares = balance_of(snapshot, me, pair)
        calls = [
            tx(me, pair, "transfer(address,uint256)", pair, shares),
            tx(me, pair, "burn(address)", me),
        ]
        payout = demo_world.payout(me, calls, snapshot.block)
        assert payout.pop(pair) == -shares
        assert parts([position], "supplied") == payout


def test_a_vault_s_shares_pay_what_they_are_said_to(demo_world: World, snapshot: Snapshot) -> None:
    for position in of(snapshot, "erc4626"):
        me, vault = position.account, position.pool
        shares = balance_of(snapshot, me, vault)
        calls = [tx(me, vault, "redeem(uint256,address,address)", shares, me, me)]
        payout = demo_world.payout(me, calls, snapshot.block)
        assert payout.pop(vault) == -shares
        assert parts([position], "supplied") == payout


def test_liquidity_between_ticks_pays_what_it_is_said_to(demo_world: World, snapshot: Snapshot) -> None:
    manager = demo_world.deployment.contracts["NonfungiblePositionManager"]
    accounts = {position.account for position in of(snapshot, "uniswap3")}
    for account in accounts:
        positions = [each for each in of(snapshot, "uniswap3") if each.account == account]
        payouts = []
        for at in range(read(demo_world, snapshot, manager, "balanceOf(address)(uint256)", account)):
            number = read(demo_world, snapshot, manager, "tokenOfOwnerByIndex(address,uint256)(uint256)", account, at)
            stored = read(
                demo_world,
                snapshot,
                manager,
                POSITIONS,
                number,
            )
            calls = (
                [
                    tx(
                        account,
                        manager,
                        "decreaseLiquidity((uint256,uint128,uint256,uint256,uint256))",
                        (number, stored[7], 0, 0, MAX),
                    ),
                ]
                if stored[7]
                else []
            )
            calls.append(
                tx(account, manager, "collect((uint256,address,uint128,uint128))", (number, account, MAX128, MAX128))
            )
            if stored[7] or stored[10] or stored[11]:
                payouts.append(demo_world.payout(account, calls, snapshot.block))
        shown_amounts = [
            {token: raw for token, raw in parts([each], "supplied", "rewards").items() if raw} for each in positions
        ]
        assert sorted(map(sorted, [each.items() for each in shown_amounts])) == sorted(
            map(sorted, [s.items() for s in payouts])
        )


def test_what_was_lent_and_borrowed_is_what_can_be_taken_and_must_be_repaid(
    demo_world: World, snapshot: Snapshot
) -> None:
    for position in of(snapshot, "aave3"):
        me, pool = position.account, position.pool
        account_data = read(
            demo_world,
            snapshot,
            pool,
            "getUserAccountData(address)(uint256,uint256,uint256,uint256,uint256,uint256)",
            me,
        )
        if position.health is not None:
            assert position.health * 10**18 == account_data[5]
        # Who has paid back everything may take everything: the deployer has enough of each token.
        rich = demo_world.deployment.accounts["deployer"]
        debts = parts([position], "borrowed")
        calls = []
        for token, raw in debts.items():
            calls += [
                tx(rich, token, "transfer(address,uint256)", me, raw),
                tx(me, token, "approve(address,uint256)", pool, MAX),
                tx(me, pool, "repay(address,uint256,uint256,address)", token, MAX, 2, me),
            ]
        supplied = parts([position], "supplied")
        calls += [tx(me, pool, "withdraw(address,uint256,address)", token, MAX, me) for token in supplied]
        payout = demo_world.payout(me, calls, snapshot.block)
        # Given and paid back come to nothing, exactly: not a unit of debt was forgotten, nor one too much repaid.
        assert {token: raw for token, raw in payout.items() if token in {**debts, **supplied}} == supplied


def test_a_farm_s_shares_are_unfolded_and_its_reward_is_what_it_pays(demo_world: World, snapshot: Snapshot) -> None:
    pair = demo_world.deployment.contracts["UniswapV2Pair WETH/USDC"].lower()
    for position in of(snapshot, "sushi"):
        me, chef = position.account, position.pool
        staked, _ = read(demo_world, snapshot, chef, "userInfo(uint256,address)(uint256,uint256)", 0, me)
        calls = [
            tx(me, chef, "withdraw(uint256,uint256)", 0, staked),
            tx(me, pair, "transfer(address,uint256)", pair, staked),
            tx(me, pair, "burn(address)", me),
        ]
        assert parts([position], "supplied", "rewards") == demo_world.payout(me, calls, snapshot.block)


def test_staked_shares_and_earned_rewards_are_what_leaving_pays(demo_world: World, snapshot: Snapshot) -> None:
    pair = demo_world.deployment.contracts["UniswapV2Pair WETH/USDC"].lower()
    for position in of(snapshot, "synthetix"):
        me, farm = position.account, position.pool
        staked = read(demo_world, snapshot, farm, "balanceOf(address)(uint256)", me)
        calls = [
            tx(me, farm, "exit()"),
            tx(me, pair, "transfer(address,uint256)", pair, staked),
            tx(me, pair, "burn(address)", me),
        ]
        assert parts([position], "supplied", "rewards") == demo_world.payout(me, calls, snapshot.block)


def test_what_is_another_view_of_a_token_is_not_counted_twice(snapshot: Snapshot) -> None:
    from chainfolio.portfolio.valuation import valuate

    valuation = valuate([snapshot])
    shares = {(each.account, share) for each in snapshot.positions for share in each.replaces}
    loose = {(each.holding.account, each.holding.token.asset) for each in valuation.holdings}
    assert shares
    assert not shares & loose


def test_the_same_block_gives_the_same_positions_later(demo_world: World, snapshot: Snapshot) -> None:
    height = snapshot.block.height - 40
    account = snapshot.accounts[0]
    first = demo_world.snapshot(account, height=height)
    demo_world.node.mine(3)
    assert demo_world.snapshot(account, height=height).positions == first.positions
    assert first.block.height == height


def test_wallets_that_met_nothing_ask_no_protocol(demo_world: World) -> None:
    empty = demo_world.snapshot("0x" + "77" * 20)
    assert empty.positions == ()
    assert empty.issues == ()
