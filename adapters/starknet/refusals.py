"""What Starknet nodes mean when they refuse: by the code where it is one of the specification's, else by the words.

The codes are those of the JSON-RPC specification from 0.3 to 0.10. What an earlier one says with 40 (a contract's own
error), a later one says with 21 (the contract has no such function); so the words decide there.
"""

from __future__ import annotations

import re
from typing import Any, Final

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

NO_CONTRACT, NO_FUNCTION, NO_BLOCK, NO_TRANSACTION, NO_BLOCKS = 20, 21, 24, 29, 32
INTERNAL = -32603  # which some nodes say of a contract's own error, too
BAD_PAGE, BAD_TOKEN, TOO_MANY_KEYS, CONTRACT_ERROR, NO_STATE = 31, 33, 34, 40, 42
_LIMITED: Final = re.compile(
    r"rate.?limit|too many requests|requests? per|throttl|compute units|\bcredits\b|capacity|quota|calls? per|"
    r"\brps\b|limit (?:reached|exceeded)|exceeded .{0,30}limit|slow down|rate exceeded|daily usage|query frequency|"
    r"too quickly|reached .{0,40}limit",
    re.I,
)
_REFUSED: Final = re.compile(
    r"not (?:supported|available|allowed|enabled|permitted|found)|disabled|unsupported|upgrade|paid plan|"
    r"free (?:plan|tier)|forbidden|batch",
    re.I,
)
_NO_FUNCTION: Final = re.compile(
    r"entry.?point.{0,200}(?:not found|does not exist)|invalid message selector|ENTRYPOINT_NOT_FOUND|"
    r"Requested entry ?point",
    re.I | re.S,
)
_NO_CONTRACT: Final = re.compile(r"contract address 0x[0-9a-f]+ is not deployed", re.I)
_FAILED: Final = re.compile(
    r"Error at pc=|Cairo traceback|ASSERT_EQ instruction failed|Error in the called contract|"
    r"Execution was reverted; failure reason"
)
MAX_READ: Final = 4000  # characters of what a node says beside its message


class Refused(BadAnswer):
    """A contract refused a call. Every node says the same of it."""


class NoFunction(Refused):
    """The contract has no such function."""


class NoContract(BadAnswer):
    """There is no contract at the address."""


def meaning(source: str, method: str, error: RpcError, height: int = 0) -> SourceError:
    """The typed error behind a refusal of `method` that was about block `height`."""
    words = "".join(char if char.isprintable() else " " for char in error.message[:400])
    said = f"{method}: {redacted(words)}"
    if error.code == NO_CONTRACT or (error.code == INTERNAL and _NO_CONTRACT.search(words)):
        return NoContract(source, said)
    if error.code == NO_FUNCTION or (error.code == CONTRACT_ERROR and _lacks_it(error)):
        return NoFunction(source, said)
    if error.code == CONTRACT_ERROR or (error.code == INTERNAL and _FAILED.search(error.message)):
        return Refused(source, said)
    if error.code in (NO_BLOCK, NO_BLOCKS):
        return NodeBehind(source, said)
    if error.code == NO_STATE:
        return HistoryUnavailable(source, height, said)
    if error.code in (BAD_PAGE, TOO_MANY_KEYS):
        return ResponseTooLarge(source, said)
    if error.code in (NO_TRANSACTION, BAD_TOKEN):
        return BadAnswer(source, said)
    if error.code in (429, -32429, -32097) or _LIMITED.search(words):
        return RateLimited(source, f"it limits us: {redacted(words)}")
    if error.code in (401, 403, -32601, -32600) or _REFUSED.search(words):
        return UnsupportedMethod(source, said)
    if error.code in (INTERNAL, -32000):
        return Unavailable(source, said)
    return BadAnswer(source, f"{method} was refused: {redacted(words)} (code {error.code})")


def _lacks_it(error: RpcError) -> bool:
    """Whether a contract error means that there is no such function: it says so, or nothing at all."""
    return error.data is None or bool(_NO_FUNCTION.search(_all_words(error)))


def _all_words(error: RpcError) -> str:
    """What a node says, and what it repeats of a contract."""
    return error.message + " " + str(_flat(error.data))[:MAX_READ]


def _flat(data: Any) -> Any:
    return data.get("revert_error", data) if isinstance(data, dict) else data
