"""A node whose accounts lie in a ledger, and what a chain reads of it for one snapshot."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from solders.pubkey import Pubkey

from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN
from chainfolio.interactions import Interactions
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.plans import Report, run_batched
from chainfolio.positions import AccountState
from chainfolio.protocols import InstalledProtocols
from tests.json_rpc import Refuse
from tests.solana.fakes import FakeNode
from tests.solana.ledger import Ledger, matches

FAILURES: Final = (  # of one request among others
    (-32005, "rate limited"),
    (-32603, "internal error"),
    (-32016, "Minimum context slot has not been reached"),
)


class LedgerNode(FakeNode):
    """A node whose accounts come from a ledger and whose wallets hold tokens.

    Tokens are mint addresses (amount 1), or map mints to an amount and decimals. Every answer has another slot.
    """

    def __init__(self, ledger: Ledger, tokens: Mapping[str, Sequence[str] | Mapping[str, tuple[int, int]]]) -> None:
        super().__init__(
            getMultipleAccounts=self._accounts,
            getTokenAccountsByOwner=self._tokens,
            getProgramAccounts=self._list,
            getAssetsByOwner=lambda params: {"items": []},
        )
        self.ledger, self.tokens, self.moves = ledger, dict(tokens), 1

    def _list(self, params: Any) -> Any:
        program, options = params
        return self.at(
            [
                {"pubkey": address, "account": {"data": ["", "base64"], "owner": owner, "lamports": 5}}
                for address, (owner, content) in self.ledger.accounts.items()
                if owner == program and all(matches(content, _filter(each)) for each in options["filters"])
            ]
        )

    def refuse_lists(
        self, program: str, code: int = -32010, message: str = "excluded from account secondary indexes"
    ) -> None:
        """From now on it looks for no accounts of a program."""

        def list_accounts(params: Any) -> Any:
            if params[0] == program:
                raise Refuse(code, message)
            return self._list(params)

        self.answers = {**self.answers, "getProgramAccounts": list_accounts}

    def _accounts(self, params: Any) -> Any:
        return self.at([self._account(address) for address in params[0]])

    def _account(self, address: str) -> Any:
        if address.startswith("SysvarC1ock"):
            return self.clock()
        account = self.ledger.accounts.get(address)
        if account is None and address in self.tokens:
            account = (SYSTEM, b"")
        data = account and [base64.b64encode(account[1]).decode(), "base64"]
        return account and {"data": data, "owner": account[0], "lamports": self.ledger.lamports.get(address, 5)}

    def _tokens(self, params: Any) -> Any:
        account, program = params[0], params[1]["programId"]
        mints = self.tokens.get(account, ()) if program == TOKEN else ()
        amounts = mints if isinstance(mints, Mapping) else dict.fromkeys(mints, (1, 0))
        return self.at(
            [
                {
                    "pubkey": mint,
                    "account": {
                        "data": {
                            "parsed": {
                                "info": {
                                    "mint": mint,
                                    "owner": account,
                                    "state": "initialized",
                                    "tokenAmount": {"amount": str(raw), "decimals": decimals},
                                },
                                "type": "account",
                            },
                            "program": "spl-token",
                        },
                        "owner": TOKEN,
                        "lamports": 5,
                    },
                }
                for mint, (raw, decimals) in amounts.items()
            ]
        )


def _filter(condition: Mapping[str, Any]) -> int | tuple[int, str]:
    """A filter as reads have it."""
    return (
        condition["dataSize"]
        if "dataSize" in condition
        else (condition["memcmp"]["offset"], condition["memcmp"]["bytes"])
    )


async def read(node: FakeNode, *accounts: str, installed: InstalledProtocols) -> dict[str, AccountState]:
    """Read accounts through the chain of a node, for one snapshot."""
    chain = node.chain()
    head = (await chain.heads()).latest
    reader = chain.account_reader(installed).at(head)
    node.asked.clear()
    plans = {account: reader.read(account, Interactions(), ()) for account in accounts}
    reports: dict[str, Report[AccountState]] = await run_batched(
        plans, lambda reads: chain.answer(reads, head), max_rounds=64
    )
    await chain.close()
    return {account: state for account, report in reports.items() if (state := report.result) is not None}


async def read_of(
    node: SolanaNode, chain: SolanaChain, ledger: Ledger, owner: str, installed: InstalledProtocols
) -> AccountState:
    """Write a ledger to a real node and read an account there; fail if an issue makes the result partial."""
    for address, (program, content) in ledger.accounts.items():
        node.put(Pubkey.from_string(address), program, content, 10**8)
    head = (await chain.heads()).latest
    reader = chain.account_reader(installed).at(head)
    reports = await run_batched(
        {"own": reader.read(owner, Interactions(), ())}, lambda reads: chain.answer(reads, head), max_rounds=64
    )
    state = reports["own"].result
    assert state is not None, reports
    assert state.block is not None
    assert not [each for each in state.issues if each.makes_partial], state.issues
    return state
