"""The EVM's kit for developers of decoders: as `chainfolio.recordings.DecoderKit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adapters.evm.kit import recordings
from adapters.evm.kit.recordings import Recording
from adapters.evm.positions.interactions import COLLECTIBLE, ContractInteractions
from chainfolio.assets import Asset, evm
from chainfolio.errors import BadRequest
from chainfolio.interactions import Interactions

if TYPE_CHECKING:
    from chainfolio.blocks import Block
    from chainfolio.chains import Chain, ChainInfo
    from chainfolio.protocols import InstalledProtocol

SCAFFOLD = '''\
"""{title}: what an account keeps there."""

from __future__ import annotations

from adapters.evm.positions.rules import Counterparty, DecoderPlan, Family, ProtocolMatch
from adapters.evm.reads import Call
from chainfolio.protocols import DecodedPosition, TokenAmount


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
    """Recordings of EVM decoders, and the scaffold of one."""

    read = staticmethod(recordings.read)
    save = staticmethod(recordings.save)
    updated = staticmethod(recordings.updated)
    replay = staticmethod(recordings.replay)

    def interactions(self, info: ChainInfo, written: Sequence[str]) -> Interactions:
        """Each contract as a token that was met and sent to each of them, and as one with which tokens were
        exchanged."""
        contracts, ids = set[str](), dict[Asset, frozenset[int]]()
        for each in written:
            contract, numbered, number = each.partition("/")
            address = evm(contract)
            if not numbered:
                contracts.add(address)
            elif number.isascii() and number.isdigit():
                collection = info.asset(COLLECTIBLE, address, int(number)).collection
                ids[collection] = ids.get(collection, frozenset()) | {int(number)}
            else:
                raise BadRequest("met", f"{each!r} is not CONTRACT or CONTRACT/NUMBER")
        tokens = frozenset(map(info.token_asset, contracts))
        return Interactions(tokens, ids, dict.fromkeys(contracts, frozenset()), dict.fromkeys(contracts, tokens))

    async def record(
        self, chain: Chain, block: Block, account: str, interactions: Interactions, rows: Sequence[InstalledProtocol]
    ) -> Recording:
        """What decoders read and find of an account at a block."""
        plain = frozenset([chain.info.wrapped.reference] if chain.info.wrapped else [])
        return await recordings.record(chain, block, account, ContractInteractions.of(interactions), rows, plain)

    def scaffold(self, key: str, title: str) -> str:
        """The shortest decoder that there is."""
        return SCAFFOLD.format(key=key, title=title)


KIT = EvmKit()
