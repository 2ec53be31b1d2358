"""Signs and sends for a Starknet devnet; runs in an environment of its own, with starknet-py:

python client.py URL    reads requests as lines of JSON and answers each with one:

{"account": ["ADDRESS", "KEY"], "calls": [["TO", "FUNCTION", [ARGUMENT, …]], …]}    the hash of the transaction
{"account": ["ADDRESS", "KEY"], "class": "FILE", "args": [ARGUMENT, …]}    the address of the new contract
"""

import asyncio
import json
import sys
from pathlib import Path

from starknet_py.hash.selector import get_selector_from_name
from starknet_py.net.account.account import Account
from starknet_py.net.client_models import Call
from starknet_py.net.full_node_client import FullNodeClient
from starknet_py.net.models import StarknetChainId
from starknet_py.net.signer.stark_curve_signer import KeyPair
from starknet_py.net.udc_deployer.deployer import Deployer

MAX_FEE = 10**17
declared = {}  # class hashes, by file


def read(file):
    return Path(file).read_text()


async def execute(account, calls):
    asked = [Call(int(to, 16), get_selector_from_name(name), args) for to, name, args in calls]
    sent = await account.execute(asked, max_fee=MAX_FEE)
    return f"0x{sent.transaction_hash:064x}"


async def deploy(account, file, args):
    if file not in declared:
        declare = await account.sign_declare_transaction(compiled_contract=read(file), max_fee=MAX_FEE)
        declared[file] = (await account.client.declare(declare)).class_hash
    made = Deployer(account_address=account.address).create_contract_deployment_raw(declared[file], raw_calldata=args)
    await account.execute(made.call, max_fee=MAX_FEE)
    return f"0x{made.address:064x}"


async def main(url):
    client = FullNodeClient(node_url=url + "/rpc")
    for line in sys.stdin:
        asked = json.loads(line)
        address, key = asked["account"]
        account = Account(
            address=address, client=client, chain=StarknetChainId.TESTNET,
            key_pair=KeyPair.from_private_key(int(key, 16)),
        )  # fmt: skip
        made = deploy(account, asked["class"], asked["args"]) if "class" in asked else execute(account, asked["calls"])
        print(json.dumps(await made), flush=True)


asyncio.run(main(sys.argv[1]))
