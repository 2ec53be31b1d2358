"""Ledgers of beancount: lots with their cost, disposals whose lots the program chooses by a method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from chainfolio import amounts
from chainfolio.exports.ledger import MAX_TEXT, remarks
from chainfolio.printable import clean

if TYPE_CHECKING:
    from chainfolio.exports.dataset import Summary

BOOKING: Final = {"fifo": "FIFO", "lifo": "LIFO", "hifo": "HIFO"}
MAX_DIGITS: Final = 28  # of a number that beancount sums exactly


@dataclass(frozen=True, slots=True)
class Beancount:
    """The syntax of beancount. `method` says which lot is sold first: fifo, lifo or hifo."""

    method: str = "fifo"

    def header(self, summary: Summary) -> Iterator[str]:
        """Yield the options of the ledger, then the remarks as comments."""
        yield 'option "title" "Chainfolio"'
        yield 'option "operating_currency" "USD"'
        yield f'option "booking_method" "{BOOKING[self.method]}"'
        yield from (f"; {remark}" for remark in remarks(summary))

    def account(self, first: date, account: str) -> str:
        """Return the line that opens an account."""
        return f"{first} open {account}"

    def commodity(self, first: date, name: str, facts: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines that declare a commodity, with its facts."""
        yield f"{first} commodity {name}"
        yield from _metadata(facts)

    def entry(self, day: date, narration: str, facts: Mapping[str, str], *, is_known: bool) -> Iterator[str]:
        """Yield the head of a transaction with its facts."""
        yield f'{day} {"*" if is_known else "!"} "{_quoted(narration)}"'
        yield from _metadata(facts)

    def posting(self, account: str, quantity: Decimal, name: str, price: Decimal | None) -> str:
        """Return a posting: units that arrive with their cost in USD, others at their price.

        An unknown price is a cost of 0, or no price.
        """
        units = f"  {account}  {amounts.text(quantity)} {name}"
        if quantity > 0:
            return f"{units} {{{amounts.text(price or Decimal())} USD}}"
        return f"{units} {{}}" if price is None else f"{units} {{}} @ {amounts.text(price)} USD"

    def money(self, account: str, usd: Decimal) -> str:
        """Return a posting of USD."""
        return f"  {account}  {amounts.text(usd)} USD"

    def assertion(self, day: date, account: str, held: Decimal, name: str) -> Iterator[str]:
        """Yield the assertion of a balance, or a comment for a number that beancount would round."""
        text = amounts.text(held)
        if len(text.replace(".", "").lstrip("0")) > MAX_DIGITS:
            yield f"; {account} {text} {name}: has more digits than beancount adds"
        else:
            yield f"{day} balance {account}  {text} ~ 0 {name}"


def _metadata(facts: Mapping[str, str]) -> Iterator[str]:
    yield from (f'  {key}: "{_quoted(value)}"' for key, value in facts.items())


def _quoted(text: str) -> str:
    return clean(text, MAX_TEXT).replace("\\", "\\\\").replace('"', '\\"')
