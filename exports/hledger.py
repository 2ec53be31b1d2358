"""Journals of hledger: what came and left at its price, and assertions of what is held.

They have no lots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

from chainfolio import amounts
from chainfolio.exports.ledger import MAX_TEXT, remarks
from chainfolio.printable import clean

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Summary


@dataclass(frozen=True, slots=True)
class Hledger:
    """The syntax of hledger."""

    def header(self, summary: Summary) -> Iterator[str]:
        """Yield the remarks as comments, the sign of decimals and the currency."""
        yield from (f"; {remark}" for remark in remarks(summary))
        yield "decimal-mark ."
        yield "commodity USD"

    def account(self, first: date, account: str) -> str:
        """Return the line that declares an account; `first` is not needed."""
        return f"account {account}"

    def commodity(self, first: date, name: str, facts: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines that declare a commodity, with its facts as comments; `first` is not needed."""
        yield f'commodity "{name}"'
        yield from (f"  ; {key}: {_plain(value)}" for key, value in facts.items())

    def entry(self, day: date, narration: str, facts: Mapping[str, str], *, is_known: bool) -> Iterator[str]:
        """Yield the head of a transaction with its facts as tags."""
        yield f"{day} {'*' if is_known else '!'} {_plain(narration)}"
        yield from (f"    ; {key}: {_plain(value)}" for key, value in facts.items())

    def posting(self, account: str, quantity: Decimal, name: str, price: Decimal | None) -> str:
        """Return a posting of units at their price in USD; an unknown one is 0."""
        return f'    {account}  {amounts.text(quantity)} "{name}" @ {amounts.text(price or Decimal())} USD'

    def money(self, account: str, usd: Decimal) -> str:
        """Return a posting of USD."""
        return f"    {account}  {amounts.text(usd)} USD"

    def assertion(self, day: date, account: str, held: Decimal, name: str) -> Iterator[str]:
        """Yield a transaction that moves nothing and asserts a balance."""
        yield f"{day} * holdings"
        yield f'    {account}  0 "{name}" = {amounts.text(held)} "{name}"'
        yield ""


def _plain(text: str) -> str:
    """Return a text without what ends a description, begins a comment or parts a tag."""
    return clean(text, MAX_TEXT).translate(str.maketrans(";|,", "   "))
