"""Read approvals at one block: the EVM's calls, their results, and permissions inside Permit2."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from chainfolio.adapters.evm import permit2
from chainfolio.adapters.evm.reads import BALANCE_OF_ID, OWNER, AbiValue, Call, balance_of
from chainfolio.approvals import IndirectApproval, PermissionState
from chainfolio.contract_approvals import ContractApprovals, Function
from chainfolio.interactions import EventRow
from chainfolio.plans import Plan

ALLOWANCE: Final = "allowance(address,address)(uint256)"
FUNCTIONS: Final[dict[Function, str]] = {
    "allowance": ALLOWANCE,
    "balanceOfEdition": BALANCE_OF_ID,
    "totalSupply": "totalSupply()(uint256)",
    "getApproved": "getApproved(uint256)(address)",
    "ownerOf": OWNER,
    "isApprovedForAll": "isApprovedForAll(address,address)(bool)",
    "supportsInterface": "supportsInterface(bytes4)(bool)",
}
PERMIT2_ALLOWANCE: Final = "allowance(address,address,address)(uint160,uint48,uint48)"


class Approvals(ContractApprovals):
    """The methods of EVM chains behind `Capability.APPROVALS`."""

    erc721: ClassVar[tuple[bytes, ...]] = (bytes.fromhex("80ac58cd"),)
    erc1155: ClassVar[tuple[bytes, ...]] = (bytes.fromhex("d9b67a26"),)

    def question(self, contract: str, function: Function, *args: AbiValue) -> Call:
        """Return the call of one of the approval functions."""
        return balance_of(contract, *args) if function == "balanceOf" else Call(contract, FUNCTIONS[function], args)

    def number(self, result: AbiValue) -> int | None:
        """Return the result if it is an int, else None."""
        return result if isinstance(result, int) and not isinstance(result, bool) else None

    def yes(self, result: AbiValue) -> bool | None:
        """Return the result if it is a bool, else None."""
        return result if isinstance(result, bool) else None

    def is_account(self, result: AbiValue, account: str) -> bool | None:
        """Return True if the result is the account's address; None if it is no address."""
        return result == account if isinstance(result, str) else None

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """Return the filters of the dataset `events` for these Permit2 contracts."""
        return permit2.filters(contracts)

    def permission_of(self, row: EventRow) -> tuple[str, str] | None:
        """Return token and spender of a permission's row in `account_events`; None if it names no owner."""
        return permit2.token_and_spender(row)

    def permissions(self, permissions: Sequence[IndirectApproval]) -> Plan[Sequence[PermissionState]]:
        """Read the remaining amounts of permissions in one round, in their order.

        A field of a result is None if its read has no value.
        """
        results = yield from self.distinct(call for item in permissions for call in _permission_calls(item))
        return [
            self._permission(*(results[call] for call in _permission_calls(permission))) for permission in permissions
        ]

    def _permission(self, permission: AbiValue, allowance: AbiValue, balance: AbiValue) -> PermissionState:
        raw, expires_s = permission[:2] if isinstance(permission, tuple) else (None, None)
        return PermissionState(raw, expires_s, self.number(allowance), self.number(balance))


def _permission_calls(permission: IndirectApproval) -> tuple[Call, Call, Call]:
    """Return the reads of a permission's rest, the owner's allowance to Permit2, and the owner's balance."""
    contract, token, owner = permission.contract, permission.token, permission.owner
    remaining = Call(contract, PERMIT2_ALLOWANCE, (owner, token, permission.spender))
    return remaining, Call(token, ALLOWANCE, (owner, contract)), balance_of(token, owner)
