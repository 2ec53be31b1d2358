"""What nodes mean when they refuse: one table from wording and code to the kind of error, first match wins.

The same code means different things at different providers (-32005 is both "too many results" and "rate limit"), so the
words decide. Sources: the messages of geth, erigon, nethermind, reth, anvil, hardhat and of the large public providers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from adapters.evm.wire import RpcError
from chainfolio.errors import BadAnswer, HistoryUnavailable, NodeBehind, SourceError, TooMuch, Unavailable, Unsupported


class Reverting(BadAnswer):
    """The call itself failed inside the EVM: an answer about the contract, not about the node."""

    def __init__(self, source: str, message: str, data: bytes) -> None:
        super().__init__(source, message)
        self.data = data


class OutOfGas(BadAnswer):
    """The node's gas allowance for a call is too small for it."""


_RANGE_HINT = re.compile(r"(?:limited to|maximum is set to|max(?:imum)?(?: is|:| block range:?)?|up to|range (?:limit|of|:))"
                         r"[^0-9]{0,24}([0-9][0-9,.]*)\s?([kK])?")  # fmt: skip
_TRY_RANGE = re.compile(r"\[(0x[0-9a-fA-F]+),\s*(0x[0-9a-fA-F]+)\]")

_RATE = re.compile(
    r"rate.?limit|too many requests|request (?:rate|limit|count)|requests? per|daily request|throttl|capacity|compute units|"
    r"exceeded (?:the |its )?(?:quota|credits)|try again (?:later|in)|busy|overload|temporarily|backend|timeout waiting|"
    r"header timeout|connection|internal server error|service unavailable", re.I)  # fmt: skip
_DENSE = re.compile(
    r"more than \d+ (?:results|logs)|too many (?:results|logs)|response (?:size|too large|is too)|size (?:is )?exceed|"
    r"returned more than|query timeout|result(?:s|set)? (?:window|limit|too)|logs? (?:limit|exceed)|exceeds? max results|"
    r"(?:query|request|execution) (?:timed out|timeout)|body too large|content too large", re.I)  # fmt: skip
_RANGE = re.compile(
    r"block(?:s)? range|range (?:is )?too|too (?:large|wide|big)|blocks? (?:range|limit|distance)|limited to \S+ \S* ?blocks?|"
    r"requested too many blocks|exceed\w* max\w* (?:block )?range|range limit|at most \d+ blocks", re.I)  # fmt: skip
_PRUNED = re.compile(
    r"missing trie node|historical state|state (?:is )?(?:not|un)\s?available|state .{0,40}(?:pruned|discarded)|pruned|"
    r"BlockOutOfRange|block is out of range|no state available|archive|history has been|proof window|"
    r"old data not available|snapshot .{0,20}not (?:found|available)|root not found", re.I)  # fmt: skip
_BEHIND = re.compile(
    r"header not found|unknown block|block .{0,80}not (?:found|available)|could not find block|after last accepted|"
    r"in the future|not yet (?:available|indexed)|hash .{0,80}not (?:found|canonical|currently canonical)", re.I)  # fmt: skip
_UNSUPPORTED = re.compile(
    r"method .{0,60}(?:not|isn't)|not (?:supported|implemented|whitelisted|allowed)|unsupported|does not exist/is not available|"
    r"unknown (?:method|field)|invalid (?:params|argument|type)|cannot unmarshal|too many arguments|deserializ|"
    r"missing .{0,20}argument|unexpected|batch", re.I)  # fmt: skip
_GAS = re.compile(
    r"out.?of.?gas|gas required exceeds|gas limit|intrinsic gas|gas .{0,20}(?:too high|too low|exceed)", re.I
)
_REVERT = re.compile(
    r"revert|invalid opcode|invalid jump|stack (?:under|over)flow|vm exception|bad instruction|opcode", re.I
)

_Kind = Callable[[str, RpcError, int], SourceError]

_CALLS: Final[tuple[tuple[re.Pattern[str], _Kind], ...]] = (
    (_GAS, lambda source, error, height: OutOfGas(source, error.message)),
    (_REVERT, lambda source, error, height: Reverting(source, error.message[:200], _revert_data(error))),
)
_LOGS: Final[tuple[tuple[re.Pattern[str], _Kind], ...]] = (
    (
        _DENSE,
        lambda source, error, height: TooMuch(
            source, error.message[:200], max_span=_hint(error.message, True), dense=True
        ),
    ),
    (_RANGE, lambda source, error, height: TooMuch(source, error.message[:200], max_span=_hint(error.message, False))),
)
_ANY: Final[tuple[tuple[re.Pattern[str], _Kind], ...]] = (
    (_PRUNED, lambda source, error, height: HistoryUnavailable(source, height, error.message[:200])),
    (_BEHIND, lambda source, error, height: NodeBehind(source, error.message[:200])),
    (_RATE, lambda source, error, height: Unavailable(source, error.message[:200])),
    (_UNSUPPORTED, lambda source, error, height: Unsupported(source, error.message[:200])),
)


def meaning(source: str, method: str, error: RpcError, height: int = 0) -> SourceError:
    """The typed error behind a refusal of `method` that was about block `height`."""
    if error.code == -32601:
        return Unsupported(source, f"{method}: {error.message[:200]}")
    if error.code == 3 and method == "eth_call":
        return Reverting(source, error.message[:200], _revert_data(error))
    if error.code == 429:
        return Unavailable(source, error.message[:200])
    table = {"eth_call": _CALLS, "eth_getLogs": _LOGS}.get(method, ()) + _ANY
    for pattern, kind in table:
        if pattern.search(error.message):
            return kind(source, error, height)
    if error.code in (-32005, -32016):
        return Unavailable(source, error.message[:200])
    if error.code == -32602:
        return Unsupported(source, f"{method}: {error.message[:200]}")
    return BadAnswer(source, f"{method} was refused: {error.message[:200]!r} (code {error.code})")


def _hint(message: str, dense: bool) -> int | None:
    """The span a refusal itself suggests: `[0x1, 0x5]` as a range to try, or `limited to 2K blocks`."""
    if match := _TRY_RANGE.search(message):
        return max(1, int(match[2], 16) - int(match[1], 16) + 1)
    if dense:
        return None
    if match := _RANGE_HINT.search(message):
        digits = match[1].rstrip(".,").replace(",", "")
        if digits.isdigit():
            return max(1, int(digits) * (1000 if match[2] else 1))
    return None


def _revert_data(error: RpcError) -> bytes:
    text = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(text, str) and re.fullmatch(r"0x(?:[0-9a-fA-F]{2})*", text):
        return bytes.fromhex(text[2:1026])
    return b""
