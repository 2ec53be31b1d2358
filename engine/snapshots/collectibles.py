"""Select and read the collectibles of accounts, among those that the index saw arrive.

Anybody can send any number of collectibles, so the work is bounded: collections that the account obtained itself are
read first, and token ids that never left the account before those that did. Collectibles are in no sum and never make
an answer partial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice, zip_longest
from typing import Final

from chainfolio.assets import Asset
from chainfolio.chains import Chain
from chainfolio.contracts import Holding, Issue, Token
from chainfolio.engine.snapshots.trust import Trust, mark_untrusted
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, Unknown
from chainfolio.positions import BlockReader, SameBlockReader

MAX_READS: Final = 256  # collectibles of one account in one answer
TOO_MANY: Final = "of {account}, {count} more collectibles are indexed than are asked for: it is unknown which are held"
AccountCollectible = tuple[str, Asset]  # account, collectible
CollectiblesResult = tuple[list[Holding], list[Issue]]


def select(account: str, interactions: Interactions, trust: Trust) -> tuple[list[AccountCollectible], list[Issue]]:
    """Return the collectibles of an account to read, at most `MAX_READS`, and an issue if there are more.

    Trusted collections come first. Collections take turns, with the ids first that did not leave the account.
    """
    trusted = {each for each in interactions.received_ids if trust.is_trusted(account, each)}
    groups = [
        [each for each in interactions.received_ids if each in trusted],
        [each for each in interactions.received_ids if each not in trusted],
    ]
    candidates = [
        (account, collection._replace(token_id=str(number)))
        for group in groups
        for collection, number in _round_robin({each: _stayed_first(interactions, each) for each in sorted(group)})
    ]
    selected = candidates[:MAX_READS]
    skipped_count = sum(map(len, interactions.received_ids.values())) - len(selected)
    if not skipped_count:
        return selected, []
    reason = TOO_MANY.format(account=account, count=skipped_count)
    return selected, [Issue("collectibles", account, reason, makes_partial=False, account=account)]


def select_all(interactions: Mapping[str, Interactions], trust: Trust) -> tuple[list[AccountCollectible], list[Issue]]:
    """Return the collectibles to read, of all accounts, and an issue for each account with too many."""
    selections = [select(account, each, trust) for account, each in interactions.items()]
    return [each for selected, _ in selections for each in selected], [
        issue for _, issues in selections for issue in issues
    ]


def _stayed_first(interactions: Interactions, collection: Asset) -> list[int]:
    """Return the token ids of a collection in order, those that never left the account first."""
    left_ids = interactions.sent_ids.get(collection, frozenset())
    return sorted(interactions.received_ids[collection], key=lambda number: (number in left_ids, number))


def _round_robin(numbers: Mapping[Asset, Sequence[int]]) -> Iterator[tuple[Asset, int]]:
    """Yield one token id of each collection in turn, so that no collection takes the room of the others."""
    rows = zip_longest(*(islice(each, MAX_READS) for each in numbers.values()))
    for row in rows:
        yield from ((collection, number) for collection, number in zip(numbers, row, strict=True) if number is not None)


def read(
    chain: Chain, pairs: Sequence[AccountCollectible], trust: Trust, reader: BlockReader
) -> Plan[CollectiblesResult]:
    """Return the collectibles that are held, with collection names, and an issue for each failed read.

    They are held at the block of the accounts that `reader` reads, whose plans have to run together with this one. A
    collectible whose contract refuses the read is left out without an issue. Reads of untrusted collections are marked
    as untrusted.
    """
    if not pairs:
        return [], []
    if isinstance(reader, SameBlockReader):
        result = yield from reader.at_same_block(lambda: _read(chain, pairs, trust))
    else:
        result = yield from _read(chain, pairs, trust)
    return result


def _read(chain: Chain, pairs: Sequence[AccountCollectible], trust: Trust) -> Plan[CollectiblesResult]:
    """Return the collectibles that are held, and issues, as `read`."""
    strangers = trust.untrusted_contracts({asset.collection for _, asset in pairs})
    balances = yield from _marked(chain.balances(pairs), strangers)
    owned = [(pair, raw) for pair, raw in zip(pairs, balances, strict=True) if isinstance(raw, int) and raw]
    collections = sorted({asset.collection for (_, asset), _ in owned})
    tokens = (yield from _marked(chain.describe(collections), strangers)) if collections else {}
    holdings = []
    for (account, asset), raw in owned:
        collection_token = tokens[asset.collection]
        holdings.append(Holding(account, Token(asset, collection_token.symbol, collection_token.name, 0), raw))
    issues = [
        Issue("collectibles", str(asset), f"whether {account} holds it is unknown: {raw.reason}", False, account)
        for (account, asset), raw in zip(pairs, balances, strict=True)
        if isinstance(raw, Unknown) and raw.cause == "read"
    ]
    return holdings, issues


def _marked(plan: Plan[Output], strangers: Set[str]) -> Plan[Output]:
    """Wrap a plan so that its reads of untrusted contracts are marked."""
    answers = None
    while True:
        try:
            reads = next(plan) if answers is None else plan.send(answers)
        except StopIteration as stop:
            result: Output = stop.value
            return result
        answers = yield mark_untrusted(reads, strangers)
