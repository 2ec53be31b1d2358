"""A node as of one of its blocks, and the form of its messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chainfolio.localchain.tron.blocks import Block
from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.forms import base58check, inner
from chainfolio.localchain.tron.state import (
    Account,
    State,
)

Json = dict[str, Any]


@dataclass(frozen=True)
class View:
    """A node as of one of its blocks, for one request."""

    node: Chain
    height: int
    visible: bool = False

    @property
    def state(self) -> State:
        """State at the block."""
        return self.node.states[self.height]

    @property
    def now_ms(self) -> int:
        """Time of the block, in milliseconds."""
        return self.node.blocks[self.height].time_ms

    def spelled(self, address: str) -> str:
        """An address as the request wants it."""
        return base58check(address) if self.visible else address

    def text(self, content: str) -> str:
        """A name as the request wants it."""
        return content if self.visible else content.encode().hex()

    def account(self, body: Mapping[str, Any], name: str = "address") -> Account | None:
        """The account that a request names."""
        return self.state.accounts.get(inner(body.get(name), self.visible))

    def locate(self, body: Mapping[str, Any]) -> tuple[Block, int] | None:
        """The block and number of the transaction that a request names."""
        height = self.node.heights.get(str(body.get("value", "")).lower())
        if height is None or height > self.height:
            return None
        block = self.node.blocks[height]
        names = [each.txid for each in block.transactions]
        return block, names.index(str(body["value"]).lower())


def nonempty(**fields: Any) -> Json:
    """A message as java-tron writes it: without what is zero or empty."""
    return {name: value for name, value in fields.items() if value}
