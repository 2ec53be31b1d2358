"""A client of the service as a customer would write it, from its description alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tests.e2e import shapes

T = TypeVar("T")
Query = Mapping[str, str | int | bool]
PATIENCE_S = 30


@dataclass(frozen=True)
class Answer:
    """A response: header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read(self, kind: type[T]) -> T:
        """The body as that kind; raises msgspec.ValidationError where it is not exactly that."""
        assert self.headers.get("content-type", "").startswith("application/json"), self.headers
        return msgspec.json.decode(self.body, type=kind)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, request: str, answer: Answer) -> None:
        super().__init__(f"{request}: {answer.status} {answer.body[:500].decode(errors='replace')}")
        self.answer = answer


class Data(msgspec.Struct, Generic[T], frozen=True):
    """The wrapper of address book and bundles."""

    data: T


def text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass
class Client:
    """One key at one base address, `…/v1`. Methods raise Refused for every status that is not 2xx."""

    base: str
    key: str | None
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, query: Query | str = "", body: Any = None, **headers: str) -> Answer:
        """One call, whatever becomes of it. Underscores in names of headers stand for hyphens."""
        at = urlsplit(self.base)
        query_text = (
            query if isinstance(query, str) else urlencode({name: text(value) for name, value in query.items()})
        )
        request_headers = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.key is not None:
            request_headers.setdefault("Authorization", f"Bearer {self.key}")
        if body is not None:
            request_headers.setdefault("Content-Type", "application/json")
        line = HTTPConnection(at.hostname or "", at.port, timeout=PATIENCE_S)
        try:
            payload = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            line.request(method, at.path + path + (f"?{query_text}" if query_text else ""), payload, request_headers)
            answer = line.getresponse()
            response_headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, response_headers, answer.read())
        finally:
            line.close()

    def get(self, kind: type[T], path: str, **query: str | int | bool) -> T:
        """The document at a path."""
        return self.decoded("GET", path, kind, query)

    def decoded(self, method: str, path: str, kind: type[T], query: Query | str = "", body: Any = None) -> T:
        """The document that a call which succeeds answers."""
        answer = self.ask(method, path, query, body)
        if not 200 <= answer.status < 300:
            raise RefusedError(f"{method} {path}", answer)
        return answer.read(kind)

    def delete(self, path: str) -> None:
        """Deletes; the answer is 204 and empty."""
        answer = self.ask("DELETE", path)
        if answer.status != 204 or answer.body:
            raise RefusedError(f"DELETE {path}", answer)

    # --- portfolios ---

    def portfolio(self, addresses: str, **query: str | bool) -> list[shapes.Portfolio]:
        return self.get(list[shapes.Portfolio], "/portfolio", addresses=addresses, **query)

    def at_block(self, addresses: str, chain_key: str, block_number: int) -> list[shapes.Portfolio]:
        return self.get(
            list[shapes.Portfolio],
            "/portfolio/at-block",
            addresses=addresses,
            chainKey=chain_key,
            blockNumber=block_number,
        )

    def historical(self, addresses: str, date: str) -> list[shapes.Portfolio]:
        return self.get(list[shapes.Portfolio], "/historical", addresses=addresses, date=date)

    def wallet(self, addresses: str, **query: str | bool) -> list[shapes.Portfolio]:
        return self.get(list[shapes.Portfolio], "/wallet", addresses=addresses, **query)

    def nav(self, addresses: str, **query: str | bool) -> shapes.Nav:
        return self.get(shapes.Nav, "/nav", addresses=addresses, **query)

    def token_overview(self, addresses: str, date: str) -> list[shapes.TokenTotal]:
        return self.get(list[shapes.TokenTotal], "/token-overview", addresses=addresses, date=date)

    def transactions(self, addresses: str, limit: int, offset: int, **query: str | bool) -> list[shapes.Transaction]:
        parameters: dict[str, str | int | bool] = {"addresses": addresses, "limit": limit, "offset": offset, **query}
        return self.get(shapes.Transactions, "/transactions", **parameters).transactions

    def approvals(self, chain: str, addresses: str, **query: str | int) -> shapes.Approvals:
        return self.get(shapes.Approvals, f"/approvals/{chain}", addresses=addresses, **query)

    def subscribe(self, address: str, description: str) -> shapes.SubscriptionResult:
        body = {"addresses": [{"address": address, "description": description}]}
        return self.decoded("POST", "/subscribe-snapshot", shapes.SubscriptionResult, body=body)

    # --- virtual users ---

    def virtual_users(self) -> list[shapes.VirtualUser]:
        return self.get(list[shapes.VirtualUser], "/virtual-users")

    def virtual_portfolio(self, addresses: str, **query: bool) -> list[shapes.Portfolio]:
        return self.get(list[shapes.Portfolio], "/virtual-users/portfolio", addresses=addresses, **query)

    # --- address book and bundles ---

    def book(self) -> list[shapes.Entry]:
        return self.get(Data[list[shapes.Entry]], "/addressbook").data

    def keep(self, *entries: tuple[str, str]) -> list[shapes.Entry]:
        body = {"entries": [{"address": address, "label": label} for address, label in entries]}
        return self.decoded("POST", "/addressbook", Data[list[shapes.Entry]], body=body).data

    def label(self, address: str, label: str) -> shapes.Entry:
        return self.decoded("PATCH", f"/addressbook/{quote(address)}", Data[shapes.Entry], body={"label": label}).data

    def forget(self, address: str) -> None:
        self.delete(f"/addressbook/{quote(address)}")

    def bundles(self) -> list[shapes.Bundle]:
        return self.get(Data[list[shapes.Bundle]], "/bundles").data

    def bundle(self, bundle_id: str) -> shapes.Bundle:
        return self.get(Data[shapes.Bundle], f"/bundles/{quote(bundle_id)}").data

    def bundled(self, name: str, *addresses: str) -> shapes.Bundle:
        body = {"name": name, "addresses": list(addresses)}
        return self.decoded("POST", "/bundles", Data[shapes.Bundle], body=body).data

    def rename(self, bundle_id: str, name: str) -> shapes.Bundle:
        return self.decoded("PATCH", f"/bundles/{quote(bundle_id)}", Data[shapes.Bundle], body={"name": name}).data

    def join(self, bundle_id: str, address: str) -> shapes.Bundle:
        path = f"/bundles/{quote(bundle_id)}/addresses"
        return self.decoded("POST", path, Data[shapes.Bundle], body={"address": address}).data

    def leave(self, bundle_id: str, address: str) -> shapes.Bundle:
        return self.decoded(
            "DELETE", f"/bundles/{quote(bundle_id)}/addresses/{quote(address)}", Data[shapes.Bundle]
        ).data

    def unbundle(self, bundle_id: str) -> None:
        self.delete(f"/bundles/{quote(bundle_id)}")

    # --- about the service and the account ---

    def credits(self) -> int:
        return self.get(int, "/credits")

    def status(self, addresses: str) -> list[shapes.Status]:
        return self.get(list[shapes.Status], "/status", addresses=addresses)

    def sync(self, *addresses: str) -> str:
        return self.decoded("POST", "/sync-transactions", str, body={"addresses": list(addresses)})

    def chains(self) -> list[shapes.Chain]:
        return self.get(list[shapes.Chain], "/chains")

    def protocols(self, chain: str, **query: int) -> shapes.KnownProtocols:
        return self.get(shapes.KnownProtocols, f"/chains/{chain}/protocols", **query)


def send(client: Client, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
    """One call to a path that is written with its query."""
    path_only, _, query = path.partition("?")
    return client.ask(method, path_only, query, body, **headers)


@contextmanager
def costs(client: Client, credits: int) -> Iterator[None]:
    """Check that the block takes exactly so many credits."""
    before = client.credits()
    yield
    assert before - client.credits() == credits


def free(client: Client, path: str, status: int, kind: type[T]) -> T:
    """The refusal of a call, which cost nothing."""
    with costs(client, 0):
        answer = send(client, path)
    assert answer.status == status, answer.body
    return answer.read(kind)
