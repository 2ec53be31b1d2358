"""Accounts of a request that this server can read: one rule for all routes and commands.

An account whose kind has no configured chain is an issue, and makes the response partial. If no account can be read,
the request raises NotSupported, so that no client pays for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from chainfolio.contracts import Issue
from chainfolio.errors import NotSupported

if TYPE_CHECKING:
    from chainfolio.assets import Account
    from chainfolio.chains import Chain

NAMES: Final = {"evm": "EVM"}  # kinds whose name is not their key with a capital letter


def no_chain_reason(kind: str) -> str:
    """Return the reason why accounts of a kind cannot be read: no chain of the kind is configured."""
    return f"No {NAMES.get(kind, kind.capitalize())} chain is configured"


def addresses_of(chain: Chain, accounts: Sequence[Account]) -> list[str]:
    """Return the addresses of the accounts of the chain's kind."""
    return [each.address for each in accounts if each.kind == chain.kind]


def split_supported(
    accounts: Sequence[Account], kinds: Collection[str], subject: str
) -> tuple[list[Account], dict[str, Issue]]:
    """Split accounts by whether a chain of their kind is configured.

    Args:
        kinds: The kinds of the configured chains.
        subject: The thing that was requested of the accounts, for the message.

    Returns:
        The supported accounts, in their order, and an issue for each other one, by address.

    Raises:
        NotSupported: None of the accounts is supported.
    """
    supported = [account for account in accounts if account.kind in kinds]
    issues = {account.address: unsupported_issue(account) for account in accounts if account.kind not in kinds}
    if issues and not supported:
        reasons = dict.fromkeys(issue.reason for issue in issues.values())
        remedy = "the operator adds a chain of that kind to the settings"
        raise NotSupported(f"{subject} of {', '.join(issues)}", "; ".join(reasons), remedy=remedy)
    return supported, issues


def unsupported_issue(account: Account) -> Issue:
    """Return the issue of an account whose kind has no configured chain."""
    return Issue(account.kind, account.address, no_chain_reason(account.kind), account=account.address)
