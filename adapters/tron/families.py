"""Positions by the decoders of the EVM, whose ABI contracts of Tron understand: their addresses are `0x…`, ours `T…`.

What they ask for is put into our reads, and what they find has our assets and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from adapters.tron.addresses import raw, shown
from adapters.tron.facts import TRC20, Facts
from adapters.tron.reads import AbiRead, Told, WalletRead
from chainfolio.abi import AbiCall, AbiFamilies, CoinsOf
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown
from chainfolio.positions import AccountReader, AccountState, Describe, OpenPosition
from chainfolio.protocols import InstalledProtocols
from chainfolio.reads import AtParent, ReadResult

SINGLE: Final = "trc721"  # collections whose numbers have one owner each
SINGLES: Final = "erc721"  # what the decoders call them
GONE: Final = Unknown("nodes of this chain keep no old state", "gone")
_addresses: Final = re.compile(r"0x[0-9a-f]{40}(?![0-9a-f])")


def outward(address: str) -> str:
    """An address as the decoders know it."""
    return f"0x{raw(address).hex()}"


def inward(address: str) -> str:
    """An address of the decoders as everything else knows it."""
    return shown(bytes.fromhex(address[2:]))


def told(text: str) -> str:
    """A text in which addresses are written as everything else knows them."""
    return _addresses.sub(lambda found: inward(found[0]), text)


@dataclass(frozen=True, slots=True)
class Names:
    """The assets of a chain, by the contracts of the decoders."""

    facts: Facts

    @property
    def native_asset(self) -> Asset:
        """The native coin."""
        return self.facts.native_asset

    def token_asset(self, contract: str) -> Asset:
        """The token of a contract."""
        return self.facts.token_asset(inward(contract))


@dataclass(frozen=True, slots=True)
class Families:
    """The installed protocols of a chain that are of those families."""

    families: AbiFamilies
    reader: AccountReader

    @classmethod
    def of(
        cls, families: AbiFamilies, facts: Facts, installed: InstalledProtocols, listed: Collection[Asset]
    ) -> Families:
        """Those that are installed on a chain; `listed` are tokens whose transfers nobody has to doubt."""
        rows = tuple(
            replace(row, contracts={role: tuple(map(outward, each)) for role, each in row.contracts.items()})
            for row in installed.rows
        )
        unread = {outward(contract): why for contract, why in installed.unread.items()}
        plain = [outward(facts.wrapped.address)] if facts.wrapped else []
        trusted = [outward(each.reference) for each in listed if each.kind == TRC20]
        known = InstalledProtocols(rows, installed.issues, unread)
        return cls(families, families.account_reader(Names(facts), known, plain, trusted))

    def unknown(self, account: str, interactions: Interactions) -> list[Issue]:
        """What an account had to do with contracts that nobody reads."""
        return [_issue(each) for each in self.reader.unknown(outward(account), _outward(interactions))]

    def read(
        self, account: str, interactions: Interactions, wanted: Sequence[Asset], named: Describe | None, block: Block
    ) -> Plan[Any, Any, AccountState]:
        """The positions of an account, by what it met and by what it has of the wanted tokens."""
        tokens = [_token(each) for each in wanted if each.kind == TRC20]
        plan = self.reader.at(block).read(outward(account), _outward(interactions), tokens, named)
        found: AccountState = yield from self._asked(plan)
        return replace(
            found, positions=tuple(map(self._position, found.positions)), issues=tuple(map(_issue, found.issues))
        )

    def _asked(self, plan: Plan[Any, Any, Any]) -> Plan[Any, Any, Any]:
        """A plan of theirs in reads of ours. What was before the block that is read, nobody can be asked."""
        given: Any = None
        while True:
            try:
                reads = next(plan) if given is None else plan.send(given)
            except StopIteration as stop:
                return stop.value
            ours = [self._ours(each) for each in reads]
            answers = iter((yield [each for each in ours if each is not None]))
            pairs = zip(reads, ours, strict=True)
            given = [GONE if each is None else _coins(asked, next(answers)) for asked, each in pairs]

    def _ours(self, read: Any) -> Any:
        """A read of ours in the place of theirs; None where nobody can be asked."""
        if isinstance(read, AtParent) and self._is_theirs(read):
            return None
        asked = self.families.asked(read)
        if isinstance(asked, CoinsOf):
            return WalletRead(inward(asked.account))
        return AbiRead(self.families, read) if isinstance(asked, AbiCall) else read

    def _is_theirs(self, read: Any) -> bool:
        while isinstance(read, AtParent):
            read = read.read
        return self.families.asked(read) is not None

    def _position(self, found: OpenPosition) -> OpenPosition:
        return replace(
            found, account=inward(found.account), name=told(found.name), vault=told(found.vault), pool=told(found.pool),
            unverified=told(found.unverified),
            calls=tuple(ReadResult(ours, each.result) for each in found.calls if (ours := self._ours(each.read))),
        )  # fmt: skip


def _coins(read: Any, answer: Any) -> Any:
    """What they take for the coins of an account: theirs are no whole accounts."""
    return answer.wallet.balance if isinstance(answer, Told) and not isinstance(read, WalletRead) else answer


def _issue(each: Issue) -> Issue:
    return replace(each, subject=told(each.subject), reason=told(each.reason), account=told(each.account))


def _token(asset: Asset) -> Asset:
    return asset if asset.is_native else Asset(asset.chain, asset.kind, outward(asset.reference))


def _outward(met: Interactions) -> Interactions:
    """What an account met, as the decoders know it: without tokens of the chain itself, which are no contracts."""
    tokens = frozenset(_token(each) for each in met.tokens if each.kind == TRC20)
    ids = {
        Asset(each.chain, SINGLES, outward(each.reference)): own for each, own in met.ids.items() if each.kind == SINGLE
    }
    return Interactions(tokens, ids, _parties(met.exchanged), _parties(met.sent))


def _parties(moved: Mapping[str, frozenset[Asset]]) -> dict[str, frozenset[Asset]]:
    return {
        outward(other): frozenset(_token(each) for each in assets if each.is_native or each.kind == TRC20)
        for other, assets in moved.items()
    }
