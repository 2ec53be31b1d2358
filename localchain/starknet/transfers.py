"""Sends the native coin on a Starknet devnet; runs in an environment of its own, with starknet-py:

python transfers.py URL '[["FROM", "KEY", "TO", AMOUNT], …]'    prints the hash of each transaction as a JSON list
"""

import asyncio
import json
import sys

from starknet_py.hash.selector import get_selector_from_name
from starknet_py.net.account.account import Account
from starknet_py.net.client_models import Call
from starknet_py.net.full_node_client import FullNodeClient
from starknet_py.net.models import StarknetChainId
from starknet_py.net.signer.stark_curve_signer import KeyPair

COIN = 0x49D36570D4E46F48E99674BD3FCC84644DDD6B96F7C741B1562B82F9E004DC7


async def main(url, transfers):
    hashes = []
    for sender, key, recipient, amount in transfers:
        account = Account(
            address=sender, client=FullNodeClient(node_url=url + "/rpc"), chain=StarknetChainId.TESTNET,
            key_pair=KeyPair.from_private_key(int(key, 16)),
        )  # fmt: skip
        data = [int(recipient, 16), amount % 2**128, amount >> 128]
        sent = await account.execute(Call(COIN, get_selector_from_name("transfer"), data), max_fee=10**16)
        await account.client.wait_for_tx(sent.transaction_hash, check_interval=0.05)
        hashes.append(f"0x{sent.transaction_hash:064x}")
    print(json.dumps(hashes))


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
