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
        """Return an address in the request's form: base58 if `visible`, else hex."""
        return base58check(address) if self.visible else address

    def text(self, content: str) -> str:
        """Return a name in the request's form: text if `visible`, else hex."""
        return content if self.visible else content.encode().hex()

    def account(self, body: Mapping[str, object], name: str = "address") -> Account | None:
        """Return the account that a request names; None if it does not exist."""
        return self.state.accounts.get(inner(body.get(name), self.visible))

    def locate(self, body: Mapping[str, object]) -> tuple[Block, int] | None:
        """Return the block and the index of the transaction that a request names; None if not found.

        Later blocks are not searched.
        """
        height = self.node.heights.get(str(body.get("value", "")).lower())
        if height is None or height > self.height:
            return None
        block = self.node.blocks[height]
        names = [each.txid for each in block.transactions]
        return block, names.index(str(body["value"]).lower())


def nonempty(**fields: object) -> Json:
    """Return the fields that are not zero or empty, as java-tron writes a message."""
    return {name: value for name, value in fields.items() if value}
