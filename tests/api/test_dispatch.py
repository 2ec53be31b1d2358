"""A path leads to one thing, or says which methods it has."""

from __future__ import annotations

import pytest

from chainfolio.api.dispatch import Paths


def bundle_paths() -> Paths[str]:
    paths: Paths[str] = Paths()
    for method, path in (
        ("GET", "/v1/bundles"),
        ("POST", "/v1/bundles"),
        ("GET", "/v1/bundles/quota"),
        ("GET", "/v1/bundles/{id}"),
        ("DELETE", "/v1/bundles/{id}"),
        ("GET", "/v1/bundles/{id}/addresses/{address}"),
    ):
        paths.add(method, path, f"{method} {path}")
    return paths


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/bundles", ("GET /v1/bundles", {}, set())),
        ("GET", "/v1/bundles/quota", ("GET /v1/bundles/quota", {}, set())),
        ("GET", "/v1/bundles/7", ("GET /v1/bundles/{id}", {"id": "7"}, set())),
        ("GET", "/v1/bundles/a%2Fb%2525", ("GET /v1/bundles/{id}", {"id": "a/b%25"}, set())),
        (
            "GET",
            "/v1/bundles/7/addresses/0x1",
            ("GET /v1/bundles/{id}/addresses/{address}", {"id": "7", "address": "0x1"}, set()),
        ),
        ("DELETE", "/v1/bundles/quota", ("DELETE /v1/bundles/{id}", {"id": "quota"}, set())),
        ("PUT", "/v1/bundles", (None, {}, {"GET", "POST"})),
        ("PUT", "/v1/bundles/quota", (None, {}, {"GET", "DELETE"})),
        ("GET", "/v1/bundles/", (None, {}, set())),
        ("GET", "/v1/bundles/7/", (None, {}, set())),
        ("GET", "/v1/bundlesX", (None, {}, set())),
    ],
)
def test_where_a_path_leads(method: str, path: str, expected: tuple[str | None, dict[str, str], set[str]]) -> None:
    assert bundle_paths().find(method, path) == expected


def test_two_things_cannot_stand_at_one_place() -> None:
    with pytest.raises(AssertionError, match="is there already"):
        bundle_paths().add("GET", "/v1/bundles/{id}", "another")
