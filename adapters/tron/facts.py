"""Facts of one Tron chain, from `configs/chains/<key>.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from chainfolio import chain_facts
from chainfolio.addresses import TRON
from chainfolio.assets import Asset
from chainfolio.chain_facts import ChainFacts
from chainfolio.chain_results import ChainInfo

CHAIN_ID_DIGITS: Final = 8  # the last digits of the genesis id are the chain id
TRC10, TRC20 = "trc10", "trc20"
_is_genesis: Final = re.compile(r"0{16}[0-9a-f]{48}", re.ASCII).fullmatch


def token_asset(chain: str, reference: str) -> Asset:
    """Return a fungible token: TRC-10 if `reference` is a number, TRC-20 if it is a contract."""
    return Asset(chain, TRC10 if reference.isdecimal() else TRC20, reference)


@dataclass(frozen=True, slots=True)
class TronInfo(ChainInfo):
    """Facts of a chain with two kinds of fungible tokens, for the other modules."""

    def token_asset(self, reference: str) -> Asset:
        """Return a fungible token by its contract or its TRC-10 number."""
        return token_asset(self.native.asset.chain, reference)


class Facts(ChainFacts, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One chain as its file describes it.

    Attributes:
        genesis: Id of the first block.
        multicall: Contract that makes several calls at once (Multicall3). Without one, calls are sent in batches.
        block_time_ms: Time between two blocks.
    """

    NAMESPACE: ClassVar[str] = "tron"
    TOKENS: ClassVar[str] = TRC20

    genesis: str
    multicall: str = ""
    block_time_ms: int = 3_000

    def token_asset(self, contract: str) -> Asset:
        """Return a fungible token by its contract or its TRC-10 number."""
        return token_asset(self.caip2, contract)

    @property
    def info(self) -> TronInfo:
        """The facts that the other modules use."""
        info = ChainFacts.info.__get__(self)
        return TronInfo(**{name: getattr(info, name) for name in ChainInfo.__dataclass_fields__})

    def fault(self) -> str:
        """Return the first invalid value as a sentence, empty if all are valid."""
        if not _is_genesis(self.genesis):
            return "genesis is the id of the first block: 64 hex digits, of which the first 16 are zeros"
        if self.chain_id != int(self.genesis[-CHAIN_ID_DIGITS:], 16):
            return f"chain_id is the end of genesis: {int(self.genesis[-CHAIN_ID_DIGITS:], 16)}"
        if self.multicall and TRON.canonical(self.multicall) != self.multicall:
            return "multicall is a base58 address"
        if self.wrapped is not None and TRON.canonical(self.wrapped.address) != self.wrapped.address:
            return "wrapped.address is a base58 address"
        return ""


of: Final = partial(chain_facts.of, Facts)
load: Final = partial(chain_facts.load, Facts)
