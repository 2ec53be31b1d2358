"""Find addresses that hold Maker positions, and read changes of vaults and savings from logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from chainfolio.adapters.evm.call import signature
from chainfolio.adapters.evm.positions.rules import DecoderPlan, Event, ProtocolMatch
from chainfolio.adapters.evm.positions.token_transfers import token_transfers
from chainfolio.adapters.evm.reads import Call
from chainfolio.position_changes import EventLog, VaultChange

PROXIES = Event(
    "proxy_factory", "Created(address indexed sender, address indexed owner, address proxy, address cache)", 1, (2,)
)


def _note(function: str) -> str:
    """Return the first topic of the anonymous log by which Maker's contracts note a call of a function."""
    return "0x" + signature(function).selector.hex() + "0" * 56


FROB: Final = _note("frob(bytes32,address,address,address,int256,int256)()")
MANAGED: Final = _note("frob(uint256,int256,int256)()")
# The data of a note: where it begins, its length, and the call data, whose fifth argument is the collateral of a vault.
COLLATERAL: Final = slice(64 + 4 + 4 * 32, 64 + 4 + 5 * 32)
SLIP: Final = _note("slip(bytes32,address,int256)()")
MOVE: Final = _note("move(address,address,uint256)()")
RAY: Final = 10**27  # the core contract counts Dai in this part of the smallest unit
SAVINGS: Final = frozenset({_note("join(uint256)()"), _note("exit(uint256)()")})


def holders(match: ProtocolMatch) -> DecoderPlan:
    """Return the account; if the proxy factory was matched, the account's proxies that it still owns."""
    if not match.is_listed(PROXIES.role):
        return (match.account,)
    proxies = [proxy for (proxy,) in match.values]
    owners = yield [Call(proxy, "owner()(address)") for proxy in proxies]
    return tuple(proxy for proxy, owner in zip(proxies, owners, strict=True) if owner == match.account)


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the changes of vaults that the core contract (`vat`) of a file logged, one for each vault.

    Each `loan` has all Dai that the transaction created, less what it destroyed.
    A vault that takes collateral of its own address has an owner only if the `cdp_manager` changed it. Others, such as
    those of a module that exchanges stable currencies, are not of a wallet. Without such a change, collateral that a
    join gave or took is of the vault's owner, and so is Dai that was created or destroyed for a balance.
    """
    notes = [log for log in logs if len(log.topics) == 4]
    is_managed = any(log.contract in contracts.get("cdp_manager", ()) and log.topics[0] == MANAGED for log in notes)
    collateral = dict[tuple[str, str], int]()
    for log in notes:
        _, ilk, vault, source = log.topics
        if log.contract in contracts.get("vat", ()) and log.topics[0] == FROB and (is_managed or vault != source):
            change = int.from_bytes(log.data[COLLATERAL], "big", signed=True)
            collateral[log.contract, ilk + vault[2:]] = collateral.get((log.contract, ilk + vault[2:]), 0) + change
    if not any(log.topics[0] in (FROB, *SAVINGS) for log in notes):
        return _direct_changes(notes, logs, contracts)
    return [
        VaultChange("loan", vat, vault, change, dai, _created(logs, dai))
        for dai in contracts.get("dai", ())
        for (vat, vault), change in collateral.items()
    ]


def _direct_changes(
    notes: Sequence[EventLog], logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]
) -> list[VaultChange]:
    """Return what joins of collateral and of Dai did for a wallet that changes its vault by itself.

    Dai that only passes through the balance of a contract, as for an exchange with another currency, changes nothing
    there.
    """
    changes = list[VaultChange]()
    net = defaultdict[tuple[str, str], int](int)
    for log in notes:
        if log.contract not in contracts.get("vat", ()):
            continue
        topic, first, second, third = log.topics
        if topic == MOVE:
            net[log.contract, first] += int(third, 16)
            net[log.contract, second] -= int(third, 16)
        elif topic == SLIP:
            change = int.from_bytes(bytes.fromhex(third[2:]), "big", signed=True)
            changes += [
                VaultChange("loan", log.contract, first + second[2:], change, dai, _created(logs, dai))
                for dai in contracts.get("dai", ())
            ]
    return changes + [
        VaultChange("balance", vat, owner, 0, dai, raw // RAY)
        for dai in contracts.get("dai", ())
        for (vat, owner), raw in net.items()
        if raw * _created(logs, dai) > 0
    ]


def savings_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return the changes of savings that the `pot` of a file logged, one for each holder.

    Each has collateral 0 and all Dai that the transaction created, less what it destroyed.
    """
    holders_of_pots = {
        (log.contract, log.topics[1]): None
        for log in logs
        if log.contract in contracts.get("pot", ()) and len(log.topics) == 4 and log.topics[0] in SAVINGS
    }
    return [
        VaultChange("savings", pot, holder, 0, dai, _created(logs, dai))
        for dai in contracts.get("dai", ())
        for pot, holder in holders_of_pots
    ]


def _created(logs: Sequence[EventLog], token: str) -> int:
    """Return how much of a token was created, less what was destroyed."""
    return sum(transfer.created for transfer in token_transfers(logs) if transfer.token == token)
