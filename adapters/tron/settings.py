"""The settings of a Tron chain."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from chainfolio.chain_settings import doc
from chainfolio.errors import BadSettings
from chainfolio.transport.settings import EndpointSettings

SIGNATURES: Final = ("off", "sample", "all")


class TronSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """Settings of a Tron chain. An endpoint is the URL below which `/wallet` and `/jsonrpc` are."""

    SECRETS: ClassVar[tuple[str, ...]] = (*EndpointSettings.SECRETS, "api_key")

    api_key: Annotated[
        str, doc("key for TronGrid, best as `env:NAME`; sent to hosts of trongrid.io alone, as `TRON-PRO-API-KEY`")
    ] = ""
    signatures: Annotated[
        str,
        doc(
            'transactions whose signers are recovered and compared with their owners: `"off"` none, `"sample"` 1 % at'
            ' random and all that touch watched accounts, `"all"`'
        ),
    ] = "sample"
    trongrid: Annotated[
        bool, doc("whether the endpoints serve TronGrid's `/v1`, by which the histories of accounts are found")
    ] = False

    def check(self, section: str) -> None:
        """Check all values.

        Raises:
            BadSettings: A value is out of range.
        """
        EndpointSettings.check(self, section)
        if self.signatures not in SIGNATURES:
            raise BadSettings(f"{section}.signatures", f"`{self.signatures}` is none of {', '.join(SIGNATURES)}")
