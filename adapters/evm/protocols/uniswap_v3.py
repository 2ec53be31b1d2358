"""Uniswap V3 and its forks: each position is a token of the position manager, worth its liquidity and its fees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from sha3 import keccak_256

from adapters.evm.positions.rules import Before, Collection, DecoderPlan, Family, MayRefuse, ProtocolMatch
from adapters.evm.positions.settled import settled
from adapters.evm.protocols.ticks import Growth, Liquid, inside
from adapters.evm.reads import Call, balance_of
from chainfolio.plans import all_of
from chainfolio.protocols import DecodedPosition, TokenAmount
from chainfolio.tick_math import MAX_TICK

POSITIONS = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
TICKS = "ticks(int24)(uint128,int128,uint256,uint256)"
OWNER = "ownerOf(uint256)(address)"
FACTORY = "factory()(address)"
SLOT0 = "slot0()(uint160,int24)"


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
        yield Call(pool, SLOT0)
        yield Call(pool, "feeGrowthGlobal0X128()(uint256)")
        yield Call(pool, "feeGrowthGlobal1X128()(uint256)")
        yield Call(pool, TICKS, (self.lower,))
        yield Call(pool, TICKS, (self.upper,))

    def worth(self, liquid: Liquid, counted: Liquid) -> tuple[int, int]:
        """What taking out its liquidity gives of both tokens, at the price that counts."""
        return liquid.at(counted, self.lower, self.upper)


def grown_inside(stored: Stored, said: Sequence[Any]) -> Growth:
    """How much the fees between a position's ticks grew since the beginning, by what its pool said."""
    (_, tick), whole0, whole1, at_lower, at_upper = said
    outside = [(at, Growth(*told[2:])) for at, told in ((stored.lower, at_lower), (stored.upper, at_upper))]
    return inside(tick, outside[0], outside[1], Growth(whole0, whole1))


@dataclass(frozen=True, slots=True)
class InPool:
    """A position in its pool: the price, the liquidity, and how much the pool has of each token, if that was asked."""

    liquid: Liquid
    has: tuple[int, ...] = ()

    @classmethod
    def of(cls, slot0: tuple[int, int], told: tuple[Any, ...], *has: int) -> InPool | None:
        """By what was said; None where there was no such position yet."""
        stored = Stored(*told)
        return cls(Liquid(slot0[0], stored.liquidity), has) if slot0[0] and stored.liquidity else None

    def moved(self, before: InPool) -> Fraction:
        """By how many times the price changed since."""
        return self.liquid.moved(before.liquid)


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
    state = [Call(pool, SLOT0), Call(manager, POSITIONS, (match.id,))]
    *said, slot0, then = yield [*stored.reads(pool), *map(Before, state)]
    now = InPool(Liquid(said[0][0], stored.liquidity))
    counted, remark = (yield from settled(state, InPool.of, now, (slot0, then))) if stored.liquidity else (now, "")
    raws = stored.worth(now.liquid, counted.liquid)
    fees = earned(stored, grown_inside(stored, said))
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=(TokenAmount(stored.token0, raws[0]), TokenAmount(stored.token1, raws[1])),
        rewards=(TokenAmount(stored.token0, fees[0]), TokenAmount(stored.token1, fees[1])),
        pool=pool,
        unknown=f"what {staker} pays for it" if staker else "",
        remark=remark,
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


class Claimed(NamedTuple):
    """A position that a manager claims, with what its pool says: now, and as it counts."""

    claim: Stored
    pool: str
    now: InPool
    counted: InPool
    remark: str
    grown: Growth
    of_manager: tuple[int, int, int, int, int]


def unnamed(match: ProtocolMatch) -> DecoderPlan:
    """The positions of a manager that no file names, although one names its factory.

    Anybody can deploy such a manager, and nobody may have read the code of the factory and of its pools. So a position
    counts where its pool keeps the liquidity for the manager and has both tokens, for all that the account has there
    together, and where the account came by it in an act of its own.
    """
    reads = [MayRefuse(Call(match.contract, ask, (number,))) for number in match.ids for ask in (OWNER, POSITIONS)]
    told = yield reads
    owned = zip(match.ids, told[::2], told[1::2], strict=True)
    claims = {number: Stored(*said) for number, owner, said in owned if said and owner == match.account}
    claims = {
        number: each
        for number, each in claims.items()
        if not each.is_empty and -MAX_TICK <= each.lower < each.upper <= MAX_TICK
    }
    if not claims:
        return []
    pools = yield [each.pool(match.answer) for each in claims.values()]
    found = yield from all_of({
        str(number): _claimed(claim, number, pool, match.contract)
        for (number, claim), pool in zip(claims.items(), pools, strict=True)
    })  # fmt: skip
    return _borne_out(list(found.values()), match.contract)


def _claimed(claim: Stored, number: int, pool: str, manager: str) -> DecoderPlan:
    """What the pool of a claim says of it."""
    has = [balance_of(token, pool) for token in (claim.token0, claim.token1)]
    kept = Call(pool, KEPT, (claim.key(manager),))
    state = [Call(pool, SLOT0), Call(manager, POSITIONS, (number,)), kept, *has]
    told = yield [*claim.reads(pool), kept, *map(MayRefuse, has), *map(Before, state)]
    *said, of_manager = told[:6]
    now = InPool(Liquid(said[0][0], claim.liquidity), tuple(held or 0 for held in told[6:8]))
    counted, remark = (yield from settled(state, _as_kept, now, told[8:])) if claim.liquidity else (now, "")
    return Claimed(claim, pool, now, counted, remark, grown_inside(claim, said), of_manager)


def _as_kept(slot0: tuple[int, int], told: tuple[Any, ...], kept: tuple[int, ...], *has: int) -> InPool | None:
    """A claim in its pool, of which no more counts than the pool kept for the manager."""
    claim = Stored(*told)
    return InPool.of(slot0, claim._replace(liquidity=min(claim.liquidity, kept[0])), *has)


def _borne_out(found: Sequence[Claimed], manager: str) -> list[DecodedPosition]:
    """The positions, with the reason for each that its pool does not bear out. As it was before, one only counts if the
    pool bore it out then, too."""
    kept: dict[tuple[str, int, int], Kept] = {}
    left, left_then = _Left(), _Left()
    positions = []
    for claim, pool, now, counted, remark, grown, of_manager in found:
        whole = kept.setdefault((pool, claim.lower, claim.upper), Kept.of(claim, grown, of_manager))
        fees = whole.take(claim, grown)
        tokens, raws = (claim.token0, claim.token1), claim.worth(now.liquid, now.liquid)
        is_there = left.take(pool, tokens, now.has, raws, fees or (0, 0))
        if remark and counted is not now:
            old = counted.liquid._replace(liquidity=min(counted.liquid.liquidity, claim.liquidity))
            was_there = left_then.take(pool, tokens, counted.has, claim.worth(old, old))
            raws, remark = (claim.worth(now.liquid, counted.liquid), remark) if was_there else (raws, "")
        positions.append(
            DecodedPosition(
                "LIQUIDITYPOOL",
                supplied=tuple(map(TokenAmount, tokens, raws)),
                rewards=tuple(map(TokenAmount, tokens, fees or (0, 0))),
                pool=pool,
                replaces=(manager,),
                unverified=NOT_THERE if fees is None else "" if is_there else NOT_COVERED,
                unlisted=True,
                remark=remark,
            )
        )
    return positions


class _Left(dict[tuple[str, str], int]):
    """What pools have of tokens, less what was claimed of it."""

    def take(self, pool: str, tokens: Sequence[str], has: Sequence[int], *parts: tuple[int, int]) -> bool:
        """Claim some; whether it is there."""
        for token, held, raws in zip(tokens, has, zip(*parts, strict=True), strict=True):
            self[pool, token] = self.get((pool, token), held) - sum(raws)
        return all(self[pool, token] >= 0 for token in tokens)


FAMILY = Family(
    "uniswap_v3",
    rules=(Collection("position_manager"), Collection("factory", question=FACTORY)),
    position=position,
    roles=("staker",),
)
