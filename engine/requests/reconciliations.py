"""Reconciliations of accounts, chain by chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from chainfolio.assets import Asset, asset
from chainfolio.blocks import Block
from chainfolio.engine.named_accounts import chains_with_past
from chainfolio.errors import BadRequest, NotIndexed, SourceError

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain
    from chainfolio.contracts import Token
    from chainfolio.engine.reconciliations import Reconciliation
    from chainfolio.engine.snapshots.snapshotter import Snapshotter
    from chainfolio.indexer.parts import Chains

T = TypeVar("T")


async def on_each_chain(
    system: Chains,
    accounts: Sequence[Account],
    keys: Sequence[str],
    work: Callable[[Chain, Sequence[str]], Awaitable[list[T]]],
) -> list[T]:
    """Run `work` on each chain in turn, with the addresses of its kind, and return all results.

    Chains without such an address are skipped, and chains that `keys` does not name if they are not indexed. Errors of
    `chains_with_past` and of `work` are raised too.

    Raises:
        NotIndexed: A named chain is not indexed, or there are no results and a chain is not indexed.
    """
    results: list[T] = []
    errors: list[NotIndexed] = []
    for chain in chains_with_past(system, accounts, keys):
        addresses = [each.address for each in accounts if each.kind == chain.kind]
        try:
            results += await work(chain, addresses) if addresses else []
        except NotIndexed as error:
            errors.append(error)
    if errors and (keys or not results):
        raise errors[0]
    return results


@dataclass(frozen=True, slots=True)
class Extent:
    """Bounds of a reconciliation. None as height: as far as is indexed; None as `max_requests`: no limit."""

    first: int | None
    last: int | None
    checkpoints: int
    max_requests: int | None

    def __post_init__(self) -> None:
        """Raise BadRequest for numbers out of range."""
        if self.first is not None and self.first < 0:
            raise BadRequest("from", "a block height is at least 0")
        for name, value in (("checkpoints", self.checkpoints), ("max-requests", self.max_requests)):
            if value is not None and value < 1:
                raise BadRequest(name, "at least 1")


async def reconciliations(
    chain: Chain,
    snapshotter: Snapshotter,
    addresses: Sequence[str],
    extent: Extent,
    on_progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[Reconciliation], Mapping[Asset, Token]]:
    """Reconcile accounts on a chain and store the results.

    Return them, and their tokens whose names are known. Names of differing tokens are read from the node if they are
    not stored. Errors as of `Reconciler.run`.

    Args:
        addresses: At least one, in the chain's own form.
    """
    from chainfolio.engine.reconcile.reconciler import Reconciler

    reconciler = Reconciler(
        chain,
        snapshotter.lake,
        snapshotter.tail,
        extent.checkpoints,
        max_requests=extent.max_requests,
        on_progress=on_progress,
        trust_of=snapshotter.trust,
    )
    results = await reconciler.run(addresses, extent.first, extent.last)
    assets: set[Asset] = {asset(each.asset).collection for result in results for each in result.assets}
    end = Block(results[0].last_block, results[0].block_hash, "", 0)
    tokens = snapshotter.book.described_at(assets, end) | {snapshotter.native.asset: snapshotter.native}
    differing = {asset(each.asset).collection for result in results for each in result.differences} - tokens.keys()
    if differing:
        with suppress(SourceError):  # without names the result is the same
            tokens |= (await snapshotter.token_context(differing, end)).tokens
    return results, tokens
