"""Is an answer true? The portfolio of an address at a block, read again elsewhere, and its balances proven.

Two ways that do not lean on each other. Another endpoint reads every number anew: they are equal or differ. And any
endpoint's `eth_getProof` shows balances under the block's own hash: that needs nobody's word. What neither shows is
said.
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
from chainfolio.chains import Capability, require_capability
from chainfolio.contracts import Snapshot, Token
from chainfolio.engine.snapshots import account_index
from chainfolio.engine.snapshots.token_book import TokenBook
from chainfolio.engine.wiring import snapshotter_of
from chainfolio.errors import BadAnswer, BadRequest, SourceError
from chainfolio.plans import run_batched
from chainfolio.portfolio.document import UNKNOWN
from chainfolio.portfolio.valuation import valuate
from chainfolio.proofs import BlockProofs, ProofResult

if TYPE_CHECKING:
    from chainfolio.chains import Chain
    from chainfolio.indexer.wiring import System

Status = Literal["equal", "differs", "proven", "unprovable", "unread"]
STATUSES: Final = ("proven", "equal", "unprovable", "unread", "differs")
ONE_ENDPOINT: Final = "there is one endpoint only, so that only proofs were made: name another with --against"
NO_PROOF: Final = "only another endpoint could confirm it"
OnStep = Callable[[str], None]


class Elsewhere(msgspec.Struct, frozen=True):
    """What one other endpoint says a number is; null where it did not say."""

    endpoint: str
    value: str | None


class Check(msgspec.Struct, rename="camel", frozen=True):
    """One number of the answer (`block`, `balance`, `position`, `decimals`, `price` or `networth`): its value, what
    others say, and how that ended. `proof` says what a proof showed, `reason` why nothing better could be said."""

    number: str
    asset: str
    symbol: str
    value: str | None
    status: Status
    elsewhere: tuple[Elsewhere, ...] = ()
    proof: str = ""
    reason: str = ""


class Fault(msgspec.Struct, frozen=True):
    """What an endpoint did wrong, or could not do."""

    endpoint: str
    kind: str
    reason: str


class Verification(msgspec.Struct, rename="camel", frozen=True):
    """Every number of one answer. `faults` contradict a hash, as no sound node does; `silent` endpoints could not be
    read, or prove nothing."""

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
        """Whether something is not as the answer says, or an endpoint gave what a hash contradicts."""
        return bool(self.faults) or self.counts["differs"] > 0

    @property
    def complete(self) -> bool:
        """Whether every number is equal elsewhere or proven."""
        return not self.differs and not self.counts["unprovable"] and not self.counts["unread"]


@dataclass(slots=True)
class _Reading:
    """What one endpoint says: its name, its snapshot, and the balances that its snapshot does not hold."""

    chain: Chain
    snapshot: Snapshot
    more: dict[Asset, int | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return _name(self.chain)

    @property
    def held(self) -> dict[Asset, int]:
        """Balances by asset."""
        return {holding.token.asset: holding.raw for holding in self.snapshot.holdings}

    @property
    def tokens(self) -> dict[Asset, Token]:
        return {holding.token.asset: holding.token for holding in self.snapshot.holdings}

    @property
    def prices(self) -> dict[Asset, str]:
        return {price.asset: amounts.text(price.usd) for price in self.snapshot.prices}

    def balance(self, asset: Asset) -> str | None:
        raw = self.held.get(asset, self.more.get(asset))
        return None if raw is None else str(raw)


class _Forgetful(TokenBook):
    """A book that writes nothing down: what others say of tokens is only held against what the first endpoint says."""

    def learn(self, tokens: Mapping[Asset, Token], block: Block) -> None:
        pass


async def verify(
    system: System,
    key: str,
    account: Account,
    height: int | None,
    against: Sequence[str] = (),
    on_step: OnStep = lambda text: None,
) -> Verification:
    """The answer of a chain's first endpoint about an account, held against the other endpoints (`against` URLs, else
    those of the settings) and against proofs, at the newest final block where no height is given.

    BadRequest above the head or for an address of another kind, HistoryUnavailable and other source errors where the
    answer itself cannot be made; an other endpoint that fails is named in `silent`.
    """
    chain = system.chain(key)
    if chain.kind != account.kind:
        raise BadRequest("address", f"{account} is no address of {key}")
    own = chain.settings.endpoints
    if against and not own:
        raise BadRequest("against", f"{key} has no endpoints that another one could stand for")
    urls = [*own[:1], *(against or own[1:])]
    chains = [system.at_endpoint(key, url) for url in urls]
    try:
        return await _verified(system, chains, account.address, height, on_step)
    finally:
        await asyncio.gather(*(each.close() for each in chains))


async def _verified(
    system: System, chains: Sequence[Chain], account: str, height: int | None, on_step: OnStep
) -> Verification:
    first, *rest = chains
    on_step(f"asking {_name(first)}")
    heads = await first.heads()
    height = heads.finalized if height is None else height
    if height > heads.latest.height:
        raise BadRequest("block", f"block {height} is above the head, which is block {heads.latest.height}")
    ours = await _read(system, first, account, await first.block(height), TokenBook)
    others, hashes, silent = [], [], []
    for other in rest:
        on_step(f"reading the same again from {_name(other)}")
        try:
            block = await other.block(height)
            hashes.append(Elsewhere(_name(other), block.hash))
            others.append(await _read(system, other, account, block, _Forgetful))
        except SourceError as error:
            silent.append(_fault(other, error))
    await _complete([ours, *others], account)
    findings, proven_by, faults, unable = await _proofs(system, ours, others, chains, account, on_step)
    silent += unable
    checks = (*_checks(ours, others, tuple(hashes), findings),)
    counts = Counter(check.status for check in checks)
    snapshot = ours.snapshot
    return Verification(
        account,
        first.key,
        height,
        snapshot.block.hash,
        ours.name,
        tuple(other.name for other in others),
        proven_by,
        {status: counts[status] for status in STATUSES},
        checks,
        tuple(faults),
        tuple(silent),
        _notes(ours, others, rest),
    )


def _name(chain: Chain) -> str:
    return chain.health()[0].endpoint


def _fault(chain: Chain, error: SourceError) -> Fault:
    return Fault(_name(chain), type(error).__name__, error.reason)


async def _read(system: System, chain: Chain, account: str, block: Block, book: type[TokenBook]) -> _Reading:
    """What one endpoint says of an account at a block; with what is known of tokens, or asking them anew."""
    snapshotter = snapshotter_of(system, chain)
    known, lake = snapshotter.book, None if system.keeps_nothing else system.lake
    snapshotter.book = book(chain.key, lake, known.listed, known.registry)
    snapshotter.store = None  # what an endpoint says is compared, not what another one said before
    return _Reading(chain, await snapshotter.take([account], block))


async def _complete(readings: Sequence[_Reading], account: str) -> None:
    """Ask each endpoint for the balances that only others found: absent from a snapshot is not yet zero."""
    found = {asset for reading in readings for asset in reading.held if not asset.is_native}
    for reading in readings:
        missing = sorted(found - reading.held.keys())
        answers = await _balances(reading, [(account, asset) for asset in missing])
        for asset, raw in zip(missing, answers, strict=True):
            reading.more[asset] = raw if isinstance(raw, int) else None


async def _balances(reading: _Reading, pairs: Sequence[tuple[str, Asset]]) -> Sequence[object]:
    """How much accounts have of tokens, as an endpoint says it; None where it does not answer any more."""
    chain, block = reading.chain, reading.snapshot.block
    try:
        reports = await run_batched({"": chain.balances(pairs)}, lambda reads: chain.answer(reads, block))
    except SourceError:
        return [None] * len(pairs)
    return reports[""].result or [None] * len(pairs)


async def _proofs(
    system: System,
    ours: _Reading,
    others: Sequence[_Reading],
    chains: Sequence[Chain],
    account: str,
    on_step: OnStep,
) -> tuple[BlockProofs | None, str | None, list[Fault], list[Fault]]:
    """The proofs of the first endpoint whose proofs hold, others before the one that answered; what was wrong on the
    way, and who could not prove anything. Tokens that the index met and nobody says to be held are looked at too."""
    if Capability.PROOFS not in ours.chain.capabilities:
        return None, None, [], []
    block = ours.snapshot.block
    index, info = (system.lake, system.tail, ours.chain.key), ours.chain.info
    interactions = await asyncio.to_thread(account_index.interactions_of, *index, [account], block.height, info)
    unclaimed = dict.fromkeys([*interactions[account].tokens, *(asset for other in others for asset in other.held)], 0)
    balances: dict[Asset, int | None] = {**unclaimed, info.native.asset: None, **ours.held}
    best: tuple[BlockProofs | None, str | None] = None, None
    faults: list[Fault] = []
    unable: list[Fault] = []
    for chain in (*chains[1:], chains[0]):
        on_step(f"proving {len(balances)} balances with proofs from {_name(chain)}")
        try:
            found = await require_capability(chain, Capability.PROOFS).prove(block, account, balances)
        except BadAnswer as error:
            contradicts = type(error) is BadAnswer  # its kinds say that something is not served
            (faults if contradicts else unable).append(_fault(chain, error))
            continue
        except SourceError as error:
            unable.append(_fault(chain, error))
            continue
        broken = [finding for finding in found.balances.values() if finding.status == "broken"]
        faults += [Fault(_name(chain), "BadProof", reason) for reason in dict.fromkeys(f.reason for f in broken)]
        best = (found, _name(chain)) if best[0] is None or not broken else best
        if not broken:
            break
    return *best, faults, unable


def _checks(
    ours: _Reading, others: Sequence[_Reading], hashes: tuple[Elsewhere, ...], findings: BlockProofs | None
) -> list[Check]:
    """One row a number: the block, each asset's balance, decimals and price, each amount in positions, the sum."""
    header = None if findings is None else findings.header
    rows = [_check("block", "", "", ours.snapshot.block.hash, hashes, header)]
    held = {ours.chain.info.native.asset, *(asset for reading in (ours, *others) for asset in reading.held)}
    for asset in sorted(held, key=lambda each: each.shown_contract):
        rows += _of_asset(asset, ours, others, findings)
    rows += _hidden(held, findings)
    rows += _of_positions(ours, others)
    contracts = {asset.shown_contract for asset in held}
    rows += [
        Check("balance", issue.subject, "", None, "unread", reason=issue.reason)
        for issue in ours.snapshot.issues
        if issue.adapter == "balance" and issue.subject not in contracts
    ]
    if others:
        values_usd = tuple(Elsewhere(other.name, _value_usd(other)) for other in others)
        rows.append(_check("networth", "", "USD", _value_usd(ours), values_usd, None))
    return rows


def _of_asset(asset: Asset, ours: _Reading, others: Sequence[_Reading], findings: BlockProofs | None) -> list[Check]:
    named = (reading.tokens[asset].symbol for reading in (ours, *others) if asset in reading.tokens)
    symbol, name = next(named, ours.chain.info.native.symbol), str(asset)
    finding = None if findings is None else findings.balances.get(asset)
    balances = tuple(Elsewhere(other.name, other.balance(asset)) for other in others)
    rows = [_check("balance", name, symbol, ours.balance(asset), balances, finding)]
    holders = [other for other in others if asset in other.tokens]  # who holds none has no reason to look at it
    if asset in ours.tokens and not asset.is_native:
        known = tuple(Elsewhere(other.name, _decimals(other, asset)) for other in holders)
        rows.append(_check("decimals", name, symbol, _decimals(ours, asset), known, None))
    prices = tuple(Elsewhere(other.name, other.prices.get(asset, UNKNOWN)) for other in holders)
    if asset in ours.prices or any(price.value != UNKNOWN for price in prices):
        rows.append(_check("price", name, symbol, ours.prices.get(asset, UNKNOWN), prices, None))
    return rows


def _of_positions(ours: _Reading, others: Sequence[_Reading]) -> list[Check]:
    """The amounts inside protocols, which no proof reaches: they follow from calls, and others make those too."""
    amounts_of = [_positions(reading) for reading in (ours, *others)]
    rows = []
    for key in sorted({key for found in amounts_of for key in found}):
        said = tuple(
            Elsewhere(other.name, str(found.get(key, 0))) for other, found in zip(others, amounts_of[1:], strict=True)
        )
        rows.append(_check("position", key[0], key[1], str(amounts_of[0].get(key, 0)), said, None))
    return rows


def _positions(reading: _Reading) -> dict[tuple[str, str], int]:
    """Raw amounts by asset, and by where they are."""
    found: Counter[tuple[str, str]] = Counter()
    for each in reading.snapshot.positions:
        for side in ("supplied", "borrowed", "rewards"):
            for part in getattr(each, side):
                place = f"{each.protocol} {each.pool or each.vault} {side} {part.token.symbol}"
                found[str(part.token.asset), place] += part.raw
    return dict(found)


def _check(
    number: str, asset: str, symbol: str, mine: str | None, others: tuple[Elsewhere, ...], finding: ProofResult | None
) -> Check:
    """How one number ended: a difference weighs most, then a proof, then an equal reading."""
    said = [other.value for other in others if other.value is not None]
    proof = "" if finding is None else finding.reason
    same = bool(said) and all(each == mine for each in said)
    row = Check(number, asset, symbol, mine, "equal", others, proof)
    if mine is None:
        return msgspec.structs.replace(row, status="unread", reason="the answer does not have it")
    if said and not same:
        return msgspec.structs.replace(row, status="differs", reason="another endpoint says otherwise")
    if finding is not None and finding.status == "proven":
        return msgspec.structs.replace(row, status="proven")
    if finding is not None and finding.status == "contradicted" and (not same or _is_native(asset)):
        return msgspec.structs.replace(row, status="differs", reason=finding.reason)
    if same:
        return row
    if others:
        return msgspec.structs.replace(row, status="unread", reason="no other endpoint said what it is")
    return msgspec.structs.replace(row, status="unprovable", reason=NO_PROOF if finding is None else finding.reason)


def _is_native(asset: str) -> bool:
    return "/slip44:" in asset


def _hidden(shown: Collection[Asset], findings: BlockProofs | None) -> list[Check]:
    """Tokens that everybody says are not held, and of which a proof says otherwise."""
    balances = {} if findings is None else findings.balances
    return [
        Check("balance", str(asset), "", "0", "differs", (), "", finding.reason)
        for asset, finding in sorted(balances.items(), key=lambda each: str(each[0]))
        if asset not in shown and finding.status == "contradicted"
    ]


def _decimals(reading: _Reading, asset: Asset) -> str:
    decimals = reading.tokens[asset].decimals
    return UNKNOWN if decimals is None else str(decimals)


def _value_usd(reading: _Reading) -> str:
    return amounts.text(valuate([reading.snapshot]).value_usd)


def _notes(ours: _Reading, others: Sequence[_Reading], rest: Sequence[Chain]) -> tuple[str, ...]:
    """What a reader has to know beside the numbers."""
    notes = [] if rest else [ONE_ENDPOINT]
    if rest and not others:
        notes.append("no other endpoint could be read: only proofs were made")
    if Capability.PROOFS not in ours.chain.capabilities:
        notes.append(f"{ours.chain.key} has no proofs: only other endpoints can confirm an answer")
    elif not others:
        notes.append("proofs hold for this block hash: see that it is the chain's with somebody you trust")
    notes += [
        f"{issue.adapter}: {issue.reason}" for issue in ours.snapshot.issues if issue.adapter == account_index.ADAPTER
    ]
    return tuple(notes)
