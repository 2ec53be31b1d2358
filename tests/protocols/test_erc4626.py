"""Vaults that a protocol's file names are its own, however their shares came; all others are nobody's in particular."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainfolio.localchain.evm import tx
from tests.protocols.world import World, parts

FILE = """\
key = "aaa"
name = "The first in the alphabet"
families = ["erc4626"]
[contracts.local]
vault = ["{vault}"]
"""


@pytest.fixture
def owner(demo_world: World) -> str:
    """Somebody who was given shares, and never sent the vault anything."""
    node, who = demo_world.node, demo_world.deployment.accounts
    vault = demo_world.deployment.contracts["Vault"]
    node.settle([tx(who["deployer"], vault, "transfer(address,uint256)", who["ivan"], 10**18)])
    return who["ivan"].lower()


def with_vault(world: World, folder: Path, vault: str) -> World:
    return World(world.node, world.deployment, folder, {"aaa": FILE.format(vault=vault.lower())})


def test_a_named_vault_s_shares_are_believed_however_they_came(demo_world: World, owner: str, tmp_path: Path) -> None:
    vault = demo_world.deployment.contracts["Vault"].lower()
    taken = with_vault(demo_world, tmp_path, vault).snapshot(owner)
    (position,) = taken.positions
    assert position.protocol == "aaa"
    held = next(each.raw for each in taken.holdings if each.token.asset.shown_contract == vault)
    redeem = tx(owner, vault, "redeem(uint256,address,address)", held, owner, owner)
    paid = demo_world.paid(owner, [redeem], taken.block)
    assert parts([position], "supplied") == {token: raw for token, raw in paid.items() if token != vault}


def test_a_file_that_names_one_vault_has_no_say_in_others(demo_world: World, tmp_path: Path) -> None:
    accounts = demo_world.deployment.accounts
    wallets = [account for name, account in accounts.items() if name not in ("deployer", "ivan")]
    taken = with_vault(demo_world, tmp_path, "0x" + "12" * 20).snapshot(*wallets)
    protocols = {each.protocol for each in taken.positions}
    assert "erc4626" in protocols
    assert "aaa" not in protocols
