"""Messages of nodes without secrets, for operators: common words and small numbers only, in quotes.

A refusal can contain the endpoint's address, a key, a project's name or a mail address. Messages about blocks, limits
and methods use few words; these stay, everything else becomes "…".
"""

from __future__ import annotations

import re
from typing import Final

from chainfolio.messages import quoted

MAX_CHARS: Final = 200
_WORDS: Final = """
    a aborted about above access account accounts after again all allowance allowed already an and another answer
    any api archive are argument arguments as asked at available backend base based batch batches batching be
    because been before behind below beyond block blockhash blocknumber blocks body bound busy but by bytes call
    calls can cannot canonical cap capacity chain change code compute connection consensus consider content contract
    could credits current currently daily data day debug debug_traceblockbyhash debug_traceblockbynumber
    debug_tracetransaction denied deserialize details disabled discarded distance do does doesn't down due each
    either enabled endpoint entry error eth_blocknumber eth_call eth_chainid eth_createaccesslist eth_getbalance
    eth_getblockbyhash eth_getblockbynumber eth_getblockreceipts eth_getcode eth_getlogs eth_getproof
    eth_gettransactionbyhash eth_gettransactionreceipt eth_newfilter ether evm exceed exceeded exceeds execution
    exhausted exist exist/is exists expanded expected extra failed failure fee field finalized find first for found
    free from fromblock full function gas gateway get given greater had has hash have head header headers height
    high hour if in incorrect index indexed insufficient internal intrinsic invalid is isn't it its json jump kind
    large larger last later least less limit limited limits literal log logs long lookup low many map matched max
    maximum mb memory message method methods minimum minute missing mode month more most must name narrow need
    network newest no node non nonce not null number object of off old on one only opcode operation or origin out
    over override overrides own page parameter parameters params parse path payload pending per please point policy
    pool possible price proof provided pruned pruning query range ranges rate reached read reason received reduce
    refused reject rejected request requested requests require requirecanonical required requirements response
    restricted result results retries retry return returned revert reverted rounds route rpc run running same second
    seconds sent server service set should size slow small smaller snapshot some stack state stopped storage string
    such support supported sync syncing tag take temporarily than that the there this throttled tier time timed
    timeout timestamp to toblock token too topic topics trace trace_block tracer transaction transactions trie try
    two type unauthorized unavailable under underflow unexpected unfinalized unit units unknown unmarshal
    unsupported up upgrade use used value version vm wait was whitelisted wide window with within without work wrap
    wrong wrongly you your zero
"""
KNOWN: Final = frozenset(_WORDS.split())
_PARTS: Final = re.compile(r"[^\s,;:()\[\]\"'`]+|[\s,;:()\[\]\"'`]+")
_NUMBER: Final = re.compile(r"-?(?:[0-9]{1,6}|[0-9]{1,3}(?:,[0-9]{3}){1,3}|0x[0-9a-fA-F]{1,8})[kKsS]?\Z")
_HIDDEN: Final = re.compile("…(?:[^\\w…]*…)*")


def redacted(text: str) -> str:
    """Return a node's message on one line, cut and quoted, with only its common words and small numbers."""
    parts = _PARTS.findall(text[: 2 * MAX_CHARS])
    line = "".join(_part(part) for part in parts)[:MAX_CHARS].strip()
    return quoted(_HIDDEN.sub("…", line))


def _part(part: str) -> str:
    """Return a part of a message if it is a known word or a number, else `…`; punctuation stays."""
    core = part.strip(".!?")
    if any(char.isalnum() for char in core):
        return part if core.lower() in KNOWN or _NUMBER.match(core) else "…"
    # Punctuation stays; line breaks and characters that cannot be printed become blanks.
    return "".join(char if char.isascii() and char.isprintable() else " " for char in part)
