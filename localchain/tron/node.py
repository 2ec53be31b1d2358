"""The chain as a node that clients reach."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from chainfolio.localchain.tron.chain import Chain
from chainfolio.localchain.tron.server import Server


@dataclass
class TronNode(Chain):
    """A Tron chain on a free loopback port."""

    def __enter__(self) -> Self:
        self._server = Server(self)
        self.begin()
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self.machine.stop()

    @property
    def url(self) -> str:
        """URL of the HTTP API."""
        return self._server.url
