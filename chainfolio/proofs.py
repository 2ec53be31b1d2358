"""What proofs under the hash of a block show of balances that were read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from chainfolio.assets import Asset

Status = Literal["proven", "contradicted", "unprovable", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """How the proof of one number ended: `proven`; `contradicted` by what is proven; `unprovable` in this way; `broken`
    where the endpoint's proof is none. `value` is what was proven, where that is a number of the same kind."""

    status: Status
    reason: str
    value: int | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """Of the header, and of each asset that was asked about."""

    header: Finding
    balances: Mapping[Asset, Finding]
