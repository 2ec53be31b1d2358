"""Spam judgement of tokens: a score from their names and from how they arrived at their holder.

The judgement is pure: equal facts give equal results. No reason suffices alone; several weak ones are needed, and the
holder's own use of the token counts against spam. Tokens on the token list are never spam.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, get_args

from chainfolio.assets import Asset
from chainfolio.contracts import Spam

Reason = Literal[
    "LINK",
    "LOOKALIKE",
    "HIDDEN_TEXT",
    "MIXED_SCRIPTS",
    "SAME_SYMBOL",
    "LURE",
    "SITE",
    "MASS_TRANSFER",
    "NO_TRANSFER",
    "FORGED",
    "UNSOLICITED",
    "NO_PRICE",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
WEIGHTS: Final[Mapping[Reason, int]] = {
    "LINK": 50,
    "LOOKALIKE": 50,
    "HIDDEN_TEXT": 50,
    "MIXED_SCRIPTS": 30,
    "SAME_SYMBOL": 25,
    "LURE": 25,
    "SITE": 25,
    "MASS_TRANSFER": 25,
    "NO_TRANSFER": 25,
    "FORGED": 25,
    "UNSOLICITED": 20,
    "NO_PRICE": 20,
}
SPAM_FROM: Final = 60
OWN_DEED: Final = 40  # taken off the score if the holder sent, bought or requested the token
MASS_RECIPIENTS: Final = 20  # recipients of one token in one transaction
MAX_SCORE: Final = 100

_LINK: Final = re.compile(r"https?:|www\.|\bt\.me/|\bbit\.ly\b|discord\.gg", re.IGNORECASE)
# Endings of domain names: cheap ones and well-known ones.
_SITE: Final = re.compile(
    r"[a-z0-9-]{2,}\s?[.\u3002]\s?(?:com|org|net|io|xyz|finance|app|site|online|top|vip|cc|ly|me|gift|gifts|click|live"
    r"|pro|info|club|cash|events?|claims?|lol|fun|space|website|network|exchange|store|shop|dev|tech|today|world|us|co"
    r"|ai|gg|link|money|ws|icu|monster|quest)\b",
    re.IGNORECASE,
)
_LURE: Final = re.compile(
    r"\b(?:claim(?:s|ed|ing)?|visit|redeem|rewards?|airdrops?|vouchers?|bonus|giveaway|gifts?|eligible|winners?|won"
    r"|prize|free)\b|\$\s?[0-9]|[\U0001f381\u2705\U0001f4b0\U0001f389\u26a0]",
    re.IGNORECASE,
)
# Characters similar to ASCII letters, from Unicode's confusables, except those that NFKD decomposes.
_ALIKE: Final = dict(
    zip(
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0406\u0408\u0405\u0430\u0435\u043e"
        "\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf\u04c0"  # Cyrillic
        "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd"  # Greek
        "\u0131\u0251\u0261\u1d1c\u1d04\u1d0f\ua731\u1d05\u1d1b\u1d07\u029c\u0299\u0274\u026a\u1d00\u1d0b"  # Latin
        "\u0585\u057d\u054f\u054d"  # Armenian
        "\u13a0\u13a1\u13a2\u13da\u13df\u13bb\u13b7\u13b3\u13ac\u13aa\u13f4"  # Cherokee
        # Lisu
        "\ua4f4\ua4e2\ua4d3\ua4da\ua4d4\ua4d0\ua4ee\ua4f0\ua4f2\ua4ea\ua4f3\ua4d7\ua4e1\ua4df\ua4e0\ua4d1\ua4e7",
        "ABEKMHOPCTYXIJSaeopcyxijshdqwlIABEZHIKMNOPTYXoviagucosdtehbnIakouSUDRTSCHMWEABUSDCTBAEIWOKLMNPH",
        strict=True,
    )
)
# ASCII characters that look alike in some fonts.
_ALIKE_ASCII: Final = str.maketrans("I1|0", "lllO")
_FOREIGN: Final = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "LISU", "COPTIC", "DESERET")


@dataclass(frozen=True, slots=True)
class TokenArrival:
    """The transfers of a token to and from its holder, as indexed.

    Attributes:
        transfer_count: Transfers of more than zero.
        is_own_action: The holder acted itself in one of their transactions.
        recipients: The most accounts that one of these transactions gave the token to.
        net: Received less sent, in smallest units.
    """

    transfer_count: int
    is_own_action: bool
    recipients: int
    net: int = 0


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The facts about a held token. `arrival` is None if the index does not know how it arrived.

    `balance` is None if it could not be read.
    """

    asset: Asset
    symbol: str
    name: str
    is_listed: bool
    is_priced: bool
    arrival: TokenArrival | None = None
    balance: int | None = None


@dataclass(slots=True)
class KnownTokens:
    """Tokens that spam imitates: listed ones, the native coin, and tokens with a price."""

    _symbols: defaultdict[str, frozenset[Asset]] = field(default_factory=lambda: defaultdict(frozenset))
    _shapes: defaultdict[str, frozenset[Asset]] = field(default_factory=lambda: defaultdict(frozenset))
    _texts: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, tokens: Iterable[tuple[Asset, str, str]]) -> KnownTokens:
        """Return the known tokens of assets with their symbols and names."""
        known_tokens = cls()
        for asset, symbol, name in tokens:
            known_tokens.add(asset, symbol, name)
        return known_tokens

    def add(self, asset: Asset, symbol: str, name: str) -> None:
        """Add a token by symbol and name, in place; case does not matter."""
        self._symbols[symbol.casefold()] |= {asset}
        for text in (symbol, name):
            self._texts.add(text.casefold())
            for shape in _shapes(text):
                self._shapes[shape] |= {asset}

    def with_tokens(self, tokens: Iterable[tuple[Asset, str, str]]) -> KnownTokens:
        """Return a copy with more tokens."""
        symbols, shapes = (defaultdict(frozenset[Asset], index) for index in (self._symbols, self._shapes))
        both = KnownTokens(symbols, shapes, set(self._texts))
        for asset, symbol, name in tokens:
            both.add(asset, symbol, name)
        return both

    def has_symbol(self, symbol: str, asset: Asset) -> bool:
        """Return True if another asset is known by this symbol."""
        return bool(self._symbols.get(symbol.casefold(), frozenset()) - {asset})

    def looks_alike(self, text: str, asset: Asset) -> bool:
        """Return True if a text resembles the symbol or the name of another asset without being the same text.

        False for texts of one character, and for the exact text of any known token.
        """
        if len(text) < 2 or text.casefold() in self._texts:
            return False
        return any(self._shapes.get(shape, frozenset()) - {asset} for shape in _shapes(text))


def judge(facts: TokenFacts, known_tokens: KnownTokens) -> Spam | None:
    """Return why a token is spam, with the heaviest reason first; None if it is not.

    It takes SPAM_FROM points and at least two reasons. An own action of the account reduces the points. Listed tokens
    are never spam.
    """
    if facts.is_listed:
        return None
    reasons_set = {*_text_reasons(facts, known_tokens), *_arrival_reasons(facts)}
    reasons = tuple(reason for reason in REASONS if reason in reasons_set)
    score = sum(WEIGHTS[reason] for reason in reasons)
    if facts.arrival is not None and facts.arrival.is_own_action:
        score -= OWN_DEED
    return Spam(min(score, MAX_SCORE), reasons) if score >= SPAM_FROM and len(reasons) > 1 else None


@lru_cache(4096)
def is_phishing(asset: Asset, symbol: str, name: str) -> bool:
    """Return True if the name alone shows phishing: a site to visit, a prize to claim, or hidden text.

    The token is treated as unlisted and unpriced.
    """
    text_reasons = set(_text_reasons(TokenFacts(asset, symbol, name, is_listed=False, is_priced=False), KnownTokens()))
    return bool(text_reasons & {"LINK", "HIDDEN_TEXT", "MIXED_SCRIPTS"}) or {"SITE", "LURE"} <= text_reasons


def _text_reasons(facts: TokenFacts, known_tokens: KnownTokens) -> Iterable[Reason]:
    """Yield reasons for spam in symbol and name: links, lures, hidden text, imitations."""
    symbol, name = facts.symbol.strip(), facts.name.strip()
    text = f"{_to_ascii(symbol)} {_to_ascii(name)}"
    lures = bool(_LURE.search(text))
    if _LINK.search(text):
        yield "LINK"
    if lures:
        yield "LURE"
    # The name of an honest token may be its site; its symbol is not.
    if _SITE.search(_to_ascii(symbol)) or (lures and _SITE.search(text)):
        yield "SITE"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Co", "Zl", "Zp") for char in symbol + name):
        yield "HIDDEN_TEXT"
    if any(_mixes_scripts(part) for part in (*symbol.split(), *name.split())):
        yield "MIXED_SCRIPTS"
    if known_tokens.looks_alike(symbol, facts.asset) or known_tokens.looks_alike(name, facts.asset):
        yield "LOOKALIKE"
    elif known_tokens.has_symbol(symbol, facts.asset):
        yield "SAME_SYMBOL"


def _arrival_reasons(facts: TokenFacts) -> Iterable[Reason]:
    """Yield reasons for spam in price and arrival.

    Only NO_PRICE can be one if the arrival is not known, or if the account got the token in its own action.
    """
    arrival = facts.arrival
    if not facts.is_priced:
        yield "NO_PRICE"
    if arrival is None or arrival.is_own_action:
        return
    yield "UNSOLICITED"
    if arrival.recipients >= MASS_RECIPIENTS:
        yield "MASS_TRANSFER"
    if not arrival.transfer_count:
        yield "NO_TRANSFER"
    # Transfers that the balance contradicts exist only in the logs of the token.
    if facts.balance is not None and (arrival.net < 0 or (arrival.net > 0 and not facts.balance)):
        yield "FORGED"


def _to_ascii(text: str) -> str:
    """Return a text with ASCII in place of similar characters, without accents and invisible characters."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(
        _ALIKE.get(char, char) for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf", "Cc")
    )


@lru_cache(4096)
def _shapes(text: str) -> tuple[str, ...]:
    """Return a text's visual forms: without case, and with case but I, l and 1 equal.

    Empty for a text of fewer than two characters.
    """
    plain = "".join(_to_ascii(text).split())
    return (plain.casefold(), f"={plain.translate(_ALIKE_ASCII)}") if len(plain) > 1 else ()


def _mixes_scripts(text: str) -> bool:
    """Return True if Latin letters are mixed with a script of similar letters.

    Greek is excepted, because honest tokens use it.
    """
    names = [unicodedata.name(char, "") for char in text if char.isalpha()]
    return any(name.startswith("LATIN") for name in names) and any(name.startswith(_FOREIGN) for name in names)
