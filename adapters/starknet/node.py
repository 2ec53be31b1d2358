"""The nodes of a chain as one: connect, check their network, fail over, read blocks.

Until Ethereum accepts a block, the sequencer can revert it, together with a thousand others.
"""

from __future__ import annotations

from collections.abc import Sequence

from chainfolio.adapters.starknet.facts import ON_L1, Facts
from chainfolio.adapters.starknet.felts import decode_short_string, encode_short_string, parse_felt
from chainfolio.adapters.starknet.forms import Header
from chainfolio.blocks import Block
from chainfolio.chain_results import Heads
from chainfolio.environment import Environment
from chainfolio.errors import BadAnswer, NodeBehind, SourceError, WrongChain
from chainfolio.transport.endpoint import Answer, Endpoint, Handshake
from chainfolio.transport.pool import Pool
from chainfolio.transport.wire import Request, typed
from chainfolio.untrusted import SkippedContracts

L1_TAG_CAPABILITY = "l1_tag"  # whether an endpoint knows the tag of the newest block that Ethereum accepted
ACCEPTED_ON_L1 = "ACCEPTED_ON_L1"


def unwrap(answer: Answer) -> bytes:
    """Return the result of a request.

    Raises:
        SourceError: The node refused the request.
    """
    if isinstance(answer, SourceError):
        raise answer
    return answer


def header_request(block: int | str) -> Request:
    """Return the request for the header of a block, by its height or its tag."""
    return Request("starknet_getBlockWithTxHashes", ({"block_number": block} if isinstance(block, int) else block,))


class Node(Pool[Endpoint]):
    """The endpoints of one chain.

    Attributes:
        finalized: The newest known final height, -1 before the first `connect`.
        skipped: Untrusted contracts that are not called for some blocks.
    """

    def __init__(
        self, facts: Facts, endpoints: Sequence[Endpoint], environment: Environment, *, hedge: bool = True
    ) -> None:
        """Prepare the endpoints, which are checked by the name of the network; no request is sent."""
        super().__init__(facts.key, endpoints, environment, hedge=hedge)
        self.facts, self.finalized, self.skipped = facts, -1, SkippedContracts()
        handshake = Handshake([Request("starknet_chainId")], self._check_network)
        for endpoint in self.endpoints:
            endpoint.handshake = handshake

    def _check_network(self, endpoint: Endpoint, answers: Sequence[Answer]) -> None:
        """Raise WrongChain if the endpoint serves another network, else mark it as checked."""
        network = parse_felt(endpoint.name, typed(endpoint.name, unwrap(answers[0]), str))
        if network != encode_short_string(self.facts.network):
            served = decode_short_string(network) or "another chain"
            raise WrongChain(
                endpoint.name,
                f"serves {served}, and {self.facts.key} is {self.facts.network}",
                remedy=f"give chains.{self.facts.key}.rpc an endpoint of the right chain",
            )
        endpoint.checked = True

    async def connect(self) -> Heads:
        """Return the newest block of one endpoint, and the highest final height read so far.

        Raises:
            SourceError: No endpoint could be read; WrongChain if one serves another network.
        """
        heads = await self.with_any(self._heads, kind="heads")
        self.finalized = max(self.finalized, heads.finalized)
        return Heads(heads.latest, self.finalized)

    async def _heads(self, endpoint: Endpoint) -> Heads:
        """Read the newest block and the last final height, -1 if none.

        It is the one that Ethereum accepted, or a number of blocks below the newest (then it may be below -1). Stores
        the endpoint's height, and that it lacks the L1 tag.
        """
        finality = self.facts.finality
        has_tag = finality == ON_L1 and endpoint.capabilities.get(L1_TAG_CAPABILITY, 1) > 0
        requests = [header_request("latest"), *([header_request("l1_accepted")] if has_tag else ())]
        answer, *accepted_answers = await endpoint.ask(requests)
        latest = self._decode_header(endpoint.name, answer)
        endpoint.health.height, endpoint.health.head_us = latest.height, latest.time_us
        if isinstance(finality, int):
            return Heads(latest, latest.height - finality)
        if not has_tag:
            return Heads(latest, await self._search_accepted(endpoint, latest))
        (accepted,) = accepted_answers
        if isinstance(accepted, NodeBehind):  # Ethereum has accepted no block yet
            return Heads(latest, -1)
        if isinstance(accepted, BadAnswer):  # the node is older than the tag
            endpoint.learn(L1_TAG_CAPABILITY, 0)
            return Heads(latest, await self._search_accepted(endpoint, latest))
        return Heads(latest, min(self._decode_header(endpoint.name, accepted).height, latest.height))

    async def _search_accepted(self, endpoint: Endpoint, latest: Block) -> int:
        """Return the newest height that Ethereum accepted, for nodes without the tag.

        It is at least the known final one. Steps below the head double until one is accepted; then the interval of the
        last step is halved.
        """
        low, high, step = self.finalized, latest.height + 1, 1
        while (probe := latest.height + 1 - step) > low:
            if await self._is_accepted(endpoint, probe):
                low = probe
                break
            high, step = probe, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            if await self._is_accepted(endpoint, middle):
                low = middle
            else:
                high = middle
        return low

    async def _is_accepted(self, endpoint: Endpoint, height: int) -> bool:
        header = typed(endpoint.name, await endpoint.ask_one(header_request(height), height=height), Header)
        return header.status == ACCEPTED_ON_L1

    def _decode_header(self, source: str, answer: Answer, height: int | None = None) -> Block:
        """Return the block of an answer; raise the error of a refusal."""
        return typed(source, unwrap(answer), Header).block(source, height)

    async def block(self, height: int) -> Block:
        """Return the block at a height.

        Raises:
            SourceError: It could not be read; NodeBehind if no endpoint has it.
        """
        (block,) = await self.blocks([height])
        return block

    async def blocks(self, heights: Sequence[int]) -> list[Block]:
        """Return the blocks at some heights, in order and in one batch.

        Raises:
            SourceError: One could not be read; NodeBehind if no endpoint has it.
        """

        async def read(endpoint: Endpoint) -> list[Block]:
            answers = await endpoint.ask([header_request(height) for height in heights], height=max(heights))
            pairs = zip(answers, heights, strict=True)
            return [self._decode_header(endpoint.name, answer, height) for answer, height in pairs]

        return await self.with_any(read, kind="headers") if heights else []
