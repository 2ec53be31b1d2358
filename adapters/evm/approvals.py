"""What contracts say of approvals at one block: how the EVM asks, what an answer is, and permissions inside Permit2."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from adapters.evm.reads import BALANCE_OF_ID, OWNER, Call, balance_of
from chainfolio.approvals import ApprovedInside, PermissionState
from chainfolio.contract_approvals import ContractApprovals, Function
from chainfolio.plans import Plan

ALLOWANCE: Final = "allowance(address,address)(uint256)"
FUNCTIONS: Final[dict[Function, str]] = {
    "allowance": ALLOWANCE, "balanceOfEdition": BALANCE_OF_ID, "totalSupply": "totalSupply()(uint256)",
    "getApproved": "getApproved(uint256)(address)", "ownerOf": OWNER,
    "isApprovedForAll": "isApprovedForAll(address,address)(bool)",
    "supportsInterface": "supportsInterface(bytes4)(bool)",
}  # fmt: skip
PERMIT2_ALLOWANCE: Final = "allowance(address,address,address)(uint160,uint48,uint48)"


class Approvals(ContractApprovals):
    """The methods behind `Capability.APPROVALS`."""

    erc721: ClassVar[tuple[bytes, ...]] = (bytes.fromhex("80ac58cd"),)
    erc1155: ClassVar[tuple[bytes, ...]] = (bytes.fromhex("d9b67a26"),)

    def question(self, contract: str, function: Function, *args: Any) -> Call:
        """A call."""
        return balance_of(contract, *args) if function == "balanceOf" else Call(contract, FUNCTIONS[function], args)

    def number(self, answer: Any) -> int | None:
        """As it was decoded."""
        return answer if isinstance(answer, int) and not isinstance(answer, bool) else None

    def yes(self, answer: Any) -> bool | None:
        """As it was decoded."""
        return answer if isinstance(answer, bool) else None

    def is_account(self, answer: Any, account: str) -> bool | None:
        """As it was decoded."""
        return answer == account if isinstance(answer, str) else None

    def permission_filters(self, contracts: Collection[str]) -> tuple[str, ...]:
        """The filters of the dataset `events` for these Permit2 contracts."""
        from adapters.evm.permit2 import filters

        return filters(contracts)

    def permission_of(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """The token and the spender of a permission; None where a row of `account_events` names no owner of one."""
        from adapters.evm.permit2 import token_and_spender

        return token_and_spender(row)

    def permissions(self, permissions: Sequence[ApprovedInside]) -> Plan[Any, Any, Sequence[PermissionState]]:
        """What is left of permissions, in their order and in one round."""
        results = yield from self.distinct(call for each in permissions for call in _permission_calls(each))
        return [self._permission(*(results[call] for call in _permission_calls(each))) for each in permissions]

    def _permission(self, left: Any, allowance: Any, balance: Any) -> PermissionState:
        raw, expires_s = left[:2] if isinstance(left, tuple) else (None, None)
        return PermissionState(raw, expires_s, self.number(allowance), self.number(balance))


def _permission_calls(each: ApprovedInside) -> tuple[Call, Call, Call]:
    left = Call(each.contract, PERMIT2_ALLOWANCE, (each.owner, each.token, each.spender))
    return left, Call(each.token, ALLOWANCE, (each.owner, each.contract)), balance_of(each.token, each.owner)
