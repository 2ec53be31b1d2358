"""The scanner contract, which makes many reads in one call: its code, its calls, and its answers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from chainfolio.adapters.evm.call import decode, encode, signature
from chainfolio.adapters.evm.hexadecimal import data
from chainfolio.adapters.evm.reads import AbiValue, Call, NativeBalance, Read
from chainfolio.adapters.evm.refusals import CallReverted
from chainfolio.adapters.evm.shared import StateEndpoint
from chainfolio.adapters.evm.untrusted import MAX_CALL_READS, READ_GAS, call_gas
from chainfolio.errors import (
    BadAnswer,
    SourceError,
    UnsupportedMethod,
)
from chainfolio.plans import Reverted, Unknown
from chainfolio.transport.endpoint import Answer
from chainfolio.transport.wire import typed

SENDER = "0x00000000000000000000000000000000c4a1f011"
SCANNER_AT = "0xae4850ac7168b3bf0474b3d6352217c747aeec3c"  # where the creation code, sent by SENDER, puts the scanner
SCANNER = (
    "0x60003561ffff7a0100000000000000000000000000000000000000000000000000007c0100000000000000000000000000000000000000"
    "00000000000000000083049204169060069161200061ea6060208404840101915b8436861015610229578560027e01000000000000000000"
    "0000000000000000000000000000000000000000008198350491019161ffff8214908115610217575b507e01000000000000000000000000"
    "00000000000000000000000000000000000083350497889301975b6100cd57505050610057565b9091939496875a1061020c5760146c0100"
    "0000000000000000000000823504910195826001146101d957906004915a8960008088818785fa913d948386156101b8575b90501561019f"
    "575b505062ffffff8311610194575b7f0100000000000000000000000000000000000000000000000000000000000000027c010000000000"
    "0000000000000000000000000000000000000000000000830217815285821161018c575b8160008483013e0101935b949694600019019190"
    "826100c1565b859150610172565b62ffffff9250610125565b5a900310156101b0575b8938610118565b5060036101a9565b6101c3575b83"
    "610110565b3b156101d0575b386101bd565b600292506101ca565b6024917f01000020000000000000000000000000000000000000000000"
    "000000000000008252316004820152019361017d565b611fff198601612000f35b8290818a939560003701019138610097565b611fff1983"
    "01612000f3"
)
CREATION_CODE = (
    "0x6000806102428061003b83398180f08161027d91823803809383395afa503d806000803e60dc81025a1061600082111760365760"
    "00f35b6000fdfe6102348061000e6000396000f3fe"
) + SCANNER[2:]
BlockParameter = str | dict[str, str | bool]  # a height, or a hash and if it has to be canonical
CallParameters = tuple[dict[str, str], *tuple[dict[str, dict[str, str]], ...]]  # the call, then a state override
OVERRIDE, CREATION, SINGLES = 0, 1, 2
MAX_READS, CREATION_READS = 4000, 600
CREATION_BYTES = 45_000  # of call data: creation code of more than 49,152 bytes is refused (EIP-3860)
GAS, MORE_GAS = 1_000_000, 15_000_000
KEEP_BYTES = 512
CALL_TEXT = len(CREATION_CODE) + 1_000  # size of a scanner call without its reads
MAX_CALL_DATA = 0xFFFE  # bytes: the scanner's calls have two bytes for the size, and 0xFFFF means a native balance
MAX_REASON = 300
TARGET = re.compile(r"0x[0-9a-fA-F]{40}\Z")
CALL_GAS, BYTE_GAS = 21_000, 16  # gas of a transaction before its call begins, and for each byte of call data


@dataclass(slots=True)
class PendingRead:
    """One pending read: its call data, its limits, and its result.

    `keep`: bytes of the answer that are returned. `max_reads`: how many reads may share its call.
    """

    query: Read
    gas: int = GAS
    keep: int = KEEP_BYTES
    max_reads: int = MAX_READS  # how many reads may share its call
    result: AbiValue = None
    data: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        """Encode the call (none for a native balance), and limit the gas and reads of untrusted ones.

        A read that cannot be encoded has its result at once: Unknown.
        """
        try:
            self.data = call_data(self.query)
        except Exception as error:  # decoders are third-party code, and pass on numbers of contracts
            self.data, self.result = None, not_encodable(error)
        if self.untrusted:
            self.gas, self.max_reads = READ_GAS, MAX_CALL_READS
        elif self.alone:
            self.gas = MORE_GAS

    @property
    def untrusted(self) -> bool:
        """True if the read concerns an untrusted contract."""
        return isinstance(self.query, Call) and self.query.untrusted

    @property
    def alone(self) -> bool:
        """True if the read has a request to itself."""
        return isinstance(self.query, Call) and self.query.alone

    @property
    def to(self) -> str:
        """The contract that is called, or the account whose balance is read."""
        return self.query.account if isinstance(self.query, NativeBalance) else self.query.to


def call_data(query: Read) -> bytes | None:
    """Return the call data of a read; None for a native balance.

    Raises:
        ValueError: The contract or account is no address, or the scanner cannot take so much call data.
        Exception: As `encode`.
    """
    if isinstance(query, NativeBalance):
        target, content = query.account, None
    else:
        target, content = query.to, encode(query.signature, query.args)
    if not TARGET.match(target):
        raise ValueError(f"{target!r:.100} is no address")
    if content is not None and len(content) > MAX_CALL_DATA:
        raise ValueError(f"{len(content):,} bytes of call data are more than {MAX_CALL_DATA:,}")
    return content


def not_encodable(error: Exception) -> Unknown:
    """Return the result of a read that cannot be encoded.

    A number out of range (cause `argument`) comes from contracts. Anything else is a fault of the decoder.
    """
    from eth_abi.exceptions import ValueOutOfBounds  # takes a quarter of a second, and is loaded for errors only

    cause: Literal["read", "argument"] = "argument" if isinstance(error, ValueOutOfBounds) else "read"
    return Unknown(f"the read cannot be encoded: {type(error).__name__}: {error}"[:MAX_REASON], cause)


@dataclass(slots=True)
class ScannerEntry:
    """One entry of the scanner's answer: status, size of the return data, and the returned part of it."""

    status: int
    size: int
    data: bytes = field(repr=False)


def scanner_call(route: int, part: list[PendingRead]) -> CallParameters:
    """Return the parameters of the call that runs the scanner, with the override that it needs."""
    packed = _pack(part).hex()
    gas = {"gas": hex(call_gas(len(part)))} if part[0].untrusted else {}
    if route == CREATION:
        return ({"from": SENDER, "data": CREATION_CODE + packed, **gas},)
    return {"from": SENDER, "to": SCANNER_AT, "data": "0x" + packed, **gas}, {SCANNER_AT: {"code": SCANNER}}


def scanner_entries(source: str, reply: Answer, part: list[PendingRead], route: int) -> list[ScannerEntry]:
    """Return the entries of the scanner's answer, which are fewer than the reads if its gas ran low.

    Raises:
        UnsupportedMethod: The scanner cannot have run.
        BadAnswer: Other code answered by state override.
        SourceError: The reply is another error.
    """
    if isinstance(reply, CallReverted) and route == CREATION and reply.data:
        try:
            return _unpack(source, reply.data, part)
        except BadAnswer as error:
            raise UnsupportedMethod(source, f"does not run creation code: {reply.reason}") from error
    if isinstance(reply, CallReverted) or type(reply) is BadAnswer:
        raise UnsupportedMethod(source, f"cannot run the scanner: {reply.reason}")
    if isinstance(reply, SourceError):
        raise reply
    return _unpack(source, data(source, typed(source, reply, str)), part)


def group_reads(reads: list[PendingRead], max_count: int, max_bytes: int) -> list[list[PendingRead]]:
    """Group neighbouring reads with equal limits: at most `max_count` together, and `max_bytes` packed.

    The order stays. A read that is larger than `max_bytes` is a group alone.
    """
    parts: list[list[PendingRead]] = []
    limits, free_bytes = None, 0
    for read in reads:
        full_size = len(read.data or b"") + 24
        packed = 20 if parts and read.data == parts[-1][-1].data else full_size
        read_limits = (read.untrusted, read.gas, read.keep, read.max_reads)
        if parts and limits == read_limits and len(parts[-1]) < min(max_count, read.max_reads) and packed <= free_bytes:
            parts[-1].append(read)
            free_bytes -= packed
        else:
            parts.append([read])
            limits, free_bytes = read_limits, max_bytes - full_size
    return parts


def _pack(reads: list[PendingRead]) -> bytes:
    """Return the scanner's call data: reads with equal data in one group."""
    chunks = [reads[0].gas.to_bytes(4, "big") + min(reads[0].keep, 0xFFFF).to_bytes(2, "big")]
    start = 0
    while start < len(reads):
        call_data = reads[start].data
        end = start
        while end < len(reads) and end - start < 0xFFFF and reads[end].data == call_data:
            end += 1
        head = b"\xff\xff" if call_data is None else len(call_data).to_bytes(2, "big") + call_data
        targets = b"".join(bytes.fromhex(read.to[2:]) for read in reads[start:end])
        chunks.append(head + (end - start).to_bytes(2, "big") + targets)
        start = end
    return b"".join(chunks)


def _unpack(source: str, content: bytes, part: list[PendingRead]) -> list[ScannerEntry]:
    """Parse the scanner's answer; it has fewer entries than reads if its gas ran low.

    Raises:
        BadAnswer: Something else answered.
    """
    entries: list[ScannerEntry] = []
    offset, keep = 0, min(part[0].keep, 0xFFFF)
    while offset < len(content):
        status, size = content[offset], int.from_bytes(content[offset + 1 : offset + 4], "big")
        returned_size = min(size, keep)
        if status > 3 or offset + 4 + returned_size > len(content) or len(entries) == len(part):
            raise BadAnswer(source, "the scanner's answer is not one: something else runs at its address")
        entries.append(ScannerEntry(status, size, content[offset + 4 : offset + 4 + returned_size]))
        offset += 4 + returned_size
    return entries


def store_results(reads: list[PendingRead], entries: list[ScannerEntry]) -> None:
    """Set the result of each read, or raise its limits for another try; split reads that lacked gas.

    Reads that are tried again keep no result. Entries may be fewer than reads: the scanner's gas ran low.
    """
    for read, entry in zip(reads, entries, strict=False):
        if entry.status == 3 and read.gas < MORE_GAS:
            read.gas = MORE_GAS
        elif entry.size > read.keep and entry.status == 1 and not is_raw(read.query) and read.keep < 0xFFFF:
            read.keep = 0xFFFF
        else:
            read.result = value_of(read.query, entry)
    split_reads(reads[len(entries) :], 2)


def split_reads(reads: list[PendingRead], calls: int) -> None:
    """Spread reads over `calls` calls the next time, so that none waits behind those that use up the gas."""
    for read in reads:
        read.max_reads = -(-len(reads) // calls)


def is_raw(query: Read) -> bool:
    """Return True if the result is the returned bytes, undecoded and perhaps none."""
    return isinstance(query, Call) and signature(query.signature).is_raw


def value_of(query: Read, entry: ScannerEntry) -> AbiValue:
    """Return the decoded result of a read; `Reverted`, or `Unknown` without code or without a full answer.

    Args:
        entry: Status 0 reverted, 1 returned, 2 no contract, 3 out of gas.
    """
    if isinstance(query, NativeBalance):
        is_balance = entry.status == 1 and len(entry.data) == 32
        return int.from_bytes(entry.data, "big") if is_balance else Unknown("the node gave no balance")
    if entry.status == 0:
        return Reverted(entry.data)
    if entry.status == 2:
        return Unknown("there is no contract at that address at this block", cause="absent")
    if entry.status == 3:
        return out_of_gas()
    if entry.size > len(entry.data) and not is_raw(query):
        return Unknown(f"returned {entry.size} bytes, more than is read", cause="contract")
    return decode(query, entry.data)


def out_of_gas() -> Unknown:
    """Return the result of a read that used up all gas that it may have."""
    return Unknown(f"used up {MORE_GAS:,} gas without an answer", cause="contract")


def shrink(endpoint: StateEndpoint, reads: list[PendingRead]) -> None:
    """Reduce a call that the node could not begin: fewer reads (remembered), then less gas, then give up."""
    if len(reads) > 1:
        endpoint.learn("max_reads", max(1, len(reads) // 2))
    elif reads[0].gas > 50_000:
        reads[0].gas //= 4
    else:
        give_up(reads)


def give_up(reads: list[PendingRead]) -> None:
    """Set the results of reads that no call of the node has enough gas for."""
    for read in reads:
        read.result = Unknown("the node's gas allowance is too small for this read")
