"""Changes of positions from logs: a protocol of others that fails is no reason to know nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from chainfolio.capabilities import Capability
from chainfolio.engine.gains.position_changes import Changes, position_changes
from chainfolio.loop import run_until_done
from chainfolio.portfolio.pnl.transaction_records import TransactionRecord
from chainfolio.portfolio.transactions import Nft
from chainfolio.position_changes import EventLog, PositionChange
from tests.portfolio.test_pnl_records import NOBODY, POOL, asset, record

OPENED = PositionChange("nft", 7, 5, ("a", "b"), (5, 0), POOL)


class Chain:
    """A chain whose node gives one log of each transaction, with the hash in it."""

    capabilities = frozenset({Capability.EVENT_LOGS})

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def event_logs(self, transactions: Sequence[tuple[str, int]]) -> list[tuple[EventLog, ...]]:
        self.asked += [tx_hash for tx_hash, _ in transactions]
        return [(EventLog("manager", (tx_hash,), b""),) for tx_hash, _ in transactions]


class Tail:
    """The stored lookups; blocks from 100 on may be replaced."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def lookups(self, chain: str, names: Iterable[str]) -> dict[str, bytes]:
        return {name: self.stored[name] for name in names if name in self.stored}

    def lowest(self, chain: str) -> Any:
        return SimpleNamespace(height=100)

    def add_lookups(self, chain: str, rows: Iterable[tuple[str, int, None, bytes]]) -> None:
        self.stored |= {name: text for name, _, _, text in rows}


def opens(logs: Sequence[EventLog]) -> Iterator[PositionChange]:
    yield OPENED


def raises(logs: Sequence[EventLog]) -> Iterator[PositionChange]:
    if logs[0].topics == ("0x2",):
        raise IndexError("no such topic")
    yield from ()


def invents(logs: Sequence[EventLog]) -> list[Any]:
    return [SimpleNamespace(contract="nft", number="seven")] if logs[0].topics == ("0x2",) else []


def created(tx_hash: str) -> TransactionRecord:
    nft = asset("nft", "1", other=NOBODY, nft=Nft(token_id="7"))
    return record("SWAP", [nft], [asset("a", "5", "50", POOL)], hash=tx_hash)


@pytest.mark.parametrize("broken", [raises, invents])
def test_a_protocol_that_fails_makes_only_its_transaction_unknown(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    chain, tail = Chain(), Tail()
    families: dict[str, Any] = {"good": SimpleNamespace(changes=opens), "broken": SimpleNamespace(changes=broken)}
    system: Any = SimpleNamespace(chain=lambda key: chain, tail=tail, families=families)

    def changes() -> Changes:
        return run_until_done(position_changes(system, [created("0x1"), created("0x2")]))

    assert changes() == {("chain", "0x1"): (OPENED,), ("chain", "0x2"): None}
    assert "protocol broken could not read the changes of positions in 0x2" in caplog.text
    families["broken"] = SimpleNamespace(changes=None)
    chain.asked.clear()
    assert changes() == {("chain", "0x1"): (OPENED,), ("chain", "0x2"): (OPENED,)}
    assert chain.asked == ["0x2"]
    chain.asked.clear()
    changes()
    assert chain.asked == []
