"""`chainfolio demo`: a real local chain with contracts and trades, indexed, priced and served."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chainfolio.api.bundles import ID
from chainfolio.api.example_addresses import AAVE_POOL, ANOTHER, WALLET
from chainfolio.api.serve import check_port, configure_log, listening
from chainfolio.api.virtual_users import EXAMPLE_ADDRESS
from chainfolio.assets import account
from chainfolio.blocks import Span
from chainfolio.cli import demo_solana
from chainfolio.cli.common import Commands, one_line, show_json
from chainfolio.cli.dashboard_link import new_link, url_of
from chainfolio.cli.demo_days import DAY_S, PAST_DAYS
from chainfolio.cli.demo_folder import reserved_folder
from chainfolio.cli.demo_solana import solana_demo
from chainfolio.cli.groups import GROUPS
from chainfolio.cli.index import watcher
from chainfolio.cli.portfolio import show
from chainfolio.cli.serve import indexing
from chainfolio.cli.state_store import open_state
from chainfolio.engine.requests.portfolios import portfolios
from chainfolio.engine.service import Engine
from chainfolio.errors import BadRequest, MissingDependency
from chainfolio.indexer import materialise
from chainfolio.indexer.collect import Collector
from chainfolio.indexer.progress import Progress
from chainfolio.indexer.wiring import System
from chainfolio.indexer.work import missing
from chainfolio.localchain.airdrop import SPAMMED, airdrop
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.errors import LocalChainError
from chainfolio.localchain.node import LocalNode
from chainfolio.localchain.trade import trade
from chainfolio.loop import run_until_done
from chainfolio.portfolio.facts import Options
from chainfolio.settings import Quotas, Settings
from chainfolio.settings_file import load
from chainfolio.storage.state import address_book, bundles, subscriptions, virtual_users

if TYPE_CHECKING:
    from chainfolio.localchain.deploy import Deployment
    from chainfolio.storage.state.database import Transaction

FACTS = """\
key = "local"
kind = "evm"
chain_id = 31337
name = "Local"
block_time_ms = 1000
finality = 8
native = {{symbol = "ETH", name = "Ether", decimals = 18, slip44 = 60}}
wrapped = {{address = "{weth}", symbol = "WETH"}}
"""
SETTINGS = """\
data = "."
prices_file = "prices.toml"
protocols = "protocols"
[server]
port = {port}
[chains.local]
facts = "local.toml"
rpc = ["{url}"]
at_block = true
datasets = ["blocks", "transactions", "native", "transfers", "approvals", "internal", "events"]
[rates]
EUR = "0.92"
CAD = "1.37"
AED = "3.6725"
CHF = "0.89"
SGD = "1.34"
SOL = "57.3"
cbBTC = "37000"
EURC = "1.08"
BNB = "245"
[examples]
"{example}" = "{carol}"
"{another}" = "{dave}"
"{contract}" = "{pool}"
"2026-03-01" = "{day}"
"2026-02-01" = "{since}"
"19000000" = "{height}"
"ethereum" = "local"
"""
CONTRACTS = "Uniswap V2 and V3, Aave V3, ERC-4626, MasterChef, Chainlink…"
WALLETS = ("alice", "bob", "carol", "dave", "erin", "frank")
SUSHI = {"pending": "pendingSushi(uint256,address)(uint256)", "reward": "sushi()(address)"}
HEARTBEAT_S = 365 * 86400  # the demo's feeds move when its script says so
NOON_S = 12 * 3600  # the last block is from so long after a midnight: the day goes on, and much has happened in it
CHAINS = ("ethereum", "solana")


def add(commands: Commands, common: argparse.ArgumentParser) -> None:
    """Register the command."""
    command = commands.add_parser("demo", parents=[common], help=GROUPS["demo"], description=__doc__)
    command.add_argument("--blocks", type=int, default=300, help="blocks of trading (default 300)")
    command.add_argument("--port", type=int, default=8080)
    command.add_argument(
        "--data", default="data/demo", help="a new or empty folder, or one of an earlier demo, whose data is deleted"
    )
    command.add_argument(
        "--chains", default=CHAINS[0], metavar="KINDS", help="ethereum, or ethereum,solana (default ethereum)"
    )
    command.add_argument("--once", action="store_true", help="end after the portfolios are shown, without serving")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make local chains with accounts, index them, print the portfolios, and serve them without --once.

    Progress goes to standard error, unless --json is given. The exit code is 0.

    Raises:
        BadRequest: for an unknown kind of chain.
        MissingDependency: a local node cannot run.
    """
    kinds = options.chains.split(",")
    if CHAINS[0] not in kinds or not {*kinds} <= {*CHAINS}:
        raise BadRequest("chains", f"{options.chains!r} is neither ethereum nor ethereum,solana")
    if not options.once:  # before the chain is made
        check_port(Settings().server.host, options.port)
    start_s = time.monotonic()

    def report(line: str) -> None:
        if not options.json:
            print(f"{time.monotonic() - start_s:5.1f} s  {line}", file=sys.stderr, flush=True)

    try:
        with (
            reserved_folder(Path(options.data)),
            LocalNode() as node,
            solana_demo(report) if "solana" in kinds else nullcontext() as solana,
        ):
            report(f"anvil runs at {node.url}")
            deployment = deploy(node)
            report(f"{len(deployment.contracts)} contracts deployed: {CONTRACTS}")
            apart_s = past_midnight(node, options.blocks)
            traded = trade(node, deployment, blocks=options.blocks, seconds_per_block=apart_s)
            count = sum(traded.transactions.values())
            report(f"{count:,} transactions in {options.blocks} blocks, {len(traded.failed)} of them failed on purpose")
            spam = airdrop(node, deployment)
            report(f"{len(spam)} spam tokens sent to {len(SPAMMED)} wallets and many other accounts")
            config = prepare(Path(options.data), node, deployment, options.port)
            if solana is not None:
                solana.prepare(Path(options.data))
                config = load(Path(options.data) / "chainfolio.toml", {})
            return run_until_done(_show(config, deployment, options, report, solana.wallets if solana else {}))
    except LocalChainError as error:
        raise MissingDependency(str(error)) from None


def past_midnight(node: LocalNode, blocks: int) -> int:
    """Return the seconds between blocks, so that `blocks` of them last some days and end at noon."""
    left_s = DAY_S - block_time_s(node) % DAY_S + PAST_DAYS * DAY_S + NOON_S
    return max(node.seconds_per_block, -(-left_s // blocks))


def block_time_s(node: LocalNode) -> int:
    """Return the time of the newest block, in seconds since 1970."""
    return int(node.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)


def prepare(folder: Path, node: LocalNode, deployment: Deployment, port: int) -> Settings:
    """Write the chain's facts, its prices, protocols and settings as files, and return the settings.

    Existing files are written over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "local.toml").write_text(FACTS.format(weth=deployment.contracts["WETH"].lower()))
    (folder / "prices.toml").write_text(
        "".join(["[chainlink.local]\n", *_feeds(deployment), "[peg]\n", *_pegs(deployment)])
    )
    (folder / "protocols").mkdir(exist_ok=True)
    for key, text in protocols(deployment).items():
        (folder / "protocols" / f"{key}.toml").write_text(text)
    path = folder / "chainfolio.toml"
    path.write_text(SETTINGS.format(port=port, url=node.url, **examples(node, deployment)))
    return load(path, {})


def examples(node: LocalNode, deployment: Deployment) -> dict[str, object]:
    """Return the values that fill the template of the demo's settings, by the name of their place."""
    carol, dave, pool = deployment.accounts["carol"], deployment.accounts["dave"], deployment.contracts["Pool"]
    day = datetime.fromtimestamp(block_time_s(node), UTC).date()
    return {
        "example": WALLET,
        "carol": carol.lower(),
        "another": ANOTHER,
        "dave": dave.lower(),
        "contract": AAVE_POOL,
        "pool": pool.lower(),
        "day": day,
        "since": day - timedelta(days=PAST_DAYS),
        "height": node.height,
    }


def protocols(deployment: Deployment) -> dict[str, str]:
    """Return the protocols of this chain as texts of TOML files, by key: forks of what the decoders know."""
    at = {name: address.lower() for name, address in deployment.contracts.items()}
    rows = {
        "uniswap2": ("Uniswap V2", "uniswap_v2", {"factory": "UniswapV2Factory", "router": "UniswapV2Router02"}, {}),
        "uniswap3": ("Uniswap V3", "uniswap_v3", {"position_manager": "NonfungiblePositionManager"}, {}),
        "aave3": ("Aave V3", "aave_v3", {"pool": "Pool"}, {}),
        "sushi": ("Sushi", "masterchef", {"chef": "MasterChef"}, SUSHI),
        "synthetix": ("Staking rewards", "staking_rewards", {"staking_rewards": "StakingRewards"}, {}),
    }
    return {
        key: f'key = "{key}"\nname = "{name}"\nfamilies = ["{family}"]\n'
        + ('labels = ["router"]\n' if "router" in roles else "")
        + "".join(["[options]\n", *(f'{option} = "{call}"\n' for option, call in options.items())])
        + "".join(["[contracts.local]\n", *(f'{role} = ["{at[contract]}"]\n' for role, contract in roles.items())])
        for key, (name, family, roles, options) in rows.items()
    }


def _feeds(deployment: Deployment) -> Iterator[str]:
    """Yield a line of the prices file for each token and the native coin, which shares its wrapper's feed."""
    assets = {"slip44:60": "ETH"} | {f"erc20:{t.address.lower()}": symbol for symbol, t in deployment.tokens.items()}
    for asset, symbol in assets.items():
        feed = deployment.feeds["ETH" if symbol == "WETH" else symbol].lower()
        yield f'"eip155:31337/{asset}" = {{feed = "{feed}", decimals = 8, heartbeat_s = {HEARTBEAT_S}}}\n'


def _pegs(deployment: Deployment) -> Iterator[str]:
    """Yield the lines that set the dollar tokens to 1 USD."""
    for symbol in ("USDC", "DAI"):
        yield f'"eip155:31337/erc20:{deployment.tokens[symbol].address.lower()}" = "1"\n'


async def _show(
    config: Settings,
    deployment: Deployment,
    options: argparse.Namespace,
    report: Callable[[str], None],
    solana: Mapping[str, str],
) -> int:
    """Index the chain, print the portfolios of the demo's wallets, and serve them unless --once is given."""
    system = System(config)
    indexed = await index_chain(system, quiet=options.json)
    top = system.tail.top("local")
    height = "all" if top is None else f"up to block {top.height:,}"
    report(f"indexed {height}: {indexed.rows:,} rows, {indexed.requests} requests")
    if solana:
        watched = await demo_solana.read(system, solana)
        report(f"the histories of {len(solana)} Solana wallets: {watched.rows:,} rows")
    accounts = {name: account(deployment.accounts[name]) for name in WALLETS}
    accounts |= {name: account(address) for name, address in solana.items()}
    documents = await portfolios(Engine(system), list(accounts.values()), None, None, Options())
    await system.close()
    if options.json:
        addresses = {name: wallet.address for name, wallet in accounts.items()}
        show_json({"wallets": addresses, "portfolios": msgspec.to_builtins(documents)})
    else:
        print()
        show(documents, {wallet.address: name for name, wallet in accounts.items()})
    if not options.once:
        await _serve(config, {name: wallet.address for name, wallet in accounts.items()}, options, report)
    return 0


async def index_chain(system: System, key: str = "local", *, quiet: bool) -> Progress:
    """Index the final blocks of a chain with a bar, follow its newest ones once, and derive its tables."""
    chain = system.chain(key)
    with system.tail.lock(chain.key):
        span = Span(0, (await chain.heads()).finalized)
        datasets = system.datasets(chain)
        events = system.event_filters(chain, datasets)
        work = missing(system.tail, chain.key, span, datasets, (), events)
        total = sum(len(item.spans) for item in work)  # a block counts once for each pass over it
        progress = Progress(system.environment.clock, total, on_change=watcher(chain.key, quiet=quiet))
        collector = Collector(chain, system.lake, system.tail, system.environment, progress)
        await collector.run(work)
        await system.follower(chain).step()
        await asyncio.to_thread(materialise.materialise, system.lake, system.tail, chain.key)
    progress.requests = chain.requests
    return progress


def _days_ago() -> date:
    """Return the first whole day of the demo's Solana chain."""
    return datetime.now(UTC).date() - timedelta(days=PAST_DAYS - 1)


def add_examples(tx: Transaction, account: str, wallets: Mapping[str, str], now_us: int) -> None:
    """Give an account example data: an address book, a bundle, a subscription and a virtual user."""
    carol, dave, erin = (wallets[name] for name in ("carol", "dave", "erin"))
    address_book.add(tx, account, {carol: "Carol", dave: "Dave", erin: "Erin"}, Quotas(), now_us)
    bundles.create(tx, account, ID, "Carol and Erin", [carol, erin], Quotas())
    subscriptions.add(tx, account, {carol: "made by the demo"}, now_us)
    id = EXAMPLE_ADDRESS.removeprefix("virtual:")
    document = b'[{"chain": "local", "contract": "native", "amount": "1.5"}]'
    virtual_users.add(tx, account, id, "BALANCE", "Cold storage", document, now_us)


def as_called(program: str) -> str:
    """Return the shell's word for a program: `chainfolio` if that runs it, else its path."""
    command = shutil.which("chainfolio")
    is_other = os.access(program, os.X_OK) and not (command and os.path.samefile(command, program))
    return shlex.quote(os.path.relpath(program)) if is_other else "chainfolio"


async def _serve(
    config: Settings, wallets: Mapping[str, str], options: argparse.Namespace, report: Callable[[str], None]
) -> None:
    """Create an account with a key, print it with examples, and serve the API and index until interrupted."""
    state = open_state(config)
    account, key = state.create_account("demo", "PRO", 10_000, ("portfolio", "at-block", "enterprise", "sql"))
    state.database.write(lambda tx: add_examples(tx, account.id, wallets, state.clock.now_us()))
    view = {"addresses": wallets["carol"], "to": config.examples["2026-03-01"]}
    state.close()
    configure_log("warning")
    app = await indexing(config)
    async with listening(app, config.server.host, config.server.port) as port:
        url = url_of(config.server.host, port)
        with closing(open_state(config)) as state:
            link = new_link(state, account.id, url, **view)
        report("ready")
        file = Path(options.data) / "chainfolio.toml"
        if options.json:
            one_line({"url": url, "docs": f"{url}/docs", "dashboard": link, "apiKey": key, "config": str(file)})
            sys.stdout.flush()
        else:
            print(f"\nDashboard, once and within ten minutes: {link}")
            print(f"\nDocumentation: {url}/docs    Key: {key}\nTry:\n")
            print(f"  curl -s -H 'Authorization: Bearer {key}' '{url}/v1/portfolio?addresses={wallets['alice']}'\n")
            last = date.fromisoformat(config.examples["2026-03-01"])
            span = f"--from {last - timedelta(days=PAST_DAYS)} --to {last} --plot --config {file}"
            called = as_called(sys.argv[0])
            for command in ("history", "performance"):
                print(f"  {called} {command} {wallets['alice']} {span}\n")
            if len(wallets) > len(WALLETS):
                print(f"  {called} history {[*wallets.values()][-1]} --from {_days_ago()} --config {file}\n")
            print(f"  {called} --help    settings: --config {file}\n\nCtrl-C ends it.", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
    report("stopped")
