"""Compressed NFTs by the Digital Asset Standard, an index that some endpoints have beside the methods of a node.

What it lists is its word, and so are names: whether a leaf is the account's is proven by the account of its tree
(`trees.py`, `compressed.py`). Each asset that cannot be read is a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from adapters.solana.forms import U64, Key, Plain
from adapters.solana.layouts import BadLayout
from adapters.solana.node import Node, ask_each
from adapters.solana.parsing import decoded, key_bytes, slot_and_content
from adapters.solana.reads import Leaves
from adapters.solana.trees import HEADER_SIZE, MOST_DEPTH, Leaf, asset_address, first_leaf, ring_end, second_leaf
from chainfolio.errors import BadAnswer, SourceError, TooMuch, Unavailable, Unsupported
from chainfolio.plans import Unknown
from chainfolio.printable import MAX_NAME, MAX_SYMBOL, clean
from transport.endpoint import Answer, Endpoint
from transport.wire import Request, typed

PAGE: Final = 500  # assets of one answer
SMALL: Final = 50  # and of one where too much is written about them
PAGES: Final = 20
MOST: Final = 1_000  # compressed NFTs of an account that are looked at
MOST_BYTES: Final = 16 * 2**20  # of all trees of an account together: many are sent to people who never asked for them
PROOFS: Final = 200  # of one answer
TREES: Final = 100  # accounts that one request may name
NAMES: Final = 100_000  # that are remembered
SERVED: Final = "assets"  # what is remembered of an endpoint: 0, where it has no such index
ROUTE: Final = "proofs"  # and which of the names its batches of proofs have
ROUTES: Final = ("getAssetProofs", "getAssetProofBatch", "")
UNSERVED: Final = Unknown("no endpoint has an index of compressed NFTs", "absent")


class NoIndex(Unavailable):
    """An endpoint has no index of assets; perhaps another one has."""


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


class _Kind(msgspec.Struct):
    compressed: bool = False


class _Listed(msgspec.Struct):
    """Any asset of a list: the others are of no concern here, whatever else they say."""

    id: Key
    burnt: bool = False
    compression: _Kind | None = None


class _Asset(msgspec.Struct):
    """A compressed asset of a list. Whose it is says its hash, and not the list."""

    id: Key
    compression: _Compression
    ownership: _Ownership = msgspec.field(default_factory=_Ownership)
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Page(msgspec.Struct):
    items: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=PAGE)]
    limit: Annotated[int, msgspec.Meta(ge=1)] = PAGE


class _Proof(msgspec.Struct):
    """What lies beside the way up from a leaf. Where that leads is worked out, and not believed."""

    proof: Annotated[list[Key], msgspec.Meta(max_length=MOST_DEPTH)]


async def leaves(node: Node, account: str) -> Leaves | Unknown:
    """What the best endpoint with an index says that an account has; Unknown where none has one, or none answers."""
    unknown = UNSERVED
    for endpoint in node.ranked():
        if not endpoint.capabilities.get(SERVED, 1):
            continue
        try:
            return await _leaves(node, endpoint, account)
        except NoIndex:  # which is no fault
            endpoint.learn(SERVED, 0)
        except SourceError as error:
            endpoint.errors.note(error)
            unknown = Unknown(error.reason, "contract" if isinstance(error, TooMuch) else "read")
    return unknown


async def serves(endpoint: Endpoint, account: str) -> bool | None:
    """Whether an endpoint has an index, asked anew and remembered; None where it does not say."""
    try:
        await _page(endpoint, account, 1)
    except NoIndex:
        served = False
    except SourceError:
        return None
    else:
        served = True
    endpoint.learn(SERVED, int(served))
    return served


async def _leaves(node: Node, endpoint: Endpoint, account: str) -> Leaves:
    own, faults = await _listed(endpoint, account)
    if len(own) > MOST:
        why = f"{len(own) - MOST} more than {MOST} were not looked at"
        faults += [(each.id, why) for each in own[MOST:]]
    hashed: dict[str, Leaf] = {}
    for each in own[:MOST]:
        try:
            hashed[each.id] = _hashed(each, account)
        except ValueError as error:
            faults.append((each.id, str(error)))
    proofs = await _proofs(endpoint, list(hashed))
    found = [leaf._replace(proof=proofs[leaf.id]) for leaf in hashed.values() if leaf.id in proofs]
    faults += [(id, "its proof cannot be read") for id in hashed if id not in proofs]
    if len(node.names) > NAMES:
        node.names.clear()
    node.names |= {each.id: _name(each) for each in own if each.id in proofs}
    sizes, unread = await _sizes(node, endpoint, sorted({each.tree for each in found}))
    faults += [(each.id, unread[each.tree]) for each in found if each.tree in unread]
    return Leaves(tuple(each for each in found if each.tree in sizes), sizes, tuple(faults))


_List = tuple[list[_Asset], list[tuple[str, str]]]


async def _listed(endpoint: Endpoint, account: str) -> _List:
    """The compressed assets of the list, in the order of their ids, and what of the list cannot be read. Whoever sent
    them may have written as much about them as he liked."""
    try:
        return await _paged(endpoint, account, PAGE)
    except TooMuch:
        return await _paged(endpoint, account, SMALL)


async def _paged(endpoint: Endpoint, account: str, size: int) -> _List:
    found: dict[str, _Asset] = {}
    seen: set[str] = set()
    faults: list[tuple[str, str]] = []
    count = 0
    for number in range(1, PAGES + 1):
        page = await _page(endpoint, account, number, size)
        count += len(page.items)
        for item in page.items:
            try:
                kind = msgspec.json.decode(item, type=_Listed)
                _key(kind.id)
                if kind.compression and kind.compression.compressed and not kind.burnt:
                    found[kind.id] = msgspec.json.decode(item, type=_Asset)
            except (ValueError, RecursionError):  # of msgspec, too
                faults.append((account, "an asset of the list cannot be read"))
                continue
            if kind.id in seen:
                raise BadAnswer(endpoint.name, f"lists the asset {kind.id} twice")
            seen.add(kind.id)
        if len(page.items) < min(size, page.limit):
            break
    else:
        faults.append((account, f"assets behind the first {count} of the list were not looked at"))
    return [found[id] for id in sorted(found)], faults


async def _page(endpoint: Endpoint, account: str, number: int, size: int = PAGE) -> _Page:
    order = {"sortBy": "id", "sortDirection": "asc"}
    named = {"ownerAddress": account, "sortBy": order, "limit": size, "page": number}
    try:
        content = await endpoint.one(Request("getAssetsByOwner", named=named))
    except Unsupported as error:
        if number > 1:
            raise
        raise NoIndex(endpoint.name, error.reason) from None
    page: _Page = typed(endpoint.name, content, _Page)
    return page


def _hashed(asset: _Asset, account: str) -> Leaf:
    """The leaf that an asset is if it is the account's, without its proof. ValueError where it can be none."""
    said = asset.compression
    if said.leaf_id is None or said.leaf_id >> MOST_DEPTH:
        raise ValueError("no tree has such a leaf")
    if asset.id != _address(said.tree, said.leaf_id):
        raise ValueError("it is called otherwise than its leaf")
    first = (
        key_bytes(asset.id), key_bytes(account), _key(asset.ownership.delegate or account), said.leaf_id,
        _key(said.data_hash), _key(said.creator_hash),
    )  # fmt: skip
    collection, data, flags = said.collection_hash, said.asset_data_hash, said.flags
    if collection is None and data is None and flags is None:
        return Leaf(asset.id, said.tree, said.leaf_id, first_leaf(*first), ())
    if collection is None or data is None or flags is None:
        raise ValueError("it is of a version that nobody knows here")
    return Leaf(asset.id, said.tree, said.leaf_id, second_leaf(*first, _key(collection), _key(data), flags), ())


def _address(tree: str, leaf: int) -> str:
    _key(tree)
    return asset_address(tree, leaf)


def _key(written: str) -> bytes:
    try:
        return key_bytes(written)
    except ValueError:
        raise ValueError("what its leaf is made of cannot be read") from None


def _name(asset: _Asset) -> tuple[str, str]:
    """Symbol and name, made safe; none where they are no texts."""
    try:
        content = msgspec.json.decode(asset.content, type=_Content | None)
    except (ValueError, RecursionError):
        return "", ""
    said = (content and content.metadata) or _Metadata()
    return clean(said.symbol or "", MAX_SYMBOL), clean(said.name or "", MAX_NAME)


# --- proofs and trees -------------------------------------------------------------------------------------------------


async def _proofs(endpoint: Endpoint, ids: Sequence[str]) -> dict[str, tuple[bytes, ...]]:
    """The proofs of some assets, those that can be read."""
    found: dict[str, tuple[bytes, ...]] = {}
    pages = [ids[first : first + PROOFS] for first in range(0, len(ids), PROOFS)]
    for page in pages:
        for id, said in (await _told(endpoint, page)).items():
            try:
                proof = msgspec.json.decode(said, type=_Proof).proof
                found[id] = tuple(map(_key, proof))
            except (ValueError, RecursionError):  # of msgspec, too: it is a fault of this one
                continue
    return found


async def _told(endpoint: Endpoint, ids: Sequence[str]) -> Mapping[str, bytes]:
    """What an endpoint answers about the proofs of some assets: in a batch, by whatever name it has one, or one by
    one."""
    for number in range(endpoint.capabilities.get(ROUTE, 0), len(ROUTES) - 1):
        answer = (await endpoint.ask([Request(ROUTES[number], named={"ids": ids})]))[0]
        if isinstance(answer, Unsupported):
            continue
        endpoint.learn(ROUTE, number)
        told: dict[str, msgspec.Raw] = typed(endpoint.name, _given(answer), dict[str, msgspec.Raw])
        return {id: told[id] for id in ids if id in told}
    endpoint.learn(ROUTE, len(ROUTES) - 1)
    answers = await ask_each(endpoint, [Request("getAssetProof", named={"id": id}) for id in ids])
    return {id: each for id, each in zip(ids, answers, strict=True) if not isinstance(each, SourceError)}


def _given(answer: Answer) -> bytes:
    if isinstance(answer, SourceError):
        raise answer
    return answer


async def _sizes(node: Node, endpoint: Endpoint, trees: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """How many bytes of each tree have to be read, by its header; and why others are not read."""
    sizes: dict[str, int] = {}
    unread: dict[str, str] = {}
    left = MOST_BYTES
    for tree, account in await _headers(node, endpoint, trees):
        try:
            size = ring_end(decoded(endpoint.name, account), account.owner) if account else 0
        except BadLayout as error:
            unread[tree] = f"the account of its tree is none: {error}"
            continue
        if not size:
            unread[tree] = "there is no such tree"
        elif size > left:
            unread[tree] = f"the trees of all have more than {MOST_BYTES // 2**20} MiB"
        else:
            sizes[tree], left = size, left - size
    return sizes, unread


async def _headers(node: Node, endpoint: Endpoint, trees: Sequence[str]) -> Iterator[tuple[str, Plain | None]]:
    pages = [trees[first : first + TREES] for first in range(0, len(trees), TREES)]
    options: dict[str, Any] = {
        "encoding": "base64", "commitment": node.commitment, "dataSlice": {"offset": 0, "length": HEADER_SIZE},
    }  # fmt: skip
    answers = await ask_each(endpoint, [Request("getMultipleAccounts", (page, options)) for page in pages])
    found: list[tuple[str, Plain | None]] = []
    for page, answer in zip(pages, answers, strict=True):
        listed: list[Plain | None] = typed(
            endpoint.name, slot_and_content(endpoint.name, _given(answer))[1], list[Plain | None]
        )
        if len(listed) != len(page):
            raise BadAnswer(endpoint.name, f"{len(listed)} accounts in answer to {len(page)}")
        found += zip(page, listed, strict=True)
    return iter(found)
