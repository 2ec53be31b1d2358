"""Read mints with their metadata, at the newest slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solders.pubkey import Pubkey

from chainfolio.adapters.solana.account_requests import PAGE, Options, pages
from chainfolio.adapters.solana.consistent_reads import accounts_in
from chainfolio.adapters.solana.forms import Plain
from chainfolio.adapters.solana.layouts import METADATA, BadLayout, Mint, metadata, mint
from chainfolio.adapters.solana.node import Node, ask_each, result
from chainfolio.adapters.solana.parsing import decoded, key_bytes, slot_and_content
from chainfolio.plans import Unknown
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request


async def read_mints(node: Node, addresses: Sequence[str], min_slot: int) -> dict[str, Mint | Unknown]:
    """Read mints and their metadata by address, not older than `min_slot`.

    Unknown for addresses without a mint.
    """
    return await node.with_any(lambda endpoint: _read_mints(node, endpoint, addresses, min_slot), kind="mints")


async def _read_mints(
    node: Node, endpoint: Endpoint, addresses: Sequence[str], min_slot: int
) -> dict[str, Mint | Unknown]:
    """Return mints with their metadata by address; Unknown for an account that is no mint."""
    mint_pages = list(pages(addresses, PAGE // 2))
    options = Options("base64").at(node.commitment, min_slot)
    requests = [Request("getMultipleAccounts", ([*page, *map(metadata_address, page)], options)) for page in mint_pages]
    mints: dict[str, Mint | Unknown] = {}
    for page, answer in zip(mint_pages, await ask_each(endpoint, requests, height=min_slot), strict=True):
        _, content = slot_and_content(endpoint.name, result(answer))
        accounts = accounts_in(endpoint.name, content, 2 * len(page))
        for address, account, metadata_account in zip(page, accounts, accounts[len(page) :], strict=False):
            mints[address] = _mint(endpoint.name, address, account, metadata_account)
    return mints


def _mint(source: str, address: str, account: Plain | None, metadata_account: Plain | None) -> Mint | Unknown:
    """Return a mint, named by its own extension or else by its metadata account; Unknown if it is none.

    A metadata account that cannot be read leaves the mint without a name.
    """
    if account is None:
        return Unknown("there is no such mint", "absent")
    try:
        facts = mint(decoded(source, account), account.owner)
    except BadLayout as error:
        return Unknown(f"it is no mint: {error}", "contract")
    if facts.symbol or facts.name or metadata_account is None:
        return facts
    try:
        symbol, name, uri = metadata(decoded(source, metadata_account), metadata_account.owner, key_bytes(address))
    except BadLayout:
        return facts
    return replace(facts, symbol=symbol, name=name, uri=uri)


def metadata_address(mint_address: str) -> str:
    """Return the address of a mint's metadata account."""
    program = Pubkey.from_string(METADATA)
    seeds = [b"metadata", bytes(program), key_bytes(mint_address)]
    return str(Pubkey.find_program_address(seeds, program)[0])
