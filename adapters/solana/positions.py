"""Positions in protocols on Solana: what a family says of itself, and how all that accounts have is read at one slot.

A position belongs to whoever holds its token: one of a mint without decimals. Programs keep the position at an address
that follows from the mint. A decoder is a generator that yields reads of accounts. Decoders are run until nothing more
is asked; then everything is read once more together with the wallets, and the decoders are run on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.solana.account_reads import AccountRead
from adapters.solana.reads import Wallet, WalletRead
from chainfolio.contracts import Issue
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import DecodedPosition, InstalledProtocol, ProtocolFamily

ROUNDS: Final = 4  # in which decoders ask for more
MOST: Final = 1_000  # tokens of an account that are looked at: many are sent to people who never asked for them
TRIES: Final = 2  # at a slot, if a wallet got another position meanwhile
PROGRAM: Final = "program"


@dataclass(frozen=True, slots=True)
class Claim:
    """A token that may stand for a position of a program. `time_s` is the time of the slot."""

    account: str
    mint: str
    program: str
    time_s: int


DecoderPlan = Plan[AccountRead, Any, Sequence[DecodedPosition]]


@dataclass(frozen=True, kw_only=True)
class Family(ProtocolFamily):
    """One kind of protocol on Solana; its forks are other programs with the same accounts."""

    position: Callable[[Claim], DecoderPlan]
    kind: str = "solana"

    @property
    def finding_roles(self) -> tuple[str, ...]:
        """The program whose accounts are looked for."""
        return (PROGRAM,)


class Unreadable(Exception):
    """An account that a decoder cannot do without is not what it should be."""


def sure(said: Any) -> Any:
    """What an account says; Unreadable where that is not known."""
    if isinstance(said, Unknown):
        raise Unreadable(said.reason)
    return said


@dataclass(frozen=True, slots=True)
class Opened:
    """A position that was found: of which protocol, which token stands for it, and what was read."""

    row: InstalledProtocol
    claim: Claim
    position: DecodedPosition


@dataclass(slots=True)
class Positions:
    """The positions of all accounts of one snapshot, which are read together so that all are of one slot. The account
    that comes first reads for the others, which wait."""

    rows: Sequence[InstalledProtocol]
    wallets: dict[str, Wallet | None] = field(default_factory=dict)
    opened: dict[str, list[Opened]] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    done: bool = False

    def read(self, account: str) -> Plan[Any, Any, tuple[Wallet, Sequence[Opened], Sequence[Issue]]]:
        """What an account has, its positions, and those that could not be read."""
        first = not self.wallets
        self.wallets[account] = None
        [wallet] = yield [WalletRead(account)]
        self.wallets[account] = wallet
        if first and self.rows:
            yield from self._wait(lambda: all(self.wallets.values()))
            try:
                yield from self._settle()
            finally:
                self.done = True
        elif self.rows:
            yield from self._wait(lambda: self.done)
        settled = self.wallets[account]
        assert settled is not None, "every wallet was read"
        return settled, self.opened.get(account, ()), [each for each in self.issues if each.account == account]

    def _wait(self, over: Callable[[], bool]) -> Plan[Any, Any, None]:
        while not over():
            yield []

    def _settle(self) -> Plan[Any, Any, None]:
        """Find what there is, and read it at one slot with the wallets."""
        for account, wallet in self.wallets.items():
            if wallet and (more := len(_single(wallet)) - MOST) > 0:
                self._unread(account, account, f"{more} tokens of which there is one were not looked at for positions")
        for _ in range(TRIES):
            claims = list(self._claims())
            known = yield from self._known(claims)
            if not any(not isinstance(each, Unknown) for each in known.values()):
                return  # none of their tokens stands for a position
            accounts, reads = list(self.wallets), list(known)
            answers = yield [*map(WalletRead, accounts), *reads]
            self.wallets = dict(zip(accounts, answers[: len(accounts)], strict=True))
            if self._decode(dict(zip(reads, answers[len(accounts) :], strict=True))):
                return
        for account in self.wallets:
            self._unread(account, account, "its positions change faster than they can be read")

    def _claims(self) -> Iterator[tuple[InstalledProtocol, Claim]]:
        """Every token that may stand for a position, with every program whose it may be."""
        for account, wallet in self.wallets.items():
            assert wallet is not None, "every wallet was read"
            time_s = wallet.block.time_us // 1_000_000
            for mint in _single(wallet)[:MOST]:
                for row in self.rows:
                    for program in row.contracts.get(PROGRAM, ()):
                        yield row, Claim(account, mint, program, time_s)

    def _known(
        self, claims: Sequence[tuple[InstalledProtocol, Claim]]
    ) -> Plan[AccountRead, Any, dict[AccountRead, Any]]:
        """What decoders have to know, in rounds."""
        known: dict[AccountRead, Any] = {}
        for _ in range(ROUNDS):
            missing = dict.fromkeys(read for row, claim in claims for read in _tried(row, claim, known).missing)
            if not missing:
                break
            known |= zip(missing, (yield list(missing)), strict=True)
        return known

    def _decode(self, known: Mapping[AccountRead, Any]) -> bool:
        """The positions by what is known; whether that was all that had to be known."""
        opened: dict[str, list[Opened]] = {}
        issues = []
        for row, claim in self._claims():
            tried = _tried(row, claim, known)
            if tried.missing:
                return False
            if tried.fault:
                issues.append((claim, row, tried.fault))
            opened.setdefault(claim.account, []).extend(Opened(row, claim, each) for each in tried.found)
        self.opened = opened
        for claim, row, fault in issues:
            self._unread(claim.account, claim.mint, f"a position of {row.protocol} could not be read: {fault}")
        return True

    def _unread(self, account: str, subject: str, reason: str) -> None:
        self.issues.append(Issue("solana", subject, reason, account=account))


def _single(wallet: Wallet) -> list[str]:
    """The mints of which a wallet has one that cannot be divided."""
    return [mint for mint, held in wallet.tokens.items() if (held.raw, held.decimals) == (1, 0)]


@dataclass(frozen=True, slots=True)
class _Tried:
    """How far a decoder came with what is known: what it still needs, what it found, or why it cannot."""

    missing: Sequence[AccountRead] = ()
    found: Sequence[DecodedPosition] = ()
    fault: str = ""


def _tried(row: InstalledProtocol, claim: Claim, known: Mapping[AccountRead, Any]) -> _Tried:
    family = row.family
    assert isinstance(family, Family), "rows of this kind of chain"
    plan = family.position(claim)
    try:
        reads = next(plan)
        while True:
            if missing := [each for each in reads if each not in known]:
                return _Tried(missing)
            reads = plan.send([known[each] for each in reads])
    except StopIteration as stop:
        return _Tried(found=stop.value)
    except Unreadable as error:
        return _Tried(fault=str(error))
    except Exception as error:  # a decoder may be third-party code: whatever it raises is its own issue
        return _Tried(fault=f"{type(error).__name__}: {error}")
