"""Facts about a chain from its file in `configs/chains`, which may have no unknown fields.

Each kind of chain adds fields to these.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from chainfolio.assets import Asset
from chainfolio.chain_results import ChainInfo
from chainfolio.contracts import Token
from chainfolio.errors import BadRequest, BadSettings

FactsT = TypeVar("FactsT", bound="ChainFacts")


class Native(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The coin that pays fees. `also_at`: the token as which the chain shows it a second time."""

    symbol: str
    name: str
    decimals: int
    slip44: int
    also_at: str | None = None
    images: dict[str, str] = {}


class WrappedNative(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The token that wraps the native coin."""

    address: str
    symbol: str


class ChainFacts(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One chain as its file describes it.

    A kind sets the CAIP-2 `NAMESPACE` of its chains and the CAIP-19 namespace of fungible `TOKENS`, and overrides
    `reference` if chains are not named by number. `COLLECTIBLE_TOKENS`: collectibles are tokens
    without decimals. `unproven`: parts of blocks with hashes that cannot be recomputed.
    `fee_collectors`: accounts that receive fees which are token transfers.
    """

    NAMESPACE: ClassVar[str]
    TOKENS: ClassVar[str]
    COLLECTIBLE_TOKENS: ClassVar[bool] = False

    key: str
    kind: str
    chain_id: int
    name: str
    native: Native
    block_time_ms: int = 12_000
    color: str = ""
    wrapped: WrappedNative | None = None
    explorer: dict[str, str] = {}
    images: dict[str, str] = {}
    unproven: tuple[str, ...] = ()
    fee_collectors: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The chain's reference within its CAIP-2 namespace."""
        return str(self.chain_id)

    @property
    def caip2(self) -> str:
        """The chain's CAIP-2 name."""
        return f"{self.NAMESPACE}:{self.reference}"

    @property
    def native_asset(self) -> Asset:
        """The native coin's CAIP-19 name."""
        return Asset(self.caip2, "slip44", str(self.native.slip44))

    def token_asset(self, contract: str) -> Asset:
        """Return a fungible token's CAIP-19 name."""
        return Asset(self.caip2, self.TOKENS, contract)

    @property
    def info(self) -> ChainInfo:
        """The facts that other parts need."""
        native = Token(self.native_asset, self.native.symbol, self.native.name, self.native.decimals)
        return ChainInfo(
            self.name,
            self.chain_id,
            native,
            self.TOKENS,
            self.block_time_ms,
            wrapped=self.token_asset(self.wrapped.address) if self.wrapped else None,
            also_at=self.token_asset(self.native.also_at) if self.native.also_at else None,
            color=self.color,
            explorer=self.explorer,
            images=self.images,
            native_images=self.native.images,
            unproven=self.unproven,
            fee_collectors=frozenset(self.fee_collectors),
            has_collectible_tokens=self.COLLECTIBLE_TOKENS,
        )

    def fault(self) -> str:
        """Return the first problem of the facts; an empty text if they are valid."""
        return ""


def of(kind: type[FactsT], key: str, own_file: str, configs: Path) -> FactsT:
    """Return the facts of a chain from the file that its settings name, else from the configs.

    Raises:
        BadSettings: the file is missing or invalid.
    """
    if own_file and not Path(own_file).is_file():
        raise BadSettings(f"chains.{key}.facts", f"there is no file {own_file}", remedy="correct the path")
    return load(kind, Path(own_file) if own_file else configs / "chains" / f"{key}.toml")


def load(kind: type[FactsT], path: Path) -> FactsT:
    """Return the facts in one file, which is named by the key of the chain.

    Raises:
        BadRequest: There is no file for the chain.
        BadSettings: The file is invalid.
    """
    try:
        tree: dict[str, object] = tomllib.loads(path.read_text())
        facts = msgspec.convert(tree, kind)
    except FileNotFoundError:
        keys = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise BadRequest("chain", f"{path.stem} is not a chain known here", remedy=f"one of {keys}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None
    if problem := facts.fault():
        raise BadSettings(path.name, problem)
    return facts
