"""Function names by the first four bytes of call data."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chainfolio.adapters.evm.kind import KIND
from chainfolio.engine import wiring
from chainfolio.engine.transactions.function_names import load
from chainfolio.errors import BadSettings
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import protocol_of
from chainfolio.indexer.wiring import CONFIGS
from chainfolio.portfolio.activity import RULES, TRANSFERS, Functions

FUNCTIONS = load(CONFIGS / "functions.toml", KIND.selector)
SHIPPED = FUNCTIONS.names


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("a9059cbb", "transfer"),
        ("095ea7b3", "approve"),
        ("23b872dd", "transferFrom"),
        ("d0e30db0", "deposit"),
        ("2e1a7d4d", "withdraw"),
        ("38ed1739", "swapExactTokensForTokens"),
        ("414bf389", "exactInputSingle"),
        ("617ba037", "supply"),
        ("a22cb465", "setApprovalForAll"),
        ("ac9650d8", "multicall"),
    ],
)
def test_well_known_functions_have_their_names(selector: str, name: str) -> None:
    assert SHIPPED[bytes.fromhex(selector)] == name


def test_every_function_that_a_family_types_is_known() -> None:
    signatures = {name for family in families().values() for each in family.calls for name in each.functions}
    assert signatures
    assert sorted(signatures - set(SHIPPED.values())) == []


def test_every_function_that_a_rule_names_is_known() -> None:
    files = (CONFIGS / "protocols").glob("*.toml")
    signatures = {
        function
        for path in files
        for each in protocol_of(path, {}, allow_unknown=True).transactions
        for function in each.functions
    }
    assert signatures
    signatures |= TRANSFERS
    assert signatures <= set(SHIPPED.values())


@pytest.mark.parametrize(
    ("selector", "name", "type_"),
    [
        ("56781388", "castVote", "VOTE"),
        ("2e7ba6ef", "claim", "CLAIM"),
        ("415565b0", "transformERC20", "SWAP"),
        ("b1a1a882", "depositETH", "BRIDGEOUT"),
        ("57ecfd28", "receiveMessage", "BRIDGEIN"),
        ("acf1a841", "renew", "EXPENSE"),
    ],
)
def test_well_known_functions_stand_for_types(selector: str, name: str, type_: str) -> None:
    assert (SHIPPED[bytes.fromhex(selector)], FUNCTIONS.types[bytes.fromhex(selector)]) == (name, type_)


@pytest.mark.parametrize(
    ("function", "type_"),
    [
        ("repay(uint256,address,int256)", "REPAYVAULT"),
        ("repay(uint256,address,int256,bool)", "REPAYVAULT"),
        ("repay(uint256,address,int256,address,bytes)", "REPAYVAULT"),
        ("borrow_more(uint256,uint256,address)", "BORROW"),
        ("borrow_more(uint256,uint256,address,address,bytes)", "BORROW"),
    ],
)
def test_overloads_of_loans_of_curve_have_types(function: str, type_: str) -> None:
    selector = KIND.selector(function)
    assert (SHIPPED[selector], FUNCTIONS.types[selector]) == (function.partition("(")[0], type_)


def test_every_type_that_functions_stand_for_has_a_rule_and_every_such_rule_a_function() -> None:
    called = {sign.removeprefix("called ") for rule in RULES for sign in rule.needs if sign.startswith("called ")}
    assert called == set(FUNCTIONS.types.values())


def test_names_are_names() -> None:
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9_]*", name) for name in SHIPPED.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('signatures = ["many_msg_babbage(bytes1)", "transfer(address,uint256)"]', "begins like"),
        ("signatures = 5", "array"),
        ("functions = []", "functions"),
        ("signatures = [", "functions.toml"),
        ('signatures = []\n[types]\nTRADE = ["swap()"]', "TRADE"),
        ('signatures = []\n[types]\nSWAP = ["swap()"]\nCLAIM = ["swap()"]', "both SWAP and CLAIM"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "functions.toml"
    path.write_text(text)
    with pytest.raises(BadSettings, match=message):
        load(path, KIND.selector)


class Toy:
    """A kind of chain that only selects functions."""

    def selector(self, function: str) -> bytes:
        return function.encode()[:3]


def test_selectors_come_from_the_kinds_of_the_configured_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "functions.toml").write_text('signatures = []\n[types]\nSWAP = ["trade(uint256)"]')
    kinds = {"evm": KIND, "toy": Toy(), "mute": object()}
    monkeypatch.setattr(wiring, "kind_of", kinds.__getitem__)

    def of(*adapters: str) -> Functions:
        chains = {f"{at}": SimpleNamespace(adapter=each) for at, each in enumerate(adapters)}
        system = SimpleNamespace(settings=SimpleNamespace(chains=chains), configs=tmp_path)
        return wiring.functions(cast(Any, system))

    selector, toy = KIND.selector("trade(uint256)"), b"tra"
    assert len(selector) == 4
    assert of("mute") == Functions({}, {})
    assert of("toy", "mute") == Functions({toy: "trade"}, {toy: "SWAP"})
    assert of("evm", "evm", "toy") == Functions({selector: "trade", toy: "trade"}, {selector: "SWAP", toy: "SWAP"})
