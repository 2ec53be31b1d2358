"""Names for a plug-in of a price source: its section, its answers, and the reads that it may yield."""

from __future__ import annotations

from chainfolio.adapters.evm.reads import Call, NativeBalance
from chainfolio.amounts import amount
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Price
from chainfolio.errors import BadSettings
from chainfolio.kinds import contract_calls
from chainfolio.plans import Plan, Unknown, read, read_all, read_distinct, read_groups, run_offline
from chainfolio.price_sources import PriceSection, PriceSource, Quotes, Refusal, RelativePrice, by_chain
from chainfolio.pricing.http_reads import Batch, BatchedRead, HttpGet
from chainfolio.reads import AtParent, Read, ReadResult

__all__ = [
    "Asset",
    "AtParent",
    "BadSettings",
    "Batch",
    "BatchedRead",
    "Block",
    "Call",
    "HttpGet",
    "NativeBalance",
    "Plan",
    "Price",
    "PriceSection",
    "PriceSource",
    "Quotes",
    "Read",
    "ReadResult",
    "Refusal",
    "RelativePrice",
    "Unknown",
    "amount",
    "by_chain",
    "contract_calls",
    "read",
    "read_all",
    "read_distinct",
    "read_groups",
    "run_offline",
]
