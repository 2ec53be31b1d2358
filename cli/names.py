"""Accounts by address or name on the command line; resolved names are printed to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.assets import Account, account
from chainfolio.cli.common import with_system
from chainfolio.engine import named_accounts

if TYPE_CHECKING:
    from chainfolio.indexer.wiring import System


async def accounts_of(system: System, names: Sequence[str], chains: Sequence[str] = ()) -> list[Account]:
    """Return the accounts behind addresses and names, each once.

    Raises the errors of `named_accounts.accounts_of`.
    """
    return await named_accounts.accounts_of(system, names, chains, _report_progress)


async def account_of(system: System, name: str, chain: str | None = None) -> Account:
    """Return the account behind an address or a name, on one chain if its key is given.

    Raises the errors of `accounts_of`.
    """
    return (await accounts_of(system, [name], [chain] if chain else []))[0]


def read_account(options: argparse.Namespace, text: str) -> Account:
    """Return the account behind an address or a name. An address needs no chain."""
    is_name = named_accounts.is_name(text)
    return with_system(options, lambda system: account_of(system, text)) if is_name else account(text)


def _report_progress(text: str) -> None:
    print(text, file=sys.stderr)
