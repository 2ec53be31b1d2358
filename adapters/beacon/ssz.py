"""Decode the validators of a whole state in SSZ while it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from chainfolio.adapters.beacon.validator_table import NEVER, NUMBER_COLUMNS, Array, ValidatorTable
from chainfolio.errors import BadAnswer, UnsupportedMethod

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.spec import Spec

FORKS: Final = ("capella", "deneb", "electra", "fulu")
MEDIA_TYPE: Final = "application/octet-stream"
MAX_STATE: Final = 1 << 30  # bytes: three times a network of two million validators
MAX_FIXED: Final = 1 << 26  # bytes of the fixed part
OFFSET: Final = 4  # bytes; numbers are little-endian
VALIDATOR: Final = np.dtype(
    [
        ("pubkey", "V48"),
        ("credentials", "V32"),
        ("effective_balance", "<u8"),
        ("slashed", "u1"),
        ("activation_eligibility_epoch", "<u8"),
        ("activation_epoch", "<u8"),
        ("exit_epoch", "<u8"),
        ("withdrawable_epoch", "<u8"),
    ]
)
BALANCE: Final = np.dtype("<u8")
# The lists of a state, and the bytes of one record; 1 if they vary.
RECORDS: Final = {
    "historical_roots": 32,
    "eth1_data_votes": 72,
    "validators": VALIDATOR.itemsize,
    "balances": BALANCE.itemsize,
    "previous_epoch_participation": 1,
    "current_epoch_participation": 1,
    "inactivity_scores": 8,
    "latest_execution_payload_header": 1,
    "historical_summaries": 64,
    "pending_deposits": 192,
    "pending_partial_withdrawals": 24,
    "pending_consolidations": 16,
}
PER_VALIDATOR_LISTS: Final = (
    "balances",
    "previous_epoch_participation",
    "current_epoch_participation",
    "inactivity_scores",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fixed part of a state.

    Attributes:
        fork: Name of the fork.
        size: Bytes.
        root: Position of the genesis root.
        slot: Position of the slot.
        lists: Position of each list's offset.
    """

    fork: str
    size: int
    root: int
    slot: int
    lists: Mapping[str, int]


def state_layout(spec: Spec, epoch: int) -> Layout | None:
    """Return the layout of states in an epoch.

    None if the fork is not supported in SSZ, or the node does not give the lengths of its preset.

    Raises:
        UnsupportedMethod: The fork is unknown to this version.
    """
    try:
        fork = spec.fork(epoch)
        parts = _parts(spec, fork) if fork in FORKS else {}
    except BadAnswer:
        return None
    positions, size = dict[str, int](), 0
    for name, length in parts.items():
        positions[name] = size
        size += length
    if not 0 < size <= MAX_FIXED:
        return None
    lists = {name: positions[name] for name in parts if name in RECORDS}
    return Layout(fork, size, positions["genesis_validators_root"], positions["slot"], lists)


def _parts(spec: Spec, fork: str) -> dict[str, int]:
    """Return the bytes of each field in the fixed part, in the order of the consensus specification.

    Lists of variable size have OFFSET bytes there. Raises BadAnswer if the node does not give a length.
    """
    roots = 32 * spec.number("SLOTS_PER_HISTORICAL_ROOT")
    committee = 48 * (spec.number("SYNC_COMMITTEE_SIZE") + 1)
    parts = {
        "genesis_time": 8,
        "genesis_validators_root": 32,
        "slot": 8,
        "fork": 16,
        "latest_block_header": 112,
        "block_roots": roots,
        "state_roots": roots,
        "historical_roots": OFFSET,
        "eth1_data": 72,
        "eth1_data_votes": OFFSET,
        "eth1_deposit_index": 8,
        "validators": OFFSET,
        "balances": OFFSET,
        "randao_mixes": 32 * spec.number("EPOCHS_PER_HISTORICAL_VECTOR"),
        "slashings": 8 * spec.number("EPOCHS_PER_SLASHINGS_VECTOR"),
        "previous_epoch_participation": OFFSET,
        "current_epoch_participation": OFFSET,
        "justification_bits": 1,
        "previous_justified_checkpoint": 40,
        "current_justified_checkpoint": 40,
        "finalized_checkpoint": 40,
        "inactivity_scores": OFFSET,
        "current_sync_committee": committee,
        "next_sync_committee": committee,
        "latest_execution_payload_header": OFFSET,
        "next_withdrawal_index": 8,
        "next_withdrawal_validator_index": 8,
        "historical_summaries": OFFSET,
    }
    if FORKS.index(fork) >= FORKS.index("electra"):
        parts |= {
            "deposit_requests_start_index": 8,
            "deposit_balance_to_consume": 8,
            "exit_balance_to_consume": 8,
            "earliest_exit_epoch": 8,
            "consolidation_balance_to_consume": 8,
            "earliest_consolidation_epoch": 8,
            "pending_deposits": OFFSET,
            "pending_partial_withdrawals": OFFSET,
            "pending_consolidations": OFFSET,
        }
    if fork == "fulu":
        parts["proposer_lookahead"] = 8 * (spec.number("MIN_SEED_LOOKAHEAD") + 1) * spec.slots_per_epoch
    return parts


class StateSink:
    """Receives a state as its bytes arrive, and stores its validators: a `Sink` of transport/exchange.py.

    Its methods raise BadAnswer if it is another state or malformed.
    """

    form: str = MEDIA_TYPE
    reads: frozenset[bytes] = frozenset((b"content-type", b"eth-consensus-version"))

    def __init__(self, source: str, layout: Layout, slot: int, genesis_root: str) -> None:
        """Prepare to receive one state.

        Args:
            source: The node, for errors.
            layout: Of states at the slot.
            slot: The expected slot.
            genesis_root: The expected root of the genesis validators, as hex.
        """
        self.has_begun = False
        self._source, self._layout, self._slot = source, layout, slot
        self._root = bytes.fromhex(genesis_root.removeprefix("0x"))
        self._buffer, self._position = bytearray(), 0  # unread bytes, and the position of the first of them
        self._offsets: dict[str, int] = {}
        self._steps: list[tuple[int, int, Callable[[int], None]]] = []  # end position, record size, decoder
        self._columns: dict[str, Array] = {}
        self._decoded_counts = {"validators": 0, "balances": 0}

    def begin(self, headers: Mapping[bytes, str], size: int | None) -> None:
        """Check the headers of the response.

        Raises:
            UnsupportedMethod: The node answers in another form than SSZ.
            BadAnswer: The state is of another fork or too large.
        """
        media_type = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        fork = headers.get(b"eth-consensus-version", "").strip().lower()
        if media_type != MEDIA_TYPE or fork not in FORKS:
            raise UnsupportedMethod(self._source, "it tells no states in SSZ, or not their fork")
        self.has_begun = True
        if fork != self._layout.fork:
            raise self._wrong_state(f"of the fork `{fork}`, which that slot is not of")
        if size is not None and size > MAX_STATE:
            raise self._wrong_state(f"of more than {MAX_STATE >> 20} MiB")

    def take(self, piece: bytes | memoryview) -> None:
        """Receive the next bytes, and decode whole records.

        Bytes after the lists of validators and balances are skipped.

        Raises:
            BadAnswer: The state is another one, malformed or too large.
        """
        self._buffer += piece
        if self._position + len(self._buffer) > MAX_STATE:
            raise self._wrong_state(f"of more than {MAX_STATE >> 20} MiB")
        if not self._offsets:
            if len(self._buffer) < self._layout.size:
                return
            self._decode_fixed_part()
        while self._steps:
            end, record, read = self._steps[0]
            count = min(len(self._buffer), end - self._position) // record
            read(count)
            del self._buffer[: count * record]
            self._position += count * record
            if self._position < end:
                return
            self._steps.pop(0)
        self._position += len(self._buffer)
        self._buffer.clear()

    def _decode_fixed_part(self) -> None:
        """Check network, slot and offsets of a state, and prepare its columns and the steps of decoding."""
        layout, fixed = self._layout, bytes(self._buffer[: self._layout.size])
        if fixed[layout.root : layout.root + 32] != self._root:
            raise self._wrong_state("of another network")
        if (slot := int.from_bytes(fixed[layout.slot : layout.slot + 8], "little")) != self._slot:
            raise self._wrong_state(f"of slot {slot}")
        self._offsets = {
            name: int.from_bytes(fixed[position : position + OFFSET], "little")
            for name, position in layout.lists.items()
        }
        count = self._check_offsets()
        del self._buffer[: layout.size]
        self._position = layout.size
        self._columns = {name: np.empty(count, np.int64) for name in (*NUMBER_COLUMNS, "balance")}
        kinds = {"pubkey": "V48", "credentials": "V32", "slashed": "?"}
        self._columns |= {name: np.empty(count, kind) for name, kind in kinds.items()}
        ends = self._ends()
        self._steps = [
            (self._offsets["validators"], 1, lambda _: None),
            (ends["validators"], VALIDATOR.itemsize, self._decode_validators),
            (ends["balances"], BALANCE.itemsize, self._decode_balances),
        ]

    def _check_offsets(self) -> int:
        """Return the number of validators according to the offsets.

        Raises:
            BadAnswer: The offsets are those of no state.
        """
        positions = list(self._offsets.values())
        if positions != sorted(positions) or positions[0] != self._layout.size or positions[-1] > MAX_STATE:
            raise self._wrong_state("with offsets that are out of order or out of its bytes")
        ends = self._ends()
        counts = {}
        for name, end in ends.items():
            counts[name], remainder = divmod(end - self._offsets[name], RECORDS[name])
            if remainder:
                raise self._wrong_state(f"with a part of a record at the end of its {name}")
        if any(counts[name] != counts["validators"] for name in PER_VALIDATOR_LISTS):
            raise self._wrong_state("with another number of validators than of what they have")
        return counts["validators"]

    def _ends(self) -> dict[str, int]:
        """Return the end of each list but the last."""
        return {name: self._offsets[after] for name, after in pairwise(self._offsets)}

    def _decode_validators(self, count: int) -> None:
        """Store a number of validators in the columns; epochs beyond NEVER become NEVER.

        Raises BadAnswer for an effective balance or a truth value that is too large.
        """
        rows = np.frombuffer(self._buffer, VALIDATOR, count)
        part = self._next("validators", count)
        for name in NUMBER_COLUMNS:
            self._columns[name][part] = np.minimum(rows[name], NEVER)
        for name in ("pubkey", "credentials", "slashed"):
            self._columns[name][part] = rows[name]
        if (rows["slashed"] > 1).any() or (rows["effective_balance"] > NEVER).any():
            raise self._wrong_state("with a number that is none")

    def _decode_balances(self, count: int) -> None:
        rows = np.frombuffer(self._buffer, BALANCE, count)
        self._columns["balance"][self._next("balances", count)] = rows
        if (rows > NEVER).any():
            raise self._wrong_state("with a number that is none")

    def _next(self, name: str, count: int) -> slice:
        begin = self._decoded_counts[name]
        self._decoded_counts[name] = begin + count
        return slice(begin, begin + count)

    def table(self) -> ValidatorTable:
        """Return the validators after the last byte.

        Raises:
            BadAnswer: The state is incomplete.
        """
        last = next(reversed(self._offsets), "")
        if self._steps or not last or self._position < self._offsets[last]:
            raise self._wrong_state(f"that breaks off after {self._position + len(self._buffer)} bytes")
        if (self._position - self._offsets[last]) % RECORDS[last]:
            raise self._wrong_state(f"with a part of a record at the end of its {last}")
        return ValidatorTable(np.arange(len(self._columns["balance"])), **self._columns)

    def _wrong_state(self, description: str) -> BadAnswer:
        return BadAnswer(self._source, f"in the place of the state after slot {self._slot} one {description}")
