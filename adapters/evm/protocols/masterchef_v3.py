"""PancakeSwap's MasterChefV3: position NFTs of Uniswap V3's kind that earn CAKE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chainfolio.adapters.evm.positions.rules import Counterparty, DecoderPlan, Event, Family, MayRefuse, ProtocolMatch
from chainfolio.adapters.evm.protocols.ticks import amounts
from chainfolio.adapters.evm.protocols.uniswap_v3 import FACTORY, POSITIONS, PoolReads, PositionRecord, uncollected_fees
from chainfolio.adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount, TypedCalls

MAX_NFTS = 500
DEPOSIT = "Deposit(address indexed from, uint256 indexed pid, uint256 indexed tokenId, uint256 l, int24 a, int24 b)"
USER = "userPositionInfos(uint256)(uint128,uint128,int24,int24,uint256,uint256,address)"


def position(match: ProtocolMatch) -> DecoderPlan:
    """Decode amounts, fees and CAKE of the account's NFTs in the farm.

    Only the first MAX_NFTS are read; a position without amounts names others as unknown. The pool's current
    price counts: it is not compared with earlier blocks.
    """
    farm, account = match.contract, match.account
    cake, manager, count = yield [
        Call(farm, "CAKE()(address)"),
        Call(farm, "nonfungiblePositionManager()(address)"),
        Call(farm, "balanceOf(address)(uint256)", (account,)),
    ]
    factory, *numbers = yield [
        Call(manager, FACTORY),
        *(
            Call(farm, "tokenOfOwnerByIndex(address,uint256)(uint256)", (account, index))
            for index in range(min(count, MAX_NFTS))
        ),
    ]
    results = yield [
        read
        for number in numbers
        for read in (
            Call(manager, POSITIONS, (number,)),
            Call(farm, USER, (number,)),
            MayRefuse(Call(farm, "pendingCake(uint256)(uint256)", (number,))),
        )
    ]
    rows = zip(numbers, results[::3], results[1::3], results[2::3], strict=True)
    records = {number: PositionRecord(*words) for number, words, user, _ in rows if user[6] == account}
    rewards = dict(zip(numbers, results[2::3], strict=True))
    pools = yield [record.pool(factory) for record in records.values()]
    positions = yield from _positions(records, pools, {n: rewards[n] for n in records}, cake)
    if count > MAX_NFTS:
        unknown = f"its NFTs in the farm beyond the first {MAX_NFTS:,} of {count:,}"
        positions.append(DecodedPosition("FARMING", pool=farm, unknown=unknown))
    return positions


def _positions(
    records: Mapping[int, PositionRecord], pools: Sequence[str], rewards: Mapping[int, int | None], cake: str
) -> DecoderPlan:
    """Return one position for each record, after one more round for their pools."""
    pairs = zip(records.values(), pools, strict=True)
    results = yield [read for record, pool in pairs for read in record.pool_reads(pool)]
    positions = []
    for index, (number, record) in enumerate(records.items()):
        reads, reward = PoolReads.of(results[5 * index : 5 * index + 5]), rewards[number]
        raws = amounts(record.liquidity, reads.slot0.sqrt_price_x96, record.tick_lower, record.tick_upper)
        fees = uncollected_fees(record, reads.fee_growth_inside(record))
        positions.append(
            DecodedPosition(
                "FARMING",
                supplied=tuple(map(TokenAmount, record.tokens, raws)),
                rewards=(
                    *map(TokenAmount, record.tokens, fees),
                    *(() if reward is None else (TokenAmount(cake, reward),)),
                ),
                name=f"Position {number}",
                pool=pools[index],
                unknown="" if reward is not None else "its CAKE",
            )
        )
    return positions


FAMILY = Family(
    "masterchef_v3",
    rules=(Counterparty("nft_farm"), Event("nft_farm", DEPOSIT, owner=0)),
    position=position,
    calls=(TypedCalls("CLAIM", "gain", ("harvest",)), TypedCalls("UNSTAKE", "gain", ("withdraw",))),
    is_proven=False,
)
