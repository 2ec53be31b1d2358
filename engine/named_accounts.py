"""Resolve accounts from addresses and names, and select the chains to read them on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from chainfolio.addresses import burn_addresses, rules_of
from chainfolio.assets import Account, account
from chainfolio.capabilities import Capability, find_capability, require_capability
from chainfolio.errors import BadRequest, MissingCapability

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.parts import Chains

BURN_ADDRESS_REASON = "an account that mints and burns for all accounts has no history of its own"
ENS_CHAIN = "ethereum"
_NAME = re.compile(r"[^\s.][^\s]*\.[^\s]*[^\s.]")
NO_CHAIN = (
    'name a node with --rpc http://…, or add [chains.ethereum] with rpc = ["http://…"] to chainfolio.toml, '
    "or try: chainfolio demo"
)

NO_KIND = "add a chain of its kind to the settings"
Report = Callable[[str], None]


def is_name(text: str) -> bool:
    """Return True if a text has the form of a name: a dot inside, no spaces. It may be of no account."""
    return bool(_NAME.fullmatch(text))


async def accounts_of(system: Chains, texts: Sequence[str], chains: Sequence[str], report: Report) -> list[Account]:
    """Return the accounts of some addresses and names, each once, in order of first mention.

    Args:
        chains: Keys of the only chains that the accounts may be of; empty for every configured chain.
        report: Called with lines of text about each resolved name.

    Raises:
        BadRequest: A text is no address, or an address of another kind than the chains; no chain is configured.
        MissingCapability: The chain of names cannot resolve them.
        NotFound: A name stands for no address.
        SourceError: The node that resolves names does not answer.
    """
    resolved = [await _resolve(system, each, report) if is_name(each) else account(each) for each in texts]
    return list(dict.fromkeys(on_chains(system, each, chains) for each in resolved))


def on_chains(system: Chains, resolved: Account, chains: Sequence[str] = ()) -> Account:
    """Return an account in the spelling of some chains: 0x… is of Tron if only Tron is configured.

    It is returned unchanged if one of the chains is of its kind, else converted if exactly one kind can spell it.

    Args:
        chains: Keys of chains; all configured chains with accounts if empty.

    Raises:
        BadRequest: No chain is configured, or none of the chains is of the account's kind and not exactly one kind can
            spell it.
    """
    check_chains(system)
    kinds = {chain.kind for chain in ([system.chain(key) for key in chains] or system.account_chains)}
    if resolved.kind in kinds:
        return resolved
    spellings = [
        Account(kind, text) for kind in sorted(kinds) if (text := _spelling(kind, resolved.address)) is not None
    ]
    if len(spellings) == 1:
        return spellings[0]
    name = rules_of(resolved.kind).name
    article = "an" if name[0] in "AEIOU" else "a"
    keys = ", ".join(chains or sorted(system.settings.chains))
    raise BadRequest(
        "address",
        f"{resolved} is {article} {name} address, and no chain of its kind is among: {keys}",
        remedy=f"name a node of {article} {name} chain with --rpc, or add such a chain to the settings",
    )


def _spelling(kind: str, address: str) -> str | None:
    """Return the canonical form of an address of a kind, None if the text is none of that kind."""
    try:
        return rules_of(kind).canonical(address)
    except BadRequest:
        return None


def chains_of(system: Chains, accounts: Sequence[Account], keys: Sequence[str], capability: Capability) -> list[Chain]:
    """Return the chains to read accounts on: those named by `keys`, else all with the capability.

    Raises:
        BadRequest: No chain is configured, an account has no such chain, or it is a burn address.
        MissingCapability: A named chain does not have the capability.
    """
    return _chains_of(system, accounts, keys, capability, lambda chain: capability in chain.capabilities)


def chains_with_past(system: Chains, accounts: Sequence[Account], keys: Sequence[str]) -> list[Chain]:
    """Return the chains that can tell past balances, if need be by replay; errors as of `chains_of`."""
    from chainfolio.engine.snapshots.replay import has_past

    return _chains_of(system, accounts, keys, Capability.PAST_BALANCES, has_past)


def _chains_of(
    system: Chains,
    accounts: Sequence[Account],
    keys: Sequence[str],
    capability: Capability,
    is_suitable: Callable[[Chain], bool],
) -> list[Chain]:
    """Return the chains of `keys` in their order, each once.

    Without keys all suitable chains with accounts.

    Raises:
        MissingCapability: A chain of `keys` is not suitable.
        BadRequest: No chain is configured, an account is on none of the chains, or is an address that burns.
    """
    check_chains(system)
    chains = [system.chain(key) for key in dict.fromkeys(keys)]
    for chain in chains:
        if not is_suitable(chain):
            raise MissingCapability(chain.key, capability.value)
    chains = chains or [chain for chain in system.account_chains if is_suitable(chain)]
    for each in accounts:
        if each.kind not in {chain.kind for chain in chains}:
            remedy = "add one to the settings, or name another one with --chain"
            raise BadRequest("address", f"{each.address} is on no chain whose accounts can be read", remedy=remedy)
        if each.address in burn_addresses():
            raise BadRequest("address", f"{each.address}: {BURN_ADDRESS_REASON}")
    return chains


async def name_of(system: Chains, owner: Account) -> str | None:
    """Return the name that an account gives itself (its ENS reverse record), read from the node.

    None if it has no name, if the chain of names is not configured, or if it is of another kind than the account.
    """
    chain = system.chain(ENS_CHAIN) if ENS_CHAIN in system.settings.chains else None
    if chain is None or chain.kind != owner.kind:
        return None
    resolver = find_capability(chain, Capability.NAMES)
    return await resolver.name_of(owner.address) if resolver is not None else None


async def _resolve(system: Chains, name: str, report: Report) -> Account:
    """Return the account of an ENS name, and report it.

    Notes are reported on letters that are not ASCII, and if the address has another reverse name.

    Raises:
        BadRequest: The chain of names is not configured.
        MissingCapability: The chain of names cannot resolve them.
        NotFound: The name has no address.
        SourceError: The chain of names could not be read.
    """
    if ENS_CHAIN not in system.settings.chains:
        raise BadRequest(
            "address",
            f"{name} is a name, and names are looked up on {ENS_CHAIN}, which is not configured",
            remedy=f"give the address, a node of {ENS_CHAIN} with --rpc, or [chains.{ENS_CHAIN}] in the settings",
        )
    resolver = require_capability(system.chain(ENS_CHAIN), Capability.NAMES)
    address = await resolver.address_of(name)
    report(f"{name} is {address}")
    if non_ascii := sorted({char for char in name if not char.isascii()}):
        listing = ", ".join(f"{char} (U+{ord(char):04X})" for char in non_ascii)
        report(f"  note: the name has letters that may look like others: {listing}")
    reverse_name = await resolver.name_of(address)
    if reverse_name != name.lower():
        calls = f"calls itself {reverse_name}" if reverse_name else "gives itself no name that stands for it"
        report(f"  note: {address} {calls}")
    return account(address)


def check_chains(system: Chains) -> None:
    """Raise BadRequest if no chain is configured: an empty response would look like zero."""
    if not system.settings.chains:
        raise BadRequest("chains", "no chain is configured", remedy=NO_CHAIN)


def one_chain(system: Chains, key: str | None, accounts: Collection[Account], reason: str) -> str:
    """Return the key of the one chain to read accounts on: `key`, else the only one of their kinds.

    Without accounts, any chain with accounts fits. A given `key` is checked against the kinds of the accounts.

    Raises:
        BadRequest: Several chains fit (the message is `reason`), none does, or an account is of another kind.
    """
    check_chains(system)
    kinds = {each.kind for each in accounts}
    if key is not None:
        chain = system.chain(key)
    else:
        chains = [chain for chain in system.account_chains if chain.kind in kinds or not kinds]
        if len(chains) > 1:
            raise BadRequest("chain", reason, remedy=f"--chain one of {', '.join(chain.key for chain in chains)}")
        if not chains:
            names = ", ".join(map(str, accounts))
            raise BadRequest("address", f"{names} is an account of no configured chain", remedy=NO_KIND)
        chain = chains[0]
    for each in accounts:
        if each.kind != chain.kind:
            raise BadRequest("address", f"{each} is not an account of {chain.key}")
    return chain.key


def pinned_chain(system: Chains, chain: str | None, block: int | None, accounts: Collection[Account]) -> str:
    """Return the key of the one chain to read accounts on at a block.

    A `block` of None is allowed.

    Raises:
        BadRequest: The height is negative; others as of `one_chain`.
    """
    if block is not None and block < 0:
        raise BadRequest("block", "a block height is at least 0")
    return one_chain(system, chain, accounts, "a block belongs to one chain")
