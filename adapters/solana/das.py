"""Compressed NFTs by the Digital Asset Standard (DAS), an index that some endpoints have.

Its lists and names are unproven. The account of a tree proves that a leaf belongs to an account (`trees.py`,
`compressed.py`). An asset that cannot be read becomes one fault, and the others are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from chainfolio.adapters.solana.forms import U64, Key, Plain
from chainfolio.adapters.solana.layouts import BadLayout
from chainfolio.adapters.solana.node import Node, ask_each, result
from chainfolio.adapters.solana.parsing import decoded, key_bytes, slot_and_content
from chainfolio.adapters.solana.reads import LeafList
from chainfolio.adapters.solana.trees import (
    HEADER_SIZE,
    MAX_DEPTH,
    Leaf,
    LeafFields,
    asset_address,
    first_leaf,
    ring_end,
    second_leaf,
)
from chainfolio.errors import BadAnswer, ResponseTooLarge, SourceError, Unavailable, UnsupportedMethod
from chainfolio.plans import Unknown
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from chainfolio.transport.endpoint import Endpoint
from chainfolio.transport.wire import Request, typed

PAGE: Final = 500  # assets per page
SMALL_PAGE: Final = 50  # assets per page if a larger one has too many bytes
MAX_PAGES: Final = 20  # per account
MAX_LEAVES: Final = 1_000  # compressed NFTs of an account that are checked
MAX_TREE_BYTES: Final = 16 * 2**20  # all trees of an account; anybody can send NFTs of any tree to anybody
PROOFS: Final = 200  # per request
TREES: Final = 100  # accounts per request
MAX_NAMES: Final = 100_000  # cached
INDEX_CAPABILITY: Final = "assets"  # 0 if the endpoint has no index
PROOF_CAPABILITY: Final = "proofs"  # index in PROOF_METHODS
PROOF_METHODS: Final = ("getAssetProofs", "getAssetProofBatch", "")  # names of a batch of proofs; the last is none
NO_INDEX: Final = Unknown("no endpoint has an index of compressed NFTs", "absent")


class NoIndex(Unavailable):
    """An endpoint has no index of assets; another endpoint may have one."""


class _Compression(msgspec.Struct):
    tree: str = ""
    leaf_id: U64 | None = None
    data_hash: str = ""
    creator_hash: str = ""
    collection_hash: str | None = None
    asset_data_hash: str | None = None
    flags: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None


class _Ownership(msgspec.Struct):
    delegate: str | None = None


class _Metadata(msgspec.Struct):
    name: str | None = None
    symbol: str | None = None


class _Content(msgspec.Struct):
    metadata: _Metadata | None = None


class _CompressionFlag(msgspec.Struct):
    compressed: bool = False


class _ListEntry(msgspec.Struct):
    """The fields of a list entry that tell if it is a compressed NFT. Others may have any fields."""

    id: Key
    burnt: bool = False
    compression: _CompressionFlag | None = None


class _Asset(msgspec.Struct):
    """A compressed NFT of a list. Its owner follows from the hash of its leaf, not from the list."""

    id: Key
    compression: _Compression
    ownership: _Ownership = msgspec.field(default_factory=_Ownership)
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Page(msgspec.Struct):
    items: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=PAGE)]
    limit: Annotated[int, msgspec.Meta(ge=1)] = PAGE


class _Proof(msgspec.Struct):
    """The sibling nodes from a leaf to the root."""

    proof: Annotated[list[Key], msgspec.Meta(max_length=MAX_DEPTH)]


async def leaves(node: Node, account: str) -> LeafList | Unknown:
    """Read the compressed NFTs of an account from the best endpoint that has an index and answers.

    Endpoints without an index are remembered by their capability.

    Returns:
        Unknown with the cause `absent` if no endpoint has an index. If none answered, the last one's cause: `contract`
        if the list was too large, else `read`.

    Raises:
        Unavailable: All endpoints are quarantined.
    """
    unknown = NO_INDEX
    for endpoint in node.ranked():
        if not endpoint.capabilities.get(INDEX_CAPABILITY, 1):
            continue
        try:
            return await _leaves(node, endpoint, account)
        except NoIndex:  # which is no fault
            endpoint.learn(INDEX_CAPABILITY, 0)
        except SourceError as error:
            endpoint.errors.note(error)
            unknown = Unknown(error.reason, "contract" if isinstance(error, ResponseTooLarge) else "read")
    return unknown


async def serves(endpoint: Endpoint, account: str) -> bool | None:
    """Ask an endpoint if it has an index, and store the answer as its capability.

    Returns:
        None if the endpoint does not answer.
    """
    try:
        await _page(endpoint, account, 1)
    except NoIndex:
        has_index = False
    except SourceError:
        return None
    else:
        has_index = True
    endpoint.learn(INDEX_CAPABILITY, int(has_index))
    return has_index


async def _leaves(node: Node, endpoint: Endpoint, account: str) -> LeafList:
    """Return the leaves of an account's compressed NFTs with proofs, and the faults of all others.

    At most MAX_LEAVES are read; those beyond are faults. Stores the names of NFTs in the node's cache.
    """
    assets, faults = await _read_assets(endpoint, account)
    if len(assets) > MAX_LEAVES:
        reason = f"{len(assets) - MAX_LEAVES} more than {MAX_LEAVES} were not looked at"
        faults += [(asset.id, reason) for asset in assets[MAX_LEAVES:]]
    hashed: dict[str, Leaf] = {}
    for asset in assets[:MAX_LEAVES]:
        try:
            hashed[asset.id] = _leaf_of(asset, account)
        except ValueError as error:
            faults.append((asset.id, str(error)))
    proofs, headers = await asyncio.gather(
        _proofs(endpoint, list(hashed)), _headers(node, endpoint, sorted({leaf.tree for leaf in hashed.values()}))
    )
    leaves = [leaf._replace(proof=proofs[leaf.id]) for leaf in hashed.values() if leaf.id in proofs]
    proven_trees = {leaf.tree for leaf in leaves}  # the others must not use up the bytes of these
    sizes, unread = _sizes(endpoint.name, [each for each in headers if each[0] in proven_trees])
    faults += [(id, "its proof cannot be read") for id in hashed if id not in proofs]
    if len(node.nft_names) > MAX_NAMES:
        node.nft_names.clear()
    node.nft_names |= {asset.id: _name(asset) for asset in assets if asset.id in proofs}
    faults += [(leaf.id, unread[leaf.tree]) for leaf in leaves if leaf.tree in unread]
    return LeafList(tuple(leaf for leaf in leaves if leaf.tree in sizes), sizes, tuple(faults))


_AssetList = tuple[list[_Asset], list[tuple[str, str]]]  # and faults: ids with reasons


async def _read_assets(endpoint: Endpoint, account: str) -> _AssetList:
    """Return the compressed NFTs of an account, sorted by id, and the faults of list entries.

    If a page of the usual size is too large, the list is read in small pages: senders decide on the size of their NFTs.
    """
    try:
        return await _read_pages(endpoint, account, PAGE)
    except ResponseTooLarge:
        return await _read_pages(endpoint, account, SMALL_PAGE)


async def _read_pages(endpoint: Endpoint, account: str, size: int) -> _AssetList:
    """Read the list in pages of `size`, at most MAX_PAGES, and return compressed NFTs and faults.

    Unreadable entries and assets beyond the last page are faults. Raises BadAnswer for an asset listed twice.
    """
    assets: dict[str, _Asset] = {}
    ids: set[str] = set()
    faults: list[tuple[str, str]] = []
    count = 0
    for number in range(1, MAX_PAGES + 1):
        page = await _page(endpoint, account, number, size)
        count += len(page.items)
        for item in page.items:
            try:
                entry = msgspec.json.decode(item, type=_ListEntry)
                _key(entry.id)
                if entry.compression and entry.compression.compressed and not entry.burnt:
                    assets[entry.id] = msgspec.json.decode(item, type=_Asset)
            except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
                faults.append((account, "an asset of the list cannot be read"))
                continue
            if entry.id in ids:
                raise BadAnswer(endpoint.name, f"lists the asset {entry.id} twice")
            ids.add(entry.id)
        if len(page.items) < min(size, page.limit):
            break
    else:
        faults.append((account, f"assets behind the first {count} of the list were not looked at"))
    return [assets[id] for id in sorted(assets)], faults


async def _page(endpoint: Endpoint, account: str, number: int, size: int = PAGE) -> _Page:
    """Read one page of the list of assets.

    Raises:
        NoIndex: The endpoint refuses the first one as unsupported.
        SourceError: It does not answer, or refuses a later one.
    """
    order = {"sortBy": "id", "sortDirection": "asc"}
    params = {"ownerAddress": account, "sortBy": order, "limit": size, "page": number}
    try:
        content = await endpoint.ask_one(Request("getAssetsByOwner", named_params=params))
    except UnsupportedMethod as error:
        if number > 1:
            raise
        raise NoIndex(endpoint.name, error.reason) from None
    page: _Page = typed(endpoint.name, content, _Page)
    return page


def _leaf_of(asset: _Asset, account: str) -> Leaf:
    """Return the leaf of an asset that belongs to `account`, without its proof.

    Raises:
        ValueError: No leaf can have these fields.
    """
    compression = asset.compression
    if compression.leaf_id is None or compression.leaf_id >> MAX_DEPTH:
        raise ValueError("no tree has such a leaf")
    if asset.id != _address(compression.tree, compression.leaf_id):
        raise ValueError("it is called otherwise than its leaf")
    fields = LeafFields(
        key_bytes(asset.id),
        key_bytes(account),
        _key(asset.ownership.delegate or account),
        compression.leaf_id,
        _key(compression.data_hash),
        _key(compression.creator_hash),
    )
    collection, data, flags = compression.collection_hash, compression.asset_data_hash, compression.flags
    if collection is None and data is None and flags is None:
        return Leaf(asset.id, compression.tree, compression.leaf_id, first_leaf(fields), ())
    if collection is None or data is None or flags is None:
        raise ValueError("it is of a version that is not known here")
    return Leaf(
        asset.id,
        compression.tree,
        compression.leaf_id,
        second_leaf(fields, _key(collection), _key(data), flags),
        (),
    )


def _address(tree: str, leaf: int) -> str:
    _key(tree)
    return asset_address(tree, leaf)


def _key(text: str) -> bytes:
    try:
        return key_bytes(text)
    except ValueError:
        raise ValueError("what its leaf is made of cannot be read") from None


def _name(asset: _Asset) -> tuple[str, str]:
    """Return symbol and name, cleaned; both empty if they are no texts."""
    try:
        content = msgspec.json.decode(asset.content, type=_Content | None)
    except (ValueError, RecursionError):
        return "", ""
    metadata = (content and content.metadata) or _Metadata()
    return clean(metadata.symbol or "", MAX_SYMBOL), clean(metadata.name or "", MAX_NAME)


# --- proofs and trees -------------------------------------------------------------------------------------------------


async def _proofs(endpoint: Endpoint, ids: Sequence[str]) -> dict[str, tuple[bytes, ...]]:
    """Return the proofs of assets by id, without those that cannot be read; unchecked."""
    proofs: dict[str, tuple[bytes, ...]] = {}
    pages = [ids[first : first + PROOFS] for first in range(0, len(ids), PROOFS)]
    contents = [await _raw_proofs(endpoint, page) for page in pages[:1]]  # it shows which method the endpoint has
    contents += await asyncio.gather(*(_raw_proofs(endpoint, page) for page in pages[1:]))
    for page_contents in contents:
        for id, content in page_contents.items():
            try:
                proofs[id] = tuple(map(_key, msgspec.json.decode(content, type=_Proof).proof))
            except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; only this proof is lost
                continue
    return proofs


async def _raw_proofs(endpoint: Endpoint, ids: Sequence[str]) -> Mapping[str, bytes]:
    """Return the JSON of proofs by id, read in a batch if the endpoint has a method for that.

    Ids whose proof the endpoint lacks or refuses are left out. The method is stored as the endpoint's capability.
    """
    for number in range(endpoint.capabilities.get(PROOF_CAPABILITY, 0), len(PROOF_METHODS) - 1):
        answer = (await endpoint.ask([Request(PROOF_METHODS[number], named_params={"ids": ids})]))[0]
        if isinstance(answer, UnsupportedMethod):
            continue
        endpoint.learn(PROOF_CAPABILITY, number)
        proofs = typed(endpoint.name, result(answer), dict[str, msgspec.Raw])
        return {id: proofs[id] for id in ids if id in proofs}
    endpoint.learn(PROOF_CAPABILITY, len(PROOF_METHODS) - 1)
    answers = await ask_each(endpoint, [Request("getAssetProof", named_params={"id": id}) for id in ids])
    return {id: each for id, each in zip(ids, answers, strict=True) if not isinstance(each, SourceError)}


def _sizes(source: str, headers: Sequence[tuple[str, Plain | None]]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the bytes to read of each tree by its header, and the reasons why other trees are not read.

    A tree is not read if it is absent, malformed, or does not fit into MAX_TREE_BYTES with those before it.
    """
    sizes: dict[str, int] = {}
    unread: dict[str, str] = {}
    budget = MAX_TREE_BYTES
    for tree, account in headers:
        try:
            size = ring_end(decoded(source, account), account.owner) if account else 0
        except BadLayout as error:
            unread[tree] = f"the account of its tree is none: {error}"
            continue
        if not size:
            unread[tree] = "there is no such tree"
        elif size > budget:
            unread[tree] = f"the trees of all have more than {MAX_TREE_BYTES // 2**20} MiB"
        else:
            sizes[tree], budget = size, budget - size
    return sizes, unread


async def _headers(node: Node, endpoint: Endpoint, trees: Sequence[str]) -> list[tuple[str, Plain | None]]:
    """Read the headers of trees, in their order; None for accounts that do not exist.

    Raises:
        SourceError: A request failed, or its answer has another number of accounts.
    """
    pages = [trees[first : first + TREES] for first in range(0, len(trees), TREES)]
    options = {
        "encoding": "base64",
        "commitment": node.commitment,
        "dataSlice": {"offset": 0, "length": HEADER_SIZE},
    }
    answers = await ask_each(endpoint, [Request("getMultipleAccounts", (page, options)) for page in pages])
    headers: list[tuple[str, Plain | None]] = []
    for page, answer in zip(pages, answers, strict=True):
        accounts = typed(endpoint.name, slot_and_content(endpoint.name, result(answer))[1], list[Plain | None])
        if len(accounts) != len(page):
            raise BadAnswer(endpoint.name, f"{len(accounts)} accounts in answer to {len(page)}")
        headers += zip(page, accounts, strict=True)
    return headers
