"""What contracts say of approvals now: how Tron asks, and what an answer is."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from adapters.tron.addresses import raw
from adapters.tron.reads import Call, uint
from chainfolio.contract_approvals import ContractApprovals, Function

FUNCTIONS: Final[dict[Function, str]] = {
    "allowance": "allowance(address,address)", "balanceOf": "balanceOf(address)",
    "balanceOfEdition": "balanceOf(address,uint256)", "totalSupply": "totalSupply()",
    "getApproved": "getApproved(uint256)", "ownerOf": "ownerOf(uint256)",
    "isApprovedForAll": "isApprovedForAll(address,address)", "supportsInterface": "supportsInterface(bytes4)",
}  # fmt: skip


class Approvals(ContractApprovals):
    """The methods behind `Capability.APPROVALS`. No contract keeps permissions inside, as Permit2 does."""

    edition_standards = frozenset(["trc1155"])
    # The numbers of interfaces, as words that begin with them.
    erc721: ClassVar[tuple[int, ...]] = (0x80AC58CD << 224,)
    erc1155: ClassVar[tuple[int, ...]] = (0xD9B67A26 << 224,)

    def question(self, contract: str, function: Function, *args: Any) -> Call:
        """A call."""
        return Call(contract, FUNCTIONS[function], args)

    def number(self, answer: Any) -> int | None:
        """The first word that was answered."""
        return uint(answer) if isinstance(answer, bytes) else None

    def is_account(self, answer: Any, account: str) -> bool | None:
        """By the last 20 bytes of the first word."""
        return answer[12:32] == raw(account) if isinstance(answer, bytes) else None
