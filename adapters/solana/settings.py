"""The settings of a Solana chain."""

from __future__ import annotations

from typing import Annotated

from chainfolio.chain_settings import doc
from chainfolio.errors import BadSettings
from transport.settings import EndpointSettings

MOST_EPOCHS = 100  # more than half a year
COMMITMENTS = ("finalized", "confirmed")


class SolanaSettings(EndpointSettings, forbid_unknown_fields=True, frozen=True):
    """A Solana chain: its endpoints, and how sure its newest slot has to be. What the chain is like is in its facts
    (`configs/chains`)."""

    commitment: Annotated[str, doc('what the newest slot is: `"finalized"`, or `"confirmed"`, which may still go')] = (
        "finalized"
    )
    stake_accounts: Annotated[bool, doc("look for stake accounts, which some endpoints refuse")] = True
    reward_epochs: Annotated[int, doc("epochs of which rewards of stake accounts are read; 0: none")] = 5

    def check(self, section: str) -> None:
        """Whether every value can be meant; BadSettings names the first that cannot."""
        EndpointSettings.check(self, section)
        if self.commitment not in COMMITMENTS:
            raise BadSettings(
                f"{section}.commitment", f"`{self.commitment}` is none of {', '.join(COMMITMENTS)}",
                remedy="what is only processed is on no branch yet: blocks of it cannot be read",
            )  # fmt: skip
        if not 0 <= self.reward_epochs <= MOST_EPOCHS:
            raise BadSettings(
                f"{section}.reward_epochs", f"{self.reward_epochs} is not between 0 and {MOST_EPOCHS}",
                remedy="an epoch is about two days; 0 reads none",
            )  # fmt: skip
