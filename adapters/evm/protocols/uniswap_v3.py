"""Uniswap V3 and its forks: NFTs of a position manager, each a liquidity range in one pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from sha3 import keccak_256

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.price_guard import guard_price
from chainfolio.adapters.evm.positions.rules import (
    AtEarlierBlock,
    Collection,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
)
from chainfolio.adapters.evm.protocols.ticks import FeeGrowth, LiquidityState, fee_growth_inside
from chainfolio.adapters.evm.reads import OWNER, AbiValue, Call, balance_of
from chainfolio.plans import all_of
from chainfolio.position_changes import EventLog, PositionChange
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls
from chainfolio.tick_math import MAX_TICK

POSITIONS = (
    "positions(uint256)(uint96,address,address,address,uint24,int24,int24,uint128,uint256,uint256,uint128,uint128)"
)
POOL_POSITION = "positions(bytes32)(uint128,uint256,uint256,uint128,uint128)"
TICKS = "ticks(int24)(uint128,int128,uint256,uint256)"
FACTORY = "factory()(address)"
SLOT0 = "slot0()(uint160,int24)"
NOT_THERE = "the pool does not keep the liquidity for this position manager that it says it put there"
NOT_COVERED = "the code of this pool was not reviewed, and it does not have what it says that the position is worth"


class PositionRecord(NamedTuple):
    """The result of `positions(uint256)`. Fee growth is per unit of liquidity, times 2^128."""

    nonce: int
    operator: str
    token0: str
    token1: str
    fee_pips: int
    tick_lower: int
    tick_upper: int
    liquidity: int
    fee_growth0: int
    fee_growth1: int
    tokens_owed0: int
    tokens_owed1: int

    @property
    def is_empty(self) -> bool:
        """True if neither closing the position nor collecting fees would pay anything."""
        return not (self.liquidity or self.tokens_owed0 or self.tokens_owed1)

    @property
    def tokens(self) -> tuple[str, str]:
        """Both tokens of the pool."""
        return self.token0, self.token1

    def pool(self, factory: str) -> Call:
        """Return the call to the factory that returns the pool."""
        return Call(factory, "getPool(address,address,uint24)(address)", (self.token0, self.token1, self.fee_pips))

    def pool_key(self, manager: str) -> bytes:
        """Return the key under which the pool stores all positions of the manager between these ticks."""
        ticks = (tick.to_bytes(3, "big", signed=True) for tick in (self.tick_lower, self.tick_upper))
        return bytes(keccak_256(bytes.fromhex(manager[2:]) + b"".join(ticks)).digest())

    def pool_reads(self, pool: str) -> list[Call]:
        """Return the calls whose results make a `PoolReads`."""
        return [
            Call(pool, SLOT0),
            Call(pool, "feeGrowthGlobal0X128()(uint256)"),
            Call(pool, "feeGrowthGlobal1X128()(uint256)"),
            Call(pool, TICKS, (self.tick_lower,)),
            Call(pool, TICKS, (self.tick_upper,)),
        ]

    def amounts(self, current: LiquidityState, guarded: LiquidityState) -> tuple[int, int]:
        """Return the raw amounts that removing the liquidity pays, at the price that counts."""
        return current.amounts_at(guarded, self.tick_lower, self.tick_upper)


class Slot0(NamedTuple):
    """The first two results of a pool's `slot0()`.

    `sqrt_price_x96` is the square root of token1 per token0, times 2^96; 0 before the pool is initialised.
    """

    sqrt_price_x96: int
    tick: int


class TickInfo(NamedTuple):
    """The first four results of `ticks(int24)`. Fee growth is the part outside the tick."""

    liquidity_gross: int
    liquidity_net: int
    fee_growth_outside0: int
    fee_growth_outside1: int

    @property
    def fee_growth_outside(self) -> FeeGrowth:
        """The fee growth outside the tick, in both tokens."""
        return FeeGrowth(self.fee_growth_outside0, self.fee_growth_outside1)


class PoolReads(NamedTuple):
    """The price and the fee growth of a pool, and the two ticks of a position."""

    slot0: Slot0
    fee_growth: FeeGrowth
    lower: TickInfo
    upper: TickInfo

    @classmethod
    def of(cls, results: Sequence[AbiValue]) -> PoolReads:
        """Return the results of `PositionRecord.pool_reads` by name."""
        slot0, global0, global1, lower, upper = results
        return cls(Slot0(*slot0), FeeGrowth(global0, global1), TickInfo(*lower), TickInfo(*upper))

    def fee_growth_inside(self, record: PositionRecord) -> FeeGrowth:
        """Return the fee growth between the ticks of a position since the pool's creation."""
        lower = record.tick_lower, self.lower.fee_growth_outside
        upper = record.tick_upper, self.upper.fee_growth_outside
        return fee_growth_inside(self.slot0.tick, lower, upper, self.fee_growth)


@dataclass(frozen=True, slots=True)
class PositionState:
    """The price and liquidity of a position, and the pool's token balances as far as they were read."""

    liquidity: LiquidityState
    balances: tuple[int, ...] = ()

    @classmethod
    def of(cls, slot0: tuple[int, int], record: tuple[AbiValue, ...], *balances: int) -> PositionState | None:
        """Return the state from the results of calls; None if the position did not exist yet."""
        sqrt_price, liquidity = slot0[0], PositionRecord(*record).liquidity
        return cls(LiquidityState(sqrt_price, liquidity), balances) if sqrt_price and liquidity else None

    def price_ratio(self, earlier: PositionState) -> Fraction:
        """Return the higher of both prices divided by the lower."""
        return self.liquidity.price_ratio(earlier.liquidity)


def uncollected_fees(record: PositionRecord, growth_inside: FeeGrowth) -> tuple[int, int]:
    """Return what `collect` would pay in token0 and token1, in raw units.

    Source: Uniswap V3 whitepaper, section 6.4; `PositionValue.fees` of v3-periphery computes the same.
    """
    fee0, fee1 = (growth_inside - FeeGrowth(record.fee_growth0, record.fee_growth1)).fees(record.liquidity)
    return record.tokens_owed0 + fee0, record.tokens_owed1 + fee1


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode one position NFT: the amounts that closing it would pay, and its uncollected fees.

    An NFT that a listed staking contract holds belongs to its depositor. What the staking contract pays is reported as
    unknown, because its incentives are numbered in events only. Managers that no file names are decoded by
    `decode_unlisted`. None if the account does not own the NFT, or if the position is empty.

    If the price in the pool moved too far within the block, the price of the block before counts (`guard_price`). A
    remark says so, or says that the prices could not be compared.
    """
    if match.ids:
        return (yield from decode_unlisted(match))
    manager = match.contract
    owner, factory, result = yield [
        MayRefuse(Call(manager, OWNER, (match.id,))),
        Call(manager, FACTORY),
        MayRefuse(Call(manager, POSITIONS, (match.id,))),
    ]
    staker = owner if owner in match.contracts.get("staker", ()) else ""
    if staker:
        (owner,) = yield [Call(staker, "deposits(uint256)(address)", (match.id,))]
    if owner != match.account:
        return None  # burnt or transferred
    record = PositionRecord(*result)
    if record.is_empty:
        return None
    (pool,) = yield [record.pool(factory)]
    state = [Call(pool, SLOT0), Call(manager, POSITIONS, (match.id,))]
    *pool_results, parent_slot0, parent_record = yield [*record.pool_reads(pool), *map(AtEarlierBlock, state)]
    reads = PoolReads.of(pool_results)
    current = guarded = PositionState(LiquidityState(reads.slot0.sqrt_price_x96, record.liquidity))
    remark = ""
    if record.liquidity:
        parent_results = parent_slot0, parent_record
        guarded, remark = yield from guard_price(state, PositionState.of, current, parent_results)
    raws = record.amounts(current.liquidity, guarded.liquidity)
    fees = uncollected_fees(record, reads.fee_growth_inside(record))
    return DecodedPosition(
        "LIQUIDITYPOOL",
        supplied=tuple(map(TokenAmount, record.tokens, raws)),
        rewards=tuple(map(TokenAmount, record.tokens, fees)),
        pool=pool,
        unknown=f"what {staker} pays for it" if staker else "",
        remark=remark,
    )


@dataclass(slots=True)
class PoolLiquidity:
    """The unclaimed liquidity and fees that a pool stores for a manager between two ticks."""

    liquidity: int
    fees: tuple[int, int]

    @classmethod
    def of(
        cls, claim: PositionRecord, growth_inside: FeeGrowth, stored: tuple[int, int, int, int, int]
    ) -> PoolLiquidity:
        """Return liquidity and uncollected fees, with those accrued since the pool updated its record.

        Args:
            claim: Any record of the same range; its liquidity, fee growth and owed tokens are replaced.
            growth_inside: The fee growth between its ticks now.
            stored: Result of `POOL_POSITION`: liquidity, fee growth of token0 and token1, tokens owed of both.
        """
        liquidity, fee_growth0, fee_growth1, tokens_owed0, tokens_owed1 = stored
        total = claim._replace(
            liquidity=liquidity,
            fee_growth0=fee_growth0,
            fee_growth1=fee_growth1,
            tokens_owed0=tokens_owed0,
            tokens_owed1=tokens_owed1,
        )
        return cls(liquidity, uncollected_fees(total, growth_inside))

    def take(self, claim: PositionRecord, growth_inside: FeeGrowth) -> tuple[int, int] | None:
        """Subtract a claim and return its fees, at most those left; None if its liquidity is not there."""
        if claim.liquidity > self.liquidity:
            return None
        fee0, fee1 = map(min, zip(uncollected_fees(claim, growth_inside), self.fees, strict=True))
        self.liquidity -= claim.liquidity
        self.fees = self.fees[0] - fee0, self.fees[1] - fee1
        return fee0, fee1


class ClaimReads(NamedTuple):
    """A position that an unlisted manager claims, with the reads of its pool.

    `guarded` is the state whose price counts, `stored` the pool's result of `POOL_POSITION` for the manager.
    """

    claim: PositionRecord
    pool: str
    current: PositionState
    guarded: PositionState
    remark: str
    growth_inside: FeeGrowth
    stored: tuple[int, int, int, int, int]


def decode_unlisted(match: ProtocolMatch) -> DecoderPlan:
    """Decode the positions of a manager that no file lists, although one lists its factory.

    Anybody can deploy such a manager, and the code of the factory and its pools may be unreviewed. So a position counts
    only if its pool stores the liquidity for the manager and has both tokens, for all positions of the account
    together, and if the account received it by its own action. NFTs that are empty or of other owners are left out.
    """
    ids = match.ids
    results = yield [MayRefuse(Call(match.contract, call, (number,))) for number in ids for call in (OWNER, POSITIONS)]
    claims: dict[int, PositionRecord] = {}
    for number, owner, result in zip(ids, results[::2], results[1::2], strict=True):
        if result and owner == match.account:
            claim = PositionRecord(*result)
            if not claim.is_empty and -MAX_TICK <= claim.tick_lower < claim.tick_upper <= MAX_TICK:
                claims[number] = claim
    if not claims:
        return []
    pools = yield [claim.pool(match.answer) for claim in claims.values()]
    plans = {
        str(number): _read_claim(claim, number, pool, match.contract)
        for (number, claim), pool in zip(claims.items(), pools, strict=True)
    }
    claim_reads = yield from all_of(plans)
    return verified_positions(list(claim_reads.values()), match.contract)


def _read_claim(claim: PositionRecord, number: int, pool: str, manager: str) -> DecoderPlan:
    """Read the pool of a claimed position and return `ClaimReads`, with a guarded price as in `position`."""
    balances = [balance_of(token, pool) for token in claim.tokens]
    stored_read = Call(pool, POOL_POSITION, (claim.pool_key(manager),))
    state = [Call(pool, SLOT0), Call(manager, POSITIONS, (number,)), stored_read, *balances]
    results = yield [
        *claim.pool_reads(pool),
        stored_read,
        *map(MayRefuse, balances),
        *map(AtEarlierBlock, state),
    ]
    *pool_results, stored = results[:6]
    reads = PoolReads.of(pool_results)
    balances_now = tuple(balance or 0 for balance in results[6:8])
    current = guarded = PositionState(LiquidityState(reads.slot0.sqrt_price_x96, claim.liquidity), balances_now)
    remark = ""
    if claim.liquidity:
        guarded, remark = yield from guard_price(state, _stored_state, current, results[8:])
    return ClaimReads(claim, pool, current, guarded, remark, reads.fee_growth_inside(claim), stored)


def _stored_state(
    slot0: tuple[int, int], record: tuple[AbiValue, ...], stored: tuple[int, ...], *balances: int
) -> PositionState | None:
    """Return the state of a claim, with at most the liquidity stored in the pool; None if it has none."""
    claim = PositionRecord(*record)
    return PositionState.of(slot0, claim._replace(liquidity=min(claim.liquidity, stored[0])), *balances)


def verified_positions(claims: Sequence[ClaimReads], manager: str) -> list[DecodedPosition]:
    """Return the positions, each with the reason if its pool does not support it.

    An earlier state counts only if the pool supported it then, too.
    """
    stored_liquidity: dict[tuple[str, int, int], PoolLiquidity] = {}
    balances, earlier_balances = _PoolBalances(), _PoolBalances()
    positions = []
    for claim, pool, current, guarded, remark, growth_inside, stored in claims:
        pool_liquidity = stored_liquidity.setdefault(
            (pool, claim.tick_lower, claim.tick_upper), PoolLiquidity.of(claim, growth_inside, stored)
        )
        fees = pool_liquidity.take(claim, growth_inside)
        raws = claim.amounts(current.liquidity, current.liquidity)
        is_backed = balances.take(pool, claim.tokens, current.balances, raws, fees or (0, 0))
        if remark and guarded is not current:
            earlier = guarded.liquidity._replace(liquidity=min(guarded.liquidity.liquidity, claim.liquidity))
            earlier_raws = claim.amounts(earlier, earlier)
            was_backed = earlier_balances.take(pool, claim.tokens, guarded.balances, earlier_raws)
            raws, remark = (claim.amounts(current.liquidity, guarded.liquidity), remark) if was_backed else (raws, "")
        positions.append(
            DecodedPosition(
                "LIQUIDITYPOOL",
                supplied=tuple(map(TokenAmount, claim.tokens, raws)),
                rewards=tuple(map(TokenAmount, claim.tokens, fees or (0, 0))),
                pool=pool,
                replaces=(manager,),
                unverified=NOT_THERE if fees is None else "" if is_backed else NOT_COVERED,
                is_unlisted=True,
                remark=remark,
            )
        )
    return positions


class _PoolBalances(dict[tuple[str, str], int]):
    """The balances of pools by pool and token, less what positions have claimed."""

    def take(self, pool: str, tokens: Sequence[str], balances: Sequence[int], *claimed: tuple[int, int]) -> bool:
        """Subtract claimed amounts of both tokens; True if the pool has them."""
        for token, balance, raws in zip(tokens, balances, zip(*claimed, strict=True), strict=True):
            self[pool, token] = self.get((pool, token), balance) - sum(raws)
        return all(self[pool, token] >= 0 for token in tokens)


# Events of a position manager, each with the event that the pool logs before it. Values of both end with two amounts.
POOL_EVENTS = {
    parse_event("IncreaseLiquidity(uint256 indexed,uint128,uint256,uint256)").topic: parse_event(
        "Mint(address,address indexed,int24 indexed,int24 indexed,uint128,uint256,uint256)"
    ).topic,
    parse_event("DecreaseLiquidity(uint256 indexed,uint128,uint256,uint256)").topic: parse_event(
        "Burn(address indexed,int24 indexed,int24 indexed,uint128,uint256,uint256)"
    ).topic,
    parse_event("Collect(uint256 indexed,address,uint256,uint256)").topic: parse_event(
        "Collect(address indexed,address,int24 indexed,int24 indexed,uint128,uint128)"
    ).topic,
}
SIGNS = dict(zip(POOL_EVENTS, (1, -1, 0), strict=True))  # of the liquidity
# Algebra's manager logs the desired liquidity first, and the pool last. Its other events are those of Uniswap V3.
ALGEBRA_INCREASE = parse_event("IncreaseLiquidity(uint256 indexed,uint128,uint128,uint256,uint256,address)").topic
POOL_EVENTS[ALGEBRA_INCREASE] = next(iter(POOL_EVENTS.values()))
SIGNS[ALGEBRA_INCREASE] = 1
TRANSFER = parse_event("Transfer(address indexed,address indexed,uint256)").topic


def changes(logs: Sequence[EventLog]) -> list[PositionChange]:
    """Return the changes of positions that the logs of one transaction show, in their order.

    Logs of another shape are left out. Tokens and pools that the logs do not show are empty.
    """
    changes_of_positions = []
    for i, log in enumerate(logs):
        topic = log.topics[0] if log.topics else ""
        start, size = (32, 160) if topic == ALGEBRA_INCREASE else (0, 96)
        if topic not in POOL_EVENTS or len(log.topics) != 2 or len(log.data) != size:
            continue
        pools = (each.contract for each in reversed(logs[:i]) if each.topics[:1] == (POOL_EVENTS[topic],))
        pool = next(pools, "")
        first, raw0, raw1 = (int.from_bytes(log.data[start + at : start + at + 32], "big") for at in (0, 32, 64))
        tokens = _tokens(logs, pool, (raw0, raw1))
        units = SIGNS[topic] * first
        changes_of_positions.append(
            PositionChange(log.contract, int(log.topics[1], 16), units, tokens, (raw0, raw1), pool)
        )
    return changes_of_positions


def _tokens(logs: Sequence[EventLog], pool: str, raws: tuple[int, int]) -> tuple[str, str]:
    """Return both tokens of a pool in the order of addresses, as far as its transfers show them."""
    holder = "0x" + pool[2:].rjust(64, "0")
    contracts = sorted(
        {
            log.contract
            for log in logs
            if len(log.topics) == 3 and log.topics[0] == TRANSFER and pool and holder in log.topics[1:]
        }
    )
    if len(contracts) == 2:
        return contracts[0], contracts[1]
    if len(contracts) == 1 and 0 in raws and any(raws):
        return (contracts[0], "") if raws[0] else ("", contracts[0])
    return "", ""


FAMILY = Family(
    "uniswap_v3",
    rules=(Collection("position_manager"), Collection("factory", question=FACTORY)),
    position=position,
    roles=("staker",),
    changes=changes,
    # One call of many that ends with a new position; routers, which have the same function, make none.
    calls=(TypedCalls("ADDLIQUIDITY", "collectible minted", ("multicall",)),),
)
