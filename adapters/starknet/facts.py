"""Facts of one Starknet chain, from `configs/chains/<key>.toml`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from chainfolio import chain_facts
from chainfolio.adapters.starknet.felts import SHORT_STRING_BYTES
from chainfolio.addresses import STARKNET
from chainfolio.assets import Asset
from chainfolio.chain_facts import ChainFacts

TOKENS = "erc20"
ON_L1 = "l1"
# The tokens that pay fees, by the unit of a receipt: ether and STRK, which have one address on all public networks.
FEE_TOKENS: Final = {
    "WEI": "0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7",
    "FRI": "0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d",
}


class Facts(ChainFacts, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One chain as its file describes it.

    Attributes:
        network: The name that its nodes give it: `SN_MAIN`.
        finality: `l1` if the blocks that Ethereum accepted are final, else a number of blocks below the head.
        fee_unit: The unit in which receipts count the native coin, whose contract is `also_at`.
        staking: The contract that lists validators and their pools; empty if the chain has none.
        unnamed: Tokens whose events do not have the accounts in their keys. Histories of accounts find their transfers
            by balance changes, as those of the native coin.
    """

    NAMESPACE: ClassVar[str] = "starknet"
    TOKENS: ClassVar[str] = TOKENS

    network: str
    fee_unit: str = "FRI"
    finality: str | int = ON_L1
    block_time_ms: int = 4_000
    staking: str = ""
    unnamed: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The name of the network."""
        return self.network

    @property
    def coin(self) -> str:
        """The contract of the native coin."""
        assert self.native.also_at, "facts without it are refused"
        return self.native.also_at

    def fee_token(self, unit: str) -> str:
        """Return the contract of the token in which fees of a unit (`WEI`, `FRI`) are paid."""
        return self.coin if unit == self.fee_unit else FEE_TOKENS[unit]

    @property
    def searched_tokens(self) -> tuple[str, ...]:
        """The tokens whose transfers the history of an account finds by balance changes."""
        return tuple(dict.fromkeys((self.coin, *self.unnamed)))

    def contract_of(self, asset: Asset) -> str:
        """Return the contract of an asset."""
        return self.coin if asset.is_native else asset.reference

    def fault(self) -> str:
        """Return the first invalid value as a message; empty if all are valid."""
        if not (self.network.isascii() and 0 < len(self.network) <= SHORT_STRING_BYTES):
            return "network is the name that nodes give the chain, such as SN_MAIN"
        if isinstance(self.finality, str) and self.finality != ON_L1:
            return f"finality is `{ON_L1}` or a number of blocks"
        if self.native.also_at is None or STARKNET.canonical(self.native.also_at) != self.native.also_at:
            return "native.also_at is the contract of the native coin: 0x and 64 hex digits"
        if self.staking and STARKNET.canonical(self.staking) != self.staking:
            return "staking is a contract: 0x and 64 hex digits"
        if any(STARKNET.canonical(each) != each for each in self.unnamed):
            return "unnamed are contracts of tokens, each 0x and 64 hex digits"
        return ""


of: Final = partial(chain_facts.of, Facts)
load: Final = partial(chain_facts.load, Facts)
