"""Accounts as people write them on the command line: addresses, or names of the Ethereum Name Service."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chainfolio.addresses import nobody, rules_of
from chainfolio.assets import Account, account
from chainfolio.chains import Capability
from chainfolio.errors import BadRequest, Incapable
from cli.common import check_chains, with_system

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from indexer.wiring import System

ALL = "an account that mints and burns for everybody has no history of its own"
CHAIN = "ethereum"  # the chain that has the names
_NAME = re.compile(r"[^\s.][^\s]*\.[^\s]*[^\s.]")


def is_name(written: str) -> bool:
    """Whether a text is meant as a name: no kind of address has a dot."""
    return bool(_NAME.fullmatch(written))


async def accounts_of(system: System, written: Sequence[str], chains: Sequence[str] = ()) -> list[Account]:
    """Return the accounts behind some addresses and names, each once; print to standard error what a name stands for.

    Args:
        chains: the keys of the only chains that the accounts may be of; empty for every configured chain.

    Raises:
        BadRequest: a text is no address, or an address of another kind than the chains; no chain is configured.
        NotFound: a name stands for no address.
    """
    usual = [await _named(system, each) if is_name(each) else account(each) for each in written]
    return list(dict.fromkeys(on_chains(system, each, chains) for each in usual))


def on_chains(system: System, usual: Account, chains: Sequence[str] = ()) -> Account:
    """Return an account in the spelling of some chains: an EVM address is one of Tron if only Tron is configured.

    Raises:
        BadRequest: no chain is configured, or none of the chains is of the account's kind.
    """
    check_chains(system)
    kinds = {chain.kind for chain in ([system.chain(key) for key in chains] or system.account_chains)}
    if usual.kind in kinds:
        return usual
    spellings = [Account(kind, text) for kind in sorted(kinds) if (text := _spelling(kind, usual.address)) is not None]
    if len(spellings) == 1:
        return spellings[0]
    name = rules_of(usual.kind).name
    article = "an" if name[0] in "AEIOU" else "a"
    keys = ", ".join(chains or sorted(system.settings.chains))
    raise BadRequest(
        "address", f"{usual} is {article} {name} address, and no chain of its kind is among: {keys}",
        remedy=f"name a node of {article} {name} chain with --rpc, or add such a chain to the settings",
    )  # fmt: skip


def _spelling(kind: str, address: str) -> str | None:
    """Return the one form of an address of a kind, None if the text is none of that kind."""
    try:
        return rules_of(kind).canonical(address)
    except BadRequest:
        return None


def chains_of(system: System, accounts: Sequence[Account], named: Sequence[str], capability: Capability) -> list[Chain]:
    """The chains that accounts are read on: the named ones, else all that can. BadRequest where an account has none."""
    return _chains_of(system, accounts, named, capability, lambda chain: capability in chain.capabilities)


def chains_with_past(system: System, accounts: Sequence[Account], named: Sequence[str]) -> list[Chain]:
    """The same of those whose past balances can be told, be it by what moved since."""
    from engine.replay import has_past

    return _chains_of(system, accounts, named, Capability.PAST_BALANCES, has_past)


def _chains_of(
    system: System, accounts: Sequence[Account], named: Sequence[str], capability: Capability,
    able: Callable[[Chain], bool],
) -> list[Chain]:  # fmt: skip
    check_chains(system)
    chains = [system.chain(key) for key in dict.fromkeys(named)]
    for chain in chains:
        if not able(chain):
            raise Incapable(chain.key, capability.value)
    chains = chains or [chain for chain in system.account_chains if able(chain)]
    for each in accounts:
        if each.kind not in {chain.kind for chain in chains}:
            remedy = "add one to the settings, or name another one with --chain"
            raise BadRequest("address", f"{each.address} is on no chain whose accounts can be read", remedy=remedy)
        if each.address in nobody():
            raise BadRequest("address", f"{each.address}: {ALL}")
    return chains


async def account_of(system: System, written: str, chain: str | None = None) -> Account:
    """Return the account behind an address or a name, on one chain if its key is given. Raises as `accounts_of`."""
    return (await accounts_of(system, [written], [chain] if chain else []))[0]


def read_account(options: argparse.Namespace, written: str) -> Account:
    """The same for a command that needs no chain where it is given an address."""
    return with_system(options, lambda system: account_of(system, written)) if is_name(written) else account(written)


async def name_of(system: System, of: Account) -> str | None:
    """The name that an account gives itself; None where it has none, or nobody can be asked."""
    from chainfolio.chains import NamesAccounts

    chain = system.chain(CHAIN) if CHAIN in system.settings.chains else None
    return await chain.name_of(of.address) if isinstance(chain, NamesAccounts) and chain.kind == of.kind else None


async def _named(system: System, written: str) -> Account:
    from chainfolio.chains import NamesAccounts

    if CHAIN not in system.settings.chains:
        raise BadRequest(
            "address", f"{written} is a name, and names are looked up on {CHAIN}, which is not configured",
            remedy=f"give the address itself, a node of {CHAIN} with --rpc, or [chains.{CHAIN}] in the settings",
        )  # fmt: skip
    chain = system.chain(CHAIN)
    assert isinstance(chain, NamesAccounts), "the chain of the names has names"
    address = await chain.address_of(written)
    print(f"{written} is {address}", file=sys.stderr)
    if odd := sorted({char for char in written if not char.isascii()}):
        shown = ", ".join(f"{char} (U+{ord(char):04X})" for char in odd)
        print(f"  note: the name has letters that may look like others: {shown}", file=sys.stderr)
    own = await chain.name_of(address)
    if own != written.lower():
        calls = f"calls itself {own}" if own else "gives itself no name that stands for it"
        print(f"  note: {address} {calls}", file=sys.stderr)
    return account(address)
