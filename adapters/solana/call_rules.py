"""Changes of positions by calls of programs, by tables of the families. No I/O."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN_PROGRAMS
from chainfolio.adapters.solana.program_calls import CallTransaction, Movement, ProgramCall
from chainfolio.adapters.solana.transactions import NATIVE
from chainfolio.position_changes import CallChange, CallKind

TRADE: Final = "trade"  # the kind of calls that change no position
DISCRIMINATOR_SIZE: Final = 8  # of Anchor
EVENT: Final = bytes.fromhex("e445a52e51cb9a1d")  # Anchor: a program calls itself to log an event
UNITS_SIZE, PART_SIZE = 16, 2
WHOLE: Final = 10_000  # ten-thousandths of a position
WITHOUT_MOVEMENTS: Final = frozenset(["remove", "close", "resize", "request"])  # kinds that matter so, too


class CallRule(NamedTuple):
    """The meaning of one instruction. Numbers are indexes of its accounts, or offsets in its data.

    Attributes:
        kind: As of `CallChange`, or `trade`.
        position: The position: its account, the mint of its NFT or its shares, or a token account with its NFT. None if
            the call creates or destroys the shares.
        owner: The owner of a new position.
        units: The offset of the liquidity, with 16 bytes.
        span: The offset of the first and the last bin.
        width: True if a number of bins stands in place of the last one.
        part: The offset of the ten-thousandths.
        is_whole: All liquidity is removed.
        vaults: The accounts with the liquidity of the pool; what others pay is a reward, and what they get is a cost.
            Empty if all have.
        accounts: The accounts of a new position, whose lamports come back when it is closed. The account that `close`
            closes: without that, it changes nothing.
        is_pool: The position exchanges its assets.
        has_coins: Native coins are a part of what moves. Otherwise, they are wrapped, and others are a rent or a cost.
    """

    kind: CallKind | str
    position: int | None = None
    owner: int | None = None
    units: int | None = None
    span: int | None = None
    width: bool = False
    part: int | None = None
    is_whole: bool = False
    vaults: tuple[int, ...] = ()
    accounts: tuple[int, ...] = ()
    is_pool: bool = False
    has_coins: bool = False


Rules = Mapping[bytes, CallRule]  # by the first bytes of the instruction's data, which have one length


class _PositionAccount(NamedTuple):
    """The position that needs an account, and its owner, which is empty if the payer has the position."""

    owner: str
    position: str


def by_name(**rules: CallRule) -> Rules:
    """Return rules by discriminators of Anchor: the SHA-256 of `global:` and the instruction's name."""
    return {
        hashlib.sha256(f"global:{name}".encode()).digest()[:DISCRIMINATOR_SIZE]: rule for name, rule in rules.items()
    }


def trades(*names: str) -> dict[str, CallRule]:
    """Return the rule for instructions that change no position."""
    return dict.fromkeys(names, CallRule(TRADE))


@dataclass(frozen=True, slots=True)
class CallReader:
    """Reads the changes in one transaction."""

    transaction: CallTransaction
    rules: Mapping[str, Rules]  # by program

    def changes(self) -> tuple[CallChange, ...]:
        """Return the changes in order of execution, then the rents of closed and new accounts.

        If the node did not record the calls of programs, the changes are `unread` and those of the accounts.
        """
        if self.transaction.calls is None:
            return CallChange("unread", ""), *self._unclear_changes(self.transaction.accounts)
        changes: list[CallChange] = []
        kept: dict[str, _PositionAccount] = {}
        for call in self.transaction.calls:
            rule = self._rule(call)
            if rule is None:
                changes += self._unclear(call)
            elif rule.kind == "close" and not self._is_closed(call, rule):
                changes += self._unclear(call) if call.movements else ()
            elif rule.kind != TRADE:
                owner = "" if rule.owner is None else call.accounts[rule.owner]
                position = "" if rule.position is None else self._position(call.accounts[rule.position])
                kept |= {call.accounts[each]: _PositionAccount(owner, position) for each in rule.accounts}
                changes += self._of_call(call, rule)
        return (*changes, *self._rents(kept))

    def _rule(self, call: ProgramCall) -> CallRule | None:
        """Return the rule of a call; None if there is none, or if the call has too few accounts for it.

        An event that a program logs by calling itself has the rule of a trade, so that it changes nothing.
        """
        if call.content.startswith(EVENT):
            return CallRule(TRADE)
        rules = self.rules[call.program]
        size = len(next(iter(rules)))
        rule = rules.get(call.content[:size])
        indexes = (rule.position, rule.owner, *rule.vaults, *rule.accounts) if rule else ()
        return None if any(each is not None and each >= len(call.accounts) for each in indexes) else rule

    def _is_closed(self, call: ProgramCall, rule: CallRule) -> bool:
        return all(call.accounts[each] in self.transaction.closed for each in rule.accounts)

    def _unclear(self, call: ProgramCall) -> Iterator[CallChange]:
        """Yield the movements of an unknown call, by account, and the positions that it may have changed."""
        for owner, moved in _by_owner(each for each in call.movements if not self._is_rent(each)).items():
            yield CallChange("unclear", "", owner, moved)
        yield from self._unclear_changes(call.accounts)

    def _unclear_changes(self, accounts: Sequence[str]) -> Iterator[CallChange]:
        """Yield an unclear change of each account that may be a position, or have the NFT of one."""
        for each in dict.fromkeys(map(self._position, accounts)):
            if each not in self.rules and each not in TOKEN_PROGRAMS and each != SYSTEM:
                yield CallChange("unclear", each)

    def _of_call(self, call: ProgramCall, rule: CallRule) -> Iterator[CallChange]:
        """Yield the change of one call per owner whose balances it changed.

        An opening with an owner is a change itself, and its movements count as added. Movements outside of the rule's
        vaults are "earn" or "cost". Without movements, only `WITHOUT_MOVEMENTS` give a change.
        """
        position = "" if rule.position is None else self._position(call.accounts[rule.position])
        if rule.position is None:
            position = next((each.mint for each in call.movements if not (each.sender and each.recipient)), "")
        kind: CallKind = rule.kind  # type: ignore[assignment]
        if kind == "open" and rule.owner is not None:
            yield CallChange("open", position, call.accounts[rule.owner], span=_span(call.content, rule))
            kind = "add"
        change = CallChange(
            kind,
            position,
            units=_number(call.content, rule.units, UNITS_SIZE),
            part=WHOLE if rule.is_whole else _number(call.content, rule.part, PART_SIZE),
            span=None if kind == "add" else _span(call.content, rule),
            is_pool=rule.is_pool,
        )
        of_position = [each for each in call.movements if kind in ("share", "request") or each.mint != position]
        if not rule.has_coins:
            yield from self._coins(call, rule, position)
            of_position = [each for each in of_position if each.mint != NATIVE]
        vaults = {call.accounts[each] for each in rule.vaults}
        inside, beyond = list[Movement](), list[Movement]()
        for each in of_position:
            is_inside = not vaults or each.mint == position or not vaults.isdisjoint((each.source, each.target))
            (inside if is_inside else beyond).append(each)
        principal = _by_owner(inside)
        if not principal and kind in WITHOUT_MOVEMENTS:
            yield change
        for owner, moved in principal.items():
            yield replace(change, owner=owner, moved=moved)
        for owner, moved in _by_owner(beyond).items():
            for mint, raw in moved:
                yield CallChange("earn" if raw > 0 else "cost", position, owner, ((mint, raw),))

    def _is_rent(self, movement: Movement) -> bool:
        """Return True for lamports of a new account, which `_rents` has."""
        return movement.mint == NATIVE and any(
            movement.target == each.account and self._is_of_programs(each.program) for each in self.transaction.funded
        )

    def _is_of_programs(self, program: str) -> bool:
        return program in TOKEN_PROGRAMS or program in self.rules

    def _coins(self, call: ProgramCall, rule: CallRule, position: str) -> Iterator[CallChange]:
        """Yield coins for an account of the position that grows, and those for accounts of others."""
        grown = call.accounts[rule.position] if rule.kind == "resize" and rule.position is not None else ""
        for each in call.movements:
            if each.mint == NATIVE and each.raw and not self._is_rent(each):
                kind: CallKind = "rent" if each.target == grown else "cost"
                account, needed_by = (each.target, position) if kind == "rent" else (position, "")
                yield CallChange(kind, account, each.source, (("", -each.raw),), needed_by=needed_by)

    def _position(self, account: str) -> str:
        """Return the NFT of a token account, or the account itself."""
        return self.transaction.holders[account][1] if account in self.transaction.holders else account

    def _rents(self, kept: Mapping[str, _PositionAccount]) -> Iterator[CallChange]:
        """Yield the lamports of closed accounts, then of new ones: an account may be closed and created again.

        What a token account or an account of a position needs comes back when it is closed. Accounts of other programs,
        such as stakes, are left out.

        Args:
            kept: The positions of accounts.
        """
        for account, (raw, recipient) in sorted(self.transaction.closed.items()):
            if raw:
                yield CallChange("rent", account, recipient, (("", raw),))
        for each in self.transaction.funded:
            if self._is_of_programs(each.program):
                holder, needed_by = self.transaction.holders.get(each.account, ("", ""))[0], ""
                if each.account in kept:
                    holder, needed_by = kept[each.account].owner or each.payer, kept[each.account].position
                kind: CallKind = "rent" if holder else "cost"
                paid = (("", -each.lamports),)
                yield CallChange(kind, each.account, each.payer, paid, holder=holder, needed_by=needed_by)


def _number(content: bytes, at: int | None, size: int) -> int | None:
    return None if at is None else int.from_bytes(content[at : at + size], "little")


def _span(content: bytes, rule: CallRule) -> tuple[int, int] | None:
    if rule.span is None:
        return None
    first, last = (int.from_bytes(content[at : at + 4], "little", signed=True) for at in (rule.span, rule.span + 4))
    return first, first + last - 1 if rule.width else last


def _by_owner(movements: Iterable[Movement]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the net movements of each owner, by mint; owners and mints whose sum is 0 are absent."""
    net: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for each in movements:
        for owner, raw in ((each.sender, -each.raw), (each.recipient, each.raw)):
            if owner and each.sender != each.recipient:
                net[owner][each.mint] += raw
    return {
        owner: moved
        for owner, raws in net.items()
        if (moved := tuple((mint, raw) for mint, raw in raws.items() if raw))
    }
