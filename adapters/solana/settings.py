"""The settings of a Solana chain."""

from __future__ import annotations

from typing import Annotated

from chainfolio.chain_settings import doc
from chainfolio.errors import BadSettings
from chainfolio.transport.settings import EndpointSettings

MAX_REWARD_EPOCHS = 100  # more than half a year
COMMITMENTS = ("finalized", "confirmed")


class SolanaSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """The endpoints of a Solana chain, and what is read from them. Its facts are in `configs/chains`."""

    commitment: Annotated[str, doc('what the newest slot is: `"finalized"`, or `"confirmed"`, which may still go')] = (
        "finalized"
    )
    stake_accounts: Annotated[bool, doc("look for stake accounts, which some endpoints refuse")] = True
    reward_epochs: Annotated[int, doc("epochs of which rewards of stake accounts are read; 0: none")] = 5

    def check(self, section: str) -> None:
        """Check all values.

        Raises:
            BadSettings: A value is invalid; the error names the first one.
        """
        EndpointSettings.check(self, section)
        if self.commitment not in COMMITMENTS:
            raise BadSettings(
                f"{section}.commitment",
                f"`{self.commitment}` is none of {', '.join(COMMITMENTS)}",
                remedy="what is only processed is on no branch yet: blocks of it cannot be read",
            )
        if not 0 <= self.reward_epochs <= MAX_REWARD_EPOCHS:
            raise BadSettings(
                f"{section}.reward_epochs",
                f"{self.reward_epochs} is not between 0 and {MAX_REWARD_EPOCHS}",
                remedy="an epoch is about two days; 0 reads none",
            )
