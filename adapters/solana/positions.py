"""Positions in protocols on Solana: what a family says of itself, and how all that accounts have is read at one slot.

A position belongs to whoever holds its token, or to whom an account of the program names. A token is one of a mint
without decimals, or a share of a pool. A decoder is a generator that yields reads of accounts. Decoders are run until
nothing more is asked; then all that positions need is read once more together with the wallets, and the decoders are
run on that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.solana.account_reads import AccountRead, ListRead
from adapters.solana.compressed import Compressed
from adapters.solana.facts import TOKENS
from adapters.solana.layouts import TOKEN
from adapters.solana.parsing import is_address
from adapters.solana.reads import LeavesRead, Wallet, WalletRead
from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.decoded import founds, notes
from chainfolio.plans import Plan, Unknown
from chainfolio.protocols import DecodedPosition, InstalledProtocol, ProtocolFamily

ROUNDS: Final = 6  # in which decoders ask for more
MOST: Final = 1_000  # things of an account that are looked at: many are sent to people who never asked for them
MOST_SHARES: Final = 2_000  # and so many other tokens
TRIES: Final = 2  # at a slot, if a wallet got another position meanwhile
MOST_ALIKE: Final = 50  # accounts of one kind whose claims on one vault are added
MOST_LISTS: Final = 100  # pools that are looked for: shares of them can be sent to anybody, and a list is dear
UNLISTED: Final = Unknown(f"the pools of more than {MOST_LISTS} shares would have to be looked for")
SLOT_MS: Final = 400  # as the cluster has it in mind
PROGRAM: Final = "program"
SHARED: Final = (
    "no file names its market: it counts because the vaults there have as much now, which other accounts may claim, too"
)
THING, SHARE, ACCOUNT = "thing", "share", "account"


@dataclass(frozen=True, slots=True)
class Claim:
    """What may stand for a position of a program: a mint of which the account has `raw` units, or an account that names
    it. `time_s` is the time of the slot; `contracts` are those of the protocol's file, by their roles."""

    account: str
    subject: str
    program: str
    time_s: int
    raw: int = 1
    slot: int = 0
    epoch: int = 0
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


DecoderPlan = Plan[AccountRead | ListRead, Any, Sequence[DecodedPosition]]


@dataclass(frozen=True, kw_only=True)
class Family(ProtocolFamily):
    """One kind of protocol on Solana; its forks are other programs with the same accounts, named in `role`.

    What stands for a position is a `THING` (a token of which there is one), a `SHARE` (any other token of SPL Token),
    or an `ACCOUNT` of the layout `owned`, which names its owner at a byte."""

    position: Callable[[Claim], DecoderPlan]
    kind: str = "solana"
    role: str = PROGRAM
    stands: str = THING
    owned: tuple[str, int] = ("", 0)

    @property
    def finding_roles(self) -> tuple[str, ...]:
        """The program whose accounts are looked for."""
        return (self.role,)

    def list_of(self, program: str, account: str) -> ListRead:
        """What finds the accounts that name one."""
        layout, at = self.owned
        return ListRead(program, layout, at, account)

    def alike(self, claim: Claim) -> Plan[AccountRead | ListRead, Any, Sequence[Any]]:
        """What all accounts of the layout say that name the same owner; nothing where they are more than are added."""
        [listed] = yield [self.list_of(claim.program, claim.account)]
        if len(sure(listed)) > MOST_ALIKE:
            return []
        told = yield [AccountRead(claim.program, self.owned[0], (each,)) for each in listed]
        return [sure(each) for each in told if not isinstance(each, Unknown) or each.cause == "read"]


class Unreadable(Exception):
    """An account that a decoder cannot do without is not what it should be."""


def sure(said: Any) -> Any:
    """What an account says; Unreadable where that is not known."""
    if isinstance(said, Unknown):
        raise Unreadable(said.reason)
    return said


@dataclass(frozen=True, slots=True)
class Opened:
    """A position that was found: of which protocol, what stands for it, and what was read."""

    row: InstalledProtocol
    claim: Claim
    position: DecodedPosition

    def notes(self, assets: tuple[Asset, ...]) -> Iterator[Issue]:
        """What the position itself says is not known of it, or not to be relied on. `assets` stand for it."""
        account, subject = self.claim.account, self.claim.subject
        yield from notes(
            self.position, account,
            lambda reason, is_partial: Issue(self.row.protocol, subject, reason, is_partial, account, assets=assets),
        )  # fmt: skip


@dataclass(slots=True)
class Positions:
    """The positions of all accounts of one snapshot, which are read together so that all are of one slot. The account
    that comes first reads for the others, which wait. `caip2` is the name of the chain in assets; `own` are the tokens
    that accounts came by in acts of their own, which are looked at before others."""

    rows: Sequence[InstalledProtocol]
    caip2: str = ""
    wallets: dict[str, Wallet | None] = field(default_factory=dict)
    lists: dict[ListRead, Any] = field(default_factory=dict)
    opened: dict[str, list[Opened]] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    own: dict[str, Collection[str]] = field(default_factory=dict)
    compressed: Compressed = field(init=False)
    done: bool = False

    def __post_init__(self) -> None:
        self.compressed = Compressed(self.caip2)

    def read(
        self, account: str, own: Collection[Asset] = ()
    ) -> Plan[Any, Any, tuple[Wallet, Sequence[Opened], Sequence[Issue]]]:
        """What an account has, its positions, and those that could not be read."""
        first = not self.wallets
        self.wallets[account], self.own[account] = None, {asset.reference for asset in own}
        lists = list(self._lists(account))
        wallet, leaves, *listed = yield [WalletRead(account), LeavesRead(account), *lists]
        self.wallets[account], self.compressed.told[account] = wallet, leaves
        self.lists |= zip(lists, listed, strict=True)
        if first:
            yield from self._wait(lambda: all(self.wallets.values()))
            try:
                yield from self._settle()
            finally:
                self.done = True
        else:
            yield from self._wait(lambda: self.done)
        settled = self.wallets[account]
        assert settled is not None, "every wallet was read"
        issues = [each for each in self.issues if each.account == account]
        return settled, self.opened.get(account, ()), [*issues, *self.compressed.issues(account)]

    def _wait(self, over: Callable[[], bool]) -> Plan[Any, Any, None]:
        while not over():
            yield []

    def _lists(self, account: str) -> Iterator[ListRead]:
        """What finds accounts of programs that name an account."""
        for _, family, program in self._programs():
            if family.stands == ACCOUNT:
                yield family.list_of(program, account)

    def _programs(self) -> Iterator[tuple[InstalledProtocol, Family, str]]:
        for row in self.rows:
            assert isinstance(row.family, Family), "rows of this kind of chain"
            for program in row.contracts.get(row.family.role, ()):
                yield row, row.family, program

    def _settle(self) -> Plan[Any, Any, None]:
        """Find what there is, and read it at one slot with the wallets."""
        self._say_what_is_left_out()
        trees = self.compressed.wanted()
        for _ in range(TRIES):
            claims = list(self._claims())
            known = yield from self._known(claims)
            tried = {_key(row, claim): _tried(row, claim, known) for row, claim in claims}
            nothing = {key for key, each in tried.items() if not (each.found or each.fault or each.missing)}
            if len(nothing) == len(tried) and not trees:
                break  # nothing that they have stands for a position
            left = {read: said for read, said in known.items() if isinstance(read, ListRead) and _untold(said)}
            told = left.keys() | self.lists.keys()
            reads = list(
                dict.fromkeys(
                    read for key, each in tried.items() if key not in nothing for read in each.reads if read not in told
                )
            )
            accounts, lists = list(self.wallets), [each for each, said in self.lists.items() if not _untold(said)]
            answers = iter((yield [*map(WalletRead, accounts), *lists, *trees, *reads]))
            self.wallets = {account: next(answers) for account in accounts}
            self.lists |= {each: next(answers) for each in lists}
            self.compressed.trees = {each: next(answers) for each in trees}
            if self._decode(left | self.lists | dict(zip(reads, answers, strict=True)), nothing):
                break
        else:
            for account in self.wallets:
                self._unread(account, account, "its positions change faster than they can be read")
        self._say_what_was_refused()

    def _say_what_is_left_out(self) -> None:
        for account, wallet in self.wallets.items():
            assert wallet is not None, "every wallet was read"
            own = self.own[account]
            if rest := _things(wallet, own)[MOST:]:
                reason = f"{len(rest)} tokens of which there is one were not looked at for positions"
                self._unread(account, account, reason, rest)
            rest = [mint for mint, _ in _shares(wallet, own)[MOST_SHARES:]]
            if rest and any(family.stands == SHARE for _, family, _ in self._programs()):
                self._unread(account, account, f"{len(rest)} tokens were not looked at for shares of pools", rest)

    def _say_what_was_refused(self) -> None:
        """One issue for each reason why accounts of programs were not looked for."""
        refused: dict[tuple[str, Unknown], list[str]] = {}
        for row, family, program in self._programs():
            for account in self.wallets if family.stands == ACCOUNT else ():
                said = self.lists[family.list_of(program, account)]
                if isinstance(said, Unknown):
                    refused.setdefault((account, said), []).append(row.protocol)
                elif (more := len(said) - MOST) > 0:
                    self._unread(account, account, f"{more} positions of {row.protocol} were not looked at")
        for (account, said), protocols in refused.items():
            reason = f"positions of {', '.join(sorted(set(protocols)))} were not looked for: {said.reason}"
            # What no node keeps of the past is lacking in every answer about it, which is of balances alone.
            self.issues.append(Issue("solana", account, reason, said.cause != "absent", account))

    def _claims(self) -> Iterator[tuple[InstalledProtocol, Claim]]:
        """Everything that may stand for a position, with every program whose it may be."""
        for account, wallet in self.wallets.items():
            assert wallet is not None, "every wallet was read"
            time_s, slot = wallet.block.time_us // 1_000_000, wallet.block.height
            for row, family, program in self._programs():
                for subject, raw in self._subjects(family, program, account, wallet):
                    yield row, Claim(account, subject, program, time_s, raw, slot, wallet.epoch, row.contracts)

    def _subjects(self, family: Family, program: str, account: str, wallet: Wallet) -> list[tuple[str, int]]:
        """What may stand for positions of a program, and how much of it there is."""
        if family.stands == THING:
            return [(mint, 1) for mint in _things(wallet, self.own[account])[:MOST]]
        if family.stands == SHARE:
            return _shares(wallet, self.own[account])[:MOST_SHARES]
        said = self.lists[family.list_of(program, account)]
        return [] if isinstance(said, Unknown) else [(address, 1) for address in said[:MOST]]

    def _known(self, claims: Sequence[tuple[InstalledProtocol, Claim]]) -> Plan[Any, Any, dict[Any, Any]]:
        """What decoders have to know, in rounds."""
        known: dict[Any, Any] = {**self.lists}
        open_claims = list(claims)
        lists_left = MOST_LISTS
        for _ in range(ROUNDS):
            tried = [(row, claim, _tried(row, claim, known)) for row, claim in open_claims]
            open_claims = [(row, claim) for row, claim, each in tried if each.missing]
            missing = list(dict.fromkeys(read for *_, each in tried for read in each.missing))
            if not missing:
                break
            lists = [each for each in missing if isinstance(each, ListRead)]
            known |= dict.fromkeys(lists[lists_left:], UNLISTED)
            lists_left -= len(lists[:lists_left])
            if asked := [each for each in missing if each not in known]:
                known |= zip(asked, (yield asked), strict=True)
        return known

    def _decode(self, known: Mapping[Any, Any], nothing: Collection[Any]) -> bool:
        """The positions by what is known, but for what is none; whether that was all that had to be known."""
        opened: dict[str, list[Opened]] = {}
        issues = []
        for row, claim in self._claims():
            if _key(row, claim) in nothing:
                continue
            tried = _tried(row, claim, known)
            if tried.missing:
                return False
            if tried.fault:
                issues.append((claim, row, tried.fault))
            opened.setdefault(claim.account, []).extend(Opened(row, claim, each) for each in tried.found)
        self.opened = opened
        self.issues += [
            note
            for several in opened.values()
            for each in several
            for note in each.notes(self._assets(_mints(each.row, each.claim)))
        ]
        for claim, row, fault in issues:
            reason = f"a position of {row.protocol} could not be read: {fault}"
            self._unread(claim.account, claim.subject, reason, _mints(row, claim))
        return True

    def _unread(self, account: str, subject: str, reason: str, mints: Sequence[str] = ()) -> None:
        """Add an issue about positions that are not read. `mints` stand for them, none if something else does."""
        assets, count = self._assets(mints), max(1, len(mints))
        self.issues.append(Issue("solana", subject, reason, account=account, count=count, assets=assets))

    def _assets(self, mints: Sequence[str]) -> tuple[Asset, ...]:
        return tuple(Asset(self.caip2, TOKENS, mint) for mint in mints)


def _mints(row: InstalledProtocol, claim: Claim) -> Sequence[str]:
    """Return the mint that stands for a position, none if an account of a program does."""
    assert isinstance(row.family, Family), "rows of this kind of chain"
    return () if row.family.stands == ACCOUNT else (claim.subject,)


def _untold(said: Any) -> bool:
    """Whether a list was not told: then it is not asked for again, and what it finds stays unknown."""
    return isinstance(said, Unknown)


def _key(row: InstalledProtocol, claim: Claim) -> tuple[str, str, str, str]:
    return row.family.name, claim.program, claim.account, claim.subject


def _things(wallet: Wallet, own: Collection[str]) -> list[str]:
    """The mints of which a wallet has one that cannot be divided, its `own` ones first."""
    found = [mint for mint, held in wallet.tokens.items() if (held.raw, held.decimals) == (1, 0)]
    return sorted(found, key=lambda mint: mint not in own)


def _shares(wallet: Wallet, own: Collection[str]) -> list[tuple[str, int]]:
    """The mints of SPL Token of which a wallet has any part, and how much, its `own` ones first: programs issue shares
    in that alone."""
    found = [
        (mint, held.raw)
        for mint, held in wallet.tokens.items()
        if held.raw and held.program == TOKEN and (held.raw, held.decimals) != (1, 0)
    ]
    return sorted(found, key=lambda share: share[0] not in own)


@dataclass(frozen=True, slots=True)
class _Tried:
    """How far a decoder came with what is known: what it asked for, what it still needs, what it found, or why it
    cannot."""

    reads: Sequence[Any]
    missing: Sequence[Any] = ()
    found: Sequence[DecodedPosition] = ()
    fault: str = ""


def _tried(row: InstalledProtocol, claim: Claim, known: Mapping[Any, Any]) -> _Tried:
    family = row.family
    assert isinstance(family, Family), "rows of this kind of chain"
    asked: list[Any] = []
    try:
        plan = family.position(claim)
        reads = next(plan)
        while True:
            asked += reads
            if missing := [each for each in reads if each not in known]:
                return _Tried(asked, missing)
            reads = plan.send([known[each] for each in reads])
    except StopIteration as stop:
        found = founds(stop.value, is_address)
        return _Tried(asked, fault=found) if isinstance(found, str) else _Tried(asked, found=found)
    except Unreadable as error:
        return _Tried(asked, fault=str(error))
    except Exception as error:  # a decoder may be third-party code: whatever it raises is its own issue
        return _Tried(asked, fault=f"{type(error).__name__}: {error}")
