"""Euler V2, replayed from recorded answers of its vaults and connector."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from chainfolio.adapters.evm.positions.interactions import ContractInteractions, NamedEvent
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome, read_underlying
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.indexer.families import families
from chainfolio.localchain.evm import topic_of, words
from chainfolio.plans import Reverted
from chainfolio.protocols import InstalledProtocol, TokenAmount, UnlistedShare, UnverifiedShare
from tests.protocols.published import Overrides, RecordedState, amounts, needs_contracts, positions

pytestmark = needs_contracts
CONTRACTS = {"evc": ["evc"], "factory": ["vault factory"]}
WETH_VAULT, USDC_VAULT, ACCOUNT_1 = "vault of WETH", "vault of USDC", "alice's account 1"
OPENED, LATER, REPAID = 0, 1, 2
ETH = 10**18


def owner_of(index: int, account: str, *called: str, overrides: Overrides | None = None, target: str = "") -> Any:
    """Return the decoder's outcomes for an owner who called the USDC vault for these accounts."""
    state = RecordedState("euler_v2", index)
    row = InstalledProtocol("published", families()["euler_v2"], {"evc": (state.roles["evc"],)}, {})
    (call,) = Protocols([row]).events
    owner = state.roles[account]
    topics = (topic_of(owner), "0x" + owner[2:40] + "00" * 13, topic_of(target or state.roles[USDC_VAULT]))
    events = tuple(
        NamedEvent(1, topics, bytes.fromhex(words(["address", "bytes4"], state.roles[each], b"call")))
        for each in called
    )
    answers = {**health_of(state), **(overrides or {})}
    return state.outcomes("euler_v2", CONTRACTS, account, ContractInteractions(events={call: events}), answers)


def health_of(state: RecordedState) -> dict[tuple[str, str], Any]:
    """The recorded values are those for borrowing: they stand for those of a liquidation here."""

    def answer(account: str, is_liquidation: bool) -> Any:
        assert is_liquidation
        return state.value(USDC_VAULT, "accountLiquidity(address,bool)(uint256,uint256)", account, False)

    return {(USDC_VAULT, "accountLiquidity"): answer}


def by_account(outcomes: list[Outcome]) -> dict[str, Any]:
    return {position.name: position for position in positions(outcomes)}


@pytest.mark.parametrize(
    ("index", "main_debt", "account_debt"),
    [
        (OPENED, 5_000 * ETH, 9_000 * ETH),
        (LATER, 5_082_871_062_590_667_432_370, 9_149_167_912_663_201_378_266),
        (REPAID, 0, 9_149_167_970_686_843_737_278),
    ],
    ids=["opened", "later", "repaid"],
)
def test_each_account_of_an_owner_has_its_own_collateral_and_debt(
    index: int, main_debt: int, account_debt: int
) -> None:
    roles = RecordedState("euler_v2", index).roles
    accounts = by_account(owner_of(index, "alice", "alice", ACCOUNT_1))
    main, sub_account = accounts[""], accounts[f"Account {roles[ACCOUNT_1]}"]
    assert amounts([main], "supplied") == {roles["WETH"]: 10 * ETH}
    assert amounts([main], "borrowed") == ({roles["USDC"]: main_debt} if main_debt else {})
    assert amounts([sub_account], "supplied") == {roles["WETH"]: 20 * ETH}
    assert amounts([sub_account], "borrowed") == {roles["USDC"]: account_debt}
    assert roles[WETH_VAULT] in main.replaces
    assert sub_account.replaces == ()
    assert (main.pool, sub_account.pool) == (min(roles[WETH_VAULT], roles[USDC_VAULT]), roles[ACCOUNT_1])


def test_health_is_the_value_of_the_collateral_over_the_debt() -> None:
    accounts = by_account(owner_of(OPENED, "alice", "alice", ACCOUNT_1))
    assert accounts[""].health == Decimal(16_000) / 5_000
    assert by_account(owner_of(REPAID, "alice", "alice"))[""].health is None


def test_a_refusing_vault_hides_no_debt_and_no_other_account() -> None:
    roles = RecordedState("euler_v2", OPENED).roles
    overrides = {(WETH_VAULT, "balanceOf"): Reverted()}
    accounts = by_account(owner_of(OPENED, "alice", "alice", ACCOUNT_1, overrides=overrides))
    for name, debt in (("", 5_000 * ETH), (f"Account {roles[ACCOUNT_1]}", 9_000 * ETH)):
        assert amounts([accounts[name]], "borrowed") == {roles["USDC"]: debt}
        assert amounts([accounts[name]], "supplied") == {}
        assert roles[WETH_VAULT] in accounts[name].unknown


def test_a_vault_of_another_factory_and_an_account_of_another_owner_are_nothing() -> None:
    state, fake = RecordedState("euler_v2", OPENED), "0x" + "fa" * 20
    vaults = {state.roles[WETH_VAULT], state.roles[USDC_VAULT]}
    overrides = {("vault factory", "isProxy"): lambda vault: vault in vaults}
    owner_positions = positions(owner_of(OPENED, "bob", "bob", ACCOUNT_1, overrides=overrides, target=fake))
    assert [amounts([each], "supplied", "borrowed") for each in owner_positions] == [{}]


@pytest.mark.parametrize(
    ("index", "assets"), [(OPENED, 100_000 * ETH), (LATER, 100_208_835_077_728_481_927_484)], ids=["opened", "later"]
)
def test_a_share_counts_if_deposited_and_else_only_as_far_as_the_vault_has_assets(index: int, assets: int) -> None:
    state = RecordedState("euler_v2", index)
    vault, usdc = state.roles[USDC_VAULT], state.roles["USDC"]
    parts = (TokenAmount(usdc, assets),)
    assert unwrapped(state, vault, 100_000 * ETH, {vault: frozenset([usdc])}) == parts
    assert isinstance(unwrapped(state, vault, 100_000 * ETH, {}), UnverifiedShare)  # 14 % is lent out
    one_share = unwrapped(state, state.roles[WETH_VAULT], 10 * ETH, {})
    assert one_share == UnlistedShare((TokenAmount(state.roles["WETH"], 10 * ETH),))


def test_a_share_of_a_vault_that_the_factory_did_not_create_is_no_share() -> None:
    state = RecordedState("euler_v2", OPENED)
    overrides = {("vault factory", "isProxy"): False}
    assert unwrapped(state, state.roles[USDC_VAULT], 100_000 * ETH, {}, overrides) is None


def unwrapped(state: RecordedState, vault: str, raw: int, sent_tokens: Any, overrides: Overrides | None = None) -> Any:
    role_addresses = {role: tuple(state.roles[part] for part in parts) for role, parts in CONTRACTS.items()}
    row = InstalledProtocol("published", families()["euler_v2_share"], role_addresses, {})
    shares = Shares(Protocols([row]))
    state.run(shares.read_answers([vault]), overrides)
    share = shares.share(state.roles["bob"], vault, sent_tokens)
    assert share is not None
    return state.run(read_underlying(share, raw), overrides)


def test_a_debt_is_shown_although_its_vault_refuses_the_shares() -> None:
    roles = RecordedState("euler_v2", OPENED).roles
    accounts = by_account(owner_of(OPENED, "alice", "alice", overrides={(USDC_VAULT, "balanceOf"): Reverted()}))
    assert amounts([accounts[""]], "borrowed") == {roles["USDC"]: 5_000 * ETH}
    assert roles[USDC_VAULT] in accounts[""].unknown
