"""Stakes of one token return with their lots, and their rewards are income of any payer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from chainfolio.localchain.deploy import WAD
from tests.gains.conftest import World, assert_equal
from tests.gains.ledger import Wallet
from tests.gains.scripted import Contract, Step, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet
from tests.gains.test_farms import earn

pytestmark = pytest.mark.node
STAKED, PAID, OTHER = "DAI", "AERO", "LQTY"


@dataclass
class Stake:
    """A contract that takes Dai of a wallet, and a second contract that pays rewards."""

    me: Wallet
    contract: Contract
    rewarder: Contract

    @classmethod
    def new(
        cls, world: World, kind: str, family: str, role: str, *more: str, options: str = "", rewarder: str = ""
    ) -> Stake:
        """A stake of a protocol file. `more`: other roles of its contract; `rewarder`: that of the second one."""
        staking, second = contract(world), contract(world)
        lines = "\n".join(f'{each} = ["{staking.address}"]' for each in (role, *more))
        lines += f'\n{rewarder} = ["{second.address}"]' if rewarder else ""
        text = f'key = "stake"\nname = "Stake"\nfamilies = ["{family}"]\n[contracts.local]\n{lines}\n'
        world.files["stake"] = text + (f"[options]\n{options}\n" if options else "")
        me = any_wallet(world, kind, DAI=1_000 * WAD)
        approve(me, staking, STAKED)
        return cls(me, staking, second)

    @classmethod
    def with_store(cls, world: World, kind: str) -> Stake:
        """A vault of Venus, whose store pays the rewards."""
        return cls.new(world, kind, "venus_vault", "xvs_vault", rewarder="xvs_store")

    def act(self, function: str, *args: Any, staked: int = 0, reward: int = 0, extra: int = 0) -> None:
        """Stake (or take back) Dai, while the contract pays one token, and its rewarder another one."""
        me, staking, rewarder = self.me, self.contract, self.rewarder
        steps: list[Step] = []
        if staked > 0:
            steps.append(staking.take(me, STAKED, staked))
        elif staked < 0:
            steps.append(staking.pay(me, STAKED, -staked))
        steps += [staking.pay(me, PAID, reward)] if reward else []
        steps += [rewarder.note(rewarder.pay(me, OTHER, extra))] if extra else []
        changes = staking.act(me, function, *args, steps=steps)
        for symbol in (PAID, OTHER):
            if raw := changes.pop(symbol, 0):
                me.ledger.earn(symbol, raw, me.value(symbol, raw))
        assert changes == ({STAKED: -staked} if staked else {})

    def assert_equal(self, world: World, types: Sequence[str] = ()) -> None:
        """Compare the report with the ledger, and the types of the last transactions."""
        report, records = world.read(self.me)
        if types and type(self.me) is Wallet:
            assert [each.type for each in records][-len(types) :] == [*types]
        assert_equal(report, self.me)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_of_a_farm_of_joe_are_income_also_if_a_rewarder_pays_them(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "joe_farm", "chef")
    deposit, withdraw = "deposit(uint256,uint256)", "withdraw(uint256,uint256)"
    stake.act(deposit, 0, 500 * WAD, staked=500 * WAD)
    stake.act(deposit, 0, 300 * WAD, staked=300 * WAD, reward=3 * WAD, extra=WAD)
    stake.act(deposit, 0, 0, reward=2 * WAD, extra=WAD)
    stake.act(withdraw, 0, 200 * WAD, staked=-200 * WAD, reward=WAD, extra=WAD)
    stake.act("emergencyWithdraw(uint256)", 0, staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "CLAIM", "UNSTAKE", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_staked_joe_earns_several_tokens(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "joe_stake", "fee_stake")
    stake.act("deposit(uint256)", 500 * WAD, staked=500 * WAD)
    stake.act("deposit(uint256)", 300 * WAD, staked=300 * WAD, reward=3 * WAD)
    stake.act("deposit(uint256)", 0, reward=2 * WAD)
    stake.act("withdraw(uint256)", 200 * WAD, staked=-200 * WAD, reward=WAD)
    stake.act("emergencyWithdraw()", staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "CLAIM", "UNSTAKE", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_vault_of_venus_pays_rewards_from_its_store_also_when_a_withdrawal_is_requested(
    stage: World, kind: str
) -> None:
    stake = Stake.with_store(stage, kind)
    pool = (stake.me.assets[PAID], 0)
    stake.act("deposit(address,uint256,uint256)", *pool, 500 * WAD, staked=500 * WAD)
    stake.act("deposit(address,uint256,uint256)", *pool, 300 * WAD, staked=300 * WAD, extra=3 * WAD)
    stake.act("claim(address,address,uint256)", stake.me.address, *pool, extra=2 * WAD)
    stake.act("requestWithdrawal(address,uint256,uint256)", *pool, 200 * WAD, extra=WAD)
    stake.act("executeWithdrawal(address,uint256)", *pool, staked=-200 * WAD)
    stake.act("requestWithdrawal(address,uint256,uint256)", *pool, 600 * WAD)
    stake.act("executeWithdrawal(address,uint256)", *pool, staked=-600 * WAD)
    types = ["STAKE", "STAKE", "CLAIM", "CLAIM", "UNSTAKE", "INTERACTION", "UNSTAKE"]
    stake.assert_equal(stage, types)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vault_of_venus_may_pay_the_staked_token(stage: World, kind: str) -> None:
    stake = Stake.with_store(stage, kind)
    me, store = stake.me, stake.rewarder
    pool = (me.assets[STAKED], 0)
    stake.act("deposit(address,uint256,uint256)", *pool, 500 * WAD, staked=500 * WAD)
    reward = [store.note(store.pay(me, STAKED, 7 * WAD))]
    earn(me, stake.contract.act(me, "claim(address,address,uint256)", me.address, *pool, steps=reward), STAKED)
    request = "requestWithdrawal(address,uint256,uint256)"
    earn(me, stake.contract.act(me, request, *pool, 500 * WAD, steps=reward), STAKED)
    stake.act("executeWithdrawal(address,uint256)", *pool, staked=-500 * WAD)
    stake.assert_equal(stage)


@pytest.mark.parametrize("kind", KINDS)
def test_staked_vai_earns_xvs(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "venus_vai", "vai_vault")
    stake.act("deposit(uint256)", 500 * WAD, staked=500 * WAD)
    stake.act("deposit(uint256)", 300 * WAD, staked=300 * WAD, reward=3 * WAD)
    stake.act("claim()", reward=2 * WAD)
    stake.act("claim(address)", stake.me.address, reward=2 * WAD)
    stake.act("withdraw(uint256)", 200 * WAD, staked=-200 * WAD, reward=WAD)
    stake.act("withdraw(uint256)", 600 * WAD, staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "CLAIM", "CLAIM", "UNSTAKE", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_farm_of_stargate_pays_rewards_of_its_rewarder(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "stargate_farm", "staking", rewarder="rewarder")
    token = stake.me.assets[STAKED]
    stake.act("deposit(address,uint256)", token, 500 * WAD, staked=500 * WAD)
    stake.act("deposit(address,uint256)", token, 300 * WAD, staked=300 * WAD, extra=3 * WAD)
    stake.act("claim(address[])", [token], extra=2 * WAD)
    stake.act("withdraw(address,uint256)", token, 200 * WAD, staked=-200 * WAD, extra=WAD)
    stake.act("emergencyWithdraw(address)", token, staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "CLAIM", "UNSTAKE", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_staked_gear_comes_back_when_its_withdrawal_is_claimed(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "gear_staking", "gear_staking")
    deposit, withdraw = (
        "deposit(uint96,(address,uint96,bool,bytes)[])",
        "withdraw(uint96,address,(address,uint96,bool,bytes)[])",
    )
    stake.act(deposit, 500 * WAD, [], staked=500 * WAD)
    stake.act(deposit, 300 * WAD, [], staked=300 * WAD)
    stake.act(withdraw, 200 * WAD, stake.me.address, [])
    stake.act("claimWithdrawals(address)", stake.me.address, staked=-200 * WAD)
    stake.act(withdraw, 600 * WAD, stake.me.address, [])
    stake.act("claimWithdrawals(address)", stake.me.address, staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "INTERACTION", "UNSTAKE", "INTERACTION", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_vault_of_symbiotic_without_a_token_pays_withdrawals_of_past_epochs(stage: World, kind: str) -> None:
    stake = Stake.new(stage, kind, "symbiotic", "vault")
    address = stake.me.address
    for raw in (500 * WAD, 300 * WAD):
        stake.act("deposit(address,uint256)", address, raw, staked=raw)
    for raw in (200 * WAD, 600 * WAD):
        stake.act("withdraw(address,uint256)", address, raw)
    stake.act("claim(address,uint256)", address, 1, staked=-200 * WAD)
    stake.act("claimBatch(address,uint256[])", address, [2, 3], staked=-600 * WAD)
    stake.assert_equal(stage, ["STAKE", "STAKE", "INTERACTION", "INTERACTION", "UNSTAKE", "UNSTAKE"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_vault_of_symbiotic_with_a_token_pays_later_than_it_burns_shares(stage: World, kind: str) -> None:
    vault = contract(stage, "sVAULT")
    me = any_wallet(stage, kind, DAI=1_000 * WAD)
    approve(me, vault, STAKED)
    for raw in (500 * WAD, 300 * WAD):
        steps: list[Step] = [vault.take(me, STAKED, raw), vault.issue(me, raw)]
        assert vault.act(me, "deposit(address,uint256)", me.address, raw, steps=steps) == {STAKED: -raw}
    for raw in (200 * WAD, 600 * WAD):
        assert vault.act(me, "withdraw(address,uint256)", me.address, raw, steps=[vault.burn(me, raw)]) == {}
    for function, epochs, raw in (
        ("claim(address,uint256)", 1, 200 * WAD),
        ("claimBatch(address,uint256[])", [2], 600 * WAD),
    ):
        assert vault.act(me, function, me.address, epochs, steps=[vault.pay(me, STAKED, raw)]) == {STAKED: raw}
    report, _ = stage.read(me)
    if kind == KINDS[1]:  # another contract that it called may have burnt them
        assert (report.closed_pnl, len(report.unknown)) == ("N/A", 1)
        return
    assert_equal(report, me)


@pytest.mark.parametrize(("is_listed", "kind"), [(True, KINDS[0]), (False, KINDS[1])])
def test_a_share_of_a_bar_pays_more_than_went_in(stage: World, is_listed: bool, kind: str) -> None:
    bar = contract(stage, "xSUSHI")
    if is_listed:
        text = 'key = "bar"\nname = "Bar"\nfamilies = ["token_bar"]\n[contracts.local]\nbar = ["{}"]\n[options]\n'
        stage.files["bar"] = text.format(bar.address) + 'token = "sushi()(address)"\n'
    me = any_wallet(stage, kind, DAI=1_000 * WAD)
    approve(me, bar, STAKED)
    for raw, shares in ((500 * WAD, 400 * WAD), (300 * WAD, 200 * WAD)):
        bar.act(me, "enter(uint256)", raw, steps=[bar.take(me, STAKED, raw), bar.issue(me, shares)])
    for shares, raw, went_in in ((150 * WAD, 210 * WAD, 200 * WAD), (450 * WAD, 700 * WAD, 600 * WAD)):
        bar.act(me, "leave(uint256)", shares, steps=[bar.burn(me, shares), bar.pay(me, STAKED, raw)])
        me.ledger.earn(STAKED, raw - went_in, me.value(STAKED, raw - went_in))
    report, records = stage.read(me)
    assert kind != KINDS[0] or [each.type for each in records][-4:-2] == (
        ["STAKE"] * 2 if is_listed else ["DEPOSIT"] * 2
    )
    assert_equal(report, me)


@pytest.mark.parametrize("kind", KINDS)
def test_the_safety_module_of_aave_gives_the_stake_back_and_its_vault_pays_rewards(stage: World, kind: str) -> None:
    stake, rewards = contract(stage, "stkAAVE"), contract(stage)
    text = 'key = "safety"\nname = "Safety"\nfamilies = ["staked_aave"]\n[contracts.local]\n'
    stage.files["safety"] = text + f'stake_token = ["{stake.address}"]\nrewards_vault = ["{rewards.address}"]\n'
    me = any_wallet(stage, kind, DAI=1_000 * WAD)
    address = me.address
    approve(me, stake, STAKED)
    for raw in (500 * WAD, 300 * WAD):
        steps: list[Step] = [stake.take(me, STAKED, raw), stake.issue(me, raw)]
        assert stake.act(me, "stake(address,uint256)", address, raw, steps=steps) == {STAKED: -raw}
    steps = [rewards.note(rewards.pay(me, STAKED, 7 * WAD))]
    earn(me, stake.act(me, "claimRewards(address,uint256)", address, 7 * WAD, steps=steps), STAKED)
    assert stake.act(me, "cooldown()", steps=[]) == {}
    for shares, raw in ((200 * WAD, 200 * WAD), (600 * WAD, 540 * WAD)):  # a slashing
        steps = [stake.burn(me, shares), stake.pay(me, STAKED, raw)]
        assert stake.act(me, "redeem(address,uint256)", address, shares, steps=steps) == {STAKED: raw}
    me.ledger.sell(STAKED, 60 * WAD, me.value(STAKED, 0))
    report, records = stage.read(me)
    assert kind != KINDS[0] or [each.type for each in records][-6:-3] == ["STAKE", "STAKE", "CLAIM"]
    assert_equal(report, me)


@pytest.mark.parametrize(("role", "kind"), [("stake", KINDS[0]), ("receipt", KINDS[1])])
def test_any_contract_that_returns_one_amount_gives_the_stake_back(stage: World, role: str, kind: str) -> None:
    stake = Stake.new(
        stage,
        kind,
        "staked_balance",
        role,
        "staked_token",
        options='amount = "balances(address)(uint256)"\nkind = "STAKED"',
    )
    stake.act("stake(uint256)", 500 * WAD, staked=500 * WAD)
    stake.act("deposit(uint256)", 300 * WAD, staked=300 * WAD)
    stake.act("getReward()", reward=2 * WAD)
    stake.act("unstake(uint256)", 200 * WAD, staked=-200 * WAD)
    stake.act("withdraw(uint256)", 600 * WAD, staked=-600 * WAD)
    stake.assert_equal(stage)


@pytest.mark.parametrize("kind", KINDS)
def test_staked_gmx_comes_back_whatever_receipts_its_trackers_made(stage: World, kind: str) -> None:
    trackers = [contract(stage, symbol) for symbol in ("sGMX", "sbGMX", "sbfGMX")]
    router, (staked, bonus, fees) = contract(stage), trackers
    text = 'key = "gmx"\nname = "GMX"\nfamilies = ["gmx_stake"]\n[contracts.local]\n'
    roles = {"reward_router": router, "staked_gmx": staked, "fee_gmx": fees}
    stage.files["gmx"] = text + "\n".join(f'{role} = ["{each.address}"]' for role, each in roles.items())
    me = any_wallet(stage, kind, DAI=1_000 * WAD)
    approve(me, router, STAKED)
    for raw in (500 * WAD, 300 * WAD):
        steps: list[Step] = [
            router.take_for(staked, me, STAKED, raw),
            staked.note(staked.issue(me, raw), staked.send(me, bonus, raw)),
            bonus.note(bonus.issue(me, raw), bonus.send(me, fees, raw)),
            fees.note(fees.issue(me, raw)),
        ]
        assert router.act(me, "stakeGmx(uint256)", raw, steps=steps) == {STAKED: -raw}
    points = 100 * WAD  # which are staked, and have no price
    steps = [fees.note(fees.pay(me, "WETH", WAD // 10), fees.issue(me, points))]
    handle = "handleRewards(bool,bool,bool,bool,bool,bool,bool)"
    for symbol, raw in router.act(me, handle, *[False] * 7, steps=steps).items():
        me.ledger.earn(symbol, raw, me.value(symbol, raw))
    for raw in (200 * WAD, 600 * WAD):
        steps = [
            fees.note(fees.burn(me, raw + points * raw // (800 * WAD))),
            bonus.note(bonus.give(me, fees, raw), bonus.burn(me, raw)),
            staked.note(staked.give(me, bonus, raw), staked.burn(me, raw), staked.pay(me, STAKED, raw)),
        ]
        assert router.act(me, "unstakeGmx(uint256)", raw, steps=steps) == {STAKED: raw}
    report, _ = stage.read(me)
    assert_equal(report, me)
