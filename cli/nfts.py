"""The tables of `chainfolio portfolio --nfts`: collectibles by collection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from chainfolio.cli.common import count_text
from chainfolio.cli.table import Column, Group, print_wrapped, shortened_ids, show_groups

if TYPE_CHECKING:
    from chainfolio.portfolio.document import CollectionDocument, NftDocument, Portfolio

COLUMNS = (Column("number"), Column("name"), Column("balance", "number"), Column("attributes"), Column("note", "note"))


def show_nfts(documents: Sequence[Portfolio], *, spam: bool) -> None:
    """Print the collectibles of portfolios; of spam only the number of collections, unless `spam` is True."""
    collections = [
        (document.address, each)
        for document in documents
        if document.nfts_by_collection is not UNSET
        for each in document.nfts_by_collection.values()
    ]
    shown = [(address, each) for address, each in collections if spam or not _is_spam(each)]
    several = len(documents) > 1
    groups = [Group(_heading(each, address if several else ""), list(_rows(each))) for address, each in shown]
    show_groups(f"collectibles: {count_text(len(shown), 'collection')}", COLUMNS, groups)
    if len(shown) < len(collections):
        hidden = count_text(len(collections) - len(shown), "collection")
        print_wrapped(f"not shown unless --include-spam says so, for they are taken for spam: {hidden}", indent=2)


def _is_spam(collection: CollectionDocument) -> bool:
    """Return True if the collection, or each of its items, is taken for spam."""
    return collection.spam or all(each.spam for each in collection.items)


def _heading(collection: CollectionDocument, address: str) -> str:
    owner = f", {shortened_ids(address)}" if address else ""
    name = collection.name or collection.symbol or collection.contract_address
    return f"{name}, {collection.chain_key}: {collection.count}{owner}"


def _rows(collection: CollectionDocument) -> Iterator[tuple[str, ...]]:
    """Yield a row for each item: number, name, balance, attributes, and why metadata are not known."""
    for each in collection.items:
        name = "" if each.name is UNSET else each.name
        problem = "" if each.metadata_problem is UNSET else each.metadata_problem
        yield f"#{each.token_id}", name, each.balance, _attributes(each), problem


def _attributes(item: NftDocument) -> str:
    """Return attributes as one text, `name: value` with commas; empty if there are none."""
    pairs = () if item.attributes is UNSET else item.attributes
    return ", ".join(f"{each.name}: {each.value}" if each.name else each.value for each in pairs)
