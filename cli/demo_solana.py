"""Solana part of `chainfolio demo`: days in the lives of two wallets, on a real node."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chainfolio.cli.demo_days import DAY_S, PAST_DAYS
from chainfolio.indexer.scopes import Scope
from chainfolio.indexer.watching import index_accounts
from chainfolio.localchain.errors import InstallFailed, NodeJsMissing
from chainfolio.localchain.solana.dated import dated
from chainfolio.localchain.solana.node import SolanaNode
from chainfolio.localchain.solana.programs import (
    TOKEN_2022,
    account_opening,
    associated_account,
    coin_transfer,
    create_named_mint,
    create_stake,
    create_vote_account,
    send_coins,
    token_issue,
    token_transfer,
)
from chainfolio.storage.watches import WatchedAccount

if TYPE_CHECKING:
    from chainfolio.indexer.progress import Progress
    from chainfolio.indexer.wiring import System

CHAIN: Final = "solana"
SETTINGS: Final = """\
[chains.solana]
adapter = "solana"
facts = "solana.toml"
rpc = ["{url}"]
index = "accounts"
commitment = "confirmed"
"""
FACTS: Final = """\
key = "solana"
kind = "solana"
chain_id = 101
name = "Solana"
genesis = "{genesis}"
block_time_ms = 400
native = {{symbol = "SOL", name = "Solana", decimals = 9, slip44 = 501}}
wrapped = {{address = "So11111111111111111111111111111111111111112", symbol = "WSOL"}}
"""
PRICE: Final = "57.3"  # as in the rates of the demo


@dataclass(frozen=True, slots=True)
class SolanaDemo:
    """The demo's Solana chain: the address of its node, its wallets, and its dollar token."""

    url: str
    genesis: str
    wallets: Mapping[str, str]
    dollar: str

    def prepare(self, folder: Path) -> None:
        """Write the file of the chain's facts, and append the chain to the demo's prices and settings."""
        (folder / "solana.toml").write_text(FACTS.format(genesis=self.genesis))
        caip2 = f"solana:{self.genesis[:32]}"
        with (folder / "prices.toml").open(
            "a"
        ) as prices:  # the section of what is meant to be worth a fixed sum is last
            prices.write(f'"{caip2}/token:{self.dollar}" = "1"\n[fixed]\n"{caip2}/slip44:501" = "{PRICE}"\n')
        with (folder / "chainfolio.toml").open("a") as settings:
            settings.write(SETTINGS.format(url=self.url))


@contextmanager
def solana_demo(report: Callable[[str], None]) -> Iterator[SolanaDemo | None]:
    """Yield a Solana chain on which wallets have traded for some days.

    Yields None, and prints the reason, if the node cannot be installed or Node.js is missing.
    """
    try:
        node = SolanaNode().start()
    except (InstallFailed, NodeJsMissing) as error:
        print(f"Solana is left out: {error}", file=sys.stderr)
        yield None
        return
    with node, dated(node, PAST_DAYS * DAY_S) as url:
        report(f"Surfpool runs at {url}")
        wallets, dollar = _trade(node)
        report(f"two Solana wallets traded for {PAST_DAYS} days")
        yield SolanaDemo(url, node.rpc("getGenesisHash"), wallets, dollar)


def _trade(node: SolanaNode) -> tuple[dict[str, str], str]:
    """Create coins, a token, a picture, stake and an unsolicited token, and trade for some days.

    Return the wallets by name, and the token.
    """
    from solders.keypair import Keypair

    begun_s, alice, bob = int(time.time()), Keypair(), Keypair()
    dollar, owners = create_named_mint(node, "Demo Dollar", "DUSD", "", 6), (alice.pubkey(), bob.pubkey())
    for owner in owners:
        send_coins(node, owner, 50 * 10**9)
    own_account, other_account = (associated_account(owner, dollar, TOKEN_2022) for owner in owners)
    node.send([account_opening(node, owner, dollar, TOKEN_2022) for owner in owners])
    node.send([token_issue(node, dollar, own_account, 10_000 * 10**6, TOKEN_2022)])
    gifts = {"Sunrise #1": owners[0], "Claim 2 SOL at https://claim.example": owners[1]}
    for name, owner in gifts.items():
        gift = create_named_mint(node, name, "ART", "")
        gift_account = associated_account(owner, gift, TOKEN_2022)
        node.send(
            [account_opening(node, owner, gift, TOKEN_2022), token_issue(node, gift, gift_account, 1, TOKEN_2022)]
        )
    create_stake(node, owners[0], 10 * 10**9, create_vote_account(node))
    for day, at_s in enumerate(trade_times(begun_s), 1):
        node.rpc("surfnet_timeTravel", {"absoluteTimestamp": at_s * 1000})
        node.send(
            [token_transfer(dollar, own_account, other_account, owners[0], 250 * day * 10**6, 6, TOKEN_2022)], alice
        )
        node.send([coin_transfer(owners[1], owners[0], day * 10**9)], bob)
    node.rpc("surfnet_timeTravel", {"absoluteTimestamp": (begun_s + PAST_DAYS * DAY_S) * 1000})
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 1000})  # so that all of it is final
    return {"alice (Solana)": str(owners[0]), "bob (Solana)": str(owners[1])}, str(dollar)


def trade_times(begun_s: int) -> list[int]:
    """Return the times of the daily trades: 06:00 or 18:00 UTC, whichever is farther from the start.

    Surfpool goes an epoch of slots less far than its time does: of the slots before a jump's end, those without a
    block say a time up to 432 s too early. Midnights, at which days are valued, have to lie elsewhere.
    """
    hour_s = 6 * 3600 if begun_s % DAY_S >= DAY_S // 2 else 18 * 3600
    first_s = begun_s + (hour_s - begun_s) % DAY_S
    return [first_s + day * DAY_S for day in range(PAST_DAYS)]


async def read(system: System, wallets: Mapping[str, str]) -> Progress:
    """Watch the wallets and index their histories, as `chainfolio watch` does; return the progress."""
    chain = system.chain(CHAIN)
    watches = [WatchedAccount(address, 0) for address in wallets.values()]
    system.tail.watch(CHAIN, watches)
    with system.tail.lock(CHAIN):
        return await index_accounts(system, chain, Scope(tuple(watches)))
