"""The chain of a stand-in, as settings would build it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chainfolio.adapters.tron.chain import TronChain, build
from chainfolio.adapters.tron.settings import TronSettings
from chainfolio.environment import Environment
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode


def facts(node: TronNode, folder: Path, key: str = "tron", multicall: str = "", wrapped: str = "") -> Path:
    """The facts of a stand-in's chain, with contracts of it in hex."""
    path = folder / f"{key}-facts.toml"
    lines = [
        f'key = "{key}"',
        'kind = "tron"',
        f"chain_id = {node.chain_id}",
        'name = "Tron here"',
        f'genesis = "{node.blocks[0].id}"',
        'native = {symbol = "TRX", name = "Tronix", decimals = 6, slip44 = 195}',
    ]
    if multicall:
        lines.insert(5, f'multicall = "{base58check(multicall)}"')
    if wrapped:
        lines.append(f'wrapped = {{address = "{base58check(wrapped)}", symbol = "WTRX"}}')
    path.write_text("\n".join(lines) + "\n")
    return path


def chain(node: TronNode, folder: Path, multicall: str = "", wrapped: str = "", urls: Sequence[str] = ()) -> TronChain:
    """The adapter on a stand-in, or on what stands before it."""
    settings = TronSettings(
        adapter="tron",
        rpc=list(urls) or [node.url],
        facts=str(facts(node, folder, "tron", multicall, wrapped)),
        trongrid=node.grid,
        signatures="all",
    )
    return build("tron", settings, Environment(), configs=folder)
