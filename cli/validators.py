"""`chainfolio validators INDEX|PUBKEY|ADDRESS…`: what validators earned, missed and have, day by day."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from chainfolio.errors import BadRequest
from chainfolio.validators import named
from cli.common import Commands, add_csv, show_csv, show_json, show_table, with_system

if TYPE_CHECKING:
    from engine.validators import Granularity, ValidatorDetails, ValidatorReward
    from indexer.wiring import System

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
class Shown:
    """One validator, what it did in each bucket, and in all of them."""

    details: ValidatorDetails
    buckets: list[ValidatorReward]
    whole: ValidatorReward | None


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("validators", parents=[common], help="what validators earned", description=__doc__)
    command.add_argument(
        "who", nargs="+", metavar="WHO", help="an index, a public key or a withdrawal address; `compare` before several"
    )
    command.add_argument("--days", type=int, default=30, help="so many days up to the newest epoch that is settled")
    command.add_argument("--by", choices=("epoch", "day", "week", "month"), default="day", help="what a bar stands for")
    add_csv(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    compares = options.who[0] == COMPARE
    who = [_read(each) for each in options.who[compares:]]
    if not who or options.days < 1 or options.days > 365:
        raise BadRequest("who" if not who else "days", "name a validator" if not who else "between 1 and 365")
    found = with_system(options, lambda system: _gather(system, who, options.days, options.by))
    if options.json:
        show_json([_document(each) for each in found])
    elif options.csv:
        show_csv(["index", *WHEN, *_fields()], [row for each in found for row in _rows(each)])
    elif compares or len(found) > 1:
        _compare(found)
    else:
        _summary(found[0], options.by)
    return 0


def _read(written: str) -> str:
    found = named(written)
    if found is None:
        raise BadRequest("who", f"`{written:.100}` is no index, no public key and no withdrawal address")
    return found


async def _gather(system: System, who: list[str], days: int, by: Granularity) -> list[Shown]:
    from engine.validator_records import records
    from engine.validators import Range, Window

    told = records(system)
    indexes = list(dict.fromkeys([index for each in who for index in await told.named(each)]))
    if len(indexes) > MAX_SHOWN:
        raise BadRequest("who", f"{len(indexes):,} validators", remedy=f"name at most {MAX_SHOWN} of them")
    shown = []
    for index in indexes:
        within = await told.recent(days, by)
        found = await told.rewards(index, within, Window(0, 100_000))
        parts = Range("epoch", within.first, within.last, "all")
        whole = await told.rewards(index, parts, Window(0, 1))
        shown.append(Shown(await told.details(index), list(found.rows), next(iter(whole.rows), None)))
    return shown


def _document(each: Shown) -> dict[str, Any]:
    return {"details": each.details, "rewards": each.buckets, "total": each.whole}


def _fields() -> list[str]:
    return [
        "consensusReward",
        "consensusPotentialReward",
        "executionReward",
        "mevBlocks",
        "endEffectiveBalance",
        *COUNTS,
    ]


def _rows(each: Shown) -> list[list[object]]:
    import msgspec

    index = each.details.validator.index
    documents = msgspec.json.decode(msgspec.json.encode(each.buckets))
    return [[index, *(row[name] for name in (*WHEN, *_fields()))] for row in documents]


def _summary(each: Shown, by: str) -> None:
    validator, balance, life = each.details.validator, each.details.balance, each.details.lifecycle
    print(f"validator {validator.index}  {validator.pubkey}")
    print(f"{validator.status}, balance {_eth(balance.actual)} ETH, effective {_eth(balance.effective)} ETH")
    withdraws = each.details.withdrawal_credentials.address or "nowhere yet: its credentials are a BLS key"
    until = "" if life.exit_epoch is None else f" to {life.exit_epoch}"
    active = "not active yet" if life.activation_epoch is None else f"active from epoch {life.activation_epoch}{until}"
    print(f"{active}, withdraws to {withdraws}")
    if each.whole is None:
        print("no epoch with rewards yet")
        return
    print(f"{each.whole.date_start} to {each.whole.date_end}: {_earned(each.whole)}")
    rewards = [int(bucket.consensus_reward) for bucket in each.buckets]
    most = max(map(abs, rewards), default=0)
    for bucket, reward in zip(each.buckets, rewards, strict=True):
        name = f"{bucket.epoch_start:>10}" if by == "epoch" else bucket.date_start
        print(f"{name} {_eth(bucket.consensus_reward):>12} {_bar(reward, most)}")


def _earned(whole: ValidatorReward) -> str:
    attested, missed = whole.attestations_included, whole.attestations_missed
    brought = f" that brought {_eth(whole.execution_reward)} ETH" if whole.proposed_blocks else ""
    return (
        f"{_eth(whole.consensus_reward)} ETH ({_share(whole)}), {missed} of {attested + missed} attestations missed, "
        f"{whole.proposed_blocks} blocks{brought}, {_or(whole.missed_blocks)} missed"
    )


def _share(whole: ValidatorReward) -> str:
    """What was earned of what could have been, as a percentage."""
    share = whole.consensus_efficiency
    return "-" if share is None else f"{Decimal(bytes(share).decode()):.2%}"


def _bar(reward: int, most: int) -> str:
    """A bar for an amount: of full blocks, of light ones for a loss."""
    length = BAR * abs(reward) // most if most else 0
    return ("█" if reward > 0 else "░") * max(length, 1 if reward else 0)


def _compare(found: list[Shown]) -> None:
    rows = []
    for each in sorted(found, key=lambda one: int(one.whole.consensus_reward) if one.whole else 0, reverse=True):
        whole, validator = each.whole, each.details.validator
        earned = ["-"] * 6
        if whole is not None:
            earned = [
                _eth(whole.consensus_reward), _eth(whole.execution_reward), _share(whole),
                str(whole.attestations_missed), str(whole.proposed_blocks), _or(whole.missed_blocks),
            ]  # fmt: skip
        rows.append([str(validator.index), validator.status, _eth(each.details.balance.actual), *earned])
    names = ("validator", "status", "balance", "reward", "of blocks", "efficiency", "missed", "blocks", "missed blocks")
    show_table("", [(name, "left" if name in ("validator", "status") else "right") for name in names], rows)


def _eth(wei: str) -> str:
    """An amount in ETH with nine digits, which is the gwei; the exact figure is in --json. What is not known is `?`."""
    return "?" if wei == UNKNOWN else f"{Decimal(wei) / WEI:.9f}"


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)
