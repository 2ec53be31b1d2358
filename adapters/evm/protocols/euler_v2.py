"""Euler V2: an owner has 256 accounts, each with its own collateral and debt in vaults of the factory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import (
    ZERO_TOPIC,
    TokenTransfer,
    token_of_amount,
    token_transfers,
)
from chainfolio.adapters.evm.protocols.separate_shares import separate_shares
from chainfolio.adapters.evm.reads import AbiValue, Call
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

PREFIX = 40  # an address without its last byte, in characters: the same for all accounts of an owner
HEALTH_DECIMALS = 18
CALLED: Final = parse_event("CallWithContext(address indexed, bytes19 indexed, address, address indexed, bytes4)").topic
BORROWED: Final = parse_event("Borrow(address indexed, uint256)").topic
REPAID: Final = parse_event("Repay(address indexed, uint256)").topic
UNKNOWN_TOKEN: Final = "?"  # no token moved: a debt was repaid with shares


@dataclass(frozen=True, slots=True)
class Holding:
    """Assets and debt of one account in one vault, each None if the vault refuses."""

    account: str
    vault: str
    asset: str = ""
    assets: int | None = None
    debt: int | None = None


def positions(match: ProtocolMatch) -> DecoderPlan:
    """Return one position for each account of the owner that the connector's events name.

    The owner's own address has another one for each further vault of the same asset (`separate_shares`).
    The vaults are those that the connector says are collateral or hold the debt, and those that the owner called for
    the account. A vault that refuses hides neither the account's other vaults nor other accounts.
    """
    main = match.account
    calls = [(account, vault) for account, vault in match.values if account[:PREFIX] == main[:PREFIX]]
    accounts = sorted({main, *(account for account, _ in calls)})
    results = yield [
        read
        for account in accounts
        for read in (
            Call(match.contract, "getCollaterals(address)(address[])", (account,)),
            Call(match.contract, "getControllers(address)(address[])", (account,)),
        )
    ]
    controllers = dict(zip(accounts, results[1::2], strict=True))
    pairs = {
        (account, vault)
        for account, vaults in [*zip(accounts, results[::2], strict=True), *controllers.items()]
        for vault in vaults
    }
    holdings = yield from _holdings(match, sorted(pairs | set(calls)))
    owing = [holding for holding in holdings if holding.debt and holding.vault in controllers[holding.account]]
    liquidity = yield [
        MayRefuse(Call(h.vault, "accountLiquidity(address,bool)(uint256,uint256)", (h.account, True))) for h in owing
    ]
    health = {holding.account: _health(pair) for holding, pair in zip(owing, liquidity, strict=True)}
    decoded: list[DecodedPosition] = []
    for account in accounts:
        of_account = [holding for holding in holdings if holding.account == account]
        position = _position(account, of_account, health.get(account), account == main)
        decoded += separate_shares(position) if position.replaces else [position]
    return decoded


def _holdings(match: ProtocolMatch, pairs: Sequence[tuple[str, str]]) -> DecoderPlan:
    """Read what accounts have in vaults; contracts that the factory did not create are left out."""
    vaults = sorted({vault for _, vault in pairs})
    are_vaults = yield [Call(match.contracts["factory"][0], "isProxy(address)(bool)", (vault,)) for vault in vaults]
    created = {vault for vault, is_vault in zip(vaults, are_vaults, strict=True) if is_vault}
    pairs = [(account, vault) for account, vault in pairs if vault in created]
    results = yield [
        MayRefuse(read)
        for account, vault in pairs
        for read in (
            Call(vault, "asset()(address)"),
            Call(vault, "balanceOf(address)(uint256)", (account,)),
            Call(vault, "debtOf(address)(uint256)", (account,)),
        )
    ]
    rows = [results[start : start + 3] for start in range(0, len(results), 3)]
    worth = yield [
        MayRefuse(Call(vault, "convertToAssets(uint256)(uint256)", (shares or 0,)))
        for (_, vault), (_, shares, _) in zip(pairs, rows, strict=True)
    ]
    return [
        Holding(account, vault, asset, None if shares is None else assets, debt) if asset else Holding(account, vault)
        for (account, vault), (asset, shares, debt), assets in zip(pairs, rows, worth, strict=True)
    ]


def _health(pair: AbiValue) -> Decimal | None:
    """Return the collateral's value for a liquidation divided by the debt's; None if the vault refuses."""
    return amounts.amount(pair[0] * 10**HEALTH_DECIMALS // pair[1], HEALTH_DECIMALS) if pair and pair[1] else None


def _position(account: str, holdings: Sequence[Holding], health: Decimal | None, is_main: bool) -> DecodedPosition:
    """Return the position of one account; only shares of the owner's own address are tokens of the wallet."""
    lent = [holding for holding in holdings if holding.assets is not None]
    owed = [holding for holding in holdings if holding.debt is not None]
    refused = [holding.vault for holding in holdings if None in (holding.assets, holding.debt)]
    return DecodedPosition(
        "LENDING",
        supplied=tuple(TokenAmount(holding.asset, holding.assets or 0) for holding in lent),
        borrowed=tuple(TokenAmount(holding.asset, holding.debt or 0) for holding in owed),
        name="" if is_main else f"Account {account}",
        health=health,
        pool=account if not is_main else next((holding.vault for holding in holdings), account),
        replaces=tuple(holding.vault for holding in lent) if is_main else (),
        unknown=f"what the account {account} has in {', '.join(refused)}" if refused else "",
    )


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the net borrowing of each owner in each vault that the file's connector called.

    An owner is an address without its last byte. The token is UNKNOWN_TOKEN if none moved, because shares repaid the
    debt. An owner without a loan, who moved shares of a called vault, has one change of collateral without a token.
    """
    calls = [log for log in logs if log.contract in contracts.get("evc", ()) and log.topics[:1] == (CALLED,)]
    owners = {log.topics[2][:PREFIX]: log.contract for log in calls if len(log.topics) == 4}
    vaults = {"0x" + log.topics[3][-40:] for log in calls if len(log.topics) == 4}
    loans = dict[tuple[str, str], tuple[str, int]]()
    for log in logs:
        if log.contract not in vaults or len(log.topics) != 2 or log.topics[0] not in (BORROWED, REPAID):
            continue
        owner = "0x" + log.topics[1][-40:-2]
        token, raw = loans.get((owner, log.contract), ("", 0))
        amount, is_borrowed = int.from_bytes(log.data[:32], "big"), log.topics[0] == BORROWED
        moved_token = token_of_amount(logs, log.contract, amount, is_paid=is_borrowed)
        loans[owner, log.contract] = moved_token or token or UNKNOWN_TOKEN, raw + (amount if is_borrowed else -amount)
    changes = [
        VaultChange("loan", owners[owner], owner, None, token, raw)
        for (owner, _), (token, raw) in loans.items()
        if owner in owners
    ]
    transfers = [each for each in token_transfers(logs) if each.raw]
    without = {each for each in owners.keys() - {owner for owner, _ in loans} if _moves_shares(transfers, each, vaults)}
    return [*changes, *(VaultChange("loan", owners[owner], owner, None, "", 0) for owner in sorted(without))]


def _moves_shares(transfers: Sequence[TokenTransfer], owner: str, vaults: Collection[str]) -> bool:
    """Return True if called vaults changed shares of an owner, and no token left for others.

    Any call can go through the connector, also one that pays somebody.
    """

    def is_own(topic: str) -> bool:
        return "0x" + topic[-40:-2] == owner

    def is_inside(topic: str) -> bool:
        return is_own(topic) or topic == ZERO_TOPIC

    if any(
        is_own(each.sender) and not is_inside(each.recipient) and "0x" + each.recipient[-40:] not in vaults
        for each in transfers
    ):
        return False
    of_vaults = [each for each in transfers if each.token in vaults]
    return any(is_inside(each.sender) and is_inside(each.recipient) for each in of_vaults)


FAMILY = Family(
    "euler_v2",
    rules=(
        Event(
            "evc",
            "CallWithContext(address indexed caller, bytes19 indexed prefix, address account, "
            "address indexed target, bytes4 selector)",
            owner=0,
            values=(2, 3),
        ),
    ),
    position=positions,
    roles=("factory",),
    vault_changes=vault_changes,
    calls=(
        TypedCalls("BORROW", "gain", ("borrow",)),
        TypedCalls("LEND", "loss", ("deposit", "mint")),
        TypedCalls("WITHDRAW", "gain", ("withdraw", "redeem")),
    ),
)
