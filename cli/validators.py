"""`chainfolio validators INDEX|PUBKEY|ADDRESS…`: what validators earned, missed and have, day by day."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from chainfolio.cli.common import Commands, add_csv, show_csv, show_json, show_table, with_system
from chainfolio.cli.groups import GROUPS
from chainfolio.engine.validators.records import records
from chainfolio.engine.validators.results import Range, Window
from chainfolio.errors import BadRequest
from chainfolio.validators import normalised_id

if TYPE_CHECKING:
    from chainfolio.engine.validators.results import Granularity, ValidatorDetails, ValidatorReward
    from chainfolio.indexer.wiring import System

COMPARE = "compare"
UNKNOWN = "N/A"
MAX_SHOWN = 200  # validators
WEI = Decimal(10) ** 18
BAR = 40
WHEN = ("epochStart", "epochEnd", "dateStart", "dateEnd")
COUNTS = (
    "attestationsIncluded",
    "attestationsMissed",
    "syncParticipations",
    "syncMissed",
    "proposedBlocks",
    "missedBlocks",
)


@dataclass(frozen=True, slots=True)
class ValidatorSummary:
    """One validator, what it did in each bucket, and in all of them."""

    details: ValidatorDetails
    buckets: list[ValidatorReward]
    whole: ValidatorReward | None


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("validators", parents=[common], help=GROUPS["validators"], description=__doc__)
    command.add_argument(
        "who", nargs="+", metavar="WHO", help="an index, a public key or a withdrawal address; `compare` before several"
    )
    command.add_argument("--days", type=int, default=30, help="so many days up to the newest epoch that is settled")
    command.add_argument("--by", choices=("epoch", "day", "week", "month"), default="day", help="what a bar stands for")
    add_csv(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the rewards of one validator by period, or a comparison of several, or all as --json or --csv.

    The exit code is 0.

    Raises:
        BadRequest: without a validator, for days out of range, or for too many validators.
    """
    compares = options.who[0] == COMPARE
    validators = [_read(each) for each in options.who[compares:]]
    if not validators or options.days < 1 or options.days > 365:
        raise BadRequest(
            "who" if not validators else "days", "name a validator" if not validators else "between 1 and 365"
        )
    summaries = with_system(options, lambda system: _gather(system, validators, options.days, options.by))
    if options.json:
        show_json([_document(each) for each in summaries])
    elif options.csv:
        show_csv(["index", *WHEN, *_fields()], [row for each in summaries for row in _rows(each)])
    elif compares or len(summaries) > 1:
        _compare(summaries)
    else:
        _summary(summaries[0], options.by)
    return 0


def _read(text: str) -> str:
    parsed = normalised_id(text)
    if parsed is None:
        raise BadRequest("who", f"`{text:.100}` is no index, no public key and no withdrawal address")
    return parsed


async def _gather(system: System, validators: list[str], days: int, by: Granularity) -> list[ValidatorSummary]:
    """Return a summary of each validator over the last days, in order and each once.

    A withdrawal address stands for all its validators. Raises BadRequest for more than MAX_SHOWN of them.
    """
    validator_records = records(system)
    indexes = list(dict.fromkeys([index for each in validators for index in await validator_records.resolve(each)]))
    if len(indexes) > MAX_SHOWN:
        raise BadRequest("who", f"{len(indexes):,} validators", remedy=f"name at most {MAX_SHOWN} of them")
    summaries = []
    for index in indexes:
        buckets = await validator_records.recent(days, by)
        rewards = await validator_records.rewards(index, buckets, Window(0, 100_000))
        parts = Range("epoch", buckets.first, buckets.last, "all")
        total = await validator_records.rewards(index, parts, Window(0, 1))
        summaries.append(
            ValidatorSummary(await validator_records.details(index), list(rewards.rows), next(iter(total.rows), None))
        )
    return summaries


def _document(each: ValidatorSummary) -> dict[str, Any]:
    return {"details": each.details, "rewards": each.buckets, "total": each.whole}


def _fields() -> list[str]:
    """Return the names of the columns of --csv that follow index and period."""
    return [
        "consensusReward",
        "consensusPotentialReward",
        "executionReward",
        "mevBlocks",
        "endEffectiveBalance",
        *COUNTS,
    ]


def _rows(each: ValidatorSummary) -> list[list[object]]:

    index = each.details.validator.index
    documents = msgspec.json.decode(msgspec.json.encode(each.buckets))
    return [[index, *(row[name] for name in (*WHEN, *_fields()))] for row in documents]


def _summary(each: ValidatorSummary, by: str) -> None:
    """Print a validator's state, balance and rewards by period, with bars."""
    validator, balance, life = each.details.validator, each.details.balance, each.details.lifecycle
    print(f"validator {validator.index}  {validator.pubkey}")
    print(f"{validator.status}, balance {_eth(balance.actual)} ETH, effective {_eth(balance.effective)} ETH")
    withdraws = each.details.withdrawal_credentials.address or "nowhere yet: its credentials are a BLS key"
    exit_text = "" if life.exit_epoch is None else f" to {life.exit_epoch}"
    active = (
        "not active yet" if life.activation_epoch is None else f"active from epoch {life.activation_epoch}{exit_text}"
    )
    print(f"{active}, withdraws to {withdraws}")
    if each.whole is None:
        print("no epoch with rewards yet")
        return
    print(f"{each.whole.date_start} to {each.whole.date_end}: {_reward_cells(each.whole)}")
    rewards = [int(bucket.consensus_reward) for bucket in each.buckets]
    largest = max(map(abs, rewards), default=0)
    for bucket, reward in zip(each.buckets, rewards, strict=True):
        name = f"{bucket.epoch_start:>10}" if by == "epoch" else bucket.date_start
        print(f"{name} {_eth(bucket.consensus_reward):>12} {_bar(reward, largest)}")


def _reward_cells(total: ValidatorReward) -> str:
    """Return the sums of a period as one line: rewards in ETH, missed attestations, blocks."""
    attested, missed = total.attestations_included, total.attestations_missed
    brought = f" that brought {_eth(total.execution_reward)} ETH" if total.proposed_blocks else ""
    return (
        f"{_eth(total.consensus_reward)} ETH ({_share(total)}), {missed} of {attested + missed} attestations missed, "
        f"{total.proposed_blocks} blocks{brought}, {_or(total.missed_blocks)} missed"
    )


def _share(total: ValidatorReward) -> str:
    """Return the earned share of the possible reward in per cent."""
    share = total.consensus_efficiency
    return "-" if share is None else f"{Decimal(bytes(share).decode()):.2%}"


def _bar(reward: int, largest: int) -> str:
    """Return a bar for an amount: full blocks for a gain, light ones for a loss, empty for 0."""
    length = BAR * abs(reward) // largest if largest else 0
    return ("█" if reward > 0 else "░") * max(length, 1 if reward else 0)


def _compare(summaries: list[ValidatorSummary]) -> None:
    """Print a table of validators, greatest reward first; "-" for those without an epoch of rewards."""
    rows = []
    for each in sorted(summaries, key=lambda one: int(one.whole.consensus_reward) if one.whole else 0, reverse=True):
        total, validator = each.whole, each.details.validator
        reward_cells = ["-"] * 6
        if total is not None:
            reward_cells = [
                _eth(total.consensus_reward),
                _eth(total.execution_reward),
                _share(total),
                str(total.attestations_missed),
                str(total.proposed_blocks),
                _or(total.missed_blocks),
            ]
        rows.append([str(validator.index), validator.status, _eth(each.details.balance.actual), *reward_cells])
    names = ("validator", "status", "balance", "reward", "of blocks", "efficiency", "missed", "blocks", "missed blocks")
    show_table("", [(name, "left" if name in ("validator", "status") else "right") for name in names], rows)


def _eth(wei: str) -> str:
    """Return an amount in ETH with nine digits (gwei), `?` if unknown; --json has the exact figure."""
    return "?" if wei == UNKNOWN else f"{Decimal(wei) / WEI:.9f}"


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)
