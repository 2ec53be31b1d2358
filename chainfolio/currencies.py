"""Currencies that values are converted to: the service's, and those with a rate in the settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from chainfolio.contracts import CRYPTO, CURRENCIES
from chainfolio.errors import BadRequest

# Codes of ISO 4217 in use; those of metals among them, none of funds and of tests.
_CODES: Final = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP
CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR
ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT
MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES
VND VUV WST XAF XAG XAU XCD XCG XDR XOF XPD XPF XPT YER ZAR ZMW ZWG
"""
ISO_4217: Final = frozenset(_CODES.split())


def served(rates: Iterable[str]) -> tuple[str, ...]:
    """Return the currencies that values can be requested in: the service's, then others of `rates`."""
    return (*CURRENCIES, *sorted(set(rates) - set(CURRENCIES)))


def is_coin(currency: str) -> bool:
    """Return True for a coin, whose rate is USD per unit; the rate of fiat money is units per USD."""
    return currency in CRYPTO


def checked(currency: str, rates: Iterable[str]) -> str:
    """Return the currency if it is served; case matters.

    Raises:
        BadRequest: lists the served currencies.
    """
    if currency in (currencies := served(rates)):
        return currency
    remedy = f'the operator sets {currency} = "…" under [rates], units of it per USD' if currency in ISO_4217 else ""
    raise BadRequest("currency", f"must be one of [{', '.join(currencies)}]", remedy=remedy)
