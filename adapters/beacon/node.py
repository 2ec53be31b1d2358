"""The beacon nodes of one chain as one: each is asked who it is before it is believed, and another one where one cannot
answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlencode

import msgspec

from chainfolio.adapters.beacon.answers import Genesis, StateRoot, Told, decoded
from chainfolio.adapters.beacon.ssz import StateSink, layout_of
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, SourceError, Unavailable, UnsupportedMethod, WrongChain
from chainfolio.transport.pool import Pool
from chainfolio.transport.rest import Absent, RestEndpoint

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.spec import Spec
    from chainfolio.adapters.beacon.states import States

log = logging.getLogger("chainfolio.beacon")
T = TypeVar("T")
IDS_IN_ADDRESS: Final = 64
GENESIS: Final = "/eth/v1/beacon/genesis"


class BeaconNode(RestEndpoint):
    """The Beacon API at one address."""

    tells_states = True  # in SSZ, as far as it is known

    async def told(self, path: str, kind: type[T], body: Any = None) -> Told[T]:
        """What a path says about some state. Unavailable where the node itself does not believe it yet."""
        try:
            found = await self.ask(path, decoded(kind), body)
        except (Absent, UnsupportedMethod):
            if (ids := _ids_of(path, body)) is None:
                raise
            found = await self._got(path, kind, ids)
        if found.execution_optimistic:
            raise Unavailable(self.name, "it has not checked that block's payload yet (optimistic)")
        return found

    async def _got(self, path: str, kind: type[T], ids: Sequence[str]) -> Told[T]:
        """Validators of a state, as nodes of before 2024 are asked for them: by the address, so many at a time."""
        asked = [f"{path}?{urlencode([('id', each) for each in part])}" for part in batched(ids, IDS_IN_ADDRESS)]
        parts = [await self.ask(each, decoded(kind)) for each in asked or [path]]
        every: Any = [row for part in parts for row in cast("list[Any]", part.data)]
        doubts = any(part.execution_optimistic for part in parts)
        return Told(every, doubts, parts[0].finalized, parts[0].version)

    async def data(self, path: str, kind: type[T], body: Any = None) -> T:
        """The same without how sure the node is."""
        return (await self.told(path, kind, body)).data

    async def whole(self, slot: int, spec: Spec) -> States | None:
        """The registry in the state after a slot, out of the whole state in SSZ. None where the node does not offer
        that, or did not bring it to its end: it is not asked for it again. BadAnswer where it is another state."""
        layout = layout_of(spec, spec.epoch(slot))
        if layout is None or not self.tells_states:
            return None
        sink = StateSink(self.name, layout, slot, spec.genesis.genesis_validators_root)
        # Whether there is that state, and the node believes it, it says in JSON alone.
        is_there = await self.tried(f"/eth/v1/beacon/states/{slot}/root", StateRoot)
        if isinstance(is_there, Absent):
            return None
        try:
            await self.stream(f"/eth/v2/debug/beacon/states/{slot}", sink)
        except SourceError as error:
            if sink.has_begun and isinstance(error, BadAnswer):
                raise
            self.tells_states = False
            log.info("%s: registries are read in JSON from now on: %s", self.name, error.reason)
            return None
        return sink.states()

    async def tried(self, path: str, kind: type[T], body: Any = None) -> Told[T] | Absent | UnsupportedMethod:
        """What a path says, or that it has nothing of that name, which is an answer, too."""
        try:
            return await self.told(path, kind, body)
        except (Absent, UnsupportedMethod) as error:
            return error


def _ids_of(path: str, body: Any) -> list[str] | None:
    """The validators that a posted question names; None for any other question."""
    if body is None or not path.endswith(("/validators", "/validator_balances")):
        return None
    asked = body["ids"] if isinstance(body, dict) else body
    return msgspec.json.decode(asked, type=list[str]) if isinstance(asked, msgspec.Raw) else list(asked)


def batched(values: Sequence[str], size: int) -> list[Sequence[str]]:
    """Values, so many at a time."""
    return [values[start : start + size] for start in range(0, len(values), size)]


class Nodes(Pool[BeaconNode]):
    """All nodes of one network: that of a genesis, or of the first node that says one."""

    def __init__(
        self, key: str, nodes: Sequence[BeaconNode], environment: Environment, genesis: str = "", *, hedge: bool = True
    ) -> None:
        super().__init__(key, nodes, environment, hedge=hedge)
        self._genesis = genesis.lower()
        for node in self.endpoints:
            node.handshake = self._same_network

    async def _same_network(self, node: RestEndpoint) -> None:
        found = (await node.put(GENESIS, decoded(Genesis))).data.genesis_validators_root.lower()
        if found != (self._genesis or found):
            raise WrongChain(
                node.name,
                f"it serves another network than {self.key}: its genesis is {found}",
                remedy=f"give chains.{self.key}.rpc nodes of one network",
            )
        self._genesis = found

    async def data(self, path: str, kind: type[T], body: Any = None) -> T:
        """What a path says, of the first node that says something."""
        return (await self.told(path, kind, body)).data

    async def whole(self, slot: int, spec: Spec) -> States | None:
        """The registry in the state after a slot, of the first node that tells it in SSZ; None where none does.
        BadAnswer where all tell another one."""
        lies, nodes = list[BadAnswer](), self.ranked()
        for node in nodes:
            found = await self._tried(lambda node: node.whole(slot, spec), node, "state")
            if isinstance(found, BadAnswer):
                lies.append(found)
            elif found is not None and not isinstance(found, SourceError):
                return found
        if len(lies) == len(nodes):
            raise lies[-1]
        return None

    async def told(self, path: str, kind: type[T], body: Any = None) -> Told[T]:
        """The same with how sure it is. Absent or UnsupportedMethod where no node that answers has it."""
        about = path.partition("?")[0].rpartition("/")[0]
        found = await self.with_any(lambda node: node.tried(path, kind, body), kind=about)
        if isinstance(found, Told):
            return found
        for node in self.ranked():
            if node.name != found.source:
                other = await self._tried(lambda node: node.tried(path, kind, body), node, about)
                if not isinstance(other, SourceError):
                    return other
        raise found
