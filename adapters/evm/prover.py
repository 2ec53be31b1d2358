"""Prove balances at a block by proofs under the block's own hash; the endpoint is not trusted.

It takes four rounds at most: the header; the storage keys that `balanceOf` reads (or, if the node does not say, those
of the usual keys that hold the number); the proofs; and, for tokens whose balance is no storage word, the share from
which it is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from chainfolio.adapters.evm import scan
from chainfolio.adapters.evm.call import encode
from chainfolio.adapters.evm.hexadecimal import data, quantity
from chainfolio.adapters.evm.node import Node, hex_of
from chainfolio.adapters.evm.proof import AccountState, account_at, word_at
from chainfolio.adapters.evm.reads import Call, balance_of
from chainfolio.adapters.evm.roots import JsonObject, header_hash, header_rlp
from chainfolio.adapters.evm.slots import FIRST_SLOTS, MAX_SLOTS, Slot, matching_bits, slots
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.errors import BadAnswer, NodeBehind, Reorged, SourceError, UnsupportedMethod
from chainfolio.proofs import BalanceProof, BlockProofs, ProofResult
from chainfolio.transport.endpoint import Answer
from chainfolio.transport.wire import Request, typed

# Keys that a proxy reads before the token's own: EIP-1967 implementation and beacon, and ZeppelinOS' before it.
PROXY_KEYS: Final = frozenset(
    (
        0x360894A13BA1A3210667C828492DB98DCA3E2076CC3735A920A3CA505D382BBC,
        0xA3F0AD74E5423AEBFD80D3EF4346578335A9A72AEAEE59FF6CB3582B35133D50,
        0x7050C9E0F4CA769C69BD3A8EF740BC37934F8E2C036E5A723FD8EE048ED3F8C3,
    )
)
SHARE_FUNCTIONS: Final = ("scaledBalanceOf(address)(uint256)", "sharesOf(address)(uint256)")
LIKELY_SLOTS: Final = 26  # slots where most tokens store balances; the rest are read only if these do not hold it
MAX_KEYS: Final = 8  # proven keys of a token: a call that reads more keys of one account is no balance


class _Word(msgspec.Struct):
    """One storage key in the result of `eth_getProof`."""

    key: str
    proof: list[str]


class _Proof(msgspec.Struct):
    """The result of `eth_getProof`; only its proofs are read, not the values that it claims."""

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
    """One token on its way to a proof.

    `has_access_list`: the node named the keys that the call reads. `is_sole`: the call reads one key only, so that its
    result follows from that word. `storage_contract`: another contract that stores the token's balances.
    `proof`: the node's proof, which may be invalid.
    """

    asset: Asset
    raw: int
    keys: list[Slot] = field(default_factory=list)
    is_sole: bool = False
    has_access_list: bool = False
    storage_contract: str = ""
    slot_words: list[tuple[Slot, int]] = field(default_factory=list)
    proof: _Proof | None = None

    @property
    def contract(self) -> str:
        return self.asset.reference


async def prove(node: Node, block: Block, account: str, balances: Mapping[Asset, int | None]) -> BlockProofs:
    """Prove or refute balances that were read of an account at a block; `node` has one endpoint.

    Each balance has a result. All are unprovable if the chain's block hashes are not those of header fields. Tokens
    whose proofs the node refuses are unprovable, too.

    Args:
        balances: Raw balances; None for one that was not read, 0 for one that no endpoint reports.

    Raises:
        UnsupportedMethod: The node gives no proofs.
        HistoryUnavailable: It gives none of that block.
        NodeBehind: It does not have the block.
        Reorged: It has another block at that height.
        BadAnswer: A field of its header is false.
    """
    root, header, encoded_header = await _root(node, block)
    if root is None:
        return BlockProofs(header, dict.fromkeys(balances, header))
    tokens = [_Token(asset, raw or 0) for asset, raw in balances.items() if not asset.is_native]
    await _locate(node, block, account, tokens)
    requests = [Request("eth_getProof", (account, [], _at(block)))]
    requests += [
        Request("eth_getProof", (token.contract, [slot.hex for slot in token.keys], _at(block)))
        for token in tokens
        if token.keys
    ]
    account_answer, *token_answers = await _send(node, block, requests)
    if isinstance(account_answer, SourceError):
        raise account_answer
    source = node.endpoints[0].name
    results = {
        asset: _compare_native(source, root, account, raw, account_answer)
        for asset, raw in balances.items()
        if asset.is_native
    }
    for token in tokens:
        results[token.asset] = _compare_token(source, root, token, token_answers.pop(0) if token.keys else None)
    await _explain(node, block, account, tokens, results)
    nodes = _nodes(source, account, account_answer, tokens, results)
    return BlockProofs(header, results, encoded_header, nodes)


def _at(block: Block) -> dict[str, str]:
    return {"blockHash": block.hash}


async def _send(node: Node, block: Block, queries: Sequence[Request]) -> list[Answer]:
    """Return answers or refusals, in order.

    Requests that are refused as unsupported are sent again with the height instead of the hash: the proofs show if the
    state is the block's.
    """
    answers = await node.with_any(lambda endpoint: endpoint.ask(queries, height=block.height))
    refused_indexes = [k for k, answer in enumerate(answers) if isinstance(answer, UnsupportedMethod)]
    if refused_indexes:
        by_number = [
            Request(queries[k].method, tuple(hex_of(block.height) if p == _at(block) else p for p in queries[k].params))
            for k in refused_indexes
        ]
        answers_by_number = await node.with_any(lambda endpoint: endpoint.ask(by_number, height=block.height))
        for k, answer in zip(refused_indexes, answers_by_number, strict=True):
            answers[k] = answer
    return answers


async def _root(node: Node, block: Block) -> tuple[bytes | None, ProofResult, bytes]:
    """Return the state root of a block whose header hashes to its hash, the result, and the header in RLP.

    The root is None if the chain's blocks are not hashed so, which the parent's header shows. Raises NodeBehind without
    the block, Reorged for another block, BadAnswer for a false field.
    """
    source, heights = node.endpoints[0].name, [block.height, max(0, block.height - 1)]
    answers = await _send(node, block, [Request("eth_getBlockByNumber", (hex_of(h), False)) for h in heights])
    header, parent = (_header(source, block, answer) for answer in answers)
    if str(header.get("hash")).lower() != block.hash:
        raise Reorged(source, block.height, block.hash)
    if _is_hashed(source, header):
        root = data(source, str(header["stateRoot"]))
        result = ProofResult("proven", "the header's fields hash to the block's hash")
        return root, result, header_rlp(source, header)
    if not _is_hashed(source, parent):
        reason = "the hashes of this chain's blocks are not those of the header fields that the node gives"
        return None, ProofResult("unprovable", reason), b""
    raise BadAnswer(source, f"the header of block {block.height} does not hash to {block.hash}: a field is not true")


def _header(source: str, block: Block, answer: Answer) -> JsonObject:
    """Return a header from its answer; raise NodeBehind if it is null."""
    if isinstance(answer, SourceError):
        raise answer
    if answer == b"null":
        raise NodeBehind(source, f"does not have block {block.height}")
    return typed(source, answer, JsonObject)


def _is_hashed(source: str, header: JsonObject) -> bool:
    try:
        return f"0x{header_hash(source, header).hex()}" == str(header.get("hash")).lower()
    except BadAnswer:
        return False


async def _locate(node: Node, block: Block, account: str, tokens: Sequence[_Token]) -> None:
    """Find the keys that may hold each balance, and store them in `tokens`.

    They are only hints, since nothing counts before it is proven. If the node names no keys, those of a balance of 0
    are not searched.
    """
    source = node.endpoints[0].name
    queries = [
        Request("eth_createAccessList", ({"to": token.contract, "data": _call(account)}, _at(block)))
        for token in tokens
    ]
    for token, answer in zip(tokens, await _send(node, block, queries) if queries else [], strict=True):
        if isinstance(answer, bytes):
            with suppress(BadAnswer):  # only a hint: `_find_keys` is the alternative
                _add_keys(source, token, account, typed(source, answer, _AccessList))
    for first, last in (0, LIKELY_SLOTS), (LIKELY_SLOTS, None):
        pending = [token for token in tokens if not token.has_access_list and not token.keys and token.raw]
        await _find_keys(node, block, pending, slots(account, FIRST_SLOTS)[first:last])


async def _find_keys(node: Node, block: Block, tokens: Sequence[_Token], candidates: Sequence[Slot]) -> None:
    """Store in each of `tokens` the first MAX_KEYS keys among `candidates` whose words hold its balance."""
    reads = [
        Request("eth_getStorageAt", (token.contract, slot.hex, _at(block))) for token in tokens for slot in candidates
    ]
    storage_words = iter(await _send(node, block, reads) if reads else [])
    for token in tokens:
        slot_words = [(slot, _storage_word(node, next(storage_words))) for slot in candidates]
        token.keys = [slot for slot, word in slot_words if matching_bits(word, token.raw) is not None][:MAX_KEYS]


def _call(account: str) -> str:
    call = balance_of("", account)
    return "0x" + encode(call.signature, call.args).hex()


def _storage_word(node: Node, answer: Answer) -> int:
    """Return a storage word, zero if it could not be read: it is only a hint."""
    source = node.endpoints[0].name
    try:
        return 0 if isinstance(answer, SourceError) else int.from_bytes(data(source, typed(source, answer, str)), "big")
    except BadAnswer:
        return 0


def _add_keys(source: str, token: _Token, account: str, access_list: _AccessList) -> None:
    """Store in `token` the keys that an access list names and that follow from the account.

    At most MAX_KEYS are stored; nothing if the access list has an error.
    """
    if access_list.error:
        return
    slots_by_key = {slot.key: slot for slot in slots(account, MAX_SLOTS)}
    token_keys, other_keys = set(), {}
    for access in access_list.accessList:
        keys = {_key(source, key) for key in access.storageKeys} - PROXY_KEYS
        if access.address.lower() == token.contract:
            token_keys |= keys
        elif keys:
            other_keys[access.address.lower()] = keys
    token.has_access_list = True
    token.keys = [slots_by_key[key] for key in sorted(token_keys) if key in slots_by_key][:MAX_KEYS]
    token.is_sole = len(token.keys) == len(token_keys) == 1 and not other_keys
    token.storage_contract = next((contract for contract, keys in other_keys.items() if keys & slots_by_key.keys()), "")


def _compare_native(source: str, root: bytes, account: str, read_balance: int | None, answer: Answer) -> ProofResult:
    """Compare the native balance that a proof shows with the one that was read; broken for a bad proof.

    Without a read balance the proven one is unprovable.
    """
    assert isinstance(answer, bytes)
    try:
        balance = _state(source, root, account, typed(source, answer, _Proof)).balance
    except BadAnswer as error:
        return ProofResult("broken", error.message)
    if read_balance is None:
        return ProofResult("unprovable", "no balance was read that could be compared with the proven one", balance)
    if balance != read_balance:
        return ProofResult("contradicted", f"the state root proves {balance}", balance)
    return ProofResult("proven", "account proof", balance)


def _state(source: str, root: bytes, account: str, proof: _Proof) -> AccountState:
    return account_at(source, root, account, [data(source, node) for node in proof.accountProof])


def _compare_token(source: str, root: bytes, token: _Token, answer: Answer | None) -> ProofResult:
    """Compare the storage words that a proof shows with the balance of a token; store them in `token`.

    Unprovable without an answer or with a refusal, broken for a bad proof.
    """
    if answer is None:
        return ProofResult("unprovable", _why_no_key(token))
    if isinstance(answer, SourceError):
        return ProofResult("unprovable", f"no proof was given: {answer.message}")
    try:
        token.proof = proof = typed(source, answer, _Proof)
        storage = _state(source, root, token.contract, proof).storage_root
        token.slot_words = [(slot, _proven_word(source, storage, slot, proof)) for slot in token.keys]
    except BadAnswer as error:
        return ProofResult("broken", error.message)
    return _compare_words(token)


def _nodes(
    source: str, account: str, account_answer: Answer, tokens: Sequence[_Token], results: Mapping[Asset, ProofResult]
) -> dict[Asset, BalanceProof]:
    """Return the nodes that prove each proven balance."""
    proven = {asset for asset, result in results.items() if result.status == "proven"}
    proofs = {
        asset: BalanceProof(account, _bytes(source, typed(source, account_answer, _Proof).accountProof))
        for asset in proven
        if asset.is_native and isinstance(account_answer, bytes)
    }
    for token in tokens:
        if token.asset in proven and token.proof is not None:
            slot = next(slot for slot, word in token.slot_words if matching_bits(word, token.raw) is not None)
            storage = next(word.proof for word in token.proof.storageProof if _key(source, word.key) == slot.key)
            account_nodes = _bytes(source, token.proof.accountProof)
            rule = results[token.asset].reason
            proofs[token.asset] = BalanceProof(token.contract, account_nodes, slot.hex, rule, _bytes(source, storage))
    return proofs


def _bytes(source: str, nodes: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(data(source, node) for node in nodes)


def _proven_word(source: str, root: bytes, slot: Slot, proof: _Proof) -> int:
    """Return the word of a slot under a storage root; raise BadAnswer without a valid proof of it."""
    nodes = [word.proof for word in proof.storageProof if _key(source, word.key) == slot.key]
    if not nodes:
        raise BadAnswer(source, f"no proof of storage key {slot.hex}")
    return word_at(source, root, bytes.fromhex(slot.hex[2:]), [data(source, node) for node in nodes[0]])


def _key(source: str, text: str) -> int:
    """Parse a storage key, which nodes write as a quantity or as 32 bytes."""
    return quantity(source, "0x" + (text.removeprefix("0x").lstrip("0") or "0"))


def _compare_words(token: _Token) -> ProofResult:
    """Return the result for a token from its proven words.

    Proven if a word holds the balance. Contradicted if `balanceOf` reads only one word, which is not zero and cannot
    hold the balance. Else unprovable. A balance of 0 is never proven.
    """
    for slot, word in token.slot_words:
        bits = matching_bits(word, token.raw)
        if bits is not None and token.raw:
            return ProofResult("proven", f"{slot.rule}{f', {bits}' if bits else ''}", token.raw)
    slot, word = token.slot_words[0]
    if token.is_sole and word and not _may_hold(word, token.raw):
        return ProofResult(
            "contradicted", f"balanceOf reads {slot.rule} and nothing else, and that is proven to be {word}", word
        )
    if not token.raw:
        return ProofResult("unprovable", "zero is what any empty place holds")
    contents = ", ".join(f"{slot.rule} holds {word}" for slot, word in token.slot_words)
    return ProofResult("unprovable", f"the balance is not a word of storage: {contents}")


def _may_hold(word: int, raw: int) -> bool:
    """Return True if some bytes of a word hold a number, so that it may be packed in an unknown way.

    Zero counts only in the low bytes, because every word has some zero bytes.
    """
    if not raw:
        return matching_bits(word, raw) is not None
    size = max(1, (raw.bit_length() + 7) // 8)
    return any((word >> 8 * shift) & ((1 << 8 * size) - 1) == raw for shift in range(33 - size))


def _why_no_key(token: _Token) -> str:
    """Return why a token has no key to prove."""
    if token.storage_contract:
        return f"its balances lie in the storage of another contract, {token.storage_contract}"
    if not token.raw:
        return "zero is what any empty place holds"
    if token.has_access_list:
        return "none of the keys that balanceOf reads follows from the account by a rule known here"
    return f"none of the {len(slots('0x' + '0' * 40, FIRST_SLOTS))} usual places holds it"


async def _explain(
    node: Node, block: Block, account: str, tokens: Sequence[_Token], results: dict[Asset, ProofResult]
) -> None:
    """Replace the results of balances that are computed from a share which is proven: they are unprovable.

    The share is also proven if it equals the balance.
    """
    candidates = [token for token in tokens if any(word for _, word in token.slot_words) and not token.is_sole]
    queries = [Call(token.contract, function, (account,)) for token in candidates for function in SHARE_FUNCTIONS]
    answers = iter(await scan.answer(node, queries, block) if queries else [])
    for token in candidates:
        for function, share in zip(SHARE_FUNCTIONS, (next(answers), next(answers)), strict=True):
            rules = [slot.rule for slot, word in token.slot_words if _is_share(word, share)]
            if rules:
                proven = f"{function.partition('(')[0]} of {share} is proven ({rules[0]})"
                reason = f"rebasing: {proven}, the balance is that times an index"
                results[token.asset] = ProofResult("unprovable", reason)


def _is_share(word: int, share: object) -> bool:
    return isinstance(share, int) and share > 0 and matching_bits(word, share) is not None
