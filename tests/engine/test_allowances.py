"""Remaining allowances equal those of the contracts at one block; the sum at risk is exact or unknown."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from chainfolio.contracts import Price, Token
from chainfolio.engine.approvals.allowances import CurrentApprovals, latest_amounts, read_current_approvals, unreplaced
from chainfolio.engine.approvals.pages import approvals_page, check_complete
from chainfolio.engine.results import Allowance, Approval, EventPosition, Operator
from chainfolio.engine.snapshots.snapshotter import Snapshotter
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.errors import BadRequest, NotIndexed
from chainfolio.indexer.registry import Protocol, Registry
from chainfolio.localchain.evm import MAX, tx
from chainfolio.pricing.fixed import build_fixed
from tests.chains.evm import EvmSubject, evm
from tests.chains.index import Index, index

FRIEND = "0x" + "f1" * 20
OTHER = "0x" + "f2" * 20
NAMES = {FRIEND: "A friend"}


def labels(chain: str, spenders: object) -> dict[str, str]:
    return NAMES


@pytest.fixture(scope="module")
def subject() -> Iterator[EvmSubject]:
    with evm(10) as chain:
        chain.trade(30, 3)
        yield chain


def snapshotter(indexed: Index, prices: dict[str, str]) -> Snapshotter:
    facts = indexed.chain.facts
    value_usd = {str(facts.token_asset(token)): usd for token, usd in prices.items()}
    book = TokenBook(facts.key, indexed.lake, {})
    return Snapshotter(indexed.chain, indexed.lake, indexed.tail, book, (build_fixed(value_usd, "test"),))


async def stand(indexed: Index, owner: str, prices: dict[str, str]) -> CurrentApprovals:
    return await read_current_approvals(snapshotter(indexed, prices), [owner], labels)


def by_spender(approvals: CurrentApprovals, token: str) -> dict[str, Allowance]:
    return {each.approval.spender: each for each in approvals.allowances if each.approval.token == token}


@pytest.mark.node
async def test_what_is_left_is_what_contracts_say_and_the_risk_is_exact(subject: EvmSubject, tmp_path: Path) -> None:
    carol = subject.deployment.accounts["carol"]
    usdc, dai, weth = (subject.token(symbol) for symbol in ("USDC", "DAI", "WETH"))
    approve = "approve(address,uint256)"
    balance = subject.balance(carol.lower(), usdc, subject.height) or 0
    assert balance > 2
    for token, spender, raw in (
        (usdc, FRIEND, MAX),
        (usdc, OTHER, balance - 1),
        (dai, FRIEND, 7),
        (weth, FRIEND, 9),
        (weth, FRIEND, 0),
    ):
        subject.node.send(tx(carol, token, approve, spender, raw))
    subject.mine(2)
    async with index(subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.materialise()
        await indexed.follower().step()
        approvals = await stand(indexed, carol.lower(), {usdc: "0.5"})
        assert approvals.block.height == subject.height
        for each in approvals.allowances:
            allowed = subject.allowance(
                carol.lower(), each.approval.token, each.approval.spender, approvals.block.height
            )
            assert each.raw == allowed != 0
        usdc_allowances = by_spender(approvals, usdc)
        assert (usdc_allowances[FRIEND].unlimited, usdc_allowances[FRIEND].at_risk) == (
            True,
            Decimal(balance).scaleb(-6) / 2,
        )
        assert (usdc_allowances[OTHER].unlimited, usdc_allowances[OTHER].at_risk) == (
            False,
            Decimal(balance - 1).scaleb(-6) / 2,
        )
        assert (usdc_allowances[FRIEND].label, usdc_allowances[OTHER].label) == ("A friend", None)
        unpriced = by_spender(approvals, dai)[FRIEND]
        assert (unpriced.raw, unpriced.at_risk) == (7, None), "no price is no worth, and not zero"
        assert FRIEND not in by_spender(approvals, weth), "what was revoked is not allowed any more"
        assert approvals.unpriced == sum(each.at_risk is None for each in approvals.allowances) > 0
        assert approvals.at_risk == Decimal(balance).scaleb(-6) / 2, "one holding can be taken once, by whomever"
        risks = [each.at_risk for each in approvals.allowances]
        assert risks == sorted(risks, key=lambda risk: (risk is None, -(risk or 0)))


@pytest.mark.node
async def test_who_may_move_collectibles_is_asked_of_the_contract(subject: EvmSubject, tmp_path: Path) -> None:
    heidi, grace = (subject.deployment.accounts[name] for name in ("heidi", "grace"))
    collectible, edition = (subject.deployment.contracts[name] for name in ("Collectible", "Edition"))
    for_all = "setApprovalForAll(address,bool)"
    for sender, to, signature, *args in (
        (heidi, collectible, "mint(address,uint256)", heidi, 10**6),
        (heidi, collectible, "mint(address,uint256)", heidi, 10**6 + 1),
        (heidi, edition, "mintBatch(address,uint256[],uint256[])", heidi, [901, 902, 903], [1, 2, 3]),
        (heidi, edition, "safeTransferFrom(address,address,uint256,uint256,bytes)", heidi, grace, 901, 1, b""),
        (heidi, collectible, for_all, FRIEND, True),
        (heidi, collectible, for_all, OTHER, True),
        (heidi, collectible, for_all, OTHER, False),
        (heidi, edition, for_all, FRIEND, True),
        (heidi, collectible, "approve(address,uint256)", OTHER, 10**6),
        (heidi, collectible, "approve(address,uint256)", OTHER, 10**6 + 1),
        (heidi, collectible, "transferFrom(address,address,uint256)", heidi, grace, 10**6 + 1),
    ):
        subject.node.send(tx(sender, to, signature, *args))
    subject.mine(2)
    async with index(subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        operators = (await stand(indexed, heidi.lower(), {})).operators

        def short(each: Operator) -> tuple[str, str, str | None, int | None, int | None]:
            return each.token, each.spender, each.standard, each.token_id, each.movable_count

        assert {short(each) for each in operators} == {
            (collectible.lower(), FRIEND, "erc721", None, 1),
            (edition.lower(), FRIEND, "erc1155", None, 2),
            (collectible.lower(), OTHER, "erc721", 10**6, 1),
        }


@pytest.mark.node
async def test_what_was_replaced_is_known_on_whichever_page(subject: EvmSubject, tmp_path: Path) -> None:
    ivan, dai = subject.deployment.accounts["ivan"], subject.token("DAI")
    for raw in (5, 6, 7):
        subject.node.send(tx(ivan, dai, "approve(address,uint256)", FRIEND, raw))
    subject.mine(1)
    async with index(subject, tmp_path) as indexed:
        await indexed.fill_final()
        await indexed.follower().step()
        check_complete(indexed.tail, indexed.key, ["0x" + "1" * 40], subject.height, 0)
        start: EventPosition | int | None = subject.height
        approvals, now = [], []
        while start is not None:
            items, start = approvals_page(indexed.lake, indexed.tail, indexed.key, [ivan.lower()], 1, start)
            approvals += items
            now += unreplaced(items, indexed.lake, indexed.tail, indexed.key)
        raws = [item.raw for item in approvals if item.spender == FRIEND]
        assert (raws, [item.raw for item in now if item.spender == FRIEND]) == ([7, 6, 5], [7])
        assert now == latest_amounts(indexed.lake, indexed.tail, indexed.key, [ivan.lower()])


@pytest.mark.node
async def test_what_nobody_indexed_is_no_list_of_all_approvals(subject: EvmSubject, tmp_path: Path) -> None:
    async with index(subject, tmp_path) as indexed:
        await indexed.fill(5, subject.height)
        with pytest.raises(NotIndexed) as error:
            check_complete(indexed.tail, indexed.key, ["0x" + "1" * 40], subject.height, 0)
        assert (error.value.first, error.value.last) == (0, 4)


def allowance(raw: int | None, balance: int | None, usd: str | None, risk: str | None) -> Allowance:
    from chainfolio.assets import Asset

    asset = Asset("eip155:1", "erc20", "0x" + "70" * 20)
    price = None if usd is None else Price(asset, Decimal(usd), "test", 0, Decimal(1))
    approval = Approval(EventPosition(1, 1, "0x"), 0, asset.reference, "0x" + "aa" * 20, FRIEND, 1)
    token = Token(asset, "T", "T", 18)
    return Allowance(approval, token, raw, False, balance, price, None if risk is None else Decimal(risk))


def test_a_sum_at_risk_has_every_digit_and_leaves_out_what_nobody_can_tell() -> None:
    from chainfolio.blocks import Block

    wei = 10**18
    parts = (
        allowance(3 * wei + 1, 5 * wei, "2", "6.000000000000000002"),
        allowance(wei, 5 * wei, "2", "2"),
        allowance(None, 5 * wei, "2", None),
        allowance(wei, 5 * wei, None, None),
    )
    approvals = CurrentApprovals(Block(1, "", "", 0), parts)
    assert approvals.at_risk == Decimal("8.000000000000000002")
    assert approvals.unpriced == 2


def test_a_spender_is_called_by_its_protocol_and_what_it_is_there_for() -> None:
    registry = Registry(
        [
            Protocol("oneinch", "1inch", {"ethereum": {"router_v6": [FRIEND]}}),
            Protocol("permit2", "Uniswap Permit2", {"ethereum": {"permit2": [OTHER]}}),
        ]
    )
    assert registry.label(FRIEND, "ethereum") == "1inch: router v6"
    assert registry.label(OTHER, "ethereum") == "Uniswap Permit2"
    assert registry.label(FRIEND, "base") is None
    assert registry.label("0x" + "00" * 20, "ethereum") is None


def test_an_account_of_another_kind_has_no_approvals_here() -> None:
    from chainfolio.cli.main import main

    assert main(["approvals", "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", "--chain", "local"]) == BadRequest.exit_code
