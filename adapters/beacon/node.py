"""Read from the beacon nodes of one chain: each is checked for its network, and replaced on failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from chainfolio.adapters.beacon.responses import Genesis, StateResponse, StateRoot, response_decoder
from chainfolio.adapters.beacon.spec import Spec
from chainfolio.adapters.beacon.ssz import StateSink, state_layout
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, SourceError, Unavailable, UnsupportedMethod, WrongChain
from chainfolio.transport.pool import Pool
from chainfolio.transport.rest import ResourceNotFound, RestEndpoint

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.validator_table import ValidatorTable

log = logging.getLogger("chainfolio.beacon")
T = TypeVar("T")
Ids: TypeAlias = Sequence[str] | msgspec.Raw  # a list as JSON
RequestBody: TypeAlias = Ids | Mapping[str, Ids] | None
IDS_PER_URL: Final = 64
GENESIS: Final = "/eth/v1/beacon/genesis"


class BeaconNode(RestEndpoint):
    """The Beacon API at one address.

    Attributes:
        serves_ssz_states: False after a whole state in SSZ could not be read.
    """

    serves_ssz_states = True

    async def fetch(self, path: str, kind: type[T], body: RequestBody = None) -> StateResponse[T]:
        """Return the response of a path (GET if `body` is None).

        A list of validators that the node refuses by POST is requested by GET.

        Raises:
            Unavailable: The node has not verified the block yet.
            SourceError: The node has no such data, or cannot answer.
        """
        try:
            response = await self.ask(path, response_decoder(kind), body)
        except (ResourceNotFound, UnsupportedMethod):
            if (ids := _validator_ids(path, body)) is None:
                raise
            response = await self._get_validators(path, kind, ids)
        if response.execution_optimistic:
            raise Unavailable(self.name, "it has not checked that block's payload yet (optimistic)")
        return response

    async def _get_validators(self, path: str, kind: type[T], ids: Sequence[str]) -> StateResponse[T]:
        """Read validators by GET in parts, as nodes of before 2024 require it."""
        parts = [ids[start : start + IDS_PER_URL] for start in range(0, len(ids), IDS_PER_URL)]
        urls = [f"{path}?{urlencode([('id', each) for each in part])}" for part in parts]
        responses = [await self.ask(each, response_decoder(kind)) for each in urls or [path]]
        rows = [row for response in responses for row in cast("list[object]", response.data)]
        is_optimistic = any(response.execution_optimistic for response in responses)
        return StateResponse(cast("T", rows), is_optimistic, responses[0].finalized, responses[0].version)

    async def read(self, path: str, kind: type[T], body: RequestBody = None) -> T:
        """Return the data in the response of a path, with the errors of `fetch`."""
        return (await self.fetch(path, kind, body)).data

    async def fetch_ssz_validators(self, slot: int, spec: Spec) -> ValidatorTable | None:
        """Return all validators in the state after a slot, from the whole state in SSZ.

        None if the node lacks the state, or cannot serve it in SSZ; in the latter case later calls send no request.

        Raises:
            BadAnswer: It is another state, or malformed.
        """
        layout = state_layout(spec, spec.epoch(slot))
        if layout is None or not self.serves_ssz_states:
            return None
        sink = StateSink(self.name, layout, slot, spec.genesis.genesis_validators_root)
        # Only JSON tells whether the state exists and whether the node has verified it.
        root = await self.try_fetch(f"/eth/v1/beacon/states/{slot}/root", StateRoot)
        if isinstance(root, ResourceNotFound):
            return None
        try:
            await self.stream(f"/eth/v2/debug/beacon/states/{slot}", sink)
        except SourceError as error:
            if sink.has_begun and isinstance(error, BadAnswer):
                raise
            self.serves_ssz_states = False
            log.info("%s: registries are read in JSON from now on: %s", self.name, error.reason)
            return None
        return sink.table()

    async def try_fetch(
        self, path: str, kind: type[T], body: RequestBody = None
    ) -> StateResponse[T] | ResourceNotFound | UnsupportedMethod:
        """Return the response of a path, or the error that says that the node does not have it."""
        try:
            return await self.fetch(path, kind, body)
        except (ResourceNotFound, UnsupportedMethod) as error:
            return error


def _validator_ids(path: str, body: RequestBody) -> list[str] | None:
    """Return the ids in the body of a request for validators, None for any other request."""
    if body is None or not path.endswith(("/validators", "/validator_balances")):
        return None
    ids = body["ids"] if isinstance(body, Mapping) else body
    return msgspec.json.decode(ids, type=list[str]) if isinstance(ids, msgspec.Raw) else list(ids)


class Nodes(Pool[BeaconNode]):
    """Nodes of one network: the one with the given genesis, or that of the first responding node."""

    def __init__(
        self, key: str, nodes: Sequence[BeaconNode], environment: Environment, genesis: str = "", *, hedge: bool = True
    ) -> None:
        super().__init__(key, nodes, environment, hedge=hedge)
        self._genesis = genesis.lower()
        for node in self.endpoints:
            node.handshake = self._check_genesis

    async def _check_genesis(self, node: RestEndpoint) -> None:
        """Raise WrongChain if a node has another genesis than the nodes before; store it if it is the first."""
        genesis = (await node.ask_unchecked(GENESIS, response_decoder(Genesis))).data.genesis_validators_root.lower()
        if genesis != (self._genesis or genesis):
            raise WrongChain(
                node.name,
                f"it serves another network than {self.key}: its genesis is {genesis}",
                remedy=f"give chains.{self.key}.rpc nodes of one network",
            )
        self._genesis = genesis

    async def read(self, path: str, kind: type[T], body: RequestBody = None) -> T:
        """Return the data in the response of a path, with the errors of `fetch`."""
        return (await self.fetch(path, kind, body)).data

    async def fetch_ssz_validators(self, slot: int, spec: Spec) -> ValidatorTable | None:
        """Return all validators in the state after a slot from a node that serves it in SSZ, else None.

        Nodes that fail are skipped.

        Raises:
            BadAnswer: All nodes gave another state.
        """
        errors, nodes = list[BadAnswer](), self.ranked()
        for node in nodes:
            result = await self._result_or_error(lambda node: node.fetch_ssz_validators(slot, spec), node, "state")
            if isinstance(result, BadAnswer):
                errors.append(result)
            elif result is not None and not isinstance(result, SourceError):
                return result
        if len(errors) == len(nodes):
            raise errors[-1]
        return None

    async def fetch(self, path: str, kind: type[T], body: RequestBody = None) -> StateResponse[T]:
        """Return the response of a path, from the first node that has it.

        Raises:
            ResourceNotFound: No node that answers has it.
            UnsupportedMethod: No node that answers serves it.
            SourceError: No node answers.
        """
        metric = path.partition("?")[0].rpartition("/")[0]
        result = await self.with_any(lambda node: node.try_fetch(path, kind, body), kind=metric)
        if isinstance(result, StateResponse):
            return result
        for node in self.ranked():
            if node.name != result.source:
                fallback = await self._result_or_error(lambda node: node.try_fetch(path, kind, body), node, metric)
                if not isinstance(fallback, SourceError):
                    return fallback
        raise result


async def read_spec(nodes: Nodes) -> Spec:
    """Read the specification of a network.

    Raises:
        BadAnswer: Epochs or slots have no length.
        SourceError: No node answers.
    """
    genesis = await nodes.read(GENESIS, Genesis)
    values = await nodes.read("/eth/v1/config/spec", dict[str, object])
    spec = Spec(nodes.key, genesis, values)
    if min(spec.slots_per_epoch, spec.slot_us) < 1:
        raise BadAnswer(nodes.key, "its specification has epochs or slots of no length")
    return spec
