"""Facts of one EVM chain, from `configs/chains/<key>.toml`: strict, data only."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from adapters.evm.settings import EvmSettings
from chainfolio.assets import Asset
from chainfolio.chains import ChainInfo
from chainfolio.contracts import Token
from chainfolio.errors import BadRequest, BadSettings

TOKENS = "erc20"
PARTS = ("headers", "transactions", "receipts")
WITHDRAWALS, MINTS = PAYMENTS = ("withdrawals", "mints")


class Native(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The coin that pays fees. `also_at`: where the chain shows it as an ERC-20 too, lest it is counted twice."""

    symbol: str
    name: str
    decimals: int
    slip44: int
    also_at: str | None = None
    images: dict[str, str] = {}


class Wrapped(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The contract that wraps the native coin."""

    address: str
    symbol: str


class Facts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One chain as its file describes it. `unproven`: which parts of its blocks (headers, transactions, receipts) hash
    in a way of the chain's own, so that they cannot be computed again. `pays`: the native coins that the protocol gives
    to accounts, `withdrawals` of validators, `mints` of deposits from another chain."""

    key: str
    kind: str
    chain_id: int
    name: str
    native: Native
    genesis: str = ""
    block_time_ms: int = 12_000
    finality: str | int = "finalized"
    color: str = ""
    wrapped: Wrapped | None = None
    explorer: dict[str, str] = {}
    images: dict[str, str] = {}
    unproven: list[str] = []
    pays: list[str] = []

    @property
    def caip2(self) -> str:
        """The chain's CAIP-2 name."""
        return f"eip155:{self.chain_id}"

    @property
    def info(self) -> ChainInfo:
        """What everything else knows of the chain."""
        native = Token(self.native_asset, self.native.symbol, self.native.name, self.native.decimals)
        return ChainInfo(
            self.name, self.chain_id, native, TOKENS, self.block_time_ms,
            wrapped=self.token_asset(self.wrapped.address) if self.wrapped else None,
            also_at=self.token_asset(self.native.also_at) if self.native.also_at else None, color=self.color,
            explorer=self.explorer, images=self.images, native_images=self.native.images, unproven=tuple(self.unproven),
        )  # fmt: skip

    @property
    def native_asset(self) -> Asset:
        """The native coin's CAIP-19 name."""
        return Asset(self.caip2, "slip44", str(self.native.slip44))

    def token_asset(self, contract: str) -> Asset:
        """An ERC-20's CAIP-19 name."""
        return Asset(self.caip2, TOKENS, contract)


def of(key: str, settings: EvmSettings, configs: Path) -> Facts:
    """The facts of a chain, from the file that its settings name, else from the configs."""
    if settings.facts and not Path(settings.facts).is_file():
        raise BadSettings(f"chains.{key}.facts", f"there is no file {settings.facts}", remedy="correct the path")
    return load(Path(settings.facts) if settings.facts else configs / "chains" / f"{key}.toml")


def load(path: Path) -> Facts:
    """The facts in one file; BadSettings names the file and what is wrong in it."""
    try:
        tree: dict[str, Any] = tomllib.loads(path.read_text())
        if "family" in tree:
            raise BadSettings(path.name, "`family` has another name now", remedy="write `kind`")
        facts = msgspec.convert(tree, Facts)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise BadRequest("chain", f"{path.stem} is not a chain known here", remedy=f"one of {known}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(str(path.name), str(error)) from None
    if isinstance(facts.finality, str) and facts.finality != "finalized":
        raise BadSettings(path.name, "finality is `finalized` or a number of blocks")
    if not set(facts.unproven) <= set(PARTS):
        raise BadSettings(path.name, f"unproven names parts of a block: of {', '.join(PARTS)}")
    if not set(facts.pays) <= set(PAYMENTS):
        raise BadSettings(path.name, f"pays names what the protocol gives: of {', '.join(PAYMENTS)}")
    return facts
