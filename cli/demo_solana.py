"""The Solana part of `chainfolio demo`: days in the lives of two wallets, on a real node with the real programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.demo_days import DAY_S, PAST_DAYS

if TYPE_CHECKING:
    from indexer.progress import Progress
    from indexer.wiring import System
    from localchain.solana.node import SolanaNode

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
class Played:
    """What happened: where the node answers, who lives there, and the token that is worth a dollar."""

    url: str
    genesis: str
    wallets: Mapping[str, str]
    dollar: str

    def prepare(self, folder: Path) -> None:
        """Add the chain to the settings of the demo."""
        (folder / "solana.toml").write_text(FACTS.format(genesis=self.genesis))
        caip2 = f"solana:{self.genesis[:32]}"
        with (folder / "prices.toml").open(
            "a"
        ) as prices:  # the section of what is meant to be worth a fixed sum is last
            prices.write(f'"{caip2}/token:{self.dollar}" = "1"\n[fixed]\n"{caip2}/slip44:501" = "{PRICE}"\n')
        with (folder / "chainfolio.toml").open("a") as settings:
            settings.write(SETTINGS.format(url=self.url))


@contextmanager
def played(say: Callable[[str], None]) -> Iterator[Played | None]:
    """A Solana chain on which wallets have traded for some days; None, and why, where its node cannot be installed."""
    from localchain.errors import InstallFailed, NodeJsMissing
    from localchain.solana.dated import dated
    from localchain.solana.node import SolanaNode

    try:
        node = SolanaNode().start()
    except (InstallFailed, NodeJsMissing) as error:
        print(f"Solana is left out: {error}", file=sys.stderr)
        yield None
        return
    with node, dated(node, PAST_DAYS * DAY_S) as url:
        say(f"Surfpool runs at {url}")
        wallets, dollar = _trade(node)
        say(f"two Solana wallets traded for {PAST_DAYS} days")
        yield Played(url, node.rpc("getGenesisHash"), wallets, dollar)


def _trade(node: SolanaNode) -> tuple[dict[str, str], str]:
    """Coins, a token, a picture, stake, and a present with a link that nobody asked for."""
    from solders.keypair import Keypair

    from localchain.solana.programs import (
        TOKEN_2022,
        called,
        coins,
        home,
        issued,
        opened,
        paid,
        sent,
        stake,
        voter,
    )

    begun_s, alice, bob = int(time.time()), Keypair(), Keypair()
    dollar, owners = called(node, "Demo Dollar", "DUSD", "", 6), (alice.pubkey(), bob.pubkey())
    for owner in owners:
        coins(node, owner, 50 * 10**9)
    mine, theirs = (home(owner, dollar, TOKEN_2022) for owner in owners)
    node.send([opened(node, owner, dollar, TOKEN_2022) for owner in owners])
    node.send([issued(node, dollar, mine, 10_000 * 10**6, TOKEN_2022)])
    gifts = {"Sunrise #1": owners[0], "Claim 2 SOL at https://claim.example": owners[1]}
    for name, owner in gifts.items():
        gift = called(node, name, "ART", "")
        there = home(owner, gift, TOKEN_2022)
        node.send([opened(node, owner, gift, TOKEN_2022), issued(node, gift, there, 1, TOKEN_2022)])
    stake(node, owners[0], 10 * 10**9, voter(node))
    for day in range(1, PAST_DAYS + 1):
        node.rpc("surfnet_timeTravel", {"absoluteTimestamp": (begun_s + day * DAY_S) * 1000})
        node.send([sent(dollar, mine, theirs, owners[0], 250 * day * 10**6, 6, TOKEN_2022)], alice)
        node.send([paid(owners[1], owners[0], day * 10**9)], bob)
    node.rpc("surfnet_timeTravel", {"absoluteSlot": node.rpc("getSlot") + 1000})  # so that all of it is final
    return {"alice (Solana)": str(owners[0]), "bob (Solana)": str(owners[1])}, str(dollar)


async def read(system: System, wallets: Mapping[str, str]) -> Progress:
    """The histories of the wallets, as `chainfolio watch` reads them."""
    from indexer.scopes import Scope
    from indexer.watching import bring_up
    from storage.tail import Watch

    chain = system.chain(CHAIN)
    watches = [Watch(address, 0) for address in wallets.values()]
    system.tail.watch(CHAIN, watches)
    with system.tail.lock(CHAIN):
        return await bring_up(system, chain, Scope(tuple(watches)))
