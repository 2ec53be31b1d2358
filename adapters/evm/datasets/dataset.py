"""A dataset of EVM chains: what it is made from. Each is made from one of headers, logs, bodies or traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio.blocks import Span
from chainfolio.datasets import Dataset, dropped
from chainfolio.tables import LOGS

if TYPE_CHECKING:
    import pyarrow as pa

    from adapters.evm.columns import Mask
    from adapters.evm.logs import Logs


def topic_of(account: str) -> str:
    """An account as an indexed parameter of an event."""
    return "0x" + account[2:].rjust(64, "0")


@dataclass(frozen=True, slots=True)
class EvmDataset(Dataset):
    """`topics`: the events that it takes, `decode` makes its rows from their logs and says which it used, `logs_of` is
    the inverse. Others make theirs `of_headers`, `of_bodies` (transactions with their receipts) or `of_traces`."""

    topics: tuple[str, ...] = ()
    decode: Callable[[Logs, str, str | None], tuple[pa.Table, Mask]] | None = None
    logs_of: Callable[[pa.Table], Logs] | None = None
    of_headers: Callable[[Sequence[Any], str], pa.Table] | None = None
    of_bodies: Callable[[Sequence[Any], str], pa.Table] | None = None
    of_traces: Callable[[Mapping[Any, Any], str], pa.Table] | None = None

    def without(self, tables: dict[str, pa.Table], contract: str, span: Span) -> dict[str, pa.Table]:
        """As every dataset, and without the contract's raw logs of its events: those of other datasets' events were not
        fetched with the contract's."""
        import pyarrow as pa

        left = Dataset.without(self, tables, contract, span)
        return dropped(left, LOGS.name, "address", contract, span, pa.array(self.topics, pa.string()))
