"""What contracts say of approvals at one block: how Starknet asks, and what an answer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from chainfolio.adapters.starknet.accounts import ERC721, asked, halves, number_of
from chainfolio.adapters.starknet.state import Call
from chainfolio.contract_approvals import ContractApprovals, Function
from chainfolio.plans import Plan


class Approvals(ContractApprovals):
    """The methods behind `Capability.APPROVALS`. Nothing like Permit2 is known here."""

    erc721: ClassVar[tuple[int, ...]] = ERC721
    erc1155: ClassVar[tuple[int, ...]] = (
        0xD9B67A26,
        0x6114A8F75559E1B39FCBA08CE02961A1AA082D9256A158DD3E64964E4B1B52,
    )

    def question(self, contract: str, function: Function, *args: Any) -> Call:
        """A call; the numbers of collectibles are in two halves."""
        if function == "supportsInterface":
            return Call(contract, function, args)
        felts = [felt for each in args for felt in ((int(each, 16),) if isinstance(each, str) else halves(each))]
        return Call(contract, "balanceOf" if function == "balanceOfEdition" else function, tuple(felts))

    def number(self, answer: Any) -> int | None:
        """In one felt or in two halves."""
        return number_of(answer)

    def is_account(self, answer: Any, account: str) -> bool | None:
        """In one felt."""
        return answer == (int(account, 16),) if isinstance(answer, tuple) else None

    def put_questions(self, questions: Sequence[Call]) -> Plan[Any, Any, Sequence[Any]]:
        """In both spellings of functions, where the first is not known."""
        return asked(questions)
