"""The meaning of a Solana node's error codes and messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from chainfolio.errors import (
    BadAnswer,
    HistoryUnavailable,
    NoBlock,
    NodeBehind,
    SourceError,
    Unavailable,
    UnsupportedMethod,
)
from chainfolio.transport.exchange import RateLimited
from chainfolio.transport.messages import redacted
from chainfolio.transport.wire import RpcError

_Kind = Callable[[str, int, str], SourceError]


def _node_behind(source: str, height: int, text: str) -> SourceError:
    return NodeBehind(source, text)


def _forgotten(source: str, height: int, text: str) -> SourceError:
    return HistoryUnavailable(source, height, text)


def _skipped(source: str, height: int, text: str) -> SourceError:
    return NoBlock(source, height)


def _later(source: str, height: int, text: str) -> SourceError:
    return Unavailable(source, text)


def _unsupported(source: str, height: int, text: str) -> SourceError:
    return UnsupportedMethod(source, text)


def _bad(source: str, height: int, text: str) -> SourceError:
    return BadAnswer(source, text)


# Every code of Agave's `RpcCustomError`, and those of JSON-RPC. Nodes also send -32007 and -32009 for slots whose
# blocks they lost. So a caller that treats a slot as skipped compares the parent of the next block.
CODES: Final[dict[int, _Kind]] = {
    -32001: _forgotten,  # block cleaned up
    -32002: _bad,  # preflight failed
    -32003: _bad,  # signature verification failed
    -32004: _node_behind,  # block not available for the slot
    -32005: _later,  # node unhealthy; some providers: too many requests
    -32006: _bad,  # precompile verification failed
    -32007: _skipped,  # slot skipped
    -32008: _later,  # no snapshot
    -32009: _skipped,  # slot skipped, by the long-term storage
    -32010: _unsupported,  # key excluded from the secondary index
    -32011: _forgotten,  # no transaction history
    -32012: _later,  # a scan of accounts was given up
    -32013: _bad,  # length of a signature
    -32014: _node_behind,  # status of the block not known yet
    -32015: _unsupported,  # version of a transaction
    -32016: _node_behind,  # the minimum context slot is not reached
    -32017: _later,  # rewards of an epoch are being paid
    -32018: _bad,  # slot is no boundary of an epoch
    -32019: _later,  # long-term storage cannot be reached
    -32020: _bad,  # transaction of the filter not found
    -32021: _forgotten,  # no slot history
    -32600: _unsupported,
    -32601: _unsupported,
    -32602: _unsupported,
    -32603: _later,
}
_LIMITED = re.compile(
    r"rate.?limit|too many requests|requests? per|throttl|compute units|\bcredits\b|capacity|quota|calls? per|"
    r"\brps\b|limit (?:reached|exceeded)|exceeded .{0,30}limit|slow down",
    re.I,
)
_REFUSED = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted)|disabled|unsupported|excluded|upgrade|paid plan|"
    r"free (?:plan|tier)|forbidden|only method calls|batch",
    re.I,
)
_FORGOTTEN = re.compile(r"history is not available|cleaned up|pruned|not (?:found )?in (?:ledger|storage)", re.I)


def meaning(source: str, method: str, error: RpcError, height: int = 0) -> SourceError:
    """Return the typed error for a refusal; the node's text is shortened and redacted.

    RateLimited, HistoryUnavailable, NodeBehind, Unavailable or UnsupportedMethod by code or text, NoBlock for a
    skipped slot (nodes send it for lost blocks too), else BadAnswer.

    Args:
        source: The endpoint.
        method: The method that was refused.
        error: The refusal.
        height: The slot that the request was about, for the error; 0 if it was about none.
    """
    message = "".join(char if char.isprintable() else " " for char in error.message[:400])
    text = f"{method}: {redacted(message)}"
    if error.code in (429, -32429, -32097) or _LIMITED.search(message):  # some take codes of the chain for this
        return RateLimited(source, f"it limits us: {redacted(message)}")
    if error.code in CODES:
        return CODES[error.code](source, height, text)
    if _FORGOTTEN.search(message):
        return HistoryUnavailable(source, height, text)
    if error.code in (401, 403, -32052) or _REFUSED.search(message):
        return UnsupportedMethod(source, text)
    return BadAnswer(source, f"{method} was refused: {redacted(message)} (code {error.code})")
