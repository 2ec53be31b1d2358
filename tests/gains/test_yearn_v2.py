"""Yearn's vaults of release 2: the yield of own shares is income, and bought shares are sold."""

from __future__ import annotations

import pytest

from chainfolio.localchain.deploy import WAD
from tests.gains.conftest import World, assert_equal
from tests.gains.scripted import Contract, approve, contract
from tests.gains.test_contract_wallet import KINDS, any_wallet

pytestmark = pytest.mark.node
FILE = """key = "yearn"
name = "Yearn"
families = ["yearn_v2"]
[contracts.local]
vault = ["{}"]
"""
WITHDRAW = "withdraw(uint256,address,uint256)"


@pytest.fixture
def vault(stage: World) -> Contract:
    return contract(stage, "yvDAI")


@pytest.mark.parametrize(("is_listed", "kind"), [(True, KINDS[0]), (False, KINDS[1])])
def test_a_share_grows_and_its_yield_is_income(stage: World, vault: Contract, is_listed: bool, kind: str) -> None:
    if is_listed:
        stage.files["yearn"] = FILE.format(vault.address)
    me = any_wallet(stage, kind, DAI=12_000 * WAD)
    approve(me, vault, "DAI")
    for function, raw, shares in (
        ("deposit()", 9_000 * WAD, 9_000 * WAD),
        ("deposit(uint256)", 3_000 * WAD, 2_500 * WAD),
    ):
        steps = [vault.take(me, "DAI", raw), vault.issue(me, shares)]
        assert vault.act(me, function, *([raw] if "uint" in function else []), steps=steps) == {"DAI": -raw}
    deposited, units = 12_000 * WAD, 11_500 * WAD
    for function, shares, raw in (
        ("withdraw(uint256)", 2_300 * WAD, 2_600 * WAD),
        (WITHDRAW, 4_600 * WAD, 4_500 * WAD),  # with a loss
        ("withdraw()", 4_600 * WAD, 5_432 * WAD + 1),
    ):
        args = {"withdraw()": (), WITHDRAW: (shares, me.address, 1)}.get(function, (shares,))
        assert vault.act(me, function, *args, steps=[vault.burn(me, shares), vault.pay(me, "DAI", raw)]) == {"DAI": raw}
        went_in = deposited * shares // units
        deposited, units = deposited - went_in, units - shares
        if raw > went_in:
            me.ledger.earn("DAI", raw - went_in, me.value("DAI", raw - went_in))
        else:
            me.ledger.sell("DAI", went_in - raw, me.value("DAI", 0))
    report, _ = stage.read(me)
    assert_equal(report, me)
