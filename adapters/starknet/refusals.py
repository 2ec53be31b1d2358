"""Typed errors for the refusals of Starknet nodes, by their code and message.

The codes are those of the JSON-RPC specification from 0.3 to 0.10. A missing function has code 40 (an error of the
contract) in early versions and 21 in later ones, so the message decides between them.
"""

from __future__ import annotations

import re
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

NO_CONTRACT, NO_FUNCTION, NO_BLOCK, NO_TRANSACTION, NO_BLOCKS = 20, 21, 24, 29, 32
INTERNAL = -32603  # some nodes also use it for an error of the contract
BAD_PAGE, BAD_TOKEN, TOO_MANY_KEYS, CONTRACT_ERROR, NO_STATE = 31, 33, 34, 40, 42
_RATE_LIMITED: Final = re.compile(
    r"rate.?limit|too many requests|requests? per|throttl|compute units|\bcredits\b|capacity|quota|calls? per|"
    r"\brps\b|limit (?:reached|exceeded)|exceeded .{0,30}limit|slow down|rate exceeded|daily usage|query frequency|"
    r"too quickly|reached .{0,40}limit",
    re.I,
)
_UNSUPPORTED: Final = re.compile(
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
_CONTRACT_FAILED: Final = re.compile(
    r"Error at pc=|Cairo traceback|ASSERT_EQ instruction failed|Error in the called contract|"
    r"Execution was reverted; failure reason"
)
MAX_DETAILS: Final = 4000  # characters of the data that a node adds to its message


class ContractError(BadAnswer):
    """A contract refused a call; every node gives the same answer."""


class NoFunction(ContractError):
    """The contract has no such function."""


class NoContract(BadAnswer):
    """There is no contract at the address."""


def error_from(source: str, method: str, refusal: RpcError, height: int = 0) -> SourceError:
    """Return the typed error for a node's refusal of a method that was called about a height."""
    message = "".join(char if char.isprintable() else " " for char in refusal.message[:400])
    reason = f"{method}: {redacted(message)}"
    error = _contract_error(source, reason, message, refusal) or _block_error(source, reason, height, refusal.code)
    if error is not None:
        return error
    if refusal.code in (BAD_PAGE, TOO_MANY_KEYS):
        return ResponseTooLarge(source, reason)
    if refusal.code in (NO_TRANSACTION, BAD_TOKEN):
        return BadAnswer(source, reason)
    if refusal.code in (429, -32429, -32097) or _RATE_LIMITED.search(message):
        return RateLimited(source, f"it limits us: {redacted(message)}")
    if refusal.code in (401, 403, -32601, -32600) or _UNSUPPORTED.search(message):
        return UnsupportedMethod(source, reason)
    if refusal.code in (INTERNAL, -32000):
        return Unavailable(source, reason)
    return BadAnswer(source, f"{method} was refused: {redacted(message)} (code {refusal.code})")


def _contract_error(source: str, reason: str, message: str, refusal: RpcError) -> SourceError | None:
    """Return the error of a failed call; None if the refusal is about something else."""
    if refusal.code == NO_CONTRACT or (refusal.code == INTERNAL and _NO_CONTRACT.search(message)):
        return NoContract(source, reason)
    if refusal.code == NO_FUNCTION or (refusal.code == CONTRACT_ERROR and _is_missing_function(refusal)):
        return NoFunction(source, reason)
    if refusal.code == CONTRACT_ERROR or (refusal.code == INTERNAL and _CONTRACT_FAILED.search(refusal.message)):
        return ContractError(source, reason)
    return None


def _block_error(source: str, reason: str, height: int, code: int) -> SourceError | None:
    """Return the error of a block or state that the node lacks; None if the code is about something else."""
    if code in (NO_BLOCK, NO_BLOCKS):
        return NodeBehind(source, reason)
    return HistoryUnavailable(source, height, reason) if code == NO_STATE else None


def _is_missing_function(refusal: RpcError) -> bool:
    """Return True if a contract error means a missing function: it says so, or has no details."""
    return refusal.data is None or bool(_NO_FUNCTION.search(_full_text(refusal)))


def _full_text(refusal: RpcError) -> str:
    """Return the message and the start of its details."""
    details: object = refusal.data
    if isinstance(details, dict):
        details = details.get("revert_error", details)
    return refusal.message + " " + str(details)[:MAX_DETAILS]
