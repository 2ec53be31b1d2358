"""Which collectibles of an account its chain says it holds, of those that the index saw come.

Anybody can send any number of them, so the work is bounded: collections that the account came by in an act of its own
are asked first, and numbers that never left it before those that did. They are in no sum, and never make an answer
partial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice, zip_longest
from typing import Any, Final

from chainfolio.assets import Asset
from chainfolio.chains import Chain
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown
from engine.trust import Trust, marked

MAX_ASKED: Final = 256  # collectibles of one account in one answer
TOO_MANY: Final = "of {account}, {count} more collectibles are indexed than are asked for: it is unknown which are held"
Owned = tuple[str, Asset]  # account, collectible
Read = tuple[list[Holding], list[Issue]]


def chosen(account: str, met: Interactions, trust: Trust) -> tuple[list[Owned], list[Issue]]:
    """Return the collectibles of an account to ask for, at most `MAX_ASKED`, and an issue if there are more."""
    own = {each for each in met.ids if trust.is_trusted(account, each)}
    groups = [[each for each in met.ids if each in own], [each for each in met.ids if each not in own]]
    order = [
        (account, one._replace(token_id=str(number)))
        for group in groups
        for one, number in _in_turns({each: _stayed_first(met, each) for each in sorted(group)})
    ]
    asked = order[:MAX_ASKED]
    rest = sum(map(len, met.ids.values())) - len(asked)
    if not rest:
        return asked, []
    reason = TOO_MANY.format(account=account, count=rest)
    return asked, [Issue("collectibles", account, reason, makes_partial=False, account=account)]


def _stayed_first(met: Interactions, collection: Asset) -> list[int]:
    """The numbers that came, those that never left first."""
    left = met.left_ids.get(collection, frozenset())
    return sorted(met.ids[collection], key=lambda number: (number in left, number))


def _in_turns(numbers: Mapping[Asset, Sequence[int]]) -> Iterator[tuple[Asset, int]]:
    """One number of each collection after the other, so that no collection takes the room of all others."""
    rows = zip_longest(*(islice(each, MAX_ASKED) for each in numbers.values()))
    for row in rows:
        yield from ((one, number) for one, number in zip(numbers, row, strict=True) if number is not None)


def read(chain: Chain, pairs: Sequence[Owned], trust: Trust) -> Plan[Any, Any, Read]:
    """Return which of some collectibles are held, with the names of their collections, and an issue for each that could
    not be read. Reads of collections that nobody trusts are marked as such."""
    if not pairs:
        return [], []
    strangers = trust.strangers({asset.collection for _, asset in pairs})
    balances = yield from _marked(chain.balances(pairs), strangers)
    held = [(pair, raw) for pair, raw in zip(pairs, balances, strict=True) if isinstance(raw, int) and raw]
    named = sorted({asset.collection for (_, asset), _ in held})
    tokens = (yield from _marked(chain.describe(named), strangers)) if named else {}
    holdings = []
    for (account, asset), raw in held:
        about = tokens[asset.collection]
        holdings.append(Holding(account, Token(asset, about.symbol, about.name, 0), raw))
    issues = [
        Issue("collectibles", str(asset), f"whether {account} holds it is unknown: {raw.reason}", False, account)
        for (account, asset), raw in zip(pairs, balances, strict=True)
        if isinstance(raw, Unknown) and raw.cause == "read"
    ]
    return holdings, issues


def _marked(plan: Plan[Any, Any, Any], strangers: Set[str]) -> Plan[Any, Any, Any]:
    """The same plan with its reads of strangers marked."""
    answers = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            return stop.value
        answers = yield marked(reads, strangers)
