"""Sign and send transactions for a Starknet devnet; runs in a separate environment with starknet-py.

python client.py URL    reads requests as lines of JSON and answers each with one:

{"account": ["ADDRESS", "KEY"], "calls": [["TO", "FUNCTION", [ARGUMENT, …]], …]}    the hash of the transaction
{"account": ["ADDRESS", "KEY"], "class": ["FILE", …], "args": [ARGUMENT, …]}    the address of the new contract
{"account": ["ADDRESS", "KEY"], "key": KEY, "amount": WEI}    the address of the new account, which got so much

A class in Cairo 2 has two files: itself, and what the node runs of it.
"""

import asyncio
import json
import sys
from pathlib import Path

from starknet_py.common import create_casm_class
from starknet_py.hash.address import compute_address
from starknet_py.hash.casm_class_hash import compute_casm_class_hash
from starknet_py.hash.selector import get_selector_from_name
from starknet_py.net.account.account import Account
from starknet_py.net.client_models import Call
from starknet_py.net.full_node_client import FullNodeClient
from starknet_py.net.models import StarknetChainId
from starknet_py.net.signer.stark_curve_signer import KeyPair
from starknet_py.net.udc_deployer.deployer import Deployer

COIN = "0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7"
MAX_FEE = 10**17
declared = {}  # class hashes, by file


def read(file):
    """Return the text of a file."""
    return Path(file).read_text()


async def execute(account, calls):
    """Send a transaction of calls, each (address, function, arguments), and return its hash."""
    invocations = [Call(int(to, 16), get_selector_from_name(name), args) for to, name, args in calls]
    response = await account.execute(invocations, max_fee=MAX_FEE)
    return f"0x{response.transaction_hash:064x}"


async def declare(account, file, casm=None):
    """Sign the declaration of a class; `casm` is the file of the compiled class, only of Cairo 2."""
    if casm is None:
        return await account.sign_declare_transaction(compiled_contract=read(file), max_fee=MAX_FEE)
    runs = compute_casm_class_hash(create_casm_class(read(casm)))
    return await account.sign_declare_v2_transaction(
        compiled_contract=read(file), compiled_class_hash=runs, max_fee=MAX_FEE
    )


async def deploy(account, files, args):
    """Deploy a class, declared before if it is not yet, and return the address of the contract."""
    file = files[0]
    if file not in declared:
        declared[file] = (await account.client.declare(await declare(account, *files))).class_hash
    deployment = Deployer(account_address=account.address).create_contract_deployment_raw(
        declared[file], raw_calldata=args
    )
    await account.execute(deployment.call, max_fee=MAX_FEE)
    return f"0x{deployment.address:064x}"


async def open_account(account, key, amount):
    """Deploy an account of the same class for a key, with so much wei of coins, and return its address."""
    class_hash, pair = await account.client.get_class_hash_at(account.address), KeyPair.from_private_key(key)
    of = {"class_hash": class_hash, "constructor_calldata": [pair.public_key], "salt": key}
    address = compute_address(deployer_address=0, **of)
    await execute(account, [(COIN, "transfer", [address, amount % 2**128, amount >> 128])])
    await Account.deploy_account(
        address=address, key_pair=pair, client=account.client, chain=StarknetChainId.TESTNET, max_fee=MAX_FEE, **of
    )
    return f"0x{address:064x}"


async def main(url):
    """Answer the requests on standard input."""
    client = FullNodeClient(node_url=url + "/rpc")
    for line in sys.stdin:
        request = json.loads(line)
        address, key = request["account"]
        account = Account(
            address=address,
            client=client,
            chain=StarknetChainId.TESTNET,
            key_pair=KeyPair.from_private_key(int(key, 16)),
        )
        if "class" in request:
            deployment = deploy(account, request["class"], request["args"])
        elif "key" in request:
            deployment = open_account(account, request["key"], request["amount"])
        else:
            deployment = execute(account, request["calls"])
        print(json.dumps(await deployment), flush=True)


asyncio.run(main(sys.argv[1]))
