"""Run a local EVM chain with a history: `python -m chainfolio.localchain [--port N] [--blocks N]`."""

import argparse
import json
import signal
import sys
from dataclasses import asdict

from chainfolio.localchain import install
from chainfolio.localchain.deploy import deploy
from chainfolio.localchain.errors import LocalChainError
from chainfolio.localchain.hostile import deploy_hostile
from chainfolio.localchain.node import GENESIS_TIME, LocalNode
from chainfolio.localchain.trade import trade

ENDINGS = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    """Start a node, deploy, trade, print its description as one line of JSON, and wait for a signal."""
    parser = argparse.ArgumentParser(prog="python -m chainfolio.localchain", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="any free one, if not given")
    parser.add_argument("--blocks", type=int, default=300, help="how many blocks of trading")
    parser.add_argument("--seed", type=int, default=7, help="another seed, another history")
    parser.add_argument("--timestamp", type=int, default=GENESIS_TIME, help="when the chain begins, in Unix seconds")
    parser.add_argument("--block-time", type=int, help="go on making a block every so many seconds")
    parser.add_argument("--hostile", action="store_true", help="deploy the tokens that misbehave too")
    chosen = parser.parse_args()
    install.ensure(lambda line: print(line, file=sys.stderr, flush=True))
    with LocalNode(port=chosen.port, timestamp=chosen.timestamp, block_time=chosen.block_time) as node:
        deployment = deploy(node)
        hostile = deploy_hostile(node) if chosen.hostile else {}
        trade(node, deployment, chosen.blocks, chosen.seed)
        description = {"url": node.url, "chain_id": node.chain_id, "height": node.height}
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        print(json.dumps(description | {"deployment": asdict(deployment), "hostile": hostile}), flush=True)
        signal.sigwait(ENDINGS)


if __name__ == "__main__":
    try:
        main()
    except LocalChainError as error:
        sys.exit(str(error))
