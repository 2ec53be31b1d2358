"""ERC-4337: deposits of contract wallets in the entry point, and gas paid from these deposits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import ZERO_TOPIC
from chainfolio.adapters.evm.reads import Call
from chainfolio.assets import ZERO_ADDRESS
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

OPERATION: Final = parse_event(
    "UserOperationEvent(bytes32 indexed, address indexed, address indexed, uint256, bool, uint256, uint256)"
).topic
COST: Final = slice(64, 96)  # of the data: nonce, success, actualGasCost, actualGasUsed


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode the ether that an account or a paymaster has deposited for gas, without its stake."""
    (raw,) = yield [Call(match.contract, "balanceOf(address)(uint256)", (match.account,))]
    return DecodedPosition(
        "DEPOSIT", supplied=(TokenAmount(ZERO_ADDRESS, raw),), name="Gas deposit", pool=match.contract
    )


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return what operations cost the deposits of wallets, one change for each; none if a paymaster paid.

    Source: `UserOperationEvent` of `IEntryPoint`, the same in releases 0.6 to 0.9.
    """
    return [
        VaultChange("gas", log.contract, "0x" + log.topics[2][-40:], None, "", -int.from_bytes(log.data[COST], "big"))
        for log in logs
        if log.contract in contracts.get("entry_point", ()) and len(log.topics) == 4
        if log.topics[0] == OPERATION and log.topics[3] == ZERO_TOPIC
    ]


FAMILY = Family(
    "entry_point",
    # Its events are too many to index: every operation logs one. What a wallet pays in advance is a movement.
    rules=(Counterparty("entry_point"),),
    position=position,
    vault_changes=vault_changes,
    calls=(TypedCalls("DEPOSIT", "loss", ("depositTo",)), TypedCalls("WITHDRAW", "gain", ("withdrawTo",))),
    is_proven=False,
)
