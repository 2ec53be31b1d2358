"""Positions by the protocol decoders of the EVM, whose ABI Tron's contracts share.

The decoders write addresses as `0x…`, Tron as `T…`. Reads of the decoders are sent as reads of this chain, and their
results get this chain's assets and addresses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from chainfolio.abi import AbiCall, AbiFamilies, CoinBalance
from chainfolio.adapters.tron.addresses import decode_address, encode_address
from chainfolio.adapters.tron.facts import TRC20, Facts
from chainfolio.adapters.tron.reads import AbiRead, WalletRead, WalletState
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue
from chainfolio.interactions import Interactions
from chainfolio.plans import Output, Plan, Unknown
from chainfolio.positions import AccountReader, AccountState, Describe, OpenPosition
from chainfolio.protocols import InstalledProtocols
from chainfolio.reads import AtParent, Read, ReadResult

TRC721: Final = "trc721"  # Tron's name for collections
ERC721: Final = "erc721"  # the decoders' name for them
NO_OLD_STATE: Final = Unknown("nodes of this chain keep no old state", "gone")
_evm_addresses: Final = re.compile(r"0x[0-9a-f]{40}(?![0-9a-f])")


def to_evm(address: str) -> str:
    """Return a Tron address as the decoders write it."""
    return f"0x{decode_address(address).hex()}"


def from_evm(address: str) -> str:
    """Return an address of the decoders as a Tron address."""
    return encode_address(bytes.fromhex(address[2:]))


def text_from_evm(text: str) -> str:
    """Return a text with every EVM address in it replaced by the Tron address."""
    return _evm_addresses.sub(lambda match: from_evm(match[0]), text)


@dataclass(frozen=True, slots=True)
class EvmAssets:
    """The assets of a chain by the contracts of the decoders."""

    facts: Facts

    @property
    def native_asset(self) -> Asset:
        """The native coin."""
        return self.facts.native_asset

    def token_asset(self, contract: str) -> Asset:
        """Return the token of a contract."""
        return self.facts.token_asset(from_evm(contract))


@dataclass(frozen=True, slots=True)
class EvmProtocols:
    """The installed protocols of a chain that the EVM's decoders read."""

    families: AbiFamilies
    reader: AccountReader

    @classmethod
    def build(
        cls, families: AbiFamilies, facts: Facts, installed: InstalledProtocols, trusted: Collection[Asset]
    ) -> EvmProtocols:
        """Build a reader of the installed protocols.

        Args:
            families: The decoders.
            facts: The chain.
            installed: Its protocols, with Tron addresses.
            trusted: Tokens whose transfer events are trusted.
        """
        rows = tuple(
            replace(row, contracts={role: tuple(map(to_evm, each)) for role, each in row.contracts.items()})
            for row in installed.rows
        )
        unread = {to_evm(contract): reason for contract, reason in installed.unread.items()}
        evm_installed = InstalledProtocols(rows, installed.issues, unread)
        non_shares = [to_evm(facts.wrapped.address)] if facts.wrapped else []
        contracts = [to_evm(each.reference) for each in trusted if each.kind == TRC20]
        return cls(families, families.account_reader(EvmAssets(facts), evm_installed, non_shares, contracts))

    def unread_protocols(self, account: str, interactions: Interactions) -> list[Issue]:
        """Return an issue per protocol that an account used and that no decoder reads."""
        issues = self.reader.unread_protocols(to_evm(account), _interactions_to_evm(interactions))
        return [_issue_from_evm(each) for each in issues]

    def read(
        self,
        account: str,
        interactions: Interactions,
        tokens: Sequence[Asset],
        describe: Describe | None,
        block: Block,
    ) -> Plan[AccountState]:
        """Return the positions of an account, from its interactions and its TRC-20 balances among `tokens`.

        Positions and issues have Tron's addresses.
        """
        evm_tokens = [_asset_to_evm(each) for each in tokens if each.kind == TRC20]
        reader = self.reader.at(block)
        plan = reader.read(to_evm(account), _interactions_to_evm(interactions), evm_tokens, describe)
        state = yield from self._translate(plan)
        return replace(
            state,
            positions=tuple(map(self._position_from_evm, state.positions)),
            issues=tuple(map(_issue_from_evm, state.issues)),
        )

    def _translate(self, plan: Plan[Output]) -> Plan[Output]:
        """Run a plan of the decoders with reads of this chain. Reads of older states get `NO_OLD_STATE`."""
        results: list[object] | None = None
        while True:
            try:
                evm_reads = next(plan) if results is None else plan.send(results)
            except StopIteration as stop:
                result: Output = stop.value
                return result
            reads = [self._translate_read(each) for each in evm_reads]
            answers = iter((yield [each for each in reads if not isinstance(each, Unknown)]))
            pairs = zip(evm_reads, reads, strict=True)
            results = [
                read if isinstance(read, Unknown) else _native_balance(evm_read, next(answers))
                for evm_read, read in pairs
            ]

    def _translate_read(self, read: Read[object]) -> Read[object] | Unknown:
        """Return the chain's read of a decoder's; Unknown if it is of an older state or not encodable."""
        if isinstance(read, AtParent) and self._is_evm(read):
            return NO_OLD_STATE
        call = self.families.to_request(read)
        if isinstance(call, Unknown):
            return call
        if isinstance(call, CoinBalance):
            return WalletRead(from_evm(call.account))
        return AbiRead(self.families, read) if isinstance(call, AbiCall) else read

    def _is_evm(self, read: Read[object]) -> bool:
        while isinstance(read, AtParent):
            read = read.read
        return self.families.to_request(read) is not None

    def _position_from_evm(self, position: OpenPosition) -> OpenPosition:
        """Return a position with Tron's addresses; reads that have no Tron form are left out."""
        return replace(
            position,
            account=from_evm(position.account),
            name=text_from_evm(position.name),
            vault=text_from_evm(position.vault),
            pool=text_from_evm(position.pool),
            unverified=text_from_evm(position.unverified),
            calls=tuple(
                ReadResult(read, call.result)
                for call in position.calls
                if not isinstance(read := self._translate_read(call.read), Unknown)
            ),
        )


def _native_balance(evm_read: object, result: object) -> object:
    """Return the native balance if a decoder asked for it: our read of it gives the whole account."""
    if isinstance(result, WalletState) and not isinstance(evm_read, WalletRead):
        return result.wallet.balance
    return result


def _issue_from_evm(issue: Issue) -> Issue:
    """Return an issue whose texts have Tron's addresses."""
    return replace(
        issue,
        subject=text_from_evm(issue.subject),
        reason=text_from_evm(issue.reason),
        account=text_from_evm(issue.account),
    )


def _asset_to_evm(asset: Asset) -> Asset:
    return asset if asset.is_native else Asset(asset.chain, asset.kind, to_evm(asset.reference))


def _interactions_to_evm(interactions: Interactions) -> Interactions:
    """Return interactions with 0x addresses, and TRC-721 collections as ERC-721, for EVM decoders.

    TRC-10 tokens are left out, because they have no contract.
    """
    tokens = frozenset(_asset_to_evm(each) for each in interactions.tokens if each.kind == TRC20)
    ids = {
        Asset(collection.chain, ERC721, to_evm(collection.reference)): token_ids
        for collection, token_ids in interactions.received_ids.items()
        if collection.kind == TRC721
    }
    return Interactions(
        tokens, ids, _counterparties_to_evm(interactions.exchanged_with), _counterparties_to_evm(interactions.sent_to)
    )


def _counterparties_to_evm(assets_by_account: Mapping[str, frozenset[Asset]]) -> dict[str, frozenset[Asset]]:
    return {
        to_evm(account): frozenset(_asset_to_evm(each) for each in assets if each.is_native or each.kind == TRC20)
        for account, assets in assets_by_account.items()
    }
