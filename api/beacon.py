"""GET /v1/beacon/validators/…: validators of the Ethereum beacon chain, by index or by public key."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from chainfolio.api.context import Context
from chainfolio.api.errors import Problem
from chainfolio.api.router import RouteOptions, get
from chainfolio.engine.validators.results import (
    Granularity,
    Range,
    RangeType,
    Rows,
    ValidatorDeposit,
    ValidatorDetails,
    ValidatorId,
    ValidatorReward,
    ValidatorWithdrawal,
    Window,
)

BASE: Final = "/v1/beacon/validators"
MAX_SPAN: Final = {"timestamp": 31_536_000, "epoch": 82_125}
UNITS: Final = {"timestamp": "seconds", "epoch": "epochs"}
FAILS: Final = {
    404: "The beacon chain has no such validator.",
    500: "The beacon node is down or gave an unusable answer. The body is plain text.",
    501: "No beacon chain is configured on this server.",
    503: "Temporarily unavailable: the beacon chain is not indexed that far, or the store does not answer.",
}

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Index = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="The validator's index.", examples=[12345])]
# The length closes what `$` leaves open: a line break after the last digit.
Pubkey = Annotated[
    str,
    msgspec.Meta(
        pattern="^0x[a-fA-F0-9]{96}$",
        max_length=98,
        description="The validator's BLS public key: `0x` + 96 hex digits in any case; answered lower-case.",
        examples=["0x" + "8a" * 48],
    ),
]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Number of rows to skip.")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=10, description="Maximum number of rows.")]


class ByIndex(msgspec.Struct, frozen=True):
    """A validator by its index."""

    index: Index

    @property
    def validator(self) -> int:
        """The index of the validator."""
        return self.index


class ByPubkey(msgspec.Struct, frozen=True):
    """A validator by its public key."""

    pubkey: Pubkey

    @property
    def validator(self) -> str:
        """The public key in lower case."""
        return self.pubkey.lower()


class WindowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Page of the rows."""

    offset: Offset = 0
    limit: Limit = 10

    @property
    def window(self) -> Window:
        """The page as a Window."""
        return Window(self.offset, self.limit)


class RewardsQuery(WindowQuery, frozen=True, kw_only=True, rename="camel"):
    """Range, granularity and page of rewards."""

    range_type: Annotated[RangeType, msgspec.Meta(description="Unit of `rangeFrom` and `rangeTo`.")]
    range_from: Annotated[
        Count, msgspec.Meta(description="The first epoch or Unix second of the range.", examples=[330_000])
    ]
    range_to: Annotated[
        Count, msgspec.Meta(description="The last one, included; at most a year after the first.", examples=[330_224])
    ]
    granularity: Annotated[
        Granularity,
        msgspec.Meta(description="Bucket size: epoch, or UTC day, ISO week or calendar month cut at the range."),
    ]


class Page(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Position of the page: there are `totalRows` rows, which make `pages` pages of `limit` rows."""

    offset: int
    limit: int
    total_rows: int
    pages: int


class RewardsPage(Page, frozen=True, kw_only=True, rename="camel"):
    """Rewards by bucket, earliest first."""

    data: list[ValidatorReward]


class WithdrawalsPage(Page, frozen=True, kw_only=True, rename="camel"):
    """Withdrawals, latest first."""

    data: list[ValidatorWithdrawal]


class DepositsPage(Page, frozen=True, kw_only=True, rename="camel"):
    """Deposits, latest first."""

    data: list[ValidatorDeposit]


def paged(rows: Rows[Any], window: Window) -> dict[str, Any]:
    """Return the fields of a page of rows; without rows, `pages` is 0."""
    return {
        "data": list(rows.rows),
        "offset": window.offset,
        "limit": window.limit,
        "total_rows": rows.total,
        "pages": -(-rows.total // window.limit),
    }


def reward_range(query: RewardsQuery) -> Range:
    """Return the range of a query.

    Raises:
        Problem: 400 if the range ends before it begins, or is longer than a year.
    """
    if query.range_from > query.range_to:
        raise Problem(400, f"rangeFrom {query.range_from} is after rangeTo {query.range_to}")
    longest, unit = MAX_SPAN[query.range_type], UNITS[query.range_type]
    if query.range_to - query.range_from > longest:
        raise Problem(400, f"the range is longer than {longest} {unit}; ask for it in parts")
    return Range(query.range_type, query.range_from, query.range_to, query.granularity)


def check_range(request: Context, path: object, query: RewardsQuery) -> None:
    """Raise a 400 Problem for a range that ends before it begins, or is longer than a year."""
    reward_range(query)


FAMILY: Final[RouteOptions] = {"tag": "Validators", "needs": "enterprise", "envelope": "beacon", "fails": FAILS}
_DETAILS: Final = {
    "validator": {"index": 12345, "pubkey": "0x" + "8a" * 48, "slashed": False, "status": "active_ongoing"},
    "lifecycle": {
        "activationEpoch": 200,
        "activationTimestamp": 1606900823,
        "exitEpoch": None,
        "withdrawableEpoch": None,
    },
    "balance": {"actual": "32004512345000000000", "effective": "32000000000000000000"},
    "withdrawalCredentials": {
        "prefix": 1,
        "credential": "0x01" + "00" * 11 + "b9" * 20,
        "address": "0x" + "b9" * 20,
    },
}
_REWARD: Final = {
    "epochStart": 330000,
    "epochEnd": 330224,
    "timestampStart": 1733540823,
    "timestampEnd": 1733627222,
    "dateStart": "2024-12-07",
    "dateEnd": "2024-12-08",
    "consensusReward": "2250000000000000",
    "consensusPotentialReward": "2500000000000000",
    "consensusEfficiency": 0.9,
    "executionReward": "0",
    "endEffectiveBalance": "32000000000000000000",
    "attestationsIncluded": 224,
    "attestationsMissed": 1,
    "syncParticipations": 0,
    "syncMissed": 0,
    "proposedBlocks": 0,
    "missedBlocks": 0,
    "mevBlocks": 0,
}
_WITHDRAWAL: Final = {
    "slot": 10560000,
    "epoch": 330000,
    "timestamp": 1733540823,
    "index": 71000000,
    "amount": "19234567000000000",
    "address": "0x" + "b9" * 20,
}
_DEPOSIT: Final = {
    "slot": 10400000,
    "epoch": 325000,
    "timestamp": 1731620823,
    "depositIndex": 1800000,
    "amount": "32000000000000000000",
    "withdrawalCredentials": "0x01" + "00" * 11 + "b9" * 20,
    "withdrawalAddress": "0x" + "b9" * 20,
}


def _example(row: dict[str, object]) -> dict[str, object]:
    return {"data": [row], "offset": 0, "limit": 10, "totalRows": 1, "pages": 1}


@get(f"{BASE}/details/index/{{index}}", summary="A validator by its index", **FAMILY, example=_DETAILS)
async def validator_by_index(request: Context, path: ByIndex) -> ValidatorDetails:
    """Returns the status, life cycle, balances in wei and withdrawal credentials of a validator."""
    return await request.engine.validators().details(path.validator)


@get(f"{BASE}/details/pubkey/{{pubkey}}", summary="A validator by its public key", **FAMILY, example=_DETAILS)
async def validator_by_pubkey(request: Context, path: ByPubkey) -> ValidatorDetails:
    """Returns the status, life cycle, balances in wei and withdrawal credentials of a validator."""
    return await request.engine.validators().details(path.validator)


@get(
    f"{BASE}/rewards/index/{{index}}",
    summary="Rewards, by validator index",
    check=check_range,
    **FAMILY,
    example=_example(_REWARD),
)
async def rewards_by_index(request: Context, path: ByIndex, query: RewardsQuery) -> RewardsPage:
    """Returns rewards and duties in buckets of the range, earliest first.

    A range that ends before it begins, or is longer than 31,536,000 seconds or 82,125 epochs, is refused with 400.
    """
    return await _rewards(request, path.validator, query)


@get(
    f"{BASE}/rewards/pubkey/{{pubkey}}",
    summary="Rewards, by public key",
    check=check_range,
    **FAMILY,
    example=_example(_REWARD),
)
async def rewards_by_pubkey(request: Context, path: ByPubkey, query: RewardsQuery) -> RewardsPage:
    """Returns rewards and duties in buckets of the range, earliest first.

    A range that ends before it begins, or is longer than 31,536,000 seconds or 82,125 epochs, is refused with 400.
    """
    return await _rewards(request, path.validator, query)


async def _rewards(request: Context, validator: ValidatorId, query: RewardsQuery) -> RewardsPage:
    rewards = await request.engine.validators().rewards(validator, reward_range(query), query.window)
    return RewardsPage(**paged(rewards, query.window))


@get(
    f"{BASE}/withdrawals/index/{{index}}",
    summary="Withdrawals, by validator index",
    **FAMILY,
    example=_example(_WITHDRAWAL),
)
async def withdrawals_by_index(request: Context, path: ByIndex, query: WindowQuery) -> WithdrawalsPage:
    """Returns withdrawals to the execution layer, latest first."""
    withdrawals = await request.engine.validators().withdrawals(path.validator, query.window)
    return WithdrawalsPage(**paged(withdrawals, query.window))


@get(
    f"{BASE}/withdrawals/pubkey/{{pubkey}}",
    summary="Withdrawals, by public key",
    **FAMILY,
    example=_example(_WITHDRAWAL),
)
async def withdrawals_by_pubkey(request: Context, path: ByPubkey, query: WindowQuery) -> WithdrawalsPage:
    """Returns withdrawals to the execution layer, latest first."""
    withdrawals = await request.engine.validators().withdrawals(path.validator, query.window)
    return WithdrawalsPage(**paged(withdrawals, query.window))


@get(f"{BASE}/deposits/index/{{index}}", summary="Deposits, by validator index", **FAMILY, example=_example(_DEPOSIT))
async def deposits_by_index(request: Context, path: ByIndex, query: WindowQuery) -> DepositsPage:
    """Returns deposits of the validator, latest first."""
    deposits = await request.engine.validators().deposits(path.validator, query.window)
    return DepositsPage(**paged(deposits, query.window))


@get(f"{BASE}/deposits/pubkey/{{pubkey}}", summary="Deposits, by public key", **FAMILY, example=_example(_DEPOSIT))
async def deposits_by_pubkey(request: Context, path: ByPubkey, query: WindowQuery) -> DepositsPage:
    """Returns deposits of the validator, latest first."""
    deposits = await request.engine.validators().deposits(path.validator, query.window)
    return DepositsPage(**paged(deposits, query.window))


ROUTES: Final = (
    validator_by_index,
    validator_by_pubkey,
    rewards_by_index,
    rewards_by_pubkey,
    withdrawals_by_index,
    withdrawals_by_pubkey,
    deposits_by_index,
    deposits_by_pubkey,
)
