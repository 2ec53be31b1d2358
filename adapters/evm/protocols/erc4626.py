"""ERC-4626 vaults: a share is worth what the vault says it would give for it."""

from __future__ import annotations

from chainfolio.asking import Reverted, Unknown
from chainfolio.calls import Call, Reads
from chainfolio.protocols import Family, Met, Part, Token, known

KIND = "VAULT"


def unwrap(met: Met, raw: int) -> Reads:
    """The asset that redeeming so many shares gives now, fees taken off where the vault takes any.

    A vault whose redemption goes through a queue refuses to preview it; what its shares stand for is then its answer.
    """
    vault = met.contract
    asset, whole, paid = yield [
        Call(vault, "asset()(address)"),
        Call(vault, "convertToAssets(uint256)(uint256)", (raw,)),
        Call(vault, "previewRedeem(uint256)(uint256)", (raw,)),
    ]
    worth = known(whole) if isinstance(paid, Reverted | Unknown) else paid
    return (Part(known(asset), worth),)


FAMILY = Family(
    "erc4626",
    rules=(Token(role="vault"), Token(question="asset()(address)", deposited=True)),
    unwrap=unwrap,
    kind=KIND,
)
