"""Read the current state of approvals from contracts: the calls, and how their results are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from chainfolio.adapters.starknet.accounts import ERC721, call_with_fallback, decode_amount, split_u256
from chainfolio.adapters.starknet.state import Call, Result
from chainfolio.contract_approvals import ContractApprovals, Function
from chainfolio.plans import Plan
from chainfolio.reads import Read


class Approvals(ContractApprovals):
    """The methods behind `Capability.APPROVALS`. Starknet has no contract such as Permit2."""

    erc721: ClassVar[tuple[int, ...]] = ERC721
    erc1155: ClassVar[tuple[int, ...]] = (0xD9B67A26, 0x6114A8F75559E1B39FCBA08CE02961A1AA082D9256A158DD3E64964E4B1B52)

    def question(self, contract: str, function: Function, *args: str | int) -> Call:
        """Return the call of a function. Token ids are split into halves; an interface id is one felt."""
        if function == "supportsInterface":
            return Call(contract, function, tuple(map(int, args)))
        felts = [felt for each in args for felt in ((int(each, 16),) if isinstance(each, str) else split_u256(each))]
        return Call(contract, "balanceOf" if function == "balanceOfEdition" else function, tuple(felts))

    def number(self, answer: object) -> int | None:
        """Return the number in a result of one felt or two halves; None for any other result."""
        return decode_amount(answer)

    def is_account(self, answer: object, account: str) -> bool | None:
        """Return True if a result is the address of an account; None if the call failed."""
        return answer == (int(account, 16),) if isinstance(answer, tuple) else None

    def put_questions(self, questions: Sequence[Read[object]]) -> Plan[Sequence[Result]]:
        """Return the results of calls in order, with both spellings of functions."""
        return call_with_fallback(cast(Sequence[Call], questions))
