"""What is thought of a reading: which tokens are taken for spam, and which positions count.

How a token came to an account says most about it, so the index is read once more, and no node is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio.assets import Asset
from chainfolio.contracts import Issue, Spam
from chainfolio.interactions import Interactions
from chainfolio.positions import OpenPosition
from engine.arrivals import arrivals
from engine.descriptions import About
from engine.reading import Reading
from engine.tokens import TokenBook
from engine.trust import Trust, in_doubt, judged
from portfolio.spam import Arrival, Originals, TokenFacts, judge

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from storage.lake import Lake
    from storage.tail import Tail


@dataclass(frozen=True, slots=True)
class Judgement:
    """The positions of a reading, with those marked that do not count and why; and what is spam, by account and
    token."""

    positions: Sequence[OpenPosition]
    issues: Sequence[Issue]
    spam: Mapping[tuple[str, Asset], Spam]


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges readings of one chain."""

    chain: Chain
    lake: Lake
    tail: Tail
    book: TokenBook

    def of(self, reading: Reading) -> Judgement:
        """What is thought of a reading."""
        positions, issues = self._positions(reading)
        return Judgement(positions, issues, self._spam_of(reading, positions))

    @property
    def listed(self) -> set[Asset]:
        """The tokens that are what they say, whoever sent them."""
        return {*self.book.listed, *([self.chain.info.wrapped] if self.chain.info.wrapped else [])}

    def trust(
        self, interactions: Mapping[str, Interactions], is_vouched: Callable[[Asset], bool], height: int
    ) -> Trust:
        """Return which assets of some accounts are trusted at a height: `is_vouched` ones, and those that the index
        shows to have come in an act of the account's own. Transactions are looked up only if there are others."""
        others = {
            account: suspects
            for account, each in interactions.items()
            if (
                suspects := {asset for asset in (*each.tokens, *each.ids) if not (asset.is_native or is_vouched(asset))}
            )
        }
        came = self._came(others, dict.fromkeys(others, frozenset()), height) if others else {}
        own = {account: {asset for asset, arrival in each.items() if arrival.own} for account, each in came.items()}
        return Trust(is_vouched, own)

    def spam(
        self,
        held: Sequence[tuple[str, Asset, Any]],
        own: Mapping[str, Set[Asset]],
        about: About,
        height: int,
        backed: Set[tuple[str, Asset]] = frozenset(),
    ) -> dict[tuple[str, Asset], Spam]:
        """What of the held tokens (None: how much is not known) is taken for spam, by account and token. An account
        is judged by its `own` tokens and the list, whoever else is in the snapshot. `backed`: shares of what has a
        price."""
        wrapped = self.chain.info.wrapped
        suspects: dict[str, list[Asset]] = {}
        for account, asset, _ in held:
            if asset != wrapped and not self.book.is_trusted(asset):
                suspects.setdefault(account, []).append(asset)
        if not suspects:
            return {}
        tokens, priced = about.tokens, _priced(suspects, own, about)
        came = self._came(suspects, priced, height)
        originals = self._originals(set(priced.values()), about)
        spam = {}
        raws = {(account, asset): raw if isinstance(raw, int) else None for account, asset, raw in held}
        for account, assets in suspects.items():
            for asset in assets:
                token, arrival = tokens[asset], came[account].get(asset)
                has_price = asset in priced[account] or (account, asset) in backed
                facts = TokenFacts(asset, token.symbol, token.name, False, has_price, arrival, raws[account, asset])
                if (verdict := judge(facts, originals[priced[account]])) is not None:
                    spam[account, asset] = verdict
        return spam

    def _positions(self, reading: Reading) -> tuple[list[OpenPosition], list[Issue]]:
        """The positions, with those marked that rest on shares which nobody vouches for."""
        suspects = in_doubt(reading.opened)
        if not suspects:
            return list(reading.opened), []
        priced = _priced(suspects, reading.own, reading.about)
        return judged(reading.opened, self._came(suspects, priced, reading.block.height))

    def _spam_of(self, reading: Reading, positions: Sequence[OpenPosition]) -> dict[tuple[str, Asset], Spam]:
        """What is taken for spam of what is held, loose or in positions, and of what has a price and only moved today:
        that is judged by itself, so that it changes nothing of what is said of the holdings."""
        own, about, height = reading.own, reading.about, reading.block.height
        native = self.chain.info.native.asset
        prices = {price.asset for price in about.quotes.prices} - {native}
        priced = _sure(about) - {native}
        loose = {each[:2] for each in reading.held}
        inside = {(each.account, token) for each in positions for token in each.owned - {native}}
        held = [*reading.held, *((*pair, None) for pair in sorted(inside - loose))]
        backed = {(each.account, share) for each in positions if each.owned & priced for share in each.replaces}
        spam = self.spam(held, own, about, height, backed)
        there = {each[:2] for each in held}
        gone = [
            (account, asset, None)
            for account, each in reading.moved.items()
            for asset in sorted(each.assets & prices)
            if (account, asset) not in there
        ]
        both = {account: {*own[account], *each.assets} for account, each in reading.moved.items()}
        return spam | (self.spam(gone, both, about, height) if gone else {})

    def _came(
        self, suspects: Mapping[str, Sequence[Asset] | Set[Asset]], priced: Mapping[str, Set[Asset]], height: int
    ) -> dict[str, dict[Asset, Arrival]]:
        return arrivals(self.lake, self.tail, self.chain.key, suspects, priced, height, self.listed)

    def _originals(self, several: Set[frozenset[Asset]], about: About) -> dict[frozenset[Asset], Originals]:
        """What a token may be an imitation of: tokens that everybody knows, and each of several sets of priced ones."""
        native, tokens = self.chain.info.native, about.tokens
        coin = (native.asset, native.symbol, native.name)
        return {
            priced: self.book.originals.more(
                [coin, *((each, tokens[each].symbol, tokens[each].name) for each in priced)]
            )
            for priced in several
        }


def _priced(accounts: Mapping[str, object], own: Mapping[str, Set[Asset]], about: About) -> dict[str, frozenset[Asset]]:
    """Which of their own tokens have a price, by account."""
    prices = _sure(about)
    return {account: frozenset(own[account] & prices) for account in accounts}


def _sure(about: About) -> set[Asset]:
    """What has a price that no market makes. Anybody can open a pool for a token of their own: that it has a price
    there says nothing of the token."""
    return {price.asset for price in about.quotes.prices if price.depth_usd is None}
