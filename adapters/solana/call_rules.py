"""Changes of positions by calls of programs, by tables of the families. No I/O."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from chainfolio.adapters.solana.layouts import SYSTEM, TOKEN_PROGRAMS
from chainfolio.adapters.solana.program_calls import CallTransaction, Movement, ProgramCall
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


Rules = Mapping[bytes, CallRule]  # by the first bytes of the instruction's data, which have one length


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
        """Return the changes in order of execution; `unread` if the node did not record what programs called."""
        if self.transaction.calls is None:
            return CallChange("unread", ""), *self._changed(self.transaction.accounts)
        changes: list[CallChange] = []
        kept: set[str] = set()
        for call in self.transaction.calls:
            rule = self._rule(call)
            if rule is None:
                changes += self._unclear(call)
            elif rule.kind != TRADE:
                kept |= {call.accounts[each] for each in rule.accounts if each < len(call.accounts)}
                changes += self._of_call(call, rule)
        return (*changes, *self._rents(kept))

    def _rule(self, call: ProgramCall) -> CallRule | None:
        if call.content.startswith(EVENT):
            return CallRule(TRADE)
        rules = self.rules[call.program]
        size = len(next(iter(rules)))
        return rules.get(call.content[:size])

    def _unclear(self, call: ProgramCall) -> Iterator[CallChange]:
        """Yield the movements of an unknown call, by account, and the positions that it may have changed."""
        for owner, moved in _by_owner(call.movements).items():
            yield CallChange("unclear", "", owner, moved)
        yield from self._changed(call.accounts)

    def _changed(self, accounts: Sequence[str]) -> Iterator[CallChange]:
        """Yield an unclear change of each account that may be a position, or have the NFT of one."""
        for each in dict.fromkeys(map(self._position, accounts)):
            if each not in self.rules and each not in TOKEN_PROGRAMS and each != SYSTEM:
                yield CallChange("unclear", each)

    def _of_call(self, call: ProgramCall, rule: CallRule) -> Iterator[CallChange]:
        """Yield the changes of one call; an unclear one if its accounts are not as the rule has them."""
        indexes = (rule.position, rule.owner, *rule.vaults, *rule.accounts)
        if any(each is not None and each >= len(call.accounts) for each in indexes):
            yield from self._unclear(call)
            return
        position = "" if rule.position is None else self._position(call.accounts[rule.position])
        if rule.position is None:
            position = next((each.mint for each in call.movements if not (each.sender and each.recipient)), "")
        kind: CallKind = rule.kind  # type: ignore[assignment]
        if kind == "close" and not self.transaction.closed.keys() >= {call.accounts[each] for each in rule.accounts}:
            yield from self._unclear(call) if call.movements else ()
            return
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

    def _position(self, account: str) -> str:
        """Return the NFT of a token account, or the account itself."""
        return self.transaction.holders[account][1] if account in self.transaction.holders else account

    def _rents(self, kept: set[str]) -> Iterator[CallChange]:
        """Yield the lamports of new accounts, and of closed ones.

        What an account of the payer or of a position needs comes back when it is closed. Accounts of other programs,
        such as stakes, are left out.
        """
        for payer, new, raw, program in self.transaction.funded:
            if program in TOKEN_PROGRAMS or program in self.rules:
                is_kept = new in kept or self.transaction.holders.get(new, ("", ""))[0] == payer
                yield CallChange("rent" if is_kept else "cost", new, payer, (("", -raw),))
        for account, raw in sorted(self.transaction.closed.items()):
            if raw:
                yield CallChange("rent", account, "", (("", raw),))


def _number(content: bytes, at: int | None, size: int) -> int | None:
    return None if at is None else int.from_bytes(content[at : at + size], "little")


def _span(content: bytes, rule: CallRule) -> tuple[int, int] | None:
    if rule.span is None:
        return None
    first, last = (int.from_bytes(content[at : at + 4], "little", signed=True) for at in (rule.span, rule.span + 4))
    return first, first + last - 1 if rule.width else last


def _by_owner(movements: Iterable[Movement]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the net movements of each account, by mint; those without any are absent."""
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
