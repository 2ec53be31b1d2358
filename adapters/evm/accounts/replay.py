"""Find payments by calls to an account with `eth_call` and state overrides.

This is for nodes that neither trace nor simulate. A transaction runs again on the parent's state. A stand-in contract
replaces the code of its sender: it makes the same call, and then asks the stand-in contract of the account who paid it,
and how much. Nothing proves such a run, so its sum must equal the change of the balance. The order relative to payments
to other accounts stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chainfolio.adapters.evm.accounts.bodies import Body
from chainfolio.adapters.evm.datasets.internal import CoinTransfer, coin_transfers
from chainfolio.adapters.evm.hexadecimal import data
from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.errors import HistoryUnavailable, SourceError, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

QUERY: Final = "c0ffee" * 10 + "00c0"  # call data that asks a stand-in for its payments: no ABI call begins with it
# Opcodes (load, store) with which the stand-in stores payments. Transient storage comes first: an account that is paid
# with a stipend has no gas for more. Other forks use permanent storage, which `eth_call` discards, too.
STORAGE_OPCODES: Final = (("5c", "5d"), ("54", "55"))

_PROGRAM = """
36 60:20 14 7f:QUERY 60:00 35 14 16 61:read 57
33 30 14 61:exec 57
34 15 61:done 57
60:00 LOAD 80 60:02 02 60:01 01 80 33 90 STORE 34 90 60:01 01 STORE 60:01 01 60:00 STORE
@done 00
@read 60:00 LOAD 60:02 02 60:01 01 60:00
@loop 81 81 10 15 61:end 57 80 LOAD 81 60:20 02 52 60:01 01 61:loop 56
@end 50 60:20 02 60:00 f3
@exec 60:60 36 03 80 60:60 60:00 37
60:00 60:00 82 60:00 60:40 35 60:20 35 5a f1 15 61:fail 57
7f:QUERY 60:00 52 60:00 60:00 60:20 60:00 60:00 60:00 35 5a f1 50
3d 60:00 60:00 3e 3d 60:00 f3
@fail 60:00 60:00 fd
"""


def stand_in(load: str, store: str) -> str:
    """Return the code of the stand-in for senders and accounts, with the given opcodes for storage.

    Asked with `QUERY`, it returns the number of payments, then payer and amount of each. Called by itself (account,
    callee, value, call data), it makes the call and asks the account. Called by others, it stores the payment.
    """
    code, labels, jumps = "", dict[str, int](), dict[int, str]()
    for token in _PROGRAM.split():
        opcode, _, operand = token.partition(":")
        if opcode.startswith("@"):
            labels[opcode[1:]], code = len(code) // 2, code + "5b"
        elif opcode == "61":
            jumps[len(code) + 2], code = operand, code + "610000"
        else:
            code += {"LOAD": load, "STORE": store}.get(opcode, opcode) + {"QUERY": QUERY}.get(operand, operand)
    for at, label in jumps.items():
        code = code[:at] + f"{labels[label]:04x}" + code[at + 4 :]
    return "0x" + code


@dataclass(frozen=True, slots=True)
class MissingPayment:
    """Raw coins that calls in a block's transactions must have paid to an account."""

    body: Body
    account: str
    raw: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One transaction to run again, for one account."""

    payment: MissingPayment
    index: int
    code: str

    def request(self) -> Request:
        """Return the `eth_call` that runs the payment's call on the state before its block, by a stand-in.

        Sender and account get the stand-in's code by a state override.
        """
        tx = self.payment.body.full.transactions[self.index]
        to, account = (str(each)[2:].lower().rjust(64, "0") for each in (tx.to, self.payment.account))
        call = {
            "from": tx.sender,
            "to": tx.sender,
            "data": f"0x{account}{to}{int(tx.value, 16):064x}{tx.input[2:]}",
        }
        overrides = {address: {"code": self.code} for address in {tx.sender.lower(), self.payment.account}}
        return Request("eth_call", (call, hex_of(self.payment.body.full.height - 1), overrides))

    def transfers(self, source: str, answer: bytes) -> list[CoinTransfer]:
        """Return the payments to the account.

        Empty if the answer is not the stand-in's: the node ignores overrides, or the fork does not have its opcodes.
        """
        result = data(source, typed(source, answer, str))
        fields = [result[at : at + 32] for at in range(0, len(result), 32)]
        if len(result) % 32 or not fields or len(fields) != 1 + 2 * int.from_bytes(fields[0], "big"):
            return []
        account = self.payment.account
        pairs = zip(fields[1::2], fields[2::2], strict=True)
        return [
            replace(transfer, item=item)
            for item, (payer, raw) in enumerate(pairs, _first_item(account))
            for transfer in coin_transfers(
                source, self.index, "0x" + payer[12:].hex(), account, int.from_bytes(raw, "big")
            )
        ]


def _first_item(account: str) -> int:
    """Return the first item number of payments to an account.

    How many other transfers the transaction made is unknown, so the number is above all counted items, and differs
    between accounts.
    """
    return 2**30 + int(account, 16) % 2**22 * 2**8


async def replay_payments(
    node: Node, payments: Sequence[MissingPayment]
) -> Mapping[MissingPayment, list[CoinTransfer]]:
    """Return the transfers that make up each payment; payments whose sum does not match are absent.

    All are absent if no endpoint can override code or has the state. A run that fails is ignored.
    """

    async def at(endpoint: Endpoint) -> dict[MissingPayment, list[CoinTransfer]]:
        explained: dict[MissingPayment, list[CoinTransfer]] = {}
        for opcodes in STORAGE_OPCODES:
            pending = [payment for payment in payments if payment not in explained]
            runs = [_Run(payment, index, stand_in(*opcodes)) for payment in pending for index in _call_indices(payment)]
            answers = await endpoint.ask([run.request() for run in runs], height=_lowest(runs)) if runs else []
            transfers: dict[MissingPayment, list[CoinTransfer]] = {}
            for run, answer in zip(runs, answers, strict=True):
                if isinstance(answer, HistoryUnavailable | UnsupportedMethod):
                    raise answer
                if not isinstance(answer, SourceError):  # otherwise the transaction failed, perhaps as it did before
                    transfers.setdefault(run.payment, []).extend(run.transfers(endpoint.name, answer))
            explained |= {
                payment: each for payment, each in transfers.items() if sum(part.raw for part in each) == payment.raw
            }
        return explained

    try:
        return await node.with_any(at, kind="replayed") if payments else {}
    except (UnsupportedMethod, HistoryUnavailable):
        return {}


def _call_indices(payment: MissingPayment) -> list[int]:
    """Return the indices of transactions whose calls may have paid the account."""
    transactions = payment.body.full.transactions
    return [k for k, tx in enumerate(transactions) if tx.to is not None and tx.to.lower() != tx.sender.lower()]


def _lowest(runs: Sequence[_Run]) -> int:
    return min(run.payment.body.full.height for run in runs) - 1
