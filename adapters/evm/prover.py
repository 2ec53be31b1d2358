"""What an account held at a block, shown by proofs under the block's own hash: the endpoint only carries the paper.

Four questions at most: the header; which storage keys `balanceOf` reads (or, where the node does not say, which of the
usual places hold the number); the proofs; and of tokens whose balance is no word, the share that it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from adapters.evm import scan
from adapters.evm.call import encode
from adapters.evm.hexadecimal import data, quantity
from adapters.evm.node import Node, hex_of
from adapters.evm.proof import AccountState, account_at, word_at
from adapters.evm.reads import Call, balance_of
from adapters.evm.roots import header_hash
from adapters.evm.slots import FIRST_SLOTS, MAX_SLOTS, Slot, reading, slots
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError, Unsupported
from chainfolio.proofs import Finding, Findings
from transport.endpoint import Answer
from transport.wire import Request, typed

# Keys that a proxy reads before anything of the token: EIP-1967 implementation and beacon, and ZeppelinOS' before it.
PROXY: Final = frozenset((
    0x360894A13BA1A3210667C828492DB98DCA3E2076CC3735A920A3CA505D382BBC,
    0xA3F0AD74E5423AEBFD80D3EF4346578335A9A72AEAEE59FF6CB3582B35133D50,
    0x7050C9E0F4CA769C69BD3A8EF740BC37934F8E2C036E5A723FD8EE048ED3F8C3,
))  # fmt: skip
SHARES: Final = ("scaledBalanceOf(address)(uint256)", "sharesOf(address)(uint256)")
LIKELY: Final = 26  # places where most tokens keep balances; the others are read where these do not hold it
MAX_KEYS: Final = 8  # of a token that are proven: more that follow from one account are no balance


class _Word(msgspec.Struct):
    """One key of `eth_getProof`."""

    key: str
    proof: list[str]


class _Proof(msgspec.Struct):
    """`eth_getProof`; what it says beside the proofs is not read."""

    accountProof: list[str]
    storageProof: list[_Word]


class _Access(msgspec.Struct):
    address: str
    storageKeys: list[str]


class _AccessList(msgspec.Struct):
    accessList: list[_Access]
    error: str | None = None


@dataclass(slots=True)
class _Token:
    """One token on its way to a proof. `named`: the node said which keys the call reads; `sole`: it reads but one, so
    that its result follows from that word; `elsewhere`: another contract that keeps balances for it."""

    asset: Asset
    raw: int
    keys: list[Slot] = field(default_factory=list)
    sole: bool = False
    named: bool = False
    elsewhere: str = ""
    words: list[tuple[Slot, int]] = field(default_factory=list)

    @property
    def contract(self) -> str:
        return self.asset.reference


async def prove(node: Node, block: Block, account: str, balances: Mapping[Asset, int | None]) -> Findings:
    """What proofs say of balances that were read of an account at a block; `node` has one endpoint.

    Raises Unsupported where it gives no proofs, HistoryUnavailable where it gives none of that block, BadAnswer where
    its header is not the block's.
    """
    root, header = await _root(node, block)
    if root is None:
        return Findings(header, dict.fromkeys(balances, header))
    wanted = [_Token(asset, raw or 0) for asset, raw in balances.items() if not asset.is_native]
    await _locate(node, block, account, wanted)
    asked = [Request("eth_getProof", (account, [], _at(block)))]
    asked += [
        Request("eth_getProof", (token.contract, [slot.hex for slot in token.keys], _at(block)))
        for token in wanted
        if token.keys
    ]
    first, *others = await _asked(node, block, asked)
    if isinstance(first, SourceError):
        raise first
    source = node.endpoints[0].name
    found = {asset: _native(source, root, account, raw, first) for asset, raw in balances.items() if asset.is_native}
    for token in wanted:
        found[token.asset] = _token(source, root, token, others.pop(0) if token.keys else None)
    await _explain(node, block, account, wanted, found)
    return Findings(header, found)


def _at(block: Block) -> dict[str, str]:
    return {"blockHash": block.hash}


async def _asked(node: Node, block: Block, queries: Sequence[Request]) -> list[Answer]:
    """Answers or refusals, in order. Where a node takes no block's hash, by number: the proof shows the rest."""
    answers = await node.with_any(lambda endpoint: endpoint.ask(queries, height=block.height))
    again = [k for k, answer in enumerate(answers) if isinstance(answer, Unsupported)]
    if again:
        by_number = [
            Request(queries[k].method, tuple(hex_of(block.height) if p == _at(block) else p for p in queries[k].params))
            for k in again
        ]
        more = await node.with_any(lambda endpoint: endpoint.ask(by_number, height=block.height))
        for k, answer in zip(again, more, strict=True):
            answers[k] = answer
    return answers


async def _root(node: Node, block: Block) -> tuple[bytes | None, Finding]:
    """The state root of a block, from a header whose fields hash to the block's hash; None where they cannot be."""
    source, heights = node.endpoints[0].name, [block.height, max(0, block.height - 1)]
    answers = await _asked(node, block, [Request("eth_getBlockByNumber", (hex_of(h), False)) for h in heights])
    header, parent = (_header(source, block, answer) for answer in answers)
    if str(header.get("hash")).lower() != block.hash:
        raise Reorged(source, block.height, block.hash)
    if _is_hashed(source, header):
        root = data(source, str(header["stateRoot"]))
        return root, Finding("proven", "the header's fields hash to the block's hash")
    if not _is_hashed(source, parent):
        why = "the hashes of this chain's blocks are not those of the header fields that the node gives"
        return None, Finding("unprovable", why)
    raise BadAnswer(source, f"the header of block {block.height} does not hash to {block.hash}: a field is not true")


def _header(source: str, block: Block, answer: Answer) -> Mapping[str, Any]:
    if isinstance(answer, SourceError):
        raise answer
    if answer == b"null":
        raise NodeBehind(source, f"does not have block {block.height}")
    return typed(source, answer, dict[str, Any])


def _is_hashed(source: str, header: Mapping[str, Any]) -> bool:
    try:
        return f"0x{header_hash(source, header).hex()}" == str(header.get("hash")).lower()
    except BadAnswer:
        return False


async def _locate(node: Node, block: Block, account: str, tokens: Sequence[_Token]) -> None:
    """Which keys may hold each balance. This only says where to look: nothing counts before it is proven."""
    source = node.endpoints[0].name
    queries = [
        Request("eth_createAccessList", ({"to": token.contract, "data": _call(account)}, _at(block)))
        for token in tokens
    ]
    for token, answer in zip(tokens, await _asked(node, block, queries) if queries else [], strict=True):
        if isinstance(answer, bytes):
            with suppress(BadAnswer):  # it is a hint, and there are other ways
                _named(source, token, account, typed(source, answer, _AccessList))
    for first, last in (0, LIKELY), (LIKELY, None):
        left = [token for token in tokens if not token.named and not token.keys and token.raw]
        await _look(node, block, left, slots(account, FIRST_SLOTS)[first:last])


async def _look(node: Node, block: Block, tokens: Sequence[_Token], places: Sequence[Slot]) -> None:
    """Which of some places hold the balance of each token: for nodes that do not say what a call reads."""
    reads = [Request("eth_getStorageAt", (token.contract, slot.hex, _at(block))) for token in tokens for slot in places]
    words = iter(await _asked(node, block, reads) if reads else [])
    for token in tokens:
        found = [(slot, _word(node, next(words))) for slot in places]
        token.keys = [slot for slot, word in found if reading(word, token.raw) is not None][:MAX_KEYS]


def _call(account: str) -> str:
    call = balance_of("", account)
    return "0x" + encode(call.signature, call.args).hex()


def _word(node: Node, answer: Answer) -> int:
    """A word of storage, zero where it could not be read: this one is only a hint."""
    source = node.endpoints[0].name
    try:
        return 0 if isinstance(answer, SourceError) else int.from_bytes(data(source, typed(source, answer, str)), "big")
    except BadAnswer:
        return 0


def _named(source: str, token: _Token, account: str, found: _AccessList) -> None:
    """What an access list says of a token: its own keys that follow from the account, and whether it reads more."""
    if found.error:
        return
    rules = {slot.key: slot for slot in slots(account, MAX_SLOTS)}
    own, others = set(), {}
    for access in found.accessList:
        keys = {_key(source, key) for key in access.storageKeys} - PROXY
        if access.address.lower() == token.contract:
            own |= keys
        elif keys:
            others[access.address.lower()] = keys
    token.named = True
    token.keys = [rules[key] for key in sorted(own) if key in rules][:MAX_KEYS]
    token.sole = len(token.keys) == len(own) == 1 and not others
    token.elsewhere = next((where for where, keys in others.items() if keys & rules.keys()), "")


def _native(source: str, root: bytes, account: str, read: int | None, answer: Answer) -> Finding:
    assert isinstance(answer, bytes)
    try:
        held = _state(source, root, account, typed(source, answer, _Proof)).balance
    except BadAnswer as error:
        return Finding("broken", error.message)
    if read is None:
        return Finding("unprovable", "no balance was read that could be compared with the proven one", held)
    if held != read:
        return Finding("contradicted", f"the state root proves {held}", held)
    return Finding("proven", "account proof", held)


def _state(source: str, root: bytes, account: str, proof: _Proof) -> AccountState:
    return account_at(source, root, account, [data(source, node) for node in proof.accountProof])


def _token(source: str, root: bytes, token: _Token, answer: Answer | None) -> Finding:
    """The finding of one token from the proofs of its keys."""
    if answer is None:
        return Finding("unprovable", _why_no_key(token))
    if isinstance(answer, SourceError):
        return Finding("unprovable", f"no proof was given: {answer.message}")
    try:
        proof = typed(source, answer, _Proof)
        storage = _state(source, root, token.contract, proof).storage_root
        token.words = [(slot, _proven_word(source, storage, slot, proof)) for slot in token.keys]
    except BadAnswer as error:
        return Finding("broken", error.message)
    return _judged(token)


def _proven_word(source: str, root: bytes, slot: Slot, proof: _Proof) -> int:
    nodes = [word.proof for word in proof.storageProof if _key(source, word.key) == slot.key]
    if not nodes:
        raise BadAnswer(source, f"no proof of storage key {slot.hex}")
    return word_at(source, root, bytes.fromhex(slot.hex[2:]), [data(source, node) for node in nodes[0]])


def _key(source: str, written: str) -> int:
    """A storage key, which nodes write as a quantity or as 32 bytes."""
    return quantity(source, "0x" + (written.removeprefix("0x").lstrip("0") or "0"))


def _judged(token: _Token) -> Finding:
    for slot, word in token.words:
        bits = reading(word, token.raw)
        if bits is not None and token.raw:
            return Finding("proven", f"{slot.rule}{f', {bits}' if bits else ''}", token.raw)
    slot, word = token.words[0]
    if token.sole and word and not _may_hold(word, token.raw):
        return Finding(
            "contradicted", f"balanceOf reads {slot.rule} and nothing else, and that is proven to be {word}", word
        )
    if not token.raw:
        return Finding("unprovable", "zero is what any empty place holds")
    held = ", ".join(f"{slot.rule} holds {word}" for slot, word in token.words)
    return Finding("unprovable", f"the balance is not a word of storage: {held}")


def _may_hold(word: int, raw: int) -> bool:
    """Whether a word holds a number in some of its bytes, and so may be packed in a way unknown here; zero only in its
    low ones, for all words have some bytes that are zero."""
    if not raw:
        return reading(word, raw) is not None
    size = max(1, (raw.bit_length() + 7) // 8)
    return any((word >> 8 * at) & ((1 << 8 * size) - 1) == raw for at in range(33 - size))


def _why_no_key(token: _Token) -> str:
    if token.elsewhere:
        return f"its balances lie in the storage of another contract, {token.elsewhere}"
    if not token.raw:
        return "zero is what any empty place holds"
    if token.named:
        return "none of the keys that balanceOf reads follows from the account by a rule known here"
    return f"none of the {len(slots('0x' + '0' * 40, FIRST_SLOTS))} usual places holds it"


async def _explain(
    node: Node, block: Block, account: str, tokens: Sequence[_Token], found: dict[Asset, Finding]
) -> None:
    """Tokens whose balance is made from a share: the share is what is proven, also where the two are equal."""
    open_ = [token for token in tokens if any(word for _, word in token.words) and not token.sole]
    queries = [Call(token.contract, share, (account,)) for token in open_ for share in SHARES]
    answers = iter(await scan.answer(node, queries, block) if queries else [])
    for token in open_:
        for share, held in zip(SHARES, (next(answers), next(answers)), strict=True):
            rules = [slot.rule for slot, word in token.words if _is_share(word, held)]
            if rules:
                what = f"{share.partition('(')[0]} of {held} is proven ({rules[0]}), the balance is that times an index"
                found[token.asset] = Finding("unprovable", f"rebasing: {what}")


def _is_share(word: int, held: object) -> bool:
    return isinstance(held, int) and held > 0 and reading(word, held) is not None
