"""A wallet with and without hostile assets, for every kind of chain: the subject of the property of trust.

A kind takes part with an entry in `KINDS` of `tests/chains/test_dust.py`: it reads one honest wallet of its own with a
number of hostile assets of each of its `behaviours` added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from chainfolio.assets import Asset
from chainfolio.chains import Chain
from chainfolio.engine.snapshots.reading import holdings_of
from chainfolio.engine.snapshots.trust import Trust, group_untrusted_issues, mark_untrusted
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, run_batched
from chainfolio.positions import MAX_READS, MAX_ROUNDS, AccountState
from chainfolio.protocols import InstalledProtocols

MOMENT: Final = 10  # turns of the event loop in which requests are sent together


@dataclass(frozen=True)
class Work:
    """Cost of an answer to its node. `turns` are requests that followed one another: they decide how long it takes."""

    requests: int
    gas: int = 0
    turns: int = 0


@dataclass(frozen=True)
class Wallet:
    """A wallet in an answer: its trusted numbers (balances and prices, by name), whether it is complete,
    how many issues it has; and the work."""

    trusted: Mapping[str, object]
    is_complete: bool
    issue_count: int
    work: Work


@dataclass
class Turns:
    """Requests that began while no other one was on its way."""

    count: int = 0
    _open: int = 0

    async def count_turn(self, post: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        """Send one request; others of the same moment begin before it ends."""
        self.count += not self._open
        self._open += 1
        try:
            for _ in range(MOMENT):
                await asyncio.sleep(0)
            return await post(*given)
        finally:
            self._open -= 1


@contextmanager
def counted_turns(node: type[Any]) -> Iterator[Turns]:
    """Count the turns of all requests to nodes of a class."""
    turns, post = Turns(), node.post

    async def posted(*given: Any) -> Any:
        return await turns.count_turn(post, *given)

    with mock.patch.object(node, "post", posted):
        yield turns


Mix = Mapping[str, int]  # how many hostile assets there are of each behaviour


@dataclass(frozen=True)
class DustKind:
    """One kind of chain: its hostile assets, how a wallet with a mix of them is read, and how much work they
    may cost beyond that of the clean wallet, which is a function of their number alone."""

    behaviours: Sequence[str]
    read: Callable[[Mix], Coroutine[Any, Any, Wallet]]
    allowance: Callable[[int], Work]
    node: type[Any]  # whose `post` takes the requests


def counts(mix: Mix) -> list[str]:
    """The behaviour of each hostile asset of a mix, in a fixed order."""
    return [behaviour for behaviour, count in sorted(mix.items()) for _ in range(count)]


async def wallet_of(
    chain: Chain,
    account: str,
    trusted: Mapping[str, Asset],
    dust: Collection[Asset],
    work: Callable[[], Work],
    installed: InstalledProtocols | None = None,
) -> Wallet:
    """Read a wallet as the engine does: its coins, the `trusted` assets by name (the last of them is trusted by an act
    of its own, the others are listed) and `dust`. Positions on trusted assets are trusted numbers, too."""
    head = (await chain.heads()).latest
    *listed_assets, own_asset = trusted.values()
    trust = Trust(lambda asset: asset in listed_assets, {account: {own_asset}})
    requested = [*trusted.values(), *dust]
    strangers = trust.untrusted_contracts(requested)
    described: dict[Asset, Any] = {}

    def describe_held(held_assets: Any) -> Plan[None]:
        described.update((yield from chain.describe(sorted(set(held_assets) - described.keys()))))

    reader = chain.account_reader(installed or InstalledProtocols()).at(head)
    interactions = Interactions(frozenset(requested), self_acquired=frozenset([own_asset]))
    reports = await run_batched(
        {account: reader.read(account, interactions, requested, describe_held)},
        lambda reads: chain.answer(mark_untrusted(reads, strangers), head),
        max_rounds=MAX_ROUNDS,
        max_reads=MAX_READS,
    )
    state: AccountState | None = reports[account].result
    assert state is not None, reports[account].reason
    issues = trust.resolve_issues(state.issues)
    holdings, unread = holdings_of(
        {account: state}, {account: dict.fromkeys([*requested, *state.balances], True)}, trust
    )
    issues += unread
    numbers: dict[str, object] = {"native": state.native}
    numbers |= {name: state.balances.get(asset) for name, asset in trusted.items()}
    numbers |= {f"{name}, held": [raw for _, each, raw in holdings if each == asset] for name, asset in trusted.items()}
    numbers |= {f"{name}, named": described.get(asset) for name, asset in trusted.items()}
    positions = [each for each in state.positions if each.required_assets & set(trusted.values())]
    numbers["positions"] = sorted((each.protocol, each.name, sorted(each.supplied.items())) for each in positions)
    await chain.close()
    is_complete = not any(issue.makes_partial for issue in issues)
    return Wallet(numbers, is_complete, len(group_untrusted_issues(issues)), work())
