"""Verification of a portfolio at a block: read again at other endpoints, and its balances proven.

The two ways are independent. Another endpoint reads every number anew: the numbers are equal or differ. A proof of any
endpoint (`eth_getProof`) shows balances under the block's own hash, and so needs no trusted endpoint. Numbers that
neither confirms are named.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from chainfolio import amounts
from chainfolio.assets import Account, Asset
from chainfolio.blocks import Block
from chainfolio.capabilities import Capability, require_capability
from chainfolio.contracts import Snapshot, Token
from chainfolio.engine.rows import ChainIndex
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.errors import BadAnswer, BadRequest, SourceError
from chainfolio.plans import run_batched
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.valuation import valuate
from chainfolio.proofs import BlockProofs, ProofResult

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.engine.snapshots.snapshotter import Snapshotter

Status = Literal["equal", "differs", "proven", "unprovable", "unread"]
STATUSES: Final = ("proven", "equal", "unprovable", "unread", "differs")
ONE_ENDPOINT: Final = "there is one endpoint only, so that only proofs were made: name another with --against"
NO_PROOF: Final = "only another endpoint could confirm it"
OnStep = Callable[[str], None]
SnapshotterOf = Callable[["Chain"], "Snapshotter"]  # builds the reader of a chain


class EndpointValue(msgspec.Struct, frozen=True):
    """A number as another endpoint read it; null if it could not."""

    endpoint: str
    value: str | None


class Check(msgspec.Struct, rename="camel", frozen=True):
    """One number of the portfolio: its value, the values of other endpoints, and the result.

    `number` is `block`, `balance`, `position`, `decimals`, `price` or `networth`. `proof` is the result of a proof,
    `reason` the reason why the status is not better.
    """

    number: str
    asset: str
    symbol: str
    value: str | None
    status: Status
    elsewhere: tuple[EndpointValue, ...] = ()
    proof: str = ""
    reason: str = ""


class Fault(msgspec.Struct, frozen=True):
    """A fault of an endpoint, or the reason why it could not be read."""

    endpoint: str
    kind: str
    reason: str


class Verification(msgspec.Struct, rename="camel", frozen=True):
    """The checks of one portfolio.

    `faults` contradict a hash, as no sound node does. `silent` endpoints could not be read, or prove nothing.
    """

    address: str
    chain: str
    block_number: int
    block_hash: str
    answered_by: str
    compared_with: tuple[str, ...]
    proven_by: str | None
    counts: dict[str, int]
    checks: tuple[Check, ...]
    faults: tuple[Fault, ...]
    silent: tuple[Fault, ...]
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return True if a number differs, or an endpoint contradicted a hash."""
        return bool(self.faults) or self.counts["differs"] > 0

    @property
    def complete(self) -> bool:
        """Return True if every number is equal elsewhere or proven."""
        return not self.differs and not self.counts["unprovable"] and not self.counts["unread"]


@dataclass(slots=True)
class _Reading:
    """The snapshot of one endpoint, and its balances of tokens that only other snapshots hold."""

    chain: Chain
    snapshot: Snapshot
    other_balances: dict[Asset, int | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return _name(self.chain)

    @property
    def balances(self) -> dict[Asset, int]:
        """Return the balances of the snapshot by asset."""
        return {holding.token.asset: holding.raw for holding in self.snapshot.holdings}

    @property
    def tokens(self) -> dict[Asset, Token]:
        return {holding.token.asset: holding.token for holding in self.snapshot.holdings}

    @property
    def prices(self) -> dict[Asset, str]:
        return {price.asset: amounts.text(price.usd) for price in self.snapshot.prices}

    def balance(self, asset: Asset) -> str | None:
        """Return a raw balance as text; None if it could not be read."""
        raw = self.balances.get(asset, self.other_balances.get(asset))
        return None if raw is None else str(raw)


class _TransientTokenBook(TokenBook):
    """A token book that stores nothing: descriptions of other endpoints are only compared."""

    def add(self, tokens: Mapping[Asset, Token], block: Block) -> None:
        pass


async def verify(
    chain: Chain,
    at_endpoint: Callable[[str], Chain],
    snapshotter_of: SnapshotterOf,
    account: Account,
    height: int | None,
    against: Sequence[str] = (),
    on_step: OnStep = lambda text: None,
) -> Verification:
    """Compare the portfolio of a chain's first endpoint with other endpoints and with proofs.

    Args:
        at_endpoint: Opens the chain at the endpoint with a URL.
        height: The block; None for the newest final one.
        against: URLs of the other endpoints; empty for those of the settings.

    Raises:
        BadRequest: The height is above the head, the address of another kind, or the chain has no endpoints.
        SourceError: The first endpoint could not be read. Others that fail are named in `silent`.
    """
    if chain.kind != account.kind:
        raise BadRequest("address", f"{account} is no address of {chain.key}")
    if not (endpoints := chain.settings.endpoints):
        setting = f"chains.{chain.key}.{chain.settings.ENDPOINTS}".removesuffix(".")
        raise BadRequest("chain", f"no endpoint of {chain.key} is configured", remedy=f"set {setting} in the settings")
    urls = [*endpoints[:1], *(against or endpoints[1:])]
    chains = [at_endpoint(url) for url in urls]
    try:
        return await _verify(chains, snapshotter_of, account.address, height, on_step)
    finally:
        await asyncio.gather(*(each.close() for each in chains))


async def _verify(
    chains: Sequence[Chain], snapshotter_of: SnapshotterOf, account: str, height: int | None, on_step: OnStep
) -> Verification:
    """Read an account at one block from each chain and compare the first with the others.

    Of these, the ones that fail are listed as silent. An error of the first is raised, and BadRequest above the head.

    Args:
        height: None for the newest final block of the first.
    """
    first, *peer_chains = chains
    on_step(f"asking {_name(first)}")
    heads = await first.heads()
    height = heads.finalized if height is None else height
    if height > heads.latest.height:
        raise BadRequest("block", f"block {height} is above the head, which is block {heads.latest.height}")
    reader = snapshotter_of(first)
    primary = await _read(reader, first, account, await first.block(height), TokenBook)
    peers, hashes, silent = [], [], []
    for peer in peer_chains:
        on_step(f"reading the same again from {_name(peer)}")
        try:
            block = await peer.block(height)
            hashes.append(EndpointValue(_name(peer), block.hash))
            peers.append(await _read(snapshotter_of(peer), peer, account, block, _TransientTokenBook))
        except SourceError as error:
            silent.append(_fault(peer, error))
    await _read_missing_balances([primary, *peers], account)
    findings, proven_by, faults, unable = await _proofs(reader, primary, peers, chains, account, on_step)
    silent += unable
    checks = (*_checks(primary, peers, tuple(hashes), findings),)
    counts = Counter(check.status for check in checks)
    return Verification(
        account,
        first.key,
        height,
        primary.snapshot.block.hash,
        primary.name,
        tuple(peer.name for peer in peers),
        proven_by,
        {status: counts[status] for status in STATUSES},
        checks,
        tuple(faults),
        tuple(silent),
        _notes(primary, peers, peer_chains),
    )


def _name(chain: Chain) -> str:
    return chain.health()[0].endpoint


def _fault(chain: Chain, error: SourceError) -> Fault:
    return Fault(_name(chain), type(error).__name__, error.reason)


async def _read(reader: Snapshotter, chain: Chain, account: str, block: Block, book: type[TokenBook]) -> _Reading:
    """Read an account at a block from one endpoint, with a new token book of type `book`."""
    original, lake = reader.book, None if reader.store is None else reader.lake
    reader.book = book(chain.key, lake, original.listed, original.registry)
    reader.store = None  # stored prices may come from another endpoint
    return _Reading(chain, await reader.take([account], block))


async def _read_missing_balances(readings: Sequence[_Reading], account: str) -> None:
    """Read the balances that only other endpoints found: absent from a snapshot does not mean zero."""
    assets = {asset for reading in readings for asset in reading.balances if not asset.is_native}
    for reading in readings:
        missing = sorted(assets - reading.balances.keys())
        answers = await _balances(reading, [(account, asset) for asset in missing])
        for asset, raw in zip(missing, answers, strict=True):
            reading.other_balances[asset] = raw if isinstance(raw, int) else None


async def _balances(reading: _Reading, pairs: Sequence[tuple[str, Asset]]) -> Sequence[object]:
    """Return the balances of tokens at an endpoint; None for each token if the read fails."""
    chain, block = reading.chain, reading.snapshot.block
    try:
        reports = await run_batched({"": chain.balances(pairs)}, lambda reads: chain.answer(reads, block))
    except SourceError:
        return [None] * len(pairs)
    return reports[""].result or [None] * len(pairs)


async def _proofs(
    reader: Snapshotter,
    primary: _Reading,
    peers: Sequence[_Reading],
    chains: Sequence[Chain],
    account: str,
    on_step: OnStep,
) -> tuple[BlockProofs | None, str | None, list[Fault], list[Fault]]:
    """Prove the balances with the first endpoint whose proofs hold, the other endpoints first.

    Tokens that only the index or peers report are proven to be 0.

    Returns:
        The proofs (if all are broken, the first ones), the name of their endpoint, faults, and endpoints that could not
        prove. None and empty lists if the chain has no proofs.
    """
    if Capability.PROOFS not in primary.chain.capabilities:
        return None, None, [], []
    block = primary.snapshot.block
    index, info = ChainIndex(reader.lake, reader.tail, primary.chain.key), primary.chain.info
    interactions = await asyncio.to_thread(account_index.interactions_of, index, [account], block.height, info)
    unclaimed = dict.fromkeys([*interactions[account].tokens, *(asset for peer in peers for asset in peer.balances)], 0)
    balances: dict[Asset, int | None] = {**unclaimed, info.native.asset: None, **primary.balances}
    best: tuple[BlockProofs | None, str | None] = None, None
    faults: list[Fault] = []
    unable: list[Fault] = []
    for chain in (*chains[1:], chains[0]):
        on_step(f"proving {len(balances)} balances with proofs from {_name(chain)}")
        try:
            proofs = await require_capability(chain, Capability.PROOFS).prove(block, account, balances)
        except BadAnswer as error:
            contradicts = type(error) is BadAnswer  # its subclasses mean that something is not served
            (faults if contradicts else unable).append(_fault(chain, error))
            continue
        except SourceError as error:
            unable.append(_fault(chain, error))
            continue
        broken = [finding for finding in proofs.balances.values() if finding.status == "broken"]
        faults += [Fault(_name(chain), "BadProof", reason) for reason in dict.fromkeys(f.reason for f in broken)]
        best = (proofs, _name(chain)) if best[0] is None or not broken else best
        if not broken:
            break
    return *best, faults, unable


def _checks(
    primary: _Reading, peers: Sequence[_Reading], hashes: tuple[EndpointValue, ...], findings: BlockProofs | None
) -> list[Check]:
    """Return one check per number: the block, balances, decimals and prices, positions, and the sum.

    The sum is checked only if there are peers.
    """
    header = None if findings is None else findings.header
    rows = [_check("block", "", "", primary.snapshot.block.hash, hashes, header)]
    assets = {primary.chain.info.native.asset, *(asset for reading in (primary, *peers) for asset in reading.balances)}
    for asset in sorted(assets, key=lambda each: each.shown_contract):
        rows += _asset_checks(asset, primary, peers, findings)
    rows += _hidden_balances(assets, findings)
    rows += _position_checks(primary, peers)
    contracts = {asset.shown_contract for asset in assets}
    rows += [
        Check("balance", issue.subject, "", None, "unread", reason=issue.reason)
        for issue in primary.snapshot.issues
        if issue.adapter == "balance" and issue.subject not in contracts
    ]
    if peers:
        values_usd = tuple(EndpointValue(peer.name, _value_usd(peer)) for peer in peers)
        rows.append(_check("networth", "", "USD", _value_usd(primary), values_usd, None))
    return rows


def _asset_checks(
    asset: Asset, primary: _Reading, peers: Sequence[_Reading], findings: BlockProofs | None
) -> list[Check]:
    """Return checks of an asset's balance at all peers; of decimals and price at readers of the token."""
    symbols = (reading.tokens[asset].symbol for reading in (primary, *peers) if asset in reading.tokens)
    symbol, name = next(symbols, primary.chain.info.native.symbol), str(asset)
    finding = None if findings is None else findings.balances.get(asset)
    balances = tuple(EndpointValue(peer.name, peer.balance(asset)) for peer in peers)
    rows = [_check("balance", name, symbol, primary.balance(asset), balances, finding)]
    holders = [peer for peer in peers if asset in peer.tokens]  # others have no reason to read the token
    if asset in primary.tokens and not asset.is_native:
        decimals = tuple(EndpointValue(peer.name, _decimals(peer, asset)) for peer in holders)
        rows.append(_check("decimals", name, symbol, _decimals(primary, asset), decimals, None))
    prices = tuple(EndpointValue(peer.name, peer.prices.get(asset, UNKNOWN)) for peer in holders)
    if asset in primary.prices or any(price.value != UNKNOWN for price in prices):
        rows.append(_check("price", name, symbol, primary.prices.get(asset, UNKNOWN), prices, None))
    return rows


def _position_checks(primary: _Reading, peers: Sequence[_Reading]) -> list[Check]:
    """Check the raw amounts inside protocols, which proofs do not cover.

    A position that is not reported is 0.
    """
    amounts_of = [_positions(reading) for reading in (primary, *peers)]
    rows = []
    for key in sorted({key for by_key in amounts_of for key in by_key}):
        values = tuple(
            EndpointValue(peer.name, str(by_key.get(key, 0)))
            for peer, by_key in zip(peers, amounts_of[1:], strict=True)
        )
        rows.append(_check("position", key[0], key[1], str(amounts_of[0].get(key, 0)), values, None))
    return rows


def _positions(reading: _Reading) -> dict[tuple[str, str], int]:
    """Return raw amounts by asset and location, summed over positions; debt is positive too.

    A location is a text of protocol, pool or vault, side (supplied, borrowed or rewards) and symbol.
    """
    raw_amounts: Counter[tuple[str, str]] = Counter()
    for each in reading.snapshot.positions:
        for side in ("supplied", "borrowed", "rewards"):
            for part in getattr(each, side):
                location = f"{each.protocol} {each.pool or each.vault} {side} {part.token.symbol}"
                raw_amounts[str(part.token.asset), location] += part.raw
    return dict(raw_amounts)


def _check(
    number: str,
    asset: str,
    symbol: str,
    value: str | None,
    readings: tuple[EndpointValue, ...],
    finding: ProofResult | None,
) -> Check:
    """Return the check of one number: a difference weighs most, then a proof, then an equal reading.

    Without a value it is `unread`; `readings` without value do not count. A proof that contradicts makes a difference
    unless the others agree; for the native coin always.
    """
    values = [peer.value for peer in readings if peer.value is not None]
    proof = "" if finding is None else finding.reason
    is_equal = bool(values) and all(each == value for each in values)
    row = Check(number, asset, symbol, value, "equal", readings, proof)
    if value is None:
        return msgspec.structs.replace(row, status="unread", reason="the answer does not have it")
    if values and not is_equal:
        return msgspec.structs.replace(row, status="differs", reason="another endpoint says otherwise")
    if finding is not None and finding.status == "proven":
        return msgspec.structs.replace(row, status="proven")
    if finding is not None and finding.status == "contradicted" and (not is_equal or _is_native(asset)):
        return msgspec.structs.replace(row, status="differs", reason=finding.reason)
    if is_equal:
        return row
    if readings:
        return msgspec.structs.replace(row, status="unread", reason="no other endpoint said what it is")
    return msgspec.structs.replace(row, status="unprovable", reason=NO_PROOF if finding is None else finding.reason)


def _is_native(asset: str) -> bool:
    return "/slip44:" in asset


def _hidden_balances(checked: Collection[Asset], findings: BlockProofs | None) -> list[Check]:
    """Return a check for each token that no endpoint reports, but a proof shows a balance for."""
    balances = {} if findings is None else findings.balances
    return [
        Check("balance", str(asset), "", "0", "differs", (), "", finding.reason)
        for asset, finding in sorted(balances.items(), key=lambda each: str(each[0]))
        if asset not in checked and finding.status == "contradicted"
    ]


def _decimals(reading: _Reading, asset: Asset) -> str:
    decimals = reading.tokens[asset].decimals
    return UNKNOWN if decimals is None else str(decimals)


def _value_usd(reading: _Reading) -> str:
    return amounts.text(valuate([reading.snapshot]).value_usd)


def _notes(primary: _Reading, peers: Sequence[_Reading], peer_chains: Sequence[Chain]) -> tuple[str, ...]:
    """Return notes on the limits of the verification, and issues of the account index."""
    notes = [] if peer_chains else [ONE_ENDPOINT]
    if peer_chains and not peers:
        notes.append("no other endpoint could be read: only proofs were made")
    if Capability.PROOFS not in primary.chain.capabilities:
        notes.append(f"{primary.chain.key} has no proofs: only other endpoints can confirm an answer")
    elif not peers:
        notes.append("proofs hold for this block hash: check with a source that you trust that it is the chain's")
    notes += [
        f"{issue.adapter}: {issue.reason}"
        for issue in primary.snapshot.issues
        if issue.adapter == account_index.ADAPTER
    ]
    return tuple(notes)
