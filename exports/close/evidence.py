"""Evidence of balances: proofs under the hash of a block, and reads of a second endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chainfolio.capabilities import Capability, find_capability
from chainfolio.engine.reconcile.balances import BalanceReader
from chainfolio.errors import SourceError
from chainfolio.portfolio.document import IssueDocument
from chainfolio.portfolio.reconciliation import BalanceKey

if TYPE_CHECKING:
    from chainfolio.assets import Asset
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain
    from chainfolio.engine.service import Engine
    from chainfolio.proofs import BalanceProof, BlockProofs

ONE_SOURCE: Final = "as one source says"
TWO_SOURCES: Final = "as two sources say"
DERIVED: Final = "derived from proven"
PROVEN: Final = "proven"
CLASSES: Final = (PROVEN, DERIVED, TWO_SOURCES, ONE_SOURCE)
Balances = Mapping[BalanceKey, int]


@dataclass(slots=True)
class Evidence:
    """Evidence of the balances at one block.

    Attributes:
        header: The block's header in RLP; empty if no balance is proven.
        proofs: The proofs of the proven balances.
        hosts: The hosts that gave the same number of a balance at the block.
        issues: Proofs and endpoints that contradict a balance.
    """

    header: bytes = b""
    proofs: dict[BalanceKey, BalanceProof] = field(default_factory=dict)
    hosts: dict[BalanceKey, set[str]] = field(default_factory=dict)
    issues: list[IssueDocument] = field(default_factory=list)

    def class_of(self, key: BalanceKey) -> str:
        """Return the class of the evidence of a balance, one of CLASSES."""
        return PROVEN if key in self.proofs else TWO_SOURCES if len(self.hosts.get(key, ())) > 1 else ONE_SOURCE


async def read_evidence(engine: Engine, chain: Chain, block: Block, balances: Balances) -> Evidence:
    """Read the evidence of balances from each endpoint of a chain, until one proves them.

    An endpoint that gives no proofs, or fails, adds nothing. Any endpoint may have read the balances first, so two
    hosts must say them again; endpoints of one host count once.
    """
    evidence = Evidence()
    hosts = {url: urlsplit(url).hostname or url for url in chain.settings.endpoints}
    for url, host in hosts.items():
        at_endpoint = engine.system.at_endpoint(chain.key, url)
        try:
            if not evidence.header:
                with suppress(SourceError):  # it gives no proofs, and may still say the balances
                    await _add_proofs(evidence, at_endpoint, block, balances)
            if len({*hosts.values()}) > 1:
                await _confirm(evidence, at_endpoint, host, block, balances)
        except SourceError:
            continue
        finally:
            await at_endpoint.close()
    return evidence


async def _add_proofs(evidence: Evidence, chain: Chain, block: Block, balances: Balances) -> None:
    """Add the proofs of one endpoint, none if the chain has none; SourceError if it gives none."""
    prover = find_capability(chain, Capability.PROOFS)
    if prover is None:
        return
    for account in sorted({key.account for key in balances}):
        of_account: dict[Asset, int | None] = {
            key.asset: raw for key, raw in balances.items() if key.account == account and not key.asset.is_collectible
        }
        try:
            _add_account(evidence, account, await prover.prove(block, account, of_account))
        except SourceError:
            evidence.header, evidence.proofs = b"", {}
            raise


def _add_account(evidence: Evidence, account: str, proofs: BlockProofs) -> None:
    evidence.header = proofs.header_rlp
    evidence.proofs |= {BalanceKey(account, asset): proof for asset, proof in proofs.nodes.items()}
    evidence.issues += [
        IssueDocument("proof", f"{account} {asset}", result.reason)
        for asset, result in proofs.balances.items()
        if result.status in ("broken", "contradicted")
    ]


async def _confirm(evidence: Evidence, chain: Chain, host: str, block: Block, balances: Balances) -> None:
    """Read balances without a proof again from the endpoint of a host, at the same block by its hash.

    Raises SourceError if the endpoint cannot be read.
    """
    keys = [key for key in balances if key not in evidence.proofs]
    if not keys or (await chain.block(block.height)).hash != block.hash:
        return
    answers = await BalanceReader(chain, lambda: None).balances(_points(keys, block), frozenset())
    endpoint = chain.health()[0].endpoint
    for key in keys:
        answer = answers[key, block.height]
        if answer == balances[key]:
            evidence.hosts.setdefault(key, set()).add(host)
        elif isinstance(answer, int):
            subject = f"{key.account} {key.asset}"
            evidence.issues.append(IssueDocument("balance", subject, f"{endpoint} says {answer}"))


def _points(keys: Sequence[BalanceKey], block: Block) -> list[tuple[BalanceKey, int]]:
    return [(key, block.height) for key in keys]
