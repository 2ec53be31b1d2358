"""Uniswap V3 and its forks: each position is a token of the position manager, worth its liquidity and its fees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sha3 import keccak_256

from adapters.evm.positions.rules import Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from adapters.evm.protocols.ticks import Growth, amounts, inside
from adapters.evm.reads import Call, balance_of
from chainfolio.protocols import DecodedPosition, TokenAmount
from chainfolio.tick_math import MAX_TICK

POSITIONS = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
TICKS = "ticks(int24)(uint128,int128,uint256,uint256)"
OWNER = "ownerOf(uint256)(address)"
FACTORY = "factory()(address)"


class Stored(NamedTuple):
    """What a manager says of a position."""

    nonce: int
    operator: str
    token0: str
    token1: str
    fee: int
    lower: int
    upper: int
    liquidity: int
    grown0: int
    grown1: int
    owed0: int
    owed1: int

    @property
    def is_empty(self) -> bool:
        """Whether neither closing it nor collecting gives anything."""
        return not (self.liquidity or self.owed0 or self.owed1)

    def pool(self, factory: str) -> Call:
        """How the factory is asked for the pool."""
        return Call(factory, "getPool(address,address,uint24)(address)", (self.token0, self.token1, self.fee))

    def key(self, manager: str) -> bytes:
        """What the pool knows all positions of the manager between these ticks by."""
        ticks = (tick.to_bytes(3, "big", signed=True) for tick in (self.lower, self.upper))
        return bytes(keccak_256(bytes.fromhex(manager[2:]) + b"".join(ticks)).digest())

    def reads(self, pool: str) -> Iterator[Call]:
        """What the pool has to say for `assets`."""
        yield Call(pool, "slot0()(uint160,int24)")
        yield Call(pool, "feeGrowthGlobal0X128()(uint256)")
        yield Call(pool, "feeGrowthGlobal1X128()(uint256)")
        yield Call(pool, TICKS, (self.lower,))
        yield Call(pool, TICKS, (self.upper,))


class Worth(NamedTuple):
    """What closing a position gives of both tokens, and how much its fees grew since the beginning."""

    raws: tuple[int, int]
    grown: Growth


def assets(stored: Stored, said: Sequence[Any]) -> Worth:
    """What a position is worth, by what its pool said."""
    (price, tick), whole0, whole1, at_lower, at_upper = said
    outside = [(at, Growth(*told[2:])) for at, told in ((stored.lower, at_lower), (stored.upper, at_upper))]
    grown = inside(tick, outside[0], outside[1], Growth(whole0, whole1))
    return Worth(amounts(stored.liquidity, price, stored.lower, stored.upper), grown)


def earned(stored: Stored, grown: Growth) -> tuple[int, int]:
    """The fees that collecting would give."""
    fee0, fee1 = (grown - Growth(stored.grown0, stored.grown1)).earned(stored.liquidity)
    return stored.owed0 + fee0, stored.owed1 + fee1


def position(match: ProtocolMatch) -> DecoderPlan:
    """What closing the position gives, and what it has earned and not collected.

    One that lies in a `staker` of the file is its depositor's; what that pays for it is not known, for its incentives
    are only numbered in events.
    """
    if match.ids:
        return (yield from unnamed(match))
    manager = match.contract
    owner, factory, told = yield [
        MayRefuse(Call(manager, OWNER, (match.id,))),
        Call(manager, FACTORY),
        MayRefuse(Call(manager, POSITIONS, (match.id,))),
    ]
    staker = owner if owner in match.contracts.get("staker", ()) else ""
    if staker:
        (owner,) = yield [Call(staker, "deposits(uint256)(address)", (match.id,))]
    if owner != match.account:
        return None  # burnt, or somebody else's by now
    stored = Stored(*told)
    if stored.is_empty:
        return None
    (pool,) = yield [stored.pool(factory)]
    raws, grown = assets(stored, (yield [*stored.reads(pool)]))
    fees = earned(stored, grown)
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(stored.token0, raws[0]), TokenAmount(stored.token1, raws[1])),
        rewards=(TokenAmount(stored.token0, fees[0]), TokenAmount(stored.token1, fees[1])),
        pool=pool,
        unknown=f"what {staker} pays for it" if staker else "",
    )


NOT_THERE = "the pool does not keep the liquidity for this position manager that it says it put there"
NOT_COVERED = "nobody read the code of this pool, and it does not have what it says that the position is worth"
KEPT = "positions(bytes32)(uint128,uint256,uint256,uint128,uint128)"


@dataclass(slots=True)
class Kept:
    """What a pool keeps for a manager between two ticks and has not been claimed by a position yet: liquidity, fees."""

    liquidity: int
    fees: tuple[int, int]

    @classmethod
    def of(cls, claim: Stored, grown: Growth, said: tuple[int, int, int, int, int]) -> Kept:
        """By what the pool says of the whole."""
        liquidity, grown0, grown1, owed0, owed1 = said
        whole = claim._replace(liquidity=liquidity, grown0=grown0, grown1=grown1, owed0=owed0, owed1=owed1)
        return cls(liquidity, earned(whole, grown))

    def take(self, claim: Stored, grown: Growth) -> tuple[int, int] | None:
        """The fees that a position gets, which are never more than there are; None where its liquidity is not there."""
        if claim.liquidity > self.liquidity:
            return None
        fee0, fee1 = map(min, zip(earned(claim, grown), self.fees, strict=True))
        self.liquidity -= claim.liquidity
        self.fees = self.fees[0] - fee0, self.fees[1] - fee1
        return fee0, fee1


def unnamed(match: ProtocolMatch) -> DecoderPlan:
    """The positions of a manager that no file names, although one names its factory.

    Anybody can deploy such a manager, and nobody may have read the code of the factory and of its pools. So a position
    counts where its pool keeps the liquidity for the manager and has both tokens, for all that the account has there
    together, and where the account came by it in an act of its own.
    """
    reads = [MayRefuse(Call(match.contract, ask, (number,))) for number in match.ids for ask in (OWNER, POSITIONS)]
    told = yield reads
    claims = [
        Stored(*said) for owner, said in zip(told[::2], told[1::2], strict=True) if said and owner == match.account
    ]
    claims = [each for each in claims if not each.is_empty and -MAX_TICK <= each.lower < each.upper <= MAX_TICK]
    if not claims:
        return []
    pools = yield [each.pool(match.answer) for each in claims]
    told = yield [ask for each, pool in zip(claims, pools, strict=True) for ask in _state(each, pool, match.contract)]
    kept: dict[tuple[str, int, int], Kept] = {}
    left: dict[tuple[str, str], int] = {}
    found = []
    for at, (claim, pool) in enumerate(zip(claims, pools, strict=True)):
        *said, of_manager, held0, held1 = told[8 * at : 8 * at + 8]
        raws, grown = assets(claim, said)
        fees = kept.setdefault((pool, claim.lower, claim.upper), Kept.of(claim, grown, of_manager)).take(claim, grown)
        tokens = claim.token0, claim.token1
        problem = NOT_THERE if fees is None else ""
        for token, held, raw, fee in zip(tokens, (held0, held1), raws, fees or (0, 0), strict=True):
            left[pool, token] = left.get((pool, token), held or 0) - raw - fee
            problem = problem or (NOT_COVERED if left[pool, token] < 0 else "")
        found.append(
            DecodedPosition(
                "LIQUIDITYPOOL",
                supplied=tuple(map(TokenAmount, tokens, raws)),
                rewards=tuple(map(TokenAmount, tokens, fees or (0, 0))),
                pool=pool,
                replaces=(match.contract,),
                unverified=problem,
                unlisted=True,
            )
        )
    return found


def _state(claim: Stored, pool: str, manager: str) -> Iterator[Call | MayRefuse]:
    """What there is to know of a position in a pool, and of the pool beside it."""
    yield from claim.reads(pool)
    yield Call(pool, KEPT, (claim.key(manager),))
    yield MayRefuse(balance_of(claim.token0, pool))
    yield MayRefuse(balance_of(claim.token1, pool))


FAMILY = Family(
    "uniswap_v3",
    rules=(Collection("position_manager"), Collection("factory", question=FACTORY)),
    position=position,
    roles=("staker",),
)
