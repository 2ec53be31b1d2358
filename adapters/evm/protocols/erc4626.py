"""ERC-4626 vaults: a share is worth what the vault says it would give for it."""

from __future__ import annotations

from chainfolio.calls import Call
from chainfolio.protocols import Decoding, Family, Maybe, Met, Part, Token

KIND = "VAULT"


def unwrap(met: Met, raw: int) -> Decoding:
    """The asset that redeeming so many shares gives now, fees taken off where the vault takes any.

    A vault whose redemption goes through a queue refuses to preview it; what its shares stand for is then its answer.
    """
    vault = met.contract
    asset, whole, paid = yield [
        Call(vault, "asset()(address)"),
        Call(vault, "convertToAssets(uint256)(uint256)", (raw,)),
        Maybe(Call(vault, "previewRedeem(uint256)(uint256)", (raw,))),
    ]
    return (Part(asset, whole if paid is None else paid),)


FAMILY = Family(
    "erc4626",
    rules=(Token(role="vault"), Token(question="asset()(address)", deposited=True)),
    unwrap=unwrap,
    kind=KIND,
)
