"""Classify refusals of nodes by one table from wording to kind of error; the first match wins.

The same code means different things at different providers (-32005 is both "too many results" and "rate limit"), so the
words decide. Sources: the messages of geth, erigon, nethermind, reth, anvil, hardhat and of the large public providers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NodeBehind,
    ResponseTooLarge,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.messages import redacted
from chainfolio.transport.wire import RpcError


class CallReverted(BadAnswer):
    """The call itself failed inside the EVM: an answer about the contract, not about the node."""

    def __init__(self, source: str, message: str, data: bytes) -> None:
        super().__init__(source, message)
        self.data = data


class OutOfGas(BadAnswer):
    """A call needs more gas than the node allows."""


# The span that a refusal names: `[0x1, 0x5]` or `range 1-5` to try, or else the number that it calls a limit.
_TRY_HEX = re.compile(r"\[(0x[0-9a-f]+),\s*(0x[0-9a-f]+)\]", re.I)
_TRY_DECIMAL = re.compile(r"range (\d+)-(\d+)")
_LIMIT = re.compile(
    r"\b(?:max(?:imum)?|limit(?:ed)?|up to|at most|smaller than|over|greater than)\b"
    r"[^0-9]{0,40}(?:0 ?- ?)?([0-9][0-9,.]*)\s?(k\b)?",
    re.I,
)

_LIMITED = re.compile(
    r"rate.?limit|too many requests|request (?:rate|limit|count)|requests? per|daily request|throttl|compute units|"
    r"capacity|exceeded (?:the |its |your )?(?:quota|credits)|quota exceeded|calls? per|\brps\b",
    re.I,
)
_DENSE = re.compile(
    r"(?:returned|returns) more than|too many (?:results|logs)|logs matched|exceeds? max results|max results|"
    r"response (?:size|is too|too)|size (?:is )?exceed|result(?:s|set)? (?:window|limit|too)|logs? (?:limit|exceed)|"
    r"(?:query|request|execution) (?:timed out|timeout)|(?:body|content) too large|^limit exceeded",
    re.I,
)
_RANGE = re.compile(
    r"(?<!invalid )blocks? range|range (?:is )?(?:too|greater|limit)|too (?:large|wide|big|many blocks)|"
    r"blocks? distance|ranges? over \d|range .{0,24}exceed|exceed.{0,24} range|smaller than size|at most [\d,]+ blocks|"
    r"rounds in logs query|limited to .{0,16}(?:range|blocks)",
    re.I,
)
_PRUNED = re.compile(
    r"missing trie node|historical state|state (?:is )?(?:not|un)\s?available|state .{0,80}(?:pruned|discarded)|pruned|"
    r"pruning|BlockOutOfRange|block is out of range|no state available|archive|history has been|proof window|"
    r"old data not available|state .{0,80}not available|snapshot .{0,20}not (?:found|available)|root not found",
    re.I,
)
_BEHIND = re.compile(
    r"header not found|unknown block|block .{0,80}not (?:found|available)|could not find block|after last accepted|"
    r"beyond (?:the )?current head|unfinalized data|in the future|not yet (?:available|indexed)|"
    r"hash .{0,80}not (?:found|canonical|currently canonical)",
    re.I,
)
_TRANSIENT = re.compile(
    r"try again (?:later|in)|busy|overload|temporarily|backend|timeout waiting|header timeout|connection|"
    r"internal server error|service unavailable",
    re.I,
)
_NO_METHOD = re.compile(r"^(?:the )?method \w+ (?:does not exist|is not (?:supported|available))", re.I)
_UNSUPPORTED = re.compile(
    r"method .{0,60}(?:not|isn't)|not (?:supported|implemented|whitelisted|allowed)|unsupported|"
    r"does not exist/is not available|unknown (?:method|field)|invalid (?:params|argument|type)|cannot unmarshal|"
    r"too many arguments|deserializ|missing .{0,20}argument|unexpected|batch|"
    r"cannot wrap a",
    re.I,
)
_GAS = re.compile(
    r"out.?of.?gas|memoryoog|gas required exceeds|gas limit|intrinsic gas|gas .{0,20}(?:too high|too low|exceed)|"
    r"execution (?:aborted|timed out|timeout)|returned result on length",
    re.I,
)
_REVERT = re.compile(
    r"revert|invalid opcode|invalid jump|stack (?:under|over)flow|vm (?:exception|execution error)|bad instruction|"
    r"opcode",
    re.I,
)

_Kind = Callable[[str, str, RpcError, int], SourceError]
_Table = tuple[tuple[re.Pattern[str], _Kind], ...]

_CALLS: Final[_Table] = (
    (_GAS, lambda source, message, error, height: OutOfGas(source, redacted(message))),
    (_REVERT, lambda source, message, error, height: CallReverted(source, redacted(message), _revert_data(error))),
)
_LOGS: Final[_Table] = (
    (_BEHIND, lambda source, message, error, height: NodeBehind(source, redacted(message))),
    (
        _DENSE,
        lambda source, message, error, height: ResponseTooLarge(
            source, redacted(message), max_span=_suggested(message), dense=True
        ),
    ),
    (
        _RANGE,
        lambda source, message, error, height: ResponseTooLarge(source, redacted(message), max_span=_allowed(message)),
    ),
)
_ANY: Final[_Table] = (
    (_NO_METHOD, lambda source, message, error, height: UnsupportedMethod(source, redacted(message))),
    (_PRUNED, lambda source, message, error, height: HistoryUnavailable(source, height, redacted(message))),
    (_BEHIND, lambda source, message, error, height: NodeBehind(source, redacted(message))),
    (_TRANSIENT, lambda source, message, error, height: Unavailable(source, redacted(message))),
    (_UNSUPPORTED, lambda source, message, error, height: UnsupportedMethod(source, redacted(message))),
)


def meaning(source: str, method: str, error: RpcError, height: int = 0) -> SourceError:
    """Return the typed error of a refusal of `method` that concerned block `height`; BadAnswer if unknown.

    Messages are shown without secrets.
    """
    message = _message(error)
    shown_message = redacted(message)
    if error.code == -32601:
        return UnsupportedMethod(source, f"{method}: {shown_message}")
    if error.code == 3 and method == "eth_call":
        return CallReverted(source, shown_message, _revert_data(error))
    if error.code == 429 or (_LIMITED.search(message) and not (method == "eth_call" and _REVERT.search(message))):
        return RateLimited(source, f"it limits us: {shown_message}")
    for pattern, kind in {"eth_call": _CALLS, "eth_getLogs": _LOGS, "trace_filter": _LOGS}.get(method, ()) + _ANY:
        if pattern.search(message):
            return kind(source, message, error, height)
    if error.code in (-32005, -32016):
        return RateLimited(source, f"it limits us: {shown_message}")
    if error.code == -32602:
        return UnsupportedMethod(source, f"{method}: {shown_message}")
    return BadAnswer(source, f"{method} was refused: {shown_message} (code {error.code})")


def _message(error: RpcError) -> str:
    """Return a node's message on one line; some say `invalid params` and put the reason into `data`."""
    details = f": {error.data}" if isinstance(error.data, str) and not error.data.startswith("0x") else ""
    return "".join(char if char.isprintable() else " " for char in (error.message[:400] + details)[:400])


def _suggested(message: str) -> int | None:
    """Return the number of blocks in the range that a refusal proposes; None if it proposes none."""
    if match := _TRY_HEX.search(message):
        return max(1, int(match[2], 16) - int(match[1], 16) + 1)
    if match := _TRY_DECIMAL.search(message):
        return max(1, int(match[2]) - int(match[1]) + 1)
    return None


def _allowed(message: str) -> int | None:
    return _suggested(message) or _limit(message)


def _limit(message: str) -> int | None:
    """Return the number of blocks that a refusal says are allowed; None if it names none."""
    if match := _LIMIT.search(message):
        digits = match[1].rstrip(".,").replace(",", "")
        return max(1, int(digits) * (1000 if match[2] else 1)) if digits.isdigit() else None
    return None


def _revert_data(error: RpcError) -> bytes:
    text = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(text, str) and re.fullmatch(r"0x(?:[0-9a-fA-F]{2})*", text):
        return bytes.fromhex(text[2:])
    return b""
