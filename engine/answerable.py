"""Which accounts of a request this server can answer: the one rule of all routes and commands.

An account whose kind has no configured chain is an issue, and makes the answer partial. If no account can be answered,
the request is NotSupported, so that nobody pays for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.contracts import Issue
from chainfolio.errors import NotSupported

if TYPE_CHECKING:
    from chainfolio.assets import Account

NAMES: Final = {"evm": "EVM"}  # kinds whose name is not their key with a capital letter


def no_chain(kind: str) -> str:
    """The reason why accounts of a kind cannot be answered: no chain of it is configured."""
    return f"No {NAMES.get(kind, kind.capitalize())} chain is configured"


def answerable(
    accounts: Sequence[Account], kinds: Collection[str], what: str
) -> tuple[list[Account], dict[str, Issue]]:
    """Divide accounts by whether a chain of their kind is configured.

    Args:
        kinds: The kinds of the configured chains.
        what: The thing that was requested of the accounts, for the message.

    Returns:
        The accounts that can be answered, in their order, and an issue for each other one, by address.

    Raises:
        Unserved: None of the accounts can be answered.
    """
    served = [account for account in accounts if account.kind in kinds]
    issues = {account.address: unserved_issue(account) for account in accounts if account.kind not in kinds}
    if issues and not served:
        reasons = dict.fromkeys(issue.reason for issue in issues.values())
        remedy = "the operator adds a chain of that kind to the settings"
        raise NotSupported(f"{what} of {', '.join(issues)}", "; ".join(reasons), remedy=remedy)
    return served, issues


def unserved_issue(account: Account) -> Issue:
    """The issue of an account whose kind has no configured chain."""
    return Issue(account.kind, account.address, no_chain(account.kind), account=account.address)
