"""Resolve names of the Ethereum Name Service with web3's client over the chain's nodes.

Names are normalised by ENSIP-15, so that a name which only looks like another one is another name, or invalid. Gateways
outside the chain are not asked (ERC-3668): a contract would choose to which hosts this machine connects.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from ens import AsyncENS
from ens.constants import EMPTY_ADDR_HEX, UNIVERSAL_RESOLVER_ADDR
from ens.exceptions import ENSException
from ens.utils import label_to_hash, normalize_name
from eth_abi.exceptions import DecodingError
from web3 import Web3
from web3.exceptions import Web3Exception
from web3.middleware import Web3Middleware
from web3.providers import AsyncBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.adapters.evm.refusals import CallReverted
from chainfolio.addresses import EVM
from chainfolio.blocks import Block
from chainfolio.errors import BadRequest, NotFound, SourceError
from chainfolio.transport.endpoint import Answer, Endpoint
from chainfolio.transport.wire import Request

FIELD = "address"
NAME_EXPIRES = {
    "name": "nameExpires",
    "type": "function",
    "stateMutability": "view",
    "inputs": [{"name": "id", "type": "uint256"}],
    "outputs": [{"name": "", "type": "uint256"}],
}


class Names:
    """The ENS names of a chain at one block."""

    def __init__(self, node: Node, block: Block) -> None:
        self._time_s = block.time_us // 1_000_000
        # web3 would read the newest block before every call, to check the node: our pool checks its nodes.
        middleware: Any = [(Web3Middleware, "stalecheck")]
        self._ens = AsyncENS(_Provider(node, block), middleware=middleware)

    async def address(self, text: str) -> str:
        """Return the account of a name.

        Raises:
            BadRequest: It is no name.
            NotFound: It has no address, or has expired.
            SourceError: No endpoint can read it, or the endpoints disagree.
        """
        name = normal(text)
        try:
            account = await self._ens.address(name)
            if account is not None:
                await self._check_expiry(name)
        except (Web3Exception, DecodingError, ValueError) as error:  # resolvers are third-party contracts
            raise NotFound(f"the resolver of {name} gives no address: {type(error).__name__}") from None
        if account is None:
            remedy = "give the address itself; names that a gateway outside the chain resolves are not looked up"
            raise NotFound(f"the name {name} stands for no address on the chain", remedy=remedy)
        return _canonical(account)

    async def name(self, address: str) -> str | None:
        """Return the name that an account claims; None if there is none, or it is expired or not its own.

        Raises:
            SourceError: No endpoint can read it, or the endpoints disagree.
        """
        try:
            claimed: str | None = await self._ens.name(Web3.to_checksum_address(address))
            if claimed is None or normal(claimed) != claimed:
                return None
            await self._check_expiry(claimed)
        except (BadRequest, NotFound, ENSException, Web3Exception, DecodingError, ValueError):
            return None  # an account can claim any name: only verified names are shown
        return claimed

    async def _check_expiry(self, name: str) -> None:
        """Raise NotFound if a name lies under .eth and its second-level name's registration has ended."""
        labels = name.split(".")
        if len(labels) < 2 or labels[-1] != "eth":
            return
        owner = await self._ens.owner("eth")
        if owner == EMPTY_ADDR_HEX:
            return
        registrar = self._ens.w3.eth.contract(address=owner, abi=[NAME_EXPIRES])
        number = int.from_bytes(label_to_hash(labels[-2]), "big")
        expires_s = await registrar.functions.nameExpires(number).call()
        if expires_s < self._time_s:
            day = f"{datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d}"
            raise NotFound(
                f"the name {name} expired on {day}, so its address may be another owner's",
                remedy="give the address itself",
            )


def normal(text: str) -> str:
    """Return a name as ENSIP-15 writes it.

    Raises:
        BadRequest: It is no name.
    """
    try:
        name: str = normalize_name(text)
    except ENSException as error:
        raise BadRequest(FIELD, f"{text!r} is not a name: {error}", remedy="see ENSIP-15") from None
    if not name or not all(name.split(".")):
        raise BadRequest(FIELD, f"{text!r} is not a name", remedy="for example vitalik.eth")
    return name


class _Provider(AsyncBaseProvider):
    """A web3 provider that sends every call to the chain's nodes, at one block."""

    global_ccip_read_enabled = False

    def __init__(self, node: Node, block: Block) -> None:
        super().__init__()
        self._node, self._block = node, block

    async def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """Return the response to `eth_call` on which the endpoints agree; a revert is an RPC error.

        `eth_getCode` gets empty code without a request.

        Raises:
            NotFound: The chain has no ENS resolver.
            SourceError: The call could not be read, or the endpoints disagree.
            AssertionError: It is another method.
        """
        if method == "eth_getCode":  # web3 reads it after an empty result, for its error message
            return cast(RPCResponse, {"jsonrpc": "2.0", "id": 1, "result": "0x"})
        if method != "eth_call":
            raise AssertionError(f"names need no {method}")
        request = Request("eth_call", (params[0], hex_of(self._block.height)))

        async def at(endpoint: Endpoint) -> list[Answer]:
            return await endpoint.ask([request], height=self._block.height)

        (answer,) = await self._node.agreed(at, key=_key, describe=lambda _: "a name", kind="names")
        if isinstance(answer, CallReverted):
            error = {"code": 3, "message": answer.reason, "data": "0x" + answer.data.hex()}
            return cast(RPCResponse, {"jsonrpc": "2.0", "id": 1, "error": error})
        if isinstance(answer, SourceError):
            raise answer
        result = msgspec.json.decode(answer)
        if result == "0x" and str(params[0].get("to")).lower() == UNIVERSAL_RESOLVER_ADDR.lower():
            remedy = "give the address itself, or a node of Ethereum's main chain"
            raise NotFound(f"the chain has no resolver of ENS names at {UNIVERSAL_RESOLVER_ADDR}", remedy=remedy)
        return cast(RPCResponse, {"jsonrpc": "2.0", "id": 1, "result": result})


def _key(answer: Answer) -> Hashable | None:
    if isinstance(answer, CallReverted):
        return answer.data
    return None if isinstance(answer, SourceError) else answer


def _canonical(address_text: str) -> str:
    address = EVM.canonical(address_text)
    assert address, "web3 gives an address or none"
    return address
