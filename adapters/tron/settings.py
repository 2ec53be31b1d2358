"""The settings of a Tron chain."""

from __future__ import annotations

from typing import Annotated, ClassVar

from chainfolio.chain_settings import doc
from transport.settings import EndpointSettings


class TronSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """A Tron chain: its endpoints, each the address below which `/wallet` and `/jsonrpc` lie. What the chain is like is
    in its facts (`configs/chains`)."""

    SECRETS: ClassVar[tuple[str, ...]] = (*EndpointSettings.SECRETS, "api_key")

    api_key: Annotated[
        str, doc("key for TronGrid, best as `env:NAME`; sent to hosts of trongrid.io alone, as `TRON-PRO-API-KEY`")
    ] = ""
    trongrid: Annotated[
        bool, doc("whether the endpoints serve TronGrid's `/v1`, by which the histories of accounts are found")
    ] = False
