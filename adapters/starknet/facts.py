"""Facts of one Starknet chain, from `configs/chains/<key>.toml`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

from chainfolio import chain_facts
from chainfolio.adapters.starknet.felts import SHORT
from chainfolio.addresses import STARKNET
from chainfolio.assets import Asset
from chainfolio.chain_facts import ChainFacts

TOKENS = "erc20"
ON_L1 = "l1"
# The tokens in which fees are paid, by the unit of a receipt: ether and STRK, at one address on every public network.
FEE_TOKENS: Final = {
    "WEI": "0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7",
    "FRI": "0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d",
}


class Facts(ChainFacts, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One chain as its file describes it.

    `network` is the name that its nodes give it: `SN_MAIN`. `finality`: what cannot change any more, which is what
    `l1` has accepted, or so many blocks below the head. The native coin is a token; `also_at` says which, and
    `fee_unit` the unit in which nodes count what is paid of it. `staking` is the contract that knows validators and
    their pools, where the chain has one. `unnamed` are tokens whose events do not name accounts in their keys: where
    the history of an account is read alone, its balance of each is followed, as that of the native coin is."""

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
    def searched(self) -> tuple[str, ...]:
        """The tokens of which balances are followed where the history of an account is read alone."""
        return tuple(dict.fromkeys((self.coin, *self.unnamed)))

    def contract_of(self, asset: Asset) -> str:
        """The contract behind an asset."""
        return self.coin if asset.is_native else asset.reference

    def fault(self) -> str:
        """What cannot be meant, in words."""
        if not (self.network.isascii() and 0 < len(self.network) <= SHORT):
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
