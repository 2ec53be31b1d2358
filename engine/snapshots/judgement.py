"""Judge a reading: which tokens are spam, and which positions count.

The way in which a token arrived says most about it. No node is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainfolio.assets import Asset
from chainfolio.contracts import Issue, Spam
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots.account_rows import AccountRows
from chainfolio.engine.snapshots.arrivals import arrivals_in, own_assets_in
from chainfolio.engine.snapshots.reading import Reading
from chainfolio.engine.snapshots.share_trust import mark_unsolicited, unverified_assets
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.snapshots.token_context import TokenContext
from chainfolio.engine.snapshots.trust import Trust
from chainfolio.portfolio.spam import KnownTokens, TokenArrival, TokenFacts, judge
from chainfolio.positions import OpenPosition

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.storage.lake import Lake
    from chainfolio.storage.tail import Tail


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of judging a reading.

    Attributes:
      positions: All positions, those that do not count marked as unverified.
      issues: The reasons for these marks.
      spam: Spam verdicts by account and token.
    """

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

    def judge(self, reading: Reading) -> Judgement:
        """Return the judgement of a reading."""
        positions, issues = self._positions(reading)
        spam = self._spam_verdicts(reading, positions) | self._collection_verdicts(reading)
        return Judgement(positions, issues, spam)

    @property
    def listed_tokens(self) -> set[Asset]:
        """Return the tokens on the chain's list and the wrapped native coin, which are always trusted."""
        return {*self.book.listed, *([self.chain.info.wrapped] if self.chain.info.wrapped else [])}

    def trust(
        self,
        assets_by_account: Mapping[str, Collection[Asset]],
        is_listed: Callable[[Asset], bool],
        height: int,
        rows: AccountRows | None = None,
    ) -> Trust:
        """Return which assets of accounts are trusted at a height.

        Trusted are native coins, the assets for which `is_listed` returns True, and those that the account obtained in
        its own action. Transactions are looked up only if there are other assets.

        Args:
          assets_by_account: The assets that each account ever received or sent.
          is_listed: Returns True for assets that are trusted for every account.
          height: The last block whose transactions count.
          rows: The rows of the accounts up to `height`; None to read them.
        """
        unlisted = {
            account: suspects
            for account, assets in assets_by_account.items()
            if (suspects := {asset for asset in assets if not asset.is_native and not is_listed(asset)})
        }
        no_tokens = dict.fromkeys(unlisted, frozenset[Asset]())
        if not unlisted:
            return Trust(is_listed, {})
        account_rows = self._rows(unlisted, height, rows)
        return Trust(is_listed, own_assets_in(account_rows, unlisted, no_tokens, self.listed_tokens))

    def spam(
        self,
        holdings: Sequence[tuple[str, Asset, Any]],
        account_tokens: Mapping[str, Set[Asset]],
        context: TokenContext,
        height: int,
        backed: Set[tuple[str, Asset]] = frozenset(),
        rows: AccountRows | None = None,
    ) -> dict[tuple[str, Asset], Spam]:
        """Return the spam verdicts of held tokens, by account and token.

        Trusted tokens, and tokens that are not spam, are absent.

        Args:
          holdings: Account, token and raw balance; a balance that is not an integer is unknown.
          account_tokens: The tokens of each account, against which imitations are detected.
          context: Names and prices.
          height: The block.
          backed: Accounts and shares whose underlying assets have a price.
          rows: The rows of the accounts up to `height`; None to read them.
        """
        wrapped = self.chain.info.wrapped
        suspects: dict[str, list[Asset]] = {}
        for account, asset, _ in holdings:
            if asset != wrapped and not self.book.is_trusted(asset):
                suspects.setdefault(account, []).append(asset)
        if not suspects:
            return {}
        tokens, priced = context.tokens, _priced(suspects, account_tokens, context)
        arrivals_by_account = self._arrivals(suspects, priced, height, rows)
        originals = self._originals(set(priced.values()), context)
        spam = {}
        raws = {(account, asset): raw if isinstance(raw, int) else None for account, asset, raw in holdings}
        for account, assets in suspects.items():
            for asset in assets:
                token, arrival = tokens[asset], arrivals_by_account[account].get(asset)
                has_price = asset in priced[account] or (account, asset) in backed
                facts = TokenFacts(asset, token.symbol, token.name, False, has_price, arrival, raws[account, asset])
                if (verdict := judge(facts, originals[priced[account]])) is not None:
                    spam[account, asset] = verdict
        return spam

    def _positions(self, reading: Reading) -> tuple[list[OpenPosition], list[Issue]]:
        """Return the positions, with those that rest on untrusted shares marked as unverified, and issues."""
        suspects = unverified_assets(reading.positions)
        if not suspects:
            return list(reading.positions), []
        priced = _priced(suspects, reading.account_tokens, reading.context)
        arrivals_by_account = self._arrivals(suspects, priced, reading.block.height, reading.rows)
        return mark_unsolicited(reading.positions, arrivals_by_account)

    def _spam_verdicts(self, reading: Reading, positions: Sequence[OpenPosition]) -> dict[tuple[str, Asset], Spam]:
        """Return the verdicts on spam tokens that are held, in positions, or moved today with a price.

        Keys are account and token; tokens that are trusted or no spam are absent. Tokens that only moved are judged
        separately, so that they do not change the verdicts on holdings.
        """
        account_tokens, context, height = reading.account_tokens, reading.context, reading.block.height
        native = self.chain.info.native.asset
        prices = {price.asset for price in context.quotes.prices} - {native}
        priced = _assets_priced_off_market(context) - {native}
        wallet_pairs = {each[:2] for each in reading.holdings}
        position_tokens = {(each.account, token) for each in positions for token in each.owned - {native}}
        holdings = [*reading.holdings, *((*pair, None) for pair in sorted(position_tokens - wallet_pairs))]
        backed = {(each.account, share) for each in positions if each.owned & priced for share in each.replaces}
        spam = self.spam(holdings, account_tokens, context, height, backed, reading.rows)
        held_pairs = {each[:2] for each in holdings}
        moved_only = [
            (account, asset, None)
            for account, each in reading.flows.items()
            for asset in sorted(each.assets & prices)
            if (account, asset) not in held_pairs
        ]
        all_tokens = {account: {*account_tokens[account], *each.assets} for account, each in reading.flows.items()}
        if not moved_only:
            return spam
        return spam | self.spam(moved_only, all_tokens, context, height, rows=reading.rows)

    def _collection_verdicts(self, reading: Reading) -> dict[tuple[str, Asset], Spam]:
        """Judge collections like unpriced tokens, and return the verdicts by account and collection."""
        tokens = {(each.account, each.token.asset.collection): each.token for each in reading.collectibles}
        suspects: dict[str, list[Asset]] = {}
        for account, collection in tokens:
            if not self.book.is_trusted(collection):
                suspects.setdefault(account, []).append(collection)
        if not suspects:
            return {}
        priced = _priced(suspects, reading.account_tokens, reading.context)
        arrivals_by_account = self._arrivals(suspects, priced, reading.block.height, reading.rows)
        originals = self._originals(set(priced.values()), reading.context)
        verdicts = {}
        for account, collections in suspects.items():
            for collection in collections:
                token, arrival = tokens[account, collection], arrivals_by_account[account].get(collection)
                facts = TokenFacts(collection, token.symbol, token.name, False, False, arrival)
                if (verdict := judge(facts, originals[priced[account]])) is not None:
                    verdicts[account, collection] = verdict
        return verdicts

    def _arrivals(
        self,
        suspects: Mapping[str, Sequence[Asset] | Set[Asset]],
        priced: Mapping[str, Set[Asset]],
        height: int,
        rows: AccountRows | None,
    ) -> dict[str, dict[Asset, TokenArrival]]:
        """Return how suspect tokens first came to accounts, as of `arrivals_in`.

        Args:
          suspects: The tokens to look up, by account.
          priced: Tokens that are trusted because they have a price, by account.
          height: The last block whose transactions count.
          rows: The rows of the accounts up to `height`; None to read them.
        """
        return arrivals_in(self._rows(suspects, height, rows), suspects, priced, self.listed_tokens)

    def _rows(self, accounts: Iterable[str], height: int, rows: AccountRows | None) -> AccountRows:
        """Return `rows`, or those of accounts up to a height."""
        return rows or AccountRows(ChainIndex(self.lake, self.tail, self.chain.key), list(accounts), height)

    def _originals(
        self, priced_sets: Set[frozenset[Asset]], context: TokenContext
    ) -> dict[frozenset[Asset], KnownTokens]:
        """Return the tokens that others may imitate, for each set of priced tokens.

        They are well-known ones, the native coin and the priced ones.
        """
        native, tokens = self.chain.info.native, context.tokens
        coin = (native.asset, native.symbol, native.name)
        return {
            priced: self.book.originals.with_tokens(
                [coin, *((each, tokens[each].symbol, tokens[each].name) for each in priced)]
            )
            for priced in priced_sets
        }


def _priced(
    accounts: Mapping[str, object], account_tokens: Mapping[str, Set[Asset]], context: TokenContext
) -> dict[str, frozenset[Asset]]:
    """Return, by account, its tokens that have a trusted price."""
    prices = _assets_priced_off_market(context)
    return {account: frozenset(account_tokens[account] & prices) for account in accounts}


def _assets_priced_off_market(context: TokenContext) -> set[Asset]:
    """Return the assets whose price comes from no market: anybody can open a pool for their own token."""
    return {price.asset for price in context.quotes.prices if price.depth_usd is None}
