"""Names of the Ethereum Name Service, by web3's own client over the chain's nodes.

A name is read as ENSIP-15 says, so what only looks like another name is another name or none. Gateways outside the
chain are not asked (ERC-3668): a contract would choose whom this machine talks to.
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

from adapters.evm.node import Node, hex_of
from adapters.evm.refusals import Reverting
from chainfolio.addresses import EVM
from chainfolio.blocks import Block
from chainfolio.errors import BadRequest, NotFound, SourceError
from transport.endpoint import Answer, Endpoint
from transport.wire import Request

FIELD = "address"
NAME_EXPIRES = {
    "name": "nameExpires", "type": "function", "stateMutability": "view",
    "inputs": [{"name": "id", "type": "uint256"}], "outputs": [{"name": "", "type": "uint256"}],
}  # fmt: skip


class Names:
    """The names of a chain at one block."""

    def __init__(self, node: Node, block: Block) -> None:
        self._time_s = block.time_us // 1_000_000
        # web3 would ask for the newest block before every call, to see whether the node is behind: our nodes are known.
        middleware: Any = [(Web3Middleware, "stalecheck")]
        self._ens = AsyncENS(_Provider(node, block), middleware=middleware)

    async def address(self, written: str) -> str:
        """The account that a name stands for. BadRequest where it is no name; NotFound where it stands for none, and
        where it has expired."""
        name = normal(written)
        try:
            found = await self._ens.address(name)
            if found is not None:
                await self._check_expiry(name)
        except (Web3Exception, DecodingError, ValueError) as error:  # what a resolver says, anybody can have written
            raise NotFound(f"the resolver of {name} gives no address: {type(error).__name__}") from None
        if found is None:
            remedy = "give the address itself; names that a gateway outside the chain resolves are not looked up"
            raise NotFound(f"the name {name} stands for no address on the chain", remedy=remedy)
        return _canonical(found)

    async def name(self, address: str) -> str | None:
        """The name that an account gives itself, where the name stands for the account and has not expired."""
        try:
            claimed: str | None = await self._ens.name(Web3.to_checksum_address(address))
            if claimed is None or normal(claimed) != claimed:
                return None
            await self._check_expiry(claimed)
        except (BadRequest, NotFound, ENSException, Web3Exception, DecodingError, ValueError):
            return None  # anybody can call itself anything: what is not true is not shown
        return claimed

    async def _check_expiry(self, name: str) -> None:
        """NotFound where the registration of a name under .eth, or of the one that it lies under, has ended."""
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
                f"the name {name} expired on {day}: nobody vouches for the address that it stood for",
                remedy="give the address itself",
            )


def normal(written: str) -> str:
    """A name as ENSIP-15 writes it; BadRequest where it is none."""
    try:
        name: str = normalize_name(written)
    except ENSException as error:
        raise BadRequest(FIELD, f"{written!r} is not a name: {error}", remedy="see ENSIP-15") from None
    if not name or not all(name.split(".")):
        raise BadRequest(FIELD, f"{written!r} is not a name", remedy="for example vitalik.eth")
    return name


class _Provider(AsyncBaseProvider):
    """web3's way to our nodes: every call at the one block."""

    global_ccip_read_enabled = False

    def __init__(self, node: Node, block: Block) -> None:
        super().__init__()
        self._node, self._block = node, block

    async def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        """One call, as the endpoints agree on it."""
        if method == "eth_getCode":  # web3 asks for it after an empty answer, to say why it is empty
            return cast(RPCResponse, {"jsonrpc": "2.0", "id": 1, "result": "0x"})
        if method != "eth_call":
            raise AssertionError(f"names need no {method}")
        request = Request("eth_call", (params[0], hex_of(self._block.height)))

        async def at(endpoint: Endpoint) -> list[Answer]:
            return await endpoint.ask([request], height=self._block.height)

        (answer,) = await self._node.agreed(at, key=_key, asked=lambda _: "a name", kind="names")
        if isinstance(answer, Reverting):
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
    if isinstance(answer, Reverting):
        return answer.data
    return None if isinstance(answer, SourceError) else answer


def _canonical(found: str) -> str:
    address = EVM.canonical(found)
    assert address, "web3 gives an address or none"
    return address
