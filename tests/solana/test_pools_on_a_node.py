"""A wallet on a real node with shares and positions of several protocols, read by all protocol files."""

from __future__ import annotations

from pathlib import Path

from solders.keypair import Keypair
from solders.pubkey import Pubkey

from chainfolio.adapters.solana.chain import SolanaChain
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.protocols.jupiter_earn import PRICE
from chainfolio.configs.generate import kinds
from chainfolio.indexer.families import families
from chainfolio.indexer.protocol_files import load
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import associated_account, send_coins
from chainfolio.protocols import InstalledProtocols
from tests.solana import damm, jupiter, raydium_amm
from tests.solana.changes import key
from tests.solana.ledger import mint, token_account
from tests.solana.ledger_node import read_of

PROTOCOLS = Path(__file__).parents[2] / "configs" / "protocols"


async def test_shares_and_positions_of_all_protocols_are_read_at_once_to_the_unit(
    node: SolanaNode, chain: SolanaChain
) -> None:
    first = raydium_amm.Pool(
        key(),
        key(),
        key(),
        (key(), key()),
        (key(), key()),
        (110 * 10**9, 440 * 10**6),
        (100 * 10**9, 400 * 10**9),
        shares=100,
    )
    pool = damm.Pool(key(), (key(), key()), (key(), key()), 2**100, (1, 2**64, 2**65))
    position = damm.Position(pool, key(), (2**80, 0, 0), pending_fees=(3, 4))
    ledger = raydium_amm.write(first)
    damm.write(ledger, position)
    ledger.accounts |= jupiter.stored(jupiter.lending_accounts(PRICE * 3 // 2, 10**12, 10**12, borrowed=0)).accounts
    ledger.put(position.mint, TOKEN, mint(1, 0))
    owner = Keypair().pubkey()
    send_coins(node, owner, 10**9)
    balances = {first.share: 10, position.mint: 1, jupiter.SHARE: 1_001}
    for share, raw in balances.items():
        at = associated_account(owner, Pubkey.from_string(share), Pubkey.from_string(TOKEN))
        ledger.put(str(at), TOKEN, token_account(share, str(owner), raw))
    rows = load([PROTOCOLS], kinds()).rows("solana", "solana", families())
    state = await read_of(node, chain, ledger, str(owner), InstalledProtocols(rows))
    parts = {each.pool: {asset.reference: raw for asset, raw in each.supplied.items()} for each in state.positions}
    assert parts == {
        # A tenth of both without the protocol's part of what the pool earned: 12 hundredths of 10 and of 40.
        first.address: {first.mints[0]: 10_880_000_000, first.mints[1]: 43_520_000},
        # Between the roots 1 and 2 a liquidity of 2^16 gives half of it, and all but nothing below 1.
        pool.address: {pool.mints[0]: 2**15, pool.mints[1]: 2**16 - 1},
        jupiter.LENDING: {jupiter.MINT: 1_501},
    }
    [fees] = [each.rewards for each in state.positions if each.pool == pool.address]
    assert {asset.reference: raw for asset, raw in fees.items()} == {pool.mints[0]: 3, pool.mints[1]: 4}
