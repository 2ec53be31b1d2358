"""The settings of a Starknet chain."""

from __future__ import annotations

from chainfolio.transport.settings import EndpointSettings


class StarknetSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """A Starknet chain: its endpoints. Its properties are in its facts (`configs/chains`)."""
