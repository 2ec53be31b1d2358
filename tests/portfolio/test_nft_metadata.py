"""Metadata of collectibles: JSON that anybody may write, and URIs that contracts return."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from chainfolio.assets import Asset
from chainfolio.contracts import Collectible, Holding, Token
from chainfolio.portfolio.compose import portfolio
from chainfolio.portfolio.facts import Options
from chainfolio.portfolio.nft_metadata import (
    MAX_ADDRESS,
    MAX_ATTRIBUTE,
    MAX_ATTRIBUTES,
    MAX_IDS,
    MAX_JSON,
    MAX_URI,
    MetadataError,
    NftMetadata,
    parse,
    read_data,
    resolved_uri,
)
from chainfolio.portfolio.nfts import with_nfts
from chainfolio.portfolio.valuation import valuate
from chainfolio.printable import MAX_NAME
from tests.portfolio.examples import ALICE, BLOCK, CHAINS, snapshot

Input = TypeVar("Input", str, bytes)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.sampled_from(("name", "attributes", "value", "trait_type")), each),
)


def refusal(decode: Callable[[Input], object], content: Input) -> str:
    """Return the reason why a decoder refuses some content, or "" if it accepts it."""
    try:
        decode(content)
    except MetadataError as error:
        return str(error)
    return ""


@given(JSON)
def test_any_json_gives_bounded_printable_texts(document: object) -> None:
    content = json.dumps(document).encode("utf-8", "surrogatepass")
    try:
        metadata = parse(content)
    except MetadataError:
        assert not isinstance(document, dict) or len(content) > MAX_JSON or b"\\ud" in content
        return
    texts = [metadata.name, *(text for pair in metadata.attributes for text in pair)]
    assert all(text.isprintable() and len(text) <= max(MAX_NAME, MAX_ATTRIBUTE) for text in texts)
    assert len(metadata.attributes) <= MAX_ATTRIBUTES


@given(st.binary())
def test_any_bytes_are_metadata_or_refused(content: bytes) -> None:
    for uri in (f"data:,{quote(content)}", f"data:;base64,{base64.b64encode(content).decode()}"):
        assert read_data(uri) == content
    reason = refusal(parse, content)
    assert not reason or reason.startswith("its metadata")


@given(st.text())
def test_any_uri_is_read_or_refused(text: str) -> None:
    reason = refusal(read_data, f"data:{text}")
    assert not reason or reason.startswith("its data: URI")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[" * 100_000, "no JSON"),
        (b'{"a":' * 50_000, "no JSON"),
        (b"1" * 100_000, "no JSON"),
        (b"{}" + b" " * MAX_JSON, "262,146 bytes, more than"),
        (b"[]", "no JSON object"),
        (b"<svg onload=alert(1)>", "no JSON"),
        (b'{"name": "\xff"}', "no JSON"),
    ],
    ids=["deep list", "deep object", "long number", "large", "list", "svg", "no UTF-8"],
)
def test_hostile_json_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        parse(content)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("data:image/svg+xml;base64,PHN2Zz4=", "not JSON"),
        ("data:text/html,<script>", "not JSON"),
        ("data:application/json;base64,@@@@", "no valid base64"),
        ("data:application/json", "not JSON"),
        ("data:," + "a" * MAX_URI, "characters, more than"),
    ],
)
def test_hostile_data_uris_are_refused(uri: str, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        read_data(uri)


@pytest.mark.parametrize(
    "head",
    ["data:application/json;utf8,", "data:application/json;charset=utf-8,", "DATA:text/plain,", "data:,"],
)
def test_json_in_a_data_uri_needs_no_encoding(head: str) -> None:
    assert parse(read_data(head + '{"name": "Ape #7"}')).name == "Ape #7"


def test_numbers_of_attributes_stay_as_they_are_written() -> None:
    content = b'{"attributes": [{"trait_type": "a", "value": 0.10}, {"trait_type": "b", "value": %d}]}' % 2**200
    assert parse(content).attributes == (("a", "0.10"), ("b", str(2**200)))


def test_attributes_above_the_limit_are_counted() -> None:
    content = json.dumps({"attributes": {str(each): "x" * 200 for each in range(MAX_ATTRIBUTES + 7)}})
    metadata = parse(content.encode())
    assert (len(metadata.attributes), metadata.omitted_count) == (MAX_ATTRIBUTES, 7)
    assert {len(value) for _, value in metadata.attributes} == {MAX_ATTRIBUTE}


def test_an_id_in_a_uri_has_64_hexadecimal_digits() -> None:
    assert resolved_uri("ipfs://x/{id}.json", "314592") == f"ipfs://x/{0x4CCE0:064x}.json"


def test_a_uri_that_grows_by_its_number_stays_bounded() -> None:
    with pytest.raises(MetadataError, match="more than 2,000"):
        resolved_uri("ipfs://" + "{id}" * 500, "7")
    assert len(resolved_uri("ipfs://" + "{id}" * 400, "7")) <= MAX_ADDRESS + 60 * MAX_IDS
    with pytest.raises(MetadataError, match="more than 65,536"):
        resolved_uri("data:," + "{id}" * 16_384, "7")


def collectible(kind: str, token_id: str, raw: int = 1) -> Collectible:
    token = Token(Asset("eip155:1", kind, "0x" + "33" * 20, token_id), "BOTH", "Both", 0)
    return Collectible("ethereum", BLOCK, Holding(ALICE, token, raw))


def test_a_contract_of_both_standards_gives_each_number_once() -> None:
    document = portfolio(ALICE, valuate([snapshot()]), CHAINS, updated_ms=0)
    things = [
        collectible("erc1155", "7", 3),
        collectible("erc721", "7"),
        collectible("erc721", "8"),
        collectible("erc721", "8"),
    ]
    with_collectibles = with_nfts(document, things, CHAINS, Options(nfts=True))
    assert with_collectibles.nfts_by_collection is not UNSET
    assert with_collectibles.nfts_chains is not UNSET
    (collection,) = with_collectibles.nfts_by_collection.values()
    assert [(each.token_id, each.balance) for each in collection.items] == [("7", "3"), ("8", "1")]
    assert (collection.count, with_collectibles.nfts_chains["ethereum"].count) == ("4", "4")


def test_a_failed_read_of_metadata_is_an_issue_that_makes_nothing_partial() -> None:
    document = portfolio(ALICE, valuate([snapshot()]), CHAINS, updated_ms=0)
    collectibles = [collectible("erc721", str(number)) for number in range(3)]
    unread = NftMetadata(problem="its contract could not be read: timed out", is_unread=True)
    metadata = {each.holding.token.asset: unread for each in collectibles[:2]}
    metadata[collectibles[2].holding.token.asset] = NftMetadata(problem="its metadata are no JSON")
    shown = with_nfts(document, collectibles, CHAINS, Options(nfts=True, nft_metadata=True), metadata)
    (issue,) = shown.issues
    assert (issue.adapter, issue.reason, issue.count) == ("collectibles", unread.problem, 2)
    assert (shown.completeness, shown.networth) == (document.completeness, document.networth)
