"""Kit for developers of EVM decoders; implements `chainfolio.recordings.DecoderKit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainfolio.adapters.evm.kit import recordings
from chainfolio.adapters.evm.kit.recordings import Recording
from chainfolio.adapters.evm.positions.interactions import COLLECTIBLE, ContractInteractions
from chainfolio.assets import Asset, evm_address
from chainfolio.errors import BadRequest
from chainfolio.interactions import Interactions

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chain_results import ChainInfo
    from chainfolio.chains import Chain
    from chainfolio.protocols import InstalledProtocol

SCAFFOLD = '''\
"""{title}: what an account keeps there."""

from __future__ import annotations

from chainfolio.plugins.protocol import (
    Call,
    Counterparty,
    DecodedPosition,
    DecoderPlan,
    Family,
    ProtocolMatch,
    TokenAmount,
)


def position(match: ProtocolMatch) -> DecoderPlan:
    """What the account has staked."""
    staked, token = yield [
        Call(match.contract, "staked(address)(uint256)", (match.account,)),
        Call(match.contract, "token()(address)"),
    ]
    return DecodedPosition("STAKED", supplied=(TokenAmount(token, staked),), pool=match.contract)


FAMILY = Family("{key}", rules=(Counterparty("pool"),), position=position)
'''


class EvmKit:
    """Recordings of EVM decoders, and a scaffold for a new one."""

    read = staticmethod(recordings.read)
    save = staticmethod(recordings.save)
    updated = staticmethod(recordings.updated)
    replay = staticmethod(recordings.replay)

    def interactions(self, info: ChainInfo, texts: Sequence[str]) -> Interactions:
        """Return interactions in which each contract is a token, and a counterparty that was sent all tokens.

        Tokens of collections are only in `received_ids`.

        Args:
            info: The chain.
            texts: Contracts (`0x…`) and tokens of collections (`0x…/7`).

        Raises:
            BadRequest: A text is neither.
        """
        contracts, ids = set[str](), dict[Asset, frozenset[int]]()
        for each in texts:
            contract, separator, token_id = each.partition("/")
            address = evm_address(contract)
            if not separator:
                contracts.add(address)
            elif token_id.isascii() and token_id.isdigit():
                collection = info.asset(COLLECTIBLE, address, int(token_id)).collection
                ids[collection] = ids.get(collection, frozenset()) | {int(token_id)}
            else:
                raise BadRequest("met", f"{each!r} is not CONTRACT or CONTRACT/NUMBER")
        tokens = frozenset(map(info.token_asset, contracts))
        return Interactions(tokens, ids, dict.fromkeys(contracts, frozenset()), dict.fromkeys(contracts, tokens))

    async def record(
        self, chain: Chain, block: Block, account: str, interactions: Interactions, rows: Sequence[InstalledProtocol]
    ) -> Recording:
        """Record what decoders read and return for an account at a block; raises as `recordings.record`."""
        plain = frozenset([chain.info.wrapped.reference] if chain.info.wrapped else [])
        return await recordings.record(chain, block, account, ContractInteractions.of(interactions), rows, plain)

    def scaffold(self, key: str, title: str) -> str:
        """Return the source of a minimal decoder."""
        return SCAFFOLD.format(key=key, title=title)


KIT = EvmKit()
