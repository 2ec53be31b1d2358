"""Results of proving balances against the hash of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
class BalanceProof:
    """The nodes of tries that prove one balance under a state root.

    Attributes:
        address: The address whose account is proven: the holder of a coin, or the contract of a token.
        account_nodes: The nodes from the state root to the account.
        key: The storage key as hex; empty for a coin.
        rule: How the key follows from the holder, in the words of `ProofResult.reason`.
        storage_nodes: The nodes from the contract's storage root to the word; empty for a coin.
    """

    address: str
    account_nodes: tuple[bytes, ...]
    key: str = ""
    rule: str = ""
    storage_nodes: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockProofs:
    """The results for the header and for each asset.

    `header_rlp` is the header whose hash is that of the block, empty if it is not proven. `nodes` are the proofs of the
    proven balances.
    """

    header: ProofResult
    balances: Mapping[Asset, ProofResult]
    header_rlp: bytes = field(default=b"", repr=False)
    nodes: Mapping[Asset, BalanceProof] = field(default_factory=dict, repr=False)
