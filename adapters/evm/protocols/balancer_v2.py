"""Balancer V2: a share of a pool stands for what the pool would pay for it in all tokens.

The tokens lie in the vault. Anybody can register a pool with any code: its shares count only if they came to the
account by its own action, and if the pool's tokens in the vault are enough for all shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from chainfolio.adapters.evm.positions.events import parse_event
from chainfolio.adapters.evm.positions.price_guard import Reserves, guard_reserves, reserves
from chainfolio.adapters.evm.positions.rules import (
    AtEarlierBlock,
    DecoderPlan,
    Family,
    MayRefuse,
    ProtocolMatch,
    ReadError,
    Token,
    is_backed,
)
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.position_changes import EventLog, VaultChange
from chainfolio.protocols import AnnotatedShare, TokenAmount, TypedCalls, UnlistedShare, UnverifiedShare

# The kind of exit that pays a part of each token: in most pools, and in those whose own shares are among the tokens.
TOKENS_OUT, ALL_TOKENS_OUT = 1, 2
ONE = 10**18
SWAPPED: Final = parse_event("Swap(bytes32 indexed, address indexed, address indexed, uint256, uint256)").topic
POOL: Final = slice(2, 42)  # of the id of a pool: its address
NOT_COVERED = "what lies in the vault for the pool does not cover what it promises for all its shares"
POOL_TOKENS = "getPoolTokens(bytes32)(address[],uint256[],uint256)"
QUERY_EXIT = "queryExit(bytes32,address,address,uint256[],uint256,uint256,bytes)(uint256,uint256[])"


def unwrap(match: ProtocolMatch, raw: int) -> DecoderPlan:
    """Return the tokens that leaving the pool with `raw` shares pays now, after the protocol's fees.

    If the block moved the pool's price, the balances of the parent block count (`guard_reserves`). None if the vault
    does not know the pool, or if the exit pays another number of tokens. An UnlistedShare, an AnnotatedShare with a
    remark if other balances count, or an UnverifiedShare if the balances do not cover the payout.

    Raises:
        ReadError: The pool has no exit that pays a part of each token, like linear and phantom pools.
    """
    pool, vault = match.contract, match.answer
    pool_id, collector = yield [
        MayRefuse(Call(pool, "getPoolId()(bytes32)")),
        Call(vault, "getProtocolFeesCollector()(address)"),
    ]
    if pool_id is None:
        return None
    state = [Call(vault, POOL_TOKENS, (pool_id,)), Call(pool, "totalSupply()(uint256)")]
    (registered_pool, _), fee, *states = yield [
        Call(vault, "getPool(bytes32)(address,uint8)", (pool_id,)),
        Call(collector, "getSwapFeePercentage()(uint256)"),
        *state,
        *map(AtEarlierBlock, state),
    ]
    (tokens, balances, last_change_block), supply = states[:2]
    if registered_pool != pool:
        return None
    exit_kind = ALL_TOKENS_OUT if pool in tokens else TOKENS_OUT
    user_data = exit_kind.to_bytes(32, "big") + raw.to_bytes(32, "big")
    exit_args = (pool_id, match.account, match.account, tuple(balances), last_change_block, fee, user_data)
    # The balances that a vault with unreviewed code claims do not count, only the tokens that it has.
    vault_balances = [balance_of(token, vault) for token in tokens] if match.is_fork else []
    exit_result, *vault_holdings = yield [
        MayRefuse(Call(pool, QUERY_EXIT, exit_args, alone=True)),
        *map(MayRefuse, vault_balances),
        *map(AtEarlierBlock, vault_balances),
    ]
    vault_holdings, earlier_holdings = vault_holdings[: len(vault_balances)], vault_holdings[len(vault_balances) :]
    circulating = supply - _own_shares(pool, tokens, balances)
    _, payouts = exit_result or (yield from _recovery_exit(pool, tokens, balances, circulating, raw))
    if len(payouts) != len(tokens):
        return None
    payments = [
        (token, payout, balance)
        for token, payout, balance in zip(tokens, payouts, _backed_balances(balances, vault_holdings), strict=True)
        if token != pool
    ]
    if not all(is_backed(payout, raw, balance, circulating) for _, payout, balance in payments):
        return UnverifiedShare(NOT_COVERED)
    values = [*states[:2], *vault_holdings, *states[2:], *earlier_holdings]
    guarded = yield from guard_reserves([*state, *vault_balances], partial(_reserves, pool), values)
    return _share(payments, *(guarded or ((), "")))


def _share(
    payments: Sequence[tuple[str, int, int]], guarded_balances: Sequence[int], remark: str
) -> UnlistedShare | AnnotatedShare:
    """Return the tokens of a share; with a remark, by balances that count instead of the present ones.

    Args:
        payments: Token, payout and present balance.
        guarded_balances: The balances that count, if there is a remark.
        remark: Says why other balances count; empty if none do.
    """
    if not remark:
        return UnlistedShare(tuple(TokenAmount(token, payout) for token, payout, _ in payments))
    parts = (
        TokenAmount(token, min(payout, balance) * earlier_balance // balance)
        for (token, payout, balance), earlier_balance in zip(payments, guarded_balances, strict=True)
    )
    return AnnotatedShare(UnlistedShare(tuple(parts)), remark)


def _backed_balances(balances: Sequence[int], vault_holdings: Sequence[int | None]) -> Sequence[int]:
    """Return the pool's balances by the vault's records, at most its holdings if these were read."""
    return (
        [min(balance, raw or 0) for balance, raw in zip(balances, vault_holdings, strict=True)]
        if vault_holdings
        else balances
    )


def _own_shares(pool: str, tokens: Sequence[str], balances: Sequence[int]) -> int:
    """Return the pool's own shares in the vault, which do not circulate yet."""
    return dict(zip(tokens, balances, strict=True)).get(pool, 0)


def _reserves(
    pool: str, pool_tokens: tuple[Sequence[str], Sequence[int], int], supply: int, *vault_holdings: int | None
) -> Reserves | None:
    """Return a pool's balances without its own shares; None if it changed the number of its tokens."""
    tokens, balances, _ = pool_tokens
    if vault_holdings and len(vault_holdings) != len(tokens):
        return None
    pairs = [pair for pair in zip(tokens, _backed_balances(balances, vault_holdings), strict=True) if pair[0] != pool]
    circulating = supply - _own_shares(pool, tokens, balances)
    return reserves(*(raw for _, raw in pairs), circulating, tokens=tuple(token for token, _ in pairs))


def _recovery_exit(
    pool: str, tokens: Sequence[str], balances: Sequence[int], circulating: int, raw: int
) -> DecoderPlan:
    """Return what a pool in recovery mode pays: a part of each balance, rounded as the pool does it.

    Raises:
        ReadError: The pool is not in recovery mode.
    """
    (is_recovering,) = yield [MayRefuse(Call(pool, "inRecoveryMode()(bool)"))]
    if not is_recovering or circulating <= 0:
        raise ReadError(f"{pool} has no exit that pays a part of each of its tokens")
    part = raw * ONE // circulating
    return raw, [0 if token == pool else balance * part // ONE for token, balance in zip(tokens, balances, strict=True)]


def vault_changes(logs: Sequence[EventLog], contracts: Mapping[str, Sequence[str]]) -> list[VaultChange]:
    """Return both legs of each swap of the vault in which a composable pool's share was bought or sold.

    Such a pool has its own share among its tokens: a swap for it adds liquidity. A swap of shares in another pool is a
    trade, and has no change.
    """
    changes: list[VaultChange] = []
    for log in logs:
        if log.contract not in contracts.get("vault", ()) or log.topics[:1] != (SWAPPED,) or len(log.topics) != 4:
            continue
        pool, (sold, bought) = "0x" + log.topics[1][POOL], ("0x" + each[-40:] for each in log.topics[2:])
        raw_in, raw_out = (int.from_bytes(log.data[at : at + 32], "big") for at in (0, 32))
        if pool in (sold, bought):
            legs = ((sold, -raw_in), (bought, raw_out))
            changes += [VaultChange("share", log.contract, pool, None, token, raw) for token, raw in legs]
    return changes


FAMILY = Family(
    "balancer_v2",
    rules=(Token(role="vault", question="getVault()(address)"),),
    unwrap=unwrap,
    position_type="LIQUIDITYPOOL",
    # The vault takes and pays the tokens, and the pool is its own share.
    calls=(
        TypedCalls("ADDLIQUIDITY", "issued", (), ("vault",)),
        TypedCalls("REMOVELIQUIDITY", "redeemed", (), ("vault",)),
    ),
    vault_changes=vault_changes,
)
