"""Stake accounts of the past: found after they closed, with the amounts that the node showed then."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.layouts import STAKE
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    create_stake,
    create_vote_account,
    send_coins,
    split_stake,
    stake_deactivation,
    stake_merger,
    stake_withdrawal,
    withdrawer_change,
)
from tests.solana.conftest import Run, started
from tests.solana.test_rewards import reward_entry

pytestmark = pytest.mark.node
SLOTS = 432_000
SOL = 10**9


@dataclass
class World:
    """A wallet whose stake accounts come and go, and what the node said of them after each step."""

    node: SolanaNode
    url: str
    wallet: Keypair = field(default_factory=Keypair)
    heir: Keypair = field(default_factory=Keypair)
    then: dict[int, dict[str, dict[str, int]]] = field(default_factory=dict)  # by slot and owner
    rewards: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)  # by epoch and stake account

    @property
    def owner(self) -> Pubkey:
        return self.wallet.pubkey()

    def note(self) -> int:
        """Remember what the node says now; the slot."""
        slot: int = self.node.rpc("getSlot", {"commitment": "confirmed"})
        self.then[slot] = {str(each): self.stakes_of(each) for each in (self.owner, self.heir.pubkey())}
        send_coins(self.node, Keypair().pubkey(), SOL)  # the next step is of another slot
        return slot

    def stakes_of(self, owner: Pubkey) -> dict[str, int]:
        """Return the lamports of the stake accounts that an owner may withdraw from now, by address."""
        options = {"encoding": "base64", "filters": [{"memcmp": {"offset": 44, "bytes": str(owner)}}]}
        accounts = self.node.rpc("getProgramAccounts", STAKE, options)
        return {each["pubkey"]: each["account"]["lamports"] for each in accounts if each["account"]["lamports"]}

    def reward(self, epoch: int, *stakes: tuple[Pubkey, int]) -> None:
        """An epoch ends, and pays."""
        self.node.rpc("surfnet_timeTravel", {"absoluteEpoch": epoch + 1})
        send_coins(self.node, Keypair().pubkey(), SOL)
        first = (epoch + 1) * SLOTS
        slot = next(each for each in self.node.rpc("getBlocks", first, first + 1000) if each >= first)
        for address, lamports in stakes:
            account = self.node.rpc("getAccountInfo", str(address), {"encoding": "base64"})["value"]
            self.node.put(address, STAKE, base64.b64decode(account["data"][0]), account["lamports"] + lamports)
            self.rewards[epoch, str(address)] = lamports, slot

    def answer_rewards(self, params: Any) -> Any:
        """Answer `getInflationReward` with the rewards of this world."""
        accounts, epoch = params[0], params[1]["epoch"]
        payments = [self.rewards.get((epoch, each)) for each in accounts]
        return [
            each and reward_entry(epoch, amount=each[0], effectiveSlot=each[1], postBalance=10**12) for each in payments
        ]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Yield a node after two splits, a merger, rewards, a transfer of an account, and four closures."""
    with started() as node:
        worlds: list[World] = []
        with dated(node, 0, {"getInflationReward": lambda params: worlds[0].answer_rewards(params)}) as url:
            world = World(node, url)
            worlds.append(world)
            play(world)
            yield world


def play(world: World) -> None:
    """The life of the wallet."""
    node, wallet, owner = world.node, world.wallet, world.owner
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 100})  # it has no blocks before
    send_coins(node, owner, 5 * SOL)
    send_coins(node, world.heir.pubkey(), SOL)
    world.note()
    large = create_stake(node, owner, 20 * SOL, create_vote_account(node), staker=wallet)
    world.note()
    part = split_stake(node, large, wallet, 6 * SOL)
    second_part = split_stake(node, large, wallet, 3 * SOL)
    world.note()
    node.send([stake_merger(part, second_part, owner)], wallet)
    world.note()
    world.reward(0, (large, 7_000_000), (part, 11))
    world.note()
    node.send([withdrawer_change(part, owner, world.heir.pubkey())], wallet)
    world.note()
    world.reward(1, (large, 300_000_000), (part, 5))
    world.note()
    foreign = create_stake(node, owner, 2 * SOL, None)  # created by a stranger: no transaction names the wallet
    world.note()
    node.send([stake_withdrawal(foreign, owner, 2 * SOL, Keypair().pubkey())], wallet)  # to a stranger
    world.note()
    node.send([stake_deactivation(large, owner)], wallet)
    world.note()
    world.reward(2, (large, 9))
    node.send([stake_withdrawal(large, owner, node.rpc("getBalance", str(large))["value"])], wallet)
    world.note()
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 200})


@pytest.fixture
def run(world: World, running: Callable[..., Run]) -> Run:
    """Runs a command that prints one document."""
    return running(world.node.rpc("getGenesisHash"), world.url)


def staked(portfolio: Any) -> dict[str, int]:
    """The stake accounts of a portfolio, and what lies in each."""
    protocols = portfolio["assetByProtocols"]
    if "solana_stake" not in protocols:
        return {}
    positions = protocols["solana_stake"]["chains"]["solana"]["protocolPositions"]["STAKED"]["protocolPositions"]
    return {each["poolAddress"]: int(Decimal(each["supplyAssets"][0]["balance"]).scaleb(9)) for each in positions}


def test_what_stake_accounts_held_is_what_the_node_said_then_though_all_of_them_are_gone(
    run: Run, world: World
) -> None:
    run("watch", str(world.owner))
    assert staked(run("portfolio", str(world.owner))[0]) == {}
    for slot, then in world.then.items():
        portfolio = run("portfolio", str(world.owner), "--chain", "solana", "--block", str(slot))[0]
        assert (portfolio["completeness"], staked(portfolio)) == ("complete", then[str(world.owner)]), slot


@pytest.mark.slow("a long history of a real Solana node")
def test_who_was_given_a_stake_account_has_it_from_then_on(run: Run, world: World) -> None:
    run("watch", str(world.heir.pubkey()))
    for slot, then in world.then.items():
        portfolio = run("portfolio", str(world.heir.pubkey()), "--chain", "solana", "--block", str(slot))[0]
        assert (portfolio["completeness"], staked(portfolio)) == ("complete", then[str(world.heir.pubkey())]), slot


def test_rewards_of_stake_accounts_that_are_closed_are_income_of_whoever_had_them_then(run: Run, world: World) -> None:
    owner, heir = str(world.owner), str(world.heir.pubkey())
    run("watch", owner, heir)

    def stake_income(account: str) -> list[str]:
        document = run("transactions", account)
        assert (document["completeness"], document["issues"]) == ("complete", [])
        return [each["balance"] for tx in document["transactions"] for each in tx["assetsIn"] if "staysStaked" in each]

    assert sorted(stake_income(owner)) == ["0.000000009", "0.000000011", "0.007", "0.3"]
    assert stake_income(heir) == ["0.000000005"]
