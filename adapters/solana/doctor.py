"""The rows of `chainfolio doctor` about the endpoints of a Solana chain."""

from __future__ import annotations

from typing import Any

from chainfolio.adapters.solana.das import serves
from chainfolio.adapters.solana.layouts import CLOCK, SYSTEM
from chainfolio.adapters.solana.node import Node
from chainfolio.adapters.solana.state import read_wallets
from chainfolio.chain_results import Heads
from chainfolio.transport.endpoint_report import report_endpoints


async def examine(node: Node) -> list[dict[str, Any]]:
    """Read a row about each endpoint, in the order of the settings."""
    unproven = ["all of it: answers carry no proof"]
    return await report_endpoints(
        node,
        unproven,
        lambda endpoint: Node(node.facts, [endpoint], node.environment, commitment=node.commitment),
        _abilities,
    )


async def _abilities(node: Node, heads: Heads) -> dict[str, Any]:
    """Return the abilities of an endpoint: lists of stake accounts, and an index of compressed NFTs."""
    [endpoint] = node.endpoints
    wallet_by_account, _ = await read_wallets(node, [SYSTEM], [], heads.latest, with_stakes=True)
    stakes = not any(note.is_partial for note in wallet_by_account[SYSTEM].notes)
    return {"stakeAccounts": stakes, "compressedNfts": await serves(endpoint, CLOCK)}
