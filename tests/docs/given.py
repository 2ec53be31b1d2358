"""State that pages take for granted and no command makes: for the shell of `test_commands`, by `python -m`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chainfolio.cli.common import settings_file
from chainfolio.cli.main import parser
from chainfolio.cli.state_store import open_state
from chainfolio.settings_file import load
from chainfolio.storage.state import address_book
from chainfolio.storage.tail import Tail
from chainfolio.transport.health import Evidence
from chainfolio.transport.http_endpoint import identity, name_of
from tests.e2e.running import ask

FINALITY = 8  # of the demo's chain
BALANCE_OF = "0x70a08231"


def in_book(account: str, address: str) -> str:
    """An address that is in an account's book."""
    settings = load(_file())
    state = open_state(settings)
    state.database.write(lambda tx: address_book.add(tx, account, {address: ""}, settings.quotas, state.clock.now_us()))
    state.close()
    return address


def quarantined(url: str) -> str:
    """An endpoint that was caught lying."""
    settings, name = load(_file()), name_of(url)
    evidence = Evidence("ethereum", name, "the balance of 0xbb at block 5 0xcc", "0", "7 by a majority", 1_000_000)
    tail = Tail(settings.tail_url.removeprefix("sqlite:///"))
    tail.quarantine(identity(url), msgspec.json.encode(evidence))
    tail.close()
    return name


def staker(node: str, contract: str) -> str:
    """Return an account of the local chain with a balance in a contract, at final blocks."""
    final = hex(int(_rpc(node, "eth_blockNumber"), 16) - FINALITY)
    for account in _rpc(node, "eth_accounts"):
        call = {"to": contract, "data": f"{BALANCE_OF}{account[2:]:0>64}"}
        if int(_rpc(node, "eth_call", call, final), 16):
            return str(account)
    raise AssertionError(f"nobody has anything in {contract}")


def _rpc(node: str, method: str, *params: Any) -> Any:
    return ask(node, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]


def _file() -> Path | None:
    return settings_file(parser(["doctor"]).parse_args(["doctor"]))


if __name__ == "__main__":
    kinds: dict[str, Callable[..., str]] = {"in_book": in_book, "quarantined": quarantined, "staker": staker}
    print(kinds[sys.argv[1]](*sys.argv[2:]))
