"""The facts of one Solana chain, from `configs/chains/<key>.toml`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from chainfolio import chain_facts
from chainfolio.addresses import SOLANA
from chainfolio.chain_facts import ChainFacts

TOKENS = "token"  # the CAIP-19 namespace of mints
COMPRESSED = "cnft"  # the namespace of compressed NFTs, which have ids and no mints
REFERENCE_LENGTH = 32  # characters of the genesis hash that name the chain (CAIP-2)


class Facts(ChainFacts, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The facts of one chain. `genesis` is the hash of its first block."""

    NAMESPACE: ClassVar[str] = "solana"
    TOKENS: ClassVar[str] = TOKENS
    COLLECTIBLE_TOKENS: ClassVar[bool] = True

    genesis: str

    @property
    def reference(self) -> str:
        """The CAIP-2 reference: the first characters of the genesis hash."""
        return self.genesis[:REFERENCE_LENGTH]

    def fault(self) -> str:
        """Return the reason why the facts are invalid; empty if they are valid."""
        is_hash = SOLANA.canonical(self.genesis) == self.genesis
        return "" if is_hash else "genesis is the hash of the first block, in base58"


of: Final = partial(chain_facts.of, Facts)
load: Final = partial(chain_facts.load, Facts)
