"""Facts of one EVM chain, from `configs/chains/<key>.toml`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from chainfolio import chain_facts
from chainfolio.chain_facts import ChainFacts

TOKENS = "erc20"
PARTS = ("headers", "transactions", "receipts")
WITHDRAWALS, MINTS = PAYMENTS = ("withdrawals", "mints")


class Facts(ChainFacts, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The file of one chain.

    `unproven` are parts of blocks: headers, transactions, receipts. `pays` are native coins that the protocol itself
    gives to accounts: `withdrawals` of validators, `mints` of deposits from another chain.
    """

    NAMESPACE: ClassVar[str] = "eip155"
    TOKENS: ClassVar[str] = TOKENS

    genesis: str = ""
    finality: str | int = "finalized"
    pays: tuple[str, ...] = ()

    def fault(self) -> str:
        """Return the first invalid value as a sentence; empty if all are valid."""
        if isinstance(self.finality, str) and self.finality != "finalized":
            return "finality is `finalized` or a number of blocks"
        if not set(self.unproven) <= set(PARTS):
            return f"unproven names parts of a block: of {', '.join(PARTS)}"
        if not set(self.pays) <= set(PAYMENTS):
            return f"pays names what the protocol gives: of {', '.join(PAYMENTS)}"
        return ""


of: Final = partial(chain_facts.of, Facts)
load: Final = partial(chain_facts.load, Facts)
