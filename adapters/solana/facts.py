"""Facts of one Solana chain, from `configs/chains/<key>.toml`: strict, data only."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from adapters.solana.settings import SolanaSettings
from chainfolio.addresses import SOLANA
from chainfolio.assets import Asset
from chainfolio.chains import ChainInfo
from chainfolio.contracts import Token
from chainfolio.errors import BadRequest, BadSettings

TOKENS = "token"  # the CAIP-19 namespace of mints
GENESIS_SHOWN = 32  # characters of the genesis hash that name the chain (CAIP-2)


class Native(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The coin that pays fees."""

    symbol: str
    name: str
    decimals: int
    slip44: int
    images: dict[str, str] = {}


class Wrapped(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The mint that wraps the native coin."""

    address: str
    symbol: str


class Facts(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One chain as its file describes it."""

    key: str
    kind: str
    chain_id: int
    name: str
    genesis: str
    native: Native
    wrapped: Wrapped | None = None
    block_time_ms: int = 400
    color: str = ""
    explorer: dict[str, str] = {}
    images: dict[str, str] = {}

    @property
    def caip2(self) -> str:
        """The chain's CAIP-2 name."""
        return f"solana:{self.genesis[:GENESIS_SHOWN]}"

    @property
    def native_asset(self) -> Asset:
        """The native coin's CAIP-19 name."""
        return Asset(self.caip2, "slip44", str(self.native.slip44))

    def token_asset(self, mint: str) -> Asset:
        """The CAIP-19 name of what a mint issues."""
        return Asset(self.caip2, TOKENS, mint)

    @property
    def info(self) -> ChainInfo:
        """What everything else knows of the chain."""
        native = Token(self.native_asset, self.native.symbol, self.native.name, self.native.decimals)
        return ChainInfo(
            self.name, self.chain_id, native, TOKENS, self.block_time_ms,
            wrapped=self.token_asset(self.wrapped.address) if self.wrapped else None, color=self.color,
            explorer=self.explorer, images=self.images, native_images=self.native.images,
        )  # fmt: skip


def of(key: str, settings: SolanaSettings, configs: Path) -> Facts:
    """The facts of a chain, from the file that its settings name, else from the configs."""
    if settings.facts and not Path(settings.facts).is_file():
        raise BadSettings(f"chains.{key}.facts", f"there is no file {settings.facts}", remedy="correct the path")
    return load(Path(settings.facts) if settings.facts else configs / "chains" / f"{key}.toml")


def load(path: Path) -> Facts:
    """The facts in one file; BadSettings names the file and what is wrong in it."""
    try:
        facts = msgspec.convert(tomllib.loads(path.read_text()), Facts)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise BadRequest("chain", f"{path.stem} is not a chain known here", remedy=f"one of {known}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(path.name, str(error)) from None
    if SOLANA.canonical(facts.genesis) != facts.genesis:
        raise BadSettings(path.name, "genesis is the hash of the first block, in base58")
    return facts
