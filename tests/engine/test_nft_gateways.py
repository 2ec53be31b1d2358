"""Metadata through gateways: real servers on this machine, some of them hostile."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from chainfolio.assets import Asset
from chainfolio.engine import nft_gateways
from chainfolio.engine.nft_gateways import MAX_FILES, NO_GATEWAY, TOO_MANY, Gateways, gateway_url
from chainfolio.engine.nft_metadata import MAX_COLLECTIBLES, selected
from chainfolio.errors import BadSettings
from chainfolio.portfolio.nft_metadata import MAX_JSON, MetadataError, NftMetadata
from chainfolio.settings import Nfts, Settings
from chainfolio.settings_checks import check
from tests.alerts.receivers import Conduct, Receiver, receiver
from tests.indexer.clock import ManualClock

APE = json.dumps({"name": "Ape #7", "attributes": [{"trait_type": "Fur", "value": "gold"}]}).encode()
GATEWAYS = {"ipfs": "https://ipfs.example/ipfs/{path}", "https": "https://proxy.example/?url={url}"}


async def good(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=APE, content_type="application/json")


async def redirecting(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data/"})


async def compressed(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=gzip.compress(b"0" * 10**7), headers={"Content-Encoding": "gzip"})


async def svg(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="<svg onload='alert(1)'/>", content_type="image/svg+xml")


async def gigabyte(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(headers={"Content-Length": str(2**30), "Content-Type": "application/json"})


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("it never answers")


async def read(uris: list[str], gateways: Mapping[str, str], timeout_s: int = 20) -> dict[str, NftMetadata]:
    """The metadata at some URIs, read once."""
    return await Gateways(Nfts(dict(gateways), timeout_s), ManualClock()).read(uris)


async def from_gateway(conduct: Conduct, timeout_s: int = 20) -> tuple[NftMetadata, Receiver]:
    """The metadata of one file at a gateway on this machine, which the operator names."""
    async with receiver(conduct) as gateway:
        metadata = await read(["ipfs://Qm/7.json"], {"ipfs": gateway.url + "/ipfs/{path}"}, timeout_s)
        return metadata["ipfs://Qm/7.json"], gateway


async def test_a_gateway_of_the_operator_gives_names_and_attributes() -> None:
    metadata, gateway = await from_gateway(good)
    assert metadata == NftMetadata("ipfs://Qm/7.json", "Ape #7", (("Fur", "gold"),))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("conduct", "problem"),
    [
        (redirecting, "the gateway could not be read: answered 302"),
        (compressed, "the gateway could not be read: its file is compressed"),
        (svg, "its file is not JSON"),
        (gigabyte, f"the gateway could not be read: its file has more than {MAX_JSON:,} bytes"),
        (endless, f"the gateway could not be read: its file has more than {MAX_JSON:,} bytes"),
    ],
    ids=["redirect", "compressed", "svg", "gigabyte", "endless"],
)
async def test_a_hostile_file_is_refused_with_its_reason(conduct: Conduct, problem: str) -> None:
    metadata, _ = await from_gateway(conduct)
    assert (metadata.problem, metadata.name) == (problem, "")


async def test_a_gateway_that_never_answers_costs_its_time_only() -> None:
    metadata, _ = await from_gateway(silent, timeout_s=1)
    assert metadata.problem == "the gateway could not be read: no answer within 1 s"
    assert metadata.is_unread


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "[::ffff:10.0.0.1]"])
async def test_a_collection_cannot_name_a_private_host(host: str) -> None:
    async with receiver(good) as private:
        port = private.url.split(":")[2].partition("/")[0]
        uri = f"https://{host}:{port}/7.json"
        metadata = await read([uri], {"https": "{url}", "ipfs": private.url + "/{path}"})
        assert metadata[uri].problem == "the gateway could not be read: the host has a private address"
        assert private.requests == []


@pytest.mark.parametrize(
    "uri",
    [
        "ipfs://../admin",
        "ipfs://Qm/%2e%2e/%2e%2e/admin",
        "ipfs://Qm/%252e%252e/admin",
        "ipfs://Qm\\..\\admin",
        "ipfs://Qm/\n7",
        "ipfs://",
        "https://user@host.example/7",
        "https://host.example:99999/7",
        "https:///7",
    ],
)
def test_a_uri_that_leaves_its_place_is_refused(uri: str) -> None:
    with pytest.raises(MetadataError, match="its URI"):
        gateway_url(uri, GATEWAYS)


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("ipfs://Qm/7.json", "https://ipfs.example/ipfs/Qm/7.json"),
        ("ipfs://ipfs/Qm/7.json", "https://ipfs.example/ipfs/Qm/7.json"),
        ("IPFS://Qm/a%20b?x=1#2", "https://ipfs.example/ipfs/Qm/a%20b%3Fx%3D1%232"),
        ("https://a.example/7?x=1&y=2", "https://proxy.example/?url=https%3A%2F%2Fa.example%2F7%3Fx%3D1%26y%3D2"),
    ],
)
def test_a_uri_becomes_a_path_or_a_parameter_of_the_gateway(uri: str, url: str) -> None:
    assert gateway_url(uri, GATEWAYS) == url


@pytest.mark.parametrize("uri", ["ipfs://Qm/7", "http://a.example/7", "gopher://a/7", "ftp://a/7", "7.json"])
async def test_without_a_gateway_nothing_is_requested(uri: str) -> None:
    metadata = await read([uri], {"ar": "https://ar.example/{path}"})
    assert metadata[uri].problem == NO_GATEWAY


def test_metadata_of_own_collections_come_before_any_number_of_strangers_ones() -> None:
    strangers = [Asset("eip155:1", "erc721", f"0x{number:040x}", "1") for number in range(MAX_COLLECTIBLES + 5)]
    own = Asset("eip155:1", "erc721", "0x" + "f" * 40, "1")
    assets, omitted = selected([*strangers, own], {each.reference for each in strangers})
    assert assets[0] == own
    assert (len(assets), omitted) == (MAX_COLLECTIBLES, strangers[MAX_COLLECTIBLES - 1 :])


async def test_slow_files_leave_time_for_the_others() -> None:
    async def slow_or_good(request: web.BaseRequest) -> web.StreamResponse:
        return await (silent if "slow" in request.path else good)(request)

    async with receiver(slow_or_good) as gateway:
        uris = [f"ipfs://slow/{number}" for number in range(8)] + [f"ipfs://Qm/{number}" for number in range(8)]
        metadata = await read(uris, {"ipfs": gateway.url + "/{path}"}, timeout_s=2)
        assert [metadata[uri].name for uri in uris] == [""] * 8 + ["Ape #7"] * 8
        assert all(metadata[uri].is_unread for uri in uris[:8])


async def test_a_file_that_was_no_metadata_is_requested_again_after_an_hour() -> None:
    clock = ManualClock()
    async with receiver(svg) as gateway:
        gateways = Gateways(Nfts({"ipfs": gateway.url + "/{path}"}), clock)
        for later_s, count in ((0, 1), (3_599, 1), (2, 2)):
            clock.now_s += later_s
            assert (await gateways.read(["ipfs://Qm/7"]))["ipfs://Qm/7"].problem == "its file is not JSON"
            assert len(gateway.requests) == count


async def test_files_are_cached_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft_gateways, "MAX_CACHED", 5)
    async with receiver(good) as gateway:
        gateways = Gateways(Nfts({"ipfs": gateway.url + "/{path}"}), ManualClock())
        uris = [f"ipfs://Qm/{number}" for number in range(MAX_FILES + 3)]
        metadata = await gateways.read([*uris, *uris, "gopher://a/7"])
        assert [metadata[uri].problem for uri in uris] == [""] * MAX_FILES + [TOO_MANY] * 3
        assert metadata["gopher://a/7"].problem == NO_GATEWAY
        assert len(gateway.requests) == MAX_FILES
        newest = uris[MAX_FILES - 5 : MAX_FILES]
        assert (await gateways.read(newest))[newest[0]].name == "Ape #7"
        assert len(gateway.requests) == MAX_FILES


@pytest.mark.parametrize(
    "gateways",
    [
        {"ftp": "https://a.example/{path}"},
        {"ipfs": "https://a.example/"},
        {"ipfs": "{path}"},
        {"ipfs": "https://{path}.example/"},
        {"ipfs": "ftp://a.example/{path}"},
        {"https": "https://user:pw@a.example/{url}"},
    ],
)
def test_a_gateway_without_a_place_after_its_host_is_refused(gateways: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"nfts\.gateways"):
        check(Settings(data=str(tmp_path), nfts=Nfts(gateways)))
