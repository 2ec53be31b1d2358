"""What `chainfolio doctor` shows of a chain's endpoints: who they are, how far they are, what they serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapters.solana.das import serves
from adapters.solana.layouts import CLOCK, SYSTEM
from adapters.solana.node import Node
from adapters.solana.state import wallets
from chainfolio.chains import Heads
from transport.examination import examined

if TYPE_CHECKING:
    from adapters.solana.chain import SolanaChain


async def examine(chain: SolanaChain) -> list[dict[str, Any]]:
    """A row for each endpoint, in the order of the settings."""
    node, unproven = chain.node, ["all of it: answers carry no proof"]
    return await examined(
        node, unproven, lambda one: Node(node.facts, [one], node.seams, commitment=node.commitment), _abilities
    )  # fmt: skip


async def _abilities(node: Node, heads: Heads) -> dict[str, Any]:
    """Whether a node lists token accounts, stake accounts and compressed NFTs."""
    [endpoint] = node.endpoints
    read, _ = await wallets(node, [SYSTEM], [], heads.latest, with_stakes=True)
    stakes = not any(note.is_partial for note in read[SYSTEM].notes)
    return {"stakeAccounts": stakes, "compressedNfts": await serves(endpoint, CLOCK)}
