"""Causes of differences between an account's balance and its movements in one block.

A cause is a name and a sentence. Without evidence it is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chainfolio.portfolio.reconciliation import BalanceKey, Change, RunningTotals

NOT_INDEXED: Final = "not_indexed"
MISSING_TRACE: Final = "missing_trace"
MISSING_ROW: Final = "missing_row"
WITHDRAWAL: Final = "withdrawal"
MINT: Final = "mint"
BLOCK_REWARD: Final = "block_reward"
REBASING: Final = "rebasing"
FEE_ON_TRANSFER: Final = "fee_on_transfer"
WITHOUT_EVENTS: Final = "without_events"
EVENTS_WITHOUT_EFFECT: Final = "events_without_effect"
UNKNOWN: Final = "unknown"
# Causes that show a gap in the index. For all others, the events of the token itself are incomplete or wrong.
OF_THE_INDEX: Final = frozenset([NOT_INDEXED, MISSING_TRACE, MISSING_ROW, WITHDRAWAL, MINT, BLOCK_REWARD, UNKNOWN])
# Datasets of movements by internal calls, and of payments by the protocol itself.
OF_DATASETS: Final = {"internal": MISSING_TRACE, "mints": MINT, "withdrawals": WITHDRAWAL}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about one asset of one account in one block.

    Attributes:
        unindexed: Datasets of such an asset that are not indexed at this block.
        missing: Raw units, by dataset, that the rows read again from the chain move beyond those of the index.
        is_read: The rows could be read again.
        untraced: They could be read except for movements by internal calls.
        is_rewarded: The block names the account as the recipient of its fees.
        transactions: Number of transactions in the block; None if not known.
        reader_note: What the reader of the account's history could not explain in this block.
        left_out: Names of events that the block has and the index lacks.
        is_complete: The events read again are all of the block, so the token itself causes what they do not explain.
    """

    unindexed: tuple[str, ...] = ()
    missing: Mapping[str, int] = field(default_factory=dict)
    is_read: bool = False
    untraced: bool = False
    is_rewarded: bool = False
    transactions: int | None = None
    reader_note: str = ""
    left_out: tuple[str, ...] = ()
    is_complete: bool = False


Cause = tuple[str, str]  # its name, and a sentence


def cause_of(
    key: BalanceKey, totals: RunningTotals, change: Change, changes: Sequence[Change], evidence: Evidence
) -> Cause:
    """Return the cause of one change of an asset's excess, and its reason as text.

    Missing rows of the index explain it first, then rules for coins and tokens; UNKNOWN if none fits.

    Args:
        changes: All known changes of the asset.
        evidence: What was read again of the change's block.
    """
    if not change.is_found:
        return UNKNOWN, "the balances between these blocks could not be read, so that the block is not known"
    missing = sum(evidence.missing.values())
    if change.amount == missing and any(evidence.missing.values()):
        return _of_rows(evidence)
    if key.asset.is_native:
        return _of_native(change, evidence)
    if missing:
        cause, reason = _of_rows(evidence)
        return cause, f"{reason}; {change.amount - missing} of the difference is something else"
    if evidence.unindexed and not evidence.is_read:
        return NOT_INDEXED, _not_indexed(evidence.unindexed)
    return _of_token(key, totals, change, changes, evidence)


def _of_rows(evidence: Evidence) -> Cause:
    """Return the cause of a change that missing rows explain: not indexed, or left out by the node."""
    names = sorted(name for name, raw in evidence.missing.items() if raw)
    causes = [OF_DATASETS[name] for name in names if name in OF_DATASETS]
    if causes:
        datasets = ", ".join(f"`{name}`" for name in names)
        return causes[0], f"the chain has the movement (dataset {datasets}), and the index does not"
    if set(names) & set(evidence.unindexed):
        return NOT_INDEXED, _not_indexed(evidence.unindexed)
    if evidence.left_out:
        first, other_count = evidence.left_out[0], len(evidence.left_out) - 1
        rest_text = f" and {other_count:,} more" if other_count else ""
        ending = "when the block was indexed: read again, the block has it"
        return MISSING_ROW, f"the node left out {first}{rest_text} {ending}"
    return MISSING_ROW, f"the chain has rows of `{'`, `'.join(names)}` that the index lacks, though it read the block"


def _of_native(change: Change, evidence: Evidence) -> Cause:
    """Return why a native balance changed without a transfer, by the first rule that fits, else UNKNOWN."""
    unindexed = [name for name in evidence.unindexed if name not in OF_DATASETS]
    if unindexed and not evidence.is_read:
        return NOT_INDEXED, _not_indexed(unindexed)
    if evidence.is_rewarded and change.amount > 0:
        return BLOCK_REWARD, "the block names the account as the one who gets its fees"
    if evidence.transactions == 0 and change.amount > 0:
        return WITHDRAWAL, "the block has no transactions: the protocol itself paid, as it does for validators"
    if evidence.untraced or "internal" in evidence.unindexed:
        reason = "a call inside a transaction moved coins, as it seems, and what calls move is not known of this block"
        return MISSING_TRACE, f"{reason}: {evidence.reader_note}" if evidence.reader_note else reason
    return UNKNOWN, evidence.reader_note or "nothing that is known of the block explains it"


def _of_token(
    key: BalanceKey, totals: RunningTotals, change: Change, changes: Sequence[Change], evidence: Evidence
) -> Cause:
    """Return why a token balance differs from its events, by the first rule that fits, else UNKNOWN."""
    without_event = [each for each in changes if each.is_found and not totals.has(each.height)]
    if sum(each.balance_before > 0 and each.balance_after > 0 for each in without_event) > 1:
        return REBASING, "its balances change again and again without an event: accounts hold shares of it"
    if not evidence.is_complete:
        return UNKNOWN, "the events of the block do not explain it, and its receipts, which have all, could not be read"
    if not totals.has(change.height):
        return WITHOUT_EVENTS, "the balance changed, and no event of the token says so"
    indexed_change = totals.change_at(change.height)
    if change.amount == -indexed_change:
        return EVENTS_WITHOUT_EFFECT, "its events say that it moved, and the balance did not change"
    if not key.asset.is_collectible and change.amount < 0:
        return FEE_ON_TRANSFER, "less came than was sent, or more left: the token keeps a part of what is transferred"
    return UNKNOWN, "the balance changed by something else than what its events of this block say"


def _not_indexed(datasets: Sequence[str]) -> str:
    return f"not indexed at this block: {', '.join(f'`{name}`' for name in datasets)}"
