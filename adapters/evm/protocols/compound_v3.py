"""Compound V3 (Comet): one market lends one base token and takes other tokens as collateral only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from chainfolio import amounts
from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import token_of_amount, token_transfers
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

BASIC = "userBasic(address)(int104,uint64,uint64,uint16,uint8)"
ASSET = "getAssetInfo(uint8)((uint8,address,address,uint64,uint64,uint64,uint64,uint128))"
COLLATERAL = "userCollateral(address,address)(uint128,uint128)"
REWARD = "getRewardOwed(address,address)((address,uint256))"
PRICE = "getPrice(address)(uint256)"
FACTOR_DECIMALS = 18
OTHER_BITS_FROM = 16  # `userBasic` has 16 bits for the first collaterals, and 8 more in a second word
NOT_SENT = "the market's code was not reviewed, and the account never sent it what it says was supplied"

SUPPLIED: Final = parse_event("Supply(address indexed, address indexed, uint256)").topic
WITHDRAWN: Final = parse_event("Withdraw(address indexed, address indexed, uint256)").topic
COLLATERAL_SUPPLIED: Final = parse_event(
    "SupplyCollateral(address indexed, address indexed, address indexed, uint256)"
).topic
ROUNDED: Final = 10  # units by which the logged share may differ from the amount, because indexes are rounded


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode what an account lent or borrowed in one market, its collateral, its reward, and its health.

    Amounts include interest up to the block. The health is the collateral's value by the market's liquidation factors,
    divided by the debt; None without a debt, or if a price feed refuses. A reward that a contract refuses is unknown.
    """
    market, account = match.contract, match.account
    payers = match.contracts.get("rewards", ())
    base, lent, debt, basic, base_feed, scale, *owed = yield [
        Call(market, "baseToken()(address)"),
        Call(market, "balanceOf(address)(uint256)", (account,)),
        Call(market, "borrowBalanceOf(address)(uint256)", (account,)),
        Call(market, BASIC, (account,)),
        Call(market, "baseTokenPriceFeed()(address)"),
        Call(market, "baseScale()(uint256)"),
        *(Call(payer, "rewardConfig(address)(address)", (market,)) for payer in payers),
        # It counts the reward up to now by a function that writes.
        *(MayRefuse(Call(payer, REWARD, (market, account), alone=True)) for payer in payers),
    ]
    tokens, rewards = owed[: len(payers)], owed[len(payers) :]
    held = basic[3] | basic[4] << OTHER_BITS_FROM
    infos = yield [Call(market, ASSET, (index,)) for index in range(held.bit_length()) if held >> index & 1]
    feeds = (base_feed, *(info[2] for info in infos)) if debt else ()
    results = yield [
        *(Call(market, COLLATERAL, (account, info[1])) for info in infos),
        *(MayRefuse(Call(market, PRICE, (feed,))) for feed in feeds),
    ]
    collateral, prices = [raw for raw, _ in results[: len(infos)]], results[len(infos) :]
    supplied = [TokenAmount(base, lent), *(TokenAmount(i[1], raw) for i, raw in zip(infos, collateral, strict=True))]
    is_unsent = match.is_fork and not all(match.has_deposited(part.token) for part in supplied if part.raw)
    is_unknown = any(token != ZERO_ADDRESS and pair is None for token, pair in zip(tokens, rewards, strict=True))
    return DecodedPosition(
        "LENDING",
        supplied=tuple(supplied),
        borrowed=(TokenAmount(base, debt),),
        rewards=tuple(TokenAmount(*pair) for pair in rewards if pair and pair[0] != ZERO_ADDRESS),
        health=_health(infos, collateral, prices, debt, scale),
        pool=market,
        replaces=(market,),
        unknown="its rewards" if is_unknown else "",
        unverified=NOT_SENT if is_unsent else "",
    )


def _health(
    infos: Sequence[tuple[int, ...]], collateral: Sequence[int], prices: Sequence[int | None], debt: int, scale: int
) -> Decimal | None:
    """Return the liquidation value of the collateral divided by the debt's value; None if one is unknown.

    `prices` begin with that of the base token. Word 3 of an asset is its scale, word 5 its liquidation factor.
    """
    if not debt or None in prices or not prices[0]:
        return None
    known = [price for price in prices if price is not None]
    limit = sum(raw * price * info[5] // info[3] for info, raw, price in zip(infos, collateral, known[1:], strict=True))
    return amounts.amount(limit * scale // (debt * known[0]), FACTOR_DECIMALS)


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the loans of markets of a file: what was withdrawn and was not lent, less what was repaid.

    A market creates its share for what is lent, and destroys it for what comes back. The rest is a debt, if it is more
    than ROUNDED units. A change without a token has collateral alone.
    """
    changes = list[VaultChange]()
    for market in contracts.get("market", ()):
        of_market = [log for log in logs if log.contract == market and log.topics]
        accounts = {log.topics[1 if log.topics[0] == WITHDRAWN else 2]: 0 for log in of_market if _is_change(log)}
        base = next((token for token in (_base(log, logs) for log in of_market) if token), "")
        for account in accounts:
            raw = _borrowed(of_market, account)
            token = base if abs(raw) > ROUNDED else ""
            has_collateral = any(log.topics[0] == COLLATERAL_SUPPLIED for log in of_market)
            if token or has_collateral:
                changes.append(VaultChange("loan", market, market + account[2:], None, token, raw if token else 0))
    return changes


def _is_change(log: EventLog) -> bool:
    return log.topics[0] in (SUPPLIED, WITHDRAWN, COLLATERAL_SUPPLIED) and len(log.topics) >= 3


def _base(log: EventLog, logs: Sequence[EventLog]) -> str:
    """Return the token that moved by the amount of a market's event; empty if there is none."""
    if log.topics[0] not in (SUPPLIED, WITHDRAWN):
        return ""
    amount = int.from_bytes(log.data[:32], "big")
    return token_of_amount(logs, log.contract, amount, is_paid=log.topics[0] == WITHDRAWN)


def _borrowed(logs: Sequence[EventLog], account: str) -> int:
    """Return what an account borrowed by the logs of one market; negative if it repaid more."""
    raw = 0
    for log in logs:
        amount = int.from_bytes(log.data[:32], "big")
        if log.topics[0] == WITHDRAWN and log.topics[1] == account:
            raw += amount
        elif log.topics[0] == SUPPLIED and log.topics[2] == account:
            raw -= amount
    for share in token_transfers(logs):
        if share.created:
            raw += share.raw * ((share.recipient == account) - (share.sender == account))
    return raw


FAMILY = Family(
    "compound_v3",
    rules=(
        Counterparty("market"),
        Event("market", "Supply(address indexed from, address indexed dst, uint256 amount)", owner=1),
        Event(
            "market",
            "SupplyCollateral(address indexed from, address indexed dst, address indexed asset, uint256 amount)",
            owner=1,
        ),
        Event(
            "market",
            "TransferCollateral(address indexed from, address indexed to, address indexed asset, uint256 amount)",
            owner=1,
        ),
    ),
    position=position,
    roles=("rewards",),
    vault_changes=vault_changes,
    calls=(
        TypedCalls("LEND", "loss", ("supply", "supplyTo", "supplyFrom")),
        TypedCalls("WITHDRAW", "gain", ("withdraw", "withdrawTo", "withdrawFrom")),
        TypedCalls("CLAIM", "gain", ("claim", "claimTo")),
        TypedCalls("CLAIM", "gain", (), ("rewards",)),
    ),
)
