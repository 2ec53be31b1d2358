"""Results of proving balances against the hash of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from chainfolio.assets import Asset

Status = Literal["proven", "contradicted", "unprovable", "broken"]


@dataclass(frozen=True, slots=True)
class ProofResult:
    """The result of one proof, and the proven `value` if it is a number of the same kind.

    `status`: `proven`; `contradicted` by the proof; `unprovable` by this method; `broken` if the endpoint's proof is
    invalid.
    """

    status: Status
    reason: str
    value: int | None = None


@dataclass(frozen=True, slots=True)
class BlockProofs:
    """The results for the header and for each asset."""

    header: ProofResult
    balances: Mapping[Asset, ProofResult]
