"""Accounts as people write them, addresses or names, and the chains that they are read on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from chainfolio.addresses import burn_addresses, rules_of
from chainfolio.assets import Account, account
from chainfolio.chains import Capability
from chainfolio.errors import BadRequest, MissingCapability

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

ALL = "an account that mints and burns for everybody has no history of its own"
ENS_CHAIN = "ethereum"  # the chain that has the names
_NAME = re.compile(r"[^\s.][^\s]*\.[^\s]*[^\s.]")
NO_CHAIN = (
    'name a node with --rpc http://…, or add [chains.ethereum] with rpc = ["http://…"] to chainfolio.toml, '
    "or try: chainfolio demo"
)

NO_KIND = "add a chain of its kind to the settings"
Say = Callable[[str], None]


def is_name(written: str) -> bool:
    """Whether a text is meant as a name: no kind of address has a dot."""
    return bool(_NAME.fullmatch(written))


async def accounts_of(system: System, written: Sequence[str], chains: Sequence[str], say: Say) -> list[Account]:
    """Return the accounts behind some addresses and names, each once; `say` what a name stands for.

    Args:
        chains: the keys of the only chains that the accounts may be of; empty for every configured chain.

    Raises:
        BadRequest: a text is no address, or an address of another kind than the chains; no chain is configured.
        NotFound: a name stands for no address.
    """
    usual = [await _named(system, each, say) if is_name(each) else account(each) for each in written]
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
        "address",
        f"{usual} is {article} {name} address, and no chain of its kind is among: {keys}",
        remedy=f"name a node of {article} {name} chain with --rpc, or add such a chain to the settings",
    )


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
    from chainfolio.engine.snapshots.replay import has_past

    return _chains_of(system, accounts, named, Capability.PAST_BALANCES, has_past)


def _chains_of(
    system: System,
    accounts: Sequence[Account],
    named: Sequence[str],
    capability: Capability,
    able: Callable[[Chain], bool],
) -> list[Chain]:
    check_chains(system)
    chains = [system.chain(key) for key in dict.fromkeys(named)]
    for chain in chains:
        if not able(chain):
            raise MissingCapability(chain.key, capability.value)
    chains = chains or [chain for chain in system.account_chains if able(chain)]
    for each in accounts:
        if each.kind not in {chain.kind for chain in chains}:
            remedy = "add one to the settings, or name another one with --chain"
            raise BadRequest("address", f"{each.address} is on no chain whose accounts can be read", remedy=remedy)
        if each.address in burn_addresses():
            raise BadRequest("address", f"{each.address}: {ALL}")
    return chains


async def name_of(system: System, of: Account) -> str | None:
    """The name that an account gives itself; None where it has none, or nobody can be asked."""
    from chainfolio.chains import NameResolver

    chain = system.chain(ENS_CHAIN) if ENS_CHAIN in system.settings.chains else None
    return await chain.name_of(of.address) if isinstance(chain, NameResolver) and chain.kind == of.kind else None


async def _named(system: System, written: str, say: Say) -> Account:
    from chainfolio.chains import NameResolver

    if ENS_CHAIN not in system.settings.chains:
        raise BadRequest(
            "address",
            f"{written} is a name, and names are looked up on {ENS_CHAIN}, which is not configured",
            remedy=f"give the address, a node of {ENS_CHAIN} with --rpc, or [chains.{ENS_CHAIN}] in the settings",
        )
    chain = system.chain(ENS_CHAIN)
    assert isinstance(chain, NameResolver), "the chain of the names has names"
    address = await chain.address_of(written)
    say(f"{written} is {address}")
    if odd := sorted({char for char in written if not char.isascii()}):
        shown = ", ".join(f"{char} (U+{ord(char):04X})" for char in odd)
        say(f"  note: the name has letters that may look like others: {shown}")
    own = await chain.name_of(address)
    if own != written.lower():
        calls = f"calls itself {own}" if own else "gives itself no name that stands for it"
        say(f"  note: {address} {calls}")
    return account(address)


def check_chains(system: System) -> None:
    """Raise BadRequest if no chain is configured: an answer without a chain would be nothing, which is not zero."""
    if not system.settings.chains:
        raise BadRequest("chains", "no chain is configured", remedy=NO_CHAIN)


def one_chain(system: System, named: str | None, accounts: Collection[Account], why: str) -> str:
    """The key of the chain that is asked about accounts: the named one, else the only one of their kinds. BadRequest
    where there are several, which says `why` one only, or where an account is of another kind."""
    check_chains(system)
    kinds = {each.kind for each in accounts}
    if named is not None:
        chain = system.chain(named)
    else:
        chains = [chain for chain in system.account_chains if chain.kind in kinds or not kinds]
        if len(chains) > 1:
            raise BadRequest("chain", why, remedy=f"--chain one of {', '.join(chain.key for chain in chains)}")
        if not chains:
            names = ", ".join(map(str, accounts))
            raise BadRequest("address", f"{names} is an account of no configured chain", remedy=NO_KIND)
        chain = chains[0]
    for each in accounts:
        if each.kind != chain.kind:
            raise BadRequest("address", f"{each} is not an account of {chain.key}")
    return chain.key


def pinned_chain(system: System, chain: str | None, block: int | None, accounts: Collection[Account]) -> str:
    """Return the key of the one chain that accounts are read on, at a height if one is given; raise as `one_chain`."""
    if block is not None and block < 0:
        raise BadRequest("block", "a block height is at least 0")
    return one_chain(system, chain, accounts, "a block belongs to one chain")
