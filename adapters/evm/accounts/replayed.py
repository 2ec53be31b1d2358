"""What calls paid to an account, by nothing but `eth_call` with state overrides: for nodes that neither trace nor
simulate.

A transaction is made again on the state of the parent, by code that stands in for its sender: it makes the same call,
and then asks the code that stands in for the account who paid it, and how much. Nobody vouches for such a run: its
sums have to be those of the balances. In which order others were paid in between it does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters.evm.accounts.bodies import Body
from adapters.evm.datasets.internal import Moved, movements
from adapters.evm.hexadecimal import data
from adapters.evm.node import Node, hex_of
from chainfolio.errors import HistoryUnavailable, SourceError, Unsupported
from transport.endpoint import Endpoint
from transport.wire import Request, typed

ASK: Final = "c0ffee" * 10 + "00c0"  # what the stand-in is asked by: 32 bytes that no call begins with
# Words of the EVM by which the stand-in remembers: for the transaction alone where it can, for one paid with a stipend
# has gas for nothing else; else for good, which a call never is.
MEMORIES: Final = (("5c", "5d"), ("54", "55"))

_PROGRAM = """
36 60:20 14 7f:ASK 60:00 35 14 16 61:read 57
33 30 14 61:exec 57
34 15 61:done 57
60:00 LOAD 80 60:02 02 60:01 01 80 33 90 STORE 34 90 60:01 01 STORE 60:01 01 60:00 STORE
@done 00
@read 60:00 LOAD 60:02 02 60:01 01 60:00
@loop 81 81 10 15 61:end 57 80 LOAD 81 60:20 02 52 60:01 01 61:loop 56
@end 50 60:20 02 60:00 f3
@exec 60:60 36 03 80 60:60 60:00 37
60:00 60:00 82 60:00 60:40 35 60:20 35 5a f1 15 61:fail 57
7f:ASK 60:00 52 60:00 60:00 60:20 60:00 60:00 60:00 35 5a f1 50
3d 60:00 60:00 3e 3d 60:00 f3
@fail 60:00 60:00 fd
"""


def stand_in(load: str, store: str) -> str:
    """The code that stands in for senders and accounts, by the two words that it remembers with.

    Asked by `ASK` it tells what it remembers: how often it was paid, then by whom and how much, each time. Called by
    itself (account, callee, value, call data) it makes a call, and asks the account. Called by others it remembers.
    """
    code, places, open_ = "", dict[str, int](), dict[int, str]()
    for word in _PROGRAM.split():
        op, _, operand = word.partition(":")
        if op.startswith("@"):
            places[op[1:]], code = len(code) // 2, code + "5b"
        elif op == "61":
            open_[len(code) + 2], code = operand, code + "610000"
        else:
            code += {"LOAD": load, "STORE": store}.get(op, op) + {"ASK": ASK}.get(operand, operand)
    for at, name in open_.items():
        code = code[:at] + f"{places[name]:04x}" + code[at + 4 :]
    return "0x" + code


@dataclass(frozen=True, slots=True)
class Rest:
    """What is to be found: coins that calls inside a block's transactions must have paid to an account."""

    body: Body
    account: str
    raw: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One transaction made again, for one account."""

    rest: Rest
    index: int
    code: str

    def request(self) -> Request:
        sent = self.rest.body.full.transactions[self.index]
        to, account = (str(each)[2:].lower().rjust(64, "0") for each in (sent.to, self.rest.account))
        call = {
            "from": sent.sender, "to": sent.sender,
            "data": f"0x{account}{to}{int(sent.value, 16):064x}{sent.input[2:]}",
        }  # fmt: skip
        stands = {address: {"code": self.code} for address in {sent.sender.lower(), self.rest.account}}
        return Request("eth_call", (call, hex_of(self.rest.body.place.height - 1), stands))

    def moved(self, source: str, answer: bytes) -> list[Moved]:
        """What the account remembers of the transaction; nothing where something else ran than the stand-ins, as on a
        node without state overrides, or where the fork of the block does not know a word of theirs."""
        told = data(source, typed(source, answer, str))
        words = [told[at : at + 32] for at in range(0, len(told), 32)]
        if len(told) % 32 or not words or len(words) != 1 + 2 * int.from_bytes(words[0], "big"):
            return []
        pairs = zip(words[1::2], words[2::2], strict=True)
        return [
            replace(moved, item=number)
            for number, (payer, raw) in enumerate(pairs, _first_item(self.rest.account))
            for moved in movements(
                source, self.index, "0x" + payer[12:].hex(), self.rest.account, int.from_bytes(raw, "big")
            )
        ]


def _first_item(account: str) -> int:
    """From where on the payments to an account are numbered: how many others a transaction made is not known. Above the
    numbers of all that are counted, and apart from those of other accounts."""
    return 2**30 + int(account, 16) % 2**22 * 2**8


async def replayed(node: Node, rests: Sequence[Rest]) -> Mapping[Rest, list[Moved]]:
    """Who paid what to accounts, where that is all that is looked for; what does not come out even is left out."""

    async def at(endpoint: Endpoint) -> dict[Rest, list[Moved]]:
        found: dict[Rest, list[Moved]] = {}
        for words in MEMORIES:
            left = [rest for rest in rests if rest not in found]
            runs = [_Run(rest, index, stand_in(*words)) for rest in left for index in _worth(rest)]
            answers = await endpoint.ask([each.request() for each in runs], height=_lowest(runs)) if runs else []
            moves: dict[Rest, list[Moved]] = {}
            for run, answer in zip(runs, answers, strict=True):
                if isinstance(answer, HistoryUnavailable | Unsupported):
                    raise answer
                if not isinstance(answer, SourceError):  # else the transaction failed, as it may have failed before
                    moves.setdefault(run.rest, []).extend(run.moved(endpoint.name, answer))
            found |= {rest: moved for rest, moved in moves.items() if sum(each.raw for each in moved) == rest.raw}
        return found

    try:
        return await node.with_any(at, kind="replayed") if rests else {}
    except (Unsupported, HistoryUnavailable):
        return {}


def _worth(rest: Rest) -> list[int]:
    """Which transactions of a block may have paid an account by their calls: those that call somebody."""
    sent = rest.body.full.transactions
    return [k for k, each in enumerate(sent) if each.to is not None and each.to.lower() != each.sender.lower()]


def _lowest(runs: Sequence[_Run]) -> int:
    return min(each.rest.body.place.height for each in runs) - 1
