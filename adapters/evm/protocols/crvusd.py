"""Curve's loans with soft liquidation of collateral as its price falls: crvUSD, lending markets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import token_transfers
from chainfolio.adapters.evm.reads import Call
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

# Collateral, sold collateral (in the borrowed token), debt with interest, number of price bands.
USER_STATE = "user_state(address)(uint256,uint256,uint256,uint256)"
BORROWED: Final = parse_event("Borrow(address indexed,uint256,uint256)").topic
REPAID: Final = parse_event("Repay(address indexed,uint256,uint256)").topic
REMOVED: Final = parse_event("RemoveCollateral(address indexed,uint256)").topic
SIZES: Final = {BORROWED: 64, REPAID: 64, REMOVED: 32}  # of the data
UNKNOWN_TOKEN: Final = "unknown"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the loan of an account at one controller, of zeros without a loan.

    Collateral that was sold softly is supplied too. Controllers that mint (role `controller`) lend the file's
    `stablecoin`; those of lending markets (`lend_controller`) name the token that they lend.
    """
    is_minting = match.is_listed("controller")
    (collateral, sold, debt, _), collateral_token, *lent_tokens = yield [
        Call(match.contract, USER_STATE, (match.account,)),
        Call(match.contract, "collateral_token()(address)"),
        *([] if is_minting else [Call(match.contract, "borrowed_token()(address)")]),
    ]
    lent_token = match.contracts["stablecoin"][0] if is_minting else lent_tokens[0]
    return DecodedPosition(
        "LENDING",
        supplied=(TokenAmount(collateral_token, collateral), TokenAmount(lent_token, sold)),
        borrowed=(TokenAmount(lent_token, debt),),
        pool=match.contract,
    )


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return one loan for each account whose loan or collateral changed at a controller of a file.

    The collateral lies in the controller's market maker. A change without a token has collateral alone. The token is
    UNKNOWN_TOKEN if a controller of a lending market moved none.
    """
    changes = list[VaultChange]()
    for controller in (*contracts.get("controller", ()), *contracts.get("lend_controller", ())):
        loans = dict[str, int]()
        for log in logs:
            topic = log.topics[0] if len(log.topics) == 2 else ""
            if log.contract != controller or len(log.data) != SIZES.get(topic):
                continue
            raw = int.from_bytes(log.data[32:64], "big")
            loans[log.topics[1]] = loans.get(log.topics[1], 0) + (raw if topic == BORROWED else -raw)
        for account, raw in loans.items():
            token = _lent_token(logs, controller, contracts) if raw else ""
            changes.append(VaultChange("loan", controller, controller + account[2:], None, token, raw, controller))
    return changes


def _lent_token(logs: Sequence[EventLog], controller: str, contracts: Mapping[str, Sequence[str]]) -> str:
    """Return the token that a controller lends.

    It is the file's `stablecoin`, or the one that the controller paid or took here.
    """
    if controller in contracts.get("controller", ()):
        return contracts["stablecoin"][0]
    topic = "0x" + "0" * 24 + controller[2:]
    transfers = (each.token for each in token_transfers(logs) if topic in (each.sender, each.recipient))
    return next(transfers, UNKNOWN_TOKEN)


FAMILY = Family(
    "crvusd",
    rules=(Counterparty("controller"), Counterparty("lend_controller")),
    position=position,
    roles=("stablecoin",),
    vault_changes=vault_changes,
    calls=(
        TypedCalls("OPENVAULT", "gain", ("create_loan", "create_loan_extended")),
        TypedCalls("BORROW", "gain", ("borrow_more",)),
        TypedCalls("REPAYVAULT", "loss", ("repay",)),
        TypedCalls("LEND", "loss", ("add_collateral",)),
        TypedCalls("WITHDRAW", "gain", ("remove_collateral",)),
    ),
)
