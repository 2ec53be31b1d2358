"""A whole state in SSZ: its registry is taken out of it while it arrives, by the offsets of its fork and preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chainfolio.adapters.beacon.states import NEVER, NUMBERS, States
from chainfolio.errors import BadAnswer, UnsupportedMethod

if TYPE_CHECKING:
    from chainfolio.adapters.beacon.spec import Spec

FORKS: Final = ("capella", "deneb", "electra", "fulu")
FORM: Final = "application/octet-stream"
MAX_STATE: Final = 1 << 30  # bytes: three times a network of two million validators
MAX_FIXED: Final = 1 << 26
# Numbers have their least byte first, an offset has four.
OFFSET: Final = 4
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
# The lists of a state, and the bytes of one of their records; 1 where these vary.
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
OF_EACH: Final = ("balances", "previous_epoch_participation", "current_epoch_participation", "inactivity_scores")


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a state has a fixed place: so many bytes, with the root of genesis, the slot and the offsets of lists."""

    fork: str
    size: int
    root: int
    slot: int
    lists: Mapping[str, int]


def layout_of(spec: Spec, epoch: int) -> Layout | None:
    """The layout of states of an epoch; None of a fork that is not read in this form, or where the node does not say
    the lengths of its preset."""
    try:
        fork = spec.fork(epoch)
        parts = _parts(spec, fork) if fork in FORKS else {}
    except BadAnswer:
        return None
    places, size = dict[str, int](), 0
    for name, length in parts.items():
        places[name] = size
        size += length
    if not 0 < size <= MAX_FIXED:
        return None
    lists = {name: places[name] for name in parts if name in RECORDS}
    return Layout(fork, size, places["genesis_validators_root"], places["slot"], lists)


def _parts(spec: Spec, fork: str) -> dict[str, int]:
    """The bytes that each field takes in the fixed part, in the order of the rules of consensus."""
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
        parts["proposer_lookahead"] = 8 * (spec.number("MIN_SEED_LOOKAHEAD") + 1) * spec.slots
    return parts


class StateSink:
    """Takes a state as its bytes arrive, of which it keeps the registry alone: a `Sink` of transport/exchange.py.

    BadAnswer where it is not the state that was asked for, or none; Unsupported where a node answers in another form.
    """

    form: str = FORM
    reads: frozenset[bytes] = frozenset((b"content-type", b"eth-consensus-version"))

    def __init__(self, source: str, layout: Layout, slot: int, genesis_root: str) -> None:
        self.has_begun = False
        self._source, self._layout, self._slot = source, layout, slot
        self._root = bytes.fromhex(genesis_root.removeprefix("0x"))
        self._kept, self._at = bytearray(), 0  # what is not read yet, and where in the state that begins
        self._offsets: dict[str, int] = {}
        self._steps: list[tuple[int, int, Callable[[int], None]]] = []  # where each ends, and its records
        self._columns: dict[str, Any] = {}
        self._done = {"validators": 0, "balances": 0}

    def begin(self, told: Mapping[bytes, str], size: int | None) -> None:
        """Whether it is what was asked for, by its headers."""
        kind = told.get(b"content-type", "").partition(";")[0].strip().lower()
        fork = told.get(b"eth-consensus-version", "").strip().lower()
        if kind != FORM or fork not in FORKS:
            raise UnsupportedMethod(self._source, "it tells no states in SSZ, or not their fork")
        self.has_begun = True
        if fork != self._layout.fork:
            raise self._lie(f"of the fork `{fork}`, which that slot is not of")
        if size is not None and size > MAX_STATE:
            raise self._lie(f"of more than {MAX_STATE >> 20} MiB")

    def take(self, piece: bytes | memoryview) -> None:
        """The next bytes."""
        self._kept += piece
        if self._at + len(self._kept) > MAX_STATE:
            raise self._lie(f"of more than {MAX_STATE >> 20} MiB")
        if not self._offsets:
            if len(self._kept) < self._layout.size:
                return
            self._fixed()
        while self._steps:
            end, record, read = self._steps[0]
            count = min(len(self._kept), end - self._at) // record
            read(count)
            del self._kept[: count * record]
            self._at += count * record
            if self._at < end:
                return
            self._steps.pop(0)
        self._at += len(self._kept)
        self._kept.clear()

    def _fixed(self) -> None:
        """Read the fixed part, which is there."""
        layout, kept = self._layout, bytes(self._kept[: self._layout.size])
        if kept[layout.root : layout.root + 32] != self._root:
            raise self._lie("of another network")
        if (slot := int.from_bytes(kept[layout.slot : layout.slot + 8], "little")) != self._slot:
            raise self._lie(f"of slot {slot}")
        self._offsets = {
            name: int.from_bytes(kept[place : place + OFFSET], "little") for name, place in layout.lists.items()
        }
        count = self._checked()
        del self._kept[: layout.size]
        self._at = layout.size
        self._columns = {name: np.empty(count, np.int64) for name in (*NUMBERS, "balance")}
        kinds = {"pubkey": "V48", "credentials": "V32", "slashed": "?"}
        self._columns |= {name: np.empty(count, kind) for name, kind in kinds.items()}
        ends = self._ends()
        self._steps = [
            (self._offsets["validators"], 1, lambda _: None),
            (ends["validators"], VALIDATOR.itemsize, self._validators),
            (ends["balances"], BALANCE.itemsize, self._balances),
        ]

    def _checked(self) -> int:
        """How many validators there are, by the offsets; BadAnswer where these are no offsets of such a state."""
        places = list(self._offsets.values())
        if places != sorted(places) or places[0] != self._layout.size or places[-1] > MAX_STATE:
            raise self._lie("with offsets that are out of order or out of its bytes")
        ends = self._ends()
        counts = {}
        for name, end in ends.items():
            counts[name], rest = divmod(end - self._offsets[name], RECORDS[name])
            if rest:
                raise self._lie(f"with a part of a record at the end of its {name}")
        if any(counts[name] != counts["validators"] for name in OF_EACH):
            raise self._lie("with another number of validators than of what they have")
        return counts["validators"]

    def _ends(self) -> dict[str, int]:
        """Where each list ends but the last."""
        return {name: self._offsets[after] for name, after in pairwise(self._offsets)}

    def _validators(self, count: int) -> None:
        rows = np.frombuffer(self._kept, VALIDATOR, count)
        part = self._next("validators", count)
        for name in NUMBERS:
            self._columns[name][part] = np.minimum(rows[name], NEVER)
        for name in ("pubkey", "credentials", "slashed"):
            self._columns[name][part] = rows[name]
        if (rows["slashed"] > 1).any() or (rows["effective_balance"] > NEVER).any():
            raise self._lie("with a number that is none")

    def _balances(self, count: int) -> None:
        rows = np.frombuffer(self._kept, BALANCE, count)
        self._columns["balance"][self._next("balances", count)] = rows
        if (rows > NEVER).any():
            raise self._lie("with a number that is none")

    def _next(self, name: str, count: int) -> slice:
        begin = self._done[name]
        self._done[name] = begin + count
        return slice(begin, begin + count)

    def states(self) -> States:
        """The registry, once all has arrived; BadAnswer where something is left out."""
        last = next(reversed(self._offsets), "")
        if self._steps or not last or self._at < self._offsets[last]:
            raise self._lie(f"that breaks off after {self._at + len(self._kept)} bytes")
        if (self._at - self._offsets[last]) % RECORDS[last]:
            raise self._lie(f"with a part of a record at the end of its {last}")
        return States(np.arange(len(self._columns["balance"])), **self._columns)

    def _lie(self, what: str) -> BadAnswer:
        return BadAnswer(self._source, f"in the place of the state after slot {self._slot} one {what}")
