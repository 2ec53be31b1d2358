"""Base class of kinds of chain that are reached at the addresses in `rpc`.

Loaded with every settings file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class NodeKind:
    """A kind of chain with one endpoint per address in `rpc`, for `chainfolio.kinds.ChainKind`."""

    __slots__ = ()

    def identities(self, settings: Any) -> Sequence[tuple[str, str]]:
        """Return the name and the identity of each endpoint."""
        from chainfolio.transport.http_endpoint import identity, name_of

        return [(name_of(url), identity(url)) for url in settings.rpc]
