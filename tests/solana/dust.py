"""A Solana wallet that strangers send tokens, positions and compressed NFTs to."""

from __future__ import annotations

import base64
import struct
from functools import lru_cache
from typing import Any, Final

import base58
from solders.pubkey import Pubkey

from chainfolio.adapters.solana import das
from chainfolio.adapters.solana.account_reads import AccountRead, derived
from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN, TOKEN_2022
from chainfolio.adapters.solana.parsing import key_bytes
from chainfolio.adapters.solana.positions import Claim, DecoderPlan, Family, require
from chainfolio.adapters.solana.trees import BUBBLEGUM, PROGRAMS, LeafFields, asset_address, first_leaf, keccak
from chainfolio.assets import Asset
from chainfolio.plans import Unknown
from chainfolio.protocols import DecodedPosition, InstalledProtocol, InstalledProtocols, TokenAmount
from tests.chains.dust import DustKind, Mix, Wallet, Work, counts, wallet_of
from tests.solana.bubblegum import OWNER, SECOND, TREE
from tests.solana.ledger import Ledger, mint
from tests.solana.ledger_node import LedgerNode

PROGRAM: Final = "whirLbMiicVdio4qvUfM5KAg6Ct8VwpYzGff3uctyCc"
DEPTH: Final = 9
LEAVES: Final = 2**DEPTH
BEHAVIOURS: Final = (
    "token",
    "collectible",
    "unreadable position",
    "confidential",
    "no layout",
    "unknown layout",
    "no mint",
    "compressed",
    "compressed of another",
    "compressed without a tree",
    "no entry",
)


def _position(claim: Claim) -> DecoderPlan:
    """Decode a position of a program that keeps one account for each token of supply one."""
    [tree] = yield [AccountRead(claim.program, "bubblegum_tree", (b"position", key_bytes(claim.subject)))]
    if isinstance(tree, Unknown) and tree.cause == "absent":
        return []
    supplied = (TokenAmount(SYSTEM, require(tree).minted_count),)
    return [DecodedPosition("LIQUIDITYPOOL", supplied, name="Pool", replaces=(claim.subject,))]


FAMILY: Final = Family(name="dust", position=_position)
INSTALLED: Final = InstalledProtocols((InstalledProtocol("dust", FAMILY, {"program": (PROGRAM,)}, {}),))


@lru_cache
def _levels() -> list[list[bytes]]:
    """The levels of a tree whose leaves are all the owner's."""
    data, creators = keccak(b"data"), keccak(b"creators")
    owner = key_bytes(OWNER)
    ids = [key_bytes(asset_address(TREE, index)) for index in range(LEAVES)]
    levels = [[first_leaf(LeafFields(id, owner, owner, index, data, creators)) for index, id in enumerate(ids)]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append([keccak(below[at], below[at + 1]) for at in range(0, len(below), 2)])
    return levels


@lru_cache
def _tree() -> tuple[bytes, bytes]:
    """The account of that tree, and what Bubblegum keeps of it."""
    levels, last = _levels(), LEAVES - 1
    path = b"".join(levels[depth][last >> depth] for depth in range(DEPTH))
    ring = levels[-1][0] + path + struct.pack("<II", last, 0)
    content = struct.pack("<BBII", 1, 0, 64, DEPTH) + key_bytes(derived(BUBBLEGUM, (key_bytes(TREE),))) + bytes(14)
    content += struct.pack("<QQQ", LEAVES, 0, 1) + ring + bytes(63 * len(ring))
    return content, bytes.fromhex("7af5aff8ab2200cf") + bytes(72) + struct.pack("<Q", LEAVES) + bytes(8)


@lru_cache
def _item(index: int, behaviour: str) -> dict[str, Any]:
    """Return a leaf as an index lists it."""
    data, creators = (base58.b58encode(keccak(each)).decode() for each in (b"data", b"creators"))
    tree = SECOND if behaviour == "compressed without a tree" else TREE
    owner = SECOND if behaviour == "compressed of another" else OWNER
    compression = {"compressed": True, "data_hash": data, "creator_hash": creators, "tree": tree, "leaf_id": index}
    content = {"metadata": {"name": "free", "symbol": "X"}}
    return {
        "id": asset_address(tree, index) if behaviour != "no entry" else f"{index:040d}",
        "content": content,
        "compression": compression if behaviour != "no entry" else {"compressed": 7},
        "ownership": {"owner": owner, "delegate": None if owner == OWNER else owner},
    }


def _proof(index: int) -> list[str]:
    return [base58.b58encode(_levels()[depth][(index >> depth) ^ 1]).decode() for depth in range(DEPTH)]


class DustNode(LedgerNode):
    """A node whose wallet has some honest tokens, and what strangers sent it."""

    def __init__(self, behaviours: list[str]) -> None:
        super().__init__(Ledger(), {OWNER: {LISTED: (7_000_000, 6), OWN: (1, 0)}})
        self.moves, self.requests, self.sent = 0, 0, 0
        self.dust = [(key(number), behaviour) for number, behaviour in enumerate(behaviours, 1)]
        indexes = [index for index, (_, behaviour) in enumerate(self.dust) if behaviour in COMPRESSED]
        items = [_item(at % LEAVES, self.dust[index][1]) for at, index in enumerate(indexes)]
        # The leaves of a flood that is larger than the tree are listed once.
        self.items = [each for _, each in sorted({each["id"]: each for each in items}.items())]
        content, config = _tree()
        self.ledger.put(TREE, PROGRAMS[0], content)
        self.ledger.put(derived(BUBBLEGUM, (key_bytes(TREE),)), BUBBLEGUM, config)
        self.ledger.put(derived(PROGRAM, (b"position", key_bytes(OWN))), PROGRAM, config)
        for address, behaviour in [(LISTED, "token"), (OWN, "token"), *self.dust]:
            if behaviour == "no mint":
                self.ledger.put(address, PROGRAM, b"none")
            else:
                self.ledger.put(address, TOKEN, mint(7_000_000, 6 if behaviour == "token" else 0))
            if behaviour == "unreadable position":
                self.ledger.put(derived(PROGRAM, (b"position", key_bytes(address))), PROGRAM, b"none")
        self.answers = {
            **self.answers,
            "getAssetsByOwner": self._page,
            "getAssetProofs": self._proofs,
            "getTokenAccountsByOwner": self._accounts_of,
        }

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> Any:
        """One request, or several at once."""
        self.requests += 1
        posted = await super().post(source, url, body, timeout_s)
        self.sent += len(posted.body)
        return posted

    def _page(self, params: Any) -> Any:
        first = params["limit"] * (params["page"] - 1)
        return {"items": self.items[first : first + params["limit"]], "limit": params["limit"]}

    def _proofs(self, params: Any) -> Any:
        return {
            each["id"]: {"proof": _proof(each["compression"]["leaf_id"])}
            for each in self.items
            if each["id"] in params["ids"] and "leaf_id" in each["compression"]
        }

    def _accounts_of(self, params: Any) -> Any:
        response = self._tokens(params)
        program = params[1]["programId"]
        for address, behaviour in self.dust:
            if behaviour not in COMPRESSED and (program == TOKEN_2022) == (behaviour in EXTENDED):
                response["value"].append(_token_account(address, behaviour, program))
        return response


def _token_account(address: str, behaviour: str, program: str) -> dict[str, Any]:
    """Return a token account of the owner as a node returns it."""
    if behaviour == "unknown layout":
        content = base64.b64encode(key_bytes(address) + key_bytes(OWNER) + bytes(101)).decode()
        return {"pubkey": address, "account": {"data": [content, "base64"], "owner": program, "lamports": 5}}
    raw, decimals = ("900", 6) if behaviour == "token" else ("900" if behaviour == "no mint" else "1", 0)
    amount = {"amount": raw, "decimals": decimals}
    info: dict[str, Any] = {"mint": address, "owner": OWNER, "state": "initialized", "tokenAmount": amount}
    if behaviour == "confidential":
        state = {"availableBalance": "/w==", "pendingBalanceLo": "/w==", "pendingBalanceHi": "/w=="}
        info["extensions"] = [{"extension": "confidentialTransferAccount", "state": state}]
    if behaviour == "no layout":
        info["state"] = 7
    data = {"parsed": {"info": info, "type": "account"}, "program": "spl-token"}
    return {"pubkey": address, "account": {"data": data, "owner": program, "lamports": 5}}


COMPRESSED: Final = {each for each in BEHAVIOURS if each.startswith("compressed") or each == "no entry"}
EXTENDED: Final = {"confidential", "unknown layout"}


@lru_cache(100_000)
def key(number: int) -> str:
    """The address of a stranger's mint, some below and some above the honest ones."""
    return str(Pubkey(bytes([255 * (number % 2)]) + number.to_bytes(31, "big")))


LISTED, OWN = key(2**200), key(2**200 + 2)


def token(address: str) -> Asset:
    """The token of a mint."""
    return Asset("solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "token", address)


async def read(mix: Mix) -> Wallet:
    """Read the wallet: coins, a listed token, a position of the test's program, unsolicited assets."""
    node = DustNode(counts(mix))
    trusted = {"listed": token(LISTED), "own": token(OWN)}
    return await wallet_of(
        node.chain(), OWNER, trusted, [], lambda: Work(node.requests, node.sent), installed=INSTALLED
    )


def allowance(count: int) -> Work:
    """Return the work allowed for reading a wallet with `count` unsolicited assets.

    Pages of compressed NFTs and of their proofs are bounded; accounts are read in batches. `gas` counts the
    bytes of answers, at most 4,000 for each asset.
    """
    pages = -(-count // das.PAGE)
    proofs = -(-min(count, das.MAX_LEAVES) // das.PROOFS)
    return Work(3 + pages + proofs, 100_000 + 4_000 * count, turns=1 + pages)


SOLANA: Final = DustKind(BEHAVIOURS, read, allowance, DustNode)
