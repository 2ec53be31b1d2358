"""Read the current state of approvals from contracts: the calls, and how their results are decoded."""

from __future__ import annotations

from typing import ClassVar, Final

from chainfolio.adapters.tron.addresses import decode_address
from chainfolio.adapters.tron.reads import Call, decode_uint
from chainfolio.contract_approvals import ContractApprovals, Function

FUNCTIONS: Final[dict[Function, str]] = {
    "allowance": "allowance(address,address)",
    "balanceOf": "balanceOf(address)",
    "balanceOfEdition": "balanceOf(address,uint256)",
    "totalSupply": "totalSupply()",
    "getApproved": "getApproved(uint256)",
    "ownerOf": "ownerOf(uint256)",
    "isApprovedForAll": "isApprovedForAll(address,address)",
    "supportsInterface": "supportsInterface(bytes4)",
}


class Approvals(ContractApprovals):
    """The methods behind `Capability.APPROVALS`. Tron has no contract such as Permit2."""

    edition_standards = frozenset(["trc1155"])
    # ERC-165 interface ids, as words that begin with them.
    erc721: ClassVar[tuple[int, ...]] = (0x80AC58CD << 224,)
    erc1155: ClassVar[tuple[int, ...]] = (0xD9B67A26 << 224,)

    def question(self, contract: str, function: Function, *args: str | int) -> Call:
        """Return the call of a function."""
        return Call(contract, FUNCTIONS[function], args)

    def number(self, answer: object) -> int | None:
        """Return the first word of a result, None if the call failed or returned less."""
        return decode_uint(answer) if isinstance(answer, bytes) else None

    def is_account(self, answer: object, account: str) -> bool | None:
        """Return True if a result is the address of an account, None if the call failed."""
        return answer[12:32] == decode_address(account) if isinstance(answer, bytes) else None
