"""Positions in protocols on Solana: decoders, and reads at one slot together with the wallets.

A position belongs to the owner of its token, or to the owner that an account of the program contains. The token is an
NFT, or a share of a pool. A decoder is a generator that yields reads of accounts. Decoders run until they need no
further reads. Then all accounts of positions are read once more, together with the wallets, and the decoders run again
on these results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from chainfolio.adapters.solana.account_reads import AccountRead, ListRead
from chainfolio.adapters.solana.call_rules import Rules
from chainfolio.adapters.solana.compressed import CompressedNfts
from chainfolio.adapters.solana.facts import TOKENS
from chainfolio.adapters.solana.layouts import TOKEN
from chainfolio.adapters.solana.parsing import is_address
from chainfolio.adapters.solana.reads import LeavesRead, Wallet, WalletRead
from chainfolio.assets import Asset
from chainfolio.contracts import Issue
from chainfolio.decoded import as_positions, notes
from chainfolio.plans import Plan, Rounds, Unknown, read_all, read_groups
from chainfolio.protocols import DecodedPosition, InstalledProtocol, ProtocolFamily

T = TypeVar("T")
MAX_ROUNDS: Final = 6  # of a decoder
MAX_CLAIMS: Final = 1_000  # NFTs, or accounts of a program, of one account: anybody can send NFTs to anybody
MAX_SHARES: Final = 2_000  # other tokens of one account
MAX_ATTEMPTS: Final = 2  # at one slot, if a wallet got another position meanwhile
MAX_SIBLINGS: Final = 50  # accounts of one owner whose deposits are added
MAX_SEARCHES: Final = 100  # for pools: anybody can send shares to anybody, and searches are expensive
SEARCH_LIMIT: Final = Unknown(f"the pools of more than {MAX_SEARCHES} shares would have to be looked for")
SLOT_MS: Final = 400  # the nominal pace of the cluster
PROGRAM: Final = "program"
SHARED: Final = (
    "no file names its market: it counts because the vaults there have as much now, which other accounts may claim, too"
)
NFT, SHARE, ACCOUNT = "nft", "share", "account"  # kinds of claims

# The results of account reads follow from their layouts, which they name as text.
AccountPlan = Rounds[AccountRead | ListRead, Any, T]
DecoderPlan = AccountPlan[Sequence[DecodedPosition]]
Results = dict[AccountRead | ListRead, Any]
ClaimKey = tuple[str, str, str, str]  # family, program, account and subject


@dataclass(frozen=True, slots=True)
class Claim:
    """A possible position: a token of an account, or an account of the program with that owner.

    Attributes:
        account: The owner.
        subject: The mint of the token, or the address of the program's account.
        program: The program.
        time_s: The time of the slot.
        raw: The raw units of the token; 1 for NFTs and accounts of the program.
        slot: The slot of the snapshot.
        epoch: The epoch of the slot.
        contracts: The contracts in the protocol's file, by role.
    """

    account: str
    subject: str
    program: str
    time_s: int
    raw: int = 1
    slot: int = 0
    epoch: int = 0
    contracts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Family(ProtocolFamily):
    """One kind of protocol on Solana. Its forks are other programs with the same accounts.

    Attributes:
        position: The decoder.
        role: The role of the programs in the protocol's file.
        claim_kind: `NFT` if an NFT is a position, `SHARE` for other tokens, `ACCOUNT` for accounts with their owner.
        owner_field: For `ACCOUNT`: the layout of these accounts, and the byte offset of the owner.
        instructions: The meaning of instructions; movements of any other one have no known gain.
    """

    position: Callable[[Claim], DecoderPlan]
    kind: str = "solana"
    role: str = PROGRAM
    claim_kind: str = NFT
    owner_field: tuple[str, int] = ("", 0)
    instructions: Rules = field(default_factory=dict, hash=False)

    @property
    def lookup_roles(self) -> tuple[str, ...]:
        """The role of the programs whose accounts are positions."""
        return (self.role,)

    def owner_search(self, program: str, account: str) -> ListRead:
        """Return the search for the accounts of a program that belong to an owner."""
        layout, offset = self.owner_field
        return ListRead(program, layout, offset, account)

    def sibling_records(self, claim: Claim) -> AccountPlan[Sequence[Any]]:
        """Read all accounts with the owner of a claim.

        Returns:
            Their records without those that are closed; an empty list if there are more than `MAX_SIBLINGS`.

        Raises:
            Unreadable: The accounts could not be searched for or read.
        """
        [result] = yield [self.owner_search(claim.program, claim.account)]
        addresses = require(result)
        if len(addresses) > MAX_SIBLINGS:
            return []
        results = yield [AccountRead(claim.program, self.owner_field[0], (address,)) for address in addresses]
        return [require(each) for each in results if not isinstance(each, Unknown) or each.cause == "read"]


class Unreadable(Exception):
    """An account that a decoder needs could not be read, or is not what it should be."""


def require(result: Any) -> Any:
    """Return the result of a read.

    Raises:
        Unreadable: The result is Unknown.
    """
    if isinstance(result, Unknown):
        raise Unreadable(result.reason)
    return result


@dataclass(frozen=True, slots=True)
class ClaimedPosition:
    """A decoded position, with its protocol and its claim."""

    installed: InstalledProtocol
    claim: Claim
    position: DecodedPosition

    def notes(self, assets: tuple[Asset, ...]) -> Iterator[Issue]:
        """Yield issues about values of the position that are unknown or unreliable. `assets` are its tokens."""
        account, subject, protocol = self.claim.account, self.claim.subject, self.installed.protocol
        yield from notes(
            self.position,
            account,
            lambda reason, is_partial: Issue(protocol, subject, reason, is_partial, account, assets=assets),
        )


@dataclass(slots=True)
class SnapshotPositions:
    """The positions of all accounts of one snapshot, read together at one slot.

    The plan of the first account reads for all accounts; the plans of the others wait for it.

    Attributes:
        protocols: The installed protocols of the chain.
        caip2: The name of the chain in assets.
        wallets: By account; None until it was read.
        search_results: The results of the searches by owner: sorted addresses, or Unknown.
        positions: By account.
        issues: About positions of all accounts.
        own_tokens: The mints that each account acquired itself. They are decoded before others.
        compressed: The compressed NFTs of all accounts.
        is_done: True once the first plan has ended.
    """

    protocols: Sequence[InstalledProtocol]
    caip2: str = ""
    wallets: dict[str, Wallet | None] = field(default_factory=dict)
    search_results: Results = field(default_factory=dict)
    positions: dict[str, list[ClaimedPosition]] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    own_tokens: dict[str, Collection[str]] = field(default_factory=dict)
    compressed: CompressedNfts = field(init=False)
    is_done: bool = False

    def __post_init__(self) -> None:
        self.compressed = CompressedNfts(self.caip2)

    def read(
        self, account: str, own_tokens: Collection[Asset] = ()
    ) -> Plan[tuple[Wallet, Sequence[ClaimedPosition], Sequence[Issue]]]:
        """Read wallet, positions and issues of an account; the first caller reads positions of all accounts."""
        is_first = not self.wallets
        self.wallets[account], self.own_tokens[account] = None, {asset.reference for asset in own_tokens}
        searches = list(self._owner_searches(account))
        [wallet], [leaves], results = yield from read_groups([WalletRead(account)], [LeavesRead(account)], searches)
        self.wallets[account], self.compressed.lists[account] = wallet, leaves
        self.search_results |= zip(searches, results, strict=True)
        if is_first:
            yield from self._wait_until(lambda: all(self.wallets.values()))
            try:
                yield from self._read_at_one_slot()
            finally:
                self.is_done = True
        else:
            yield from self._wait_until(lambda: self.is_done)
        latest = self.wallets[account]
        assert latest is not None, "every wallet was read"
        issues = [issue for issue in self.issues if issue.account == account]
        return latest, self.positions.get(account, ()), [*issues, *self.compressed.issues(account)]

    def _wait_until(self, is_ready: Callable[[], bool]) -> Plan[None]:
        while not is_ready():
            yield []

    def _owner_searches(self, account: str) -> Iterator[ListRead]:
        """Yield the searches for accounts of programs that contain an account as their owner."""
        for _, family, program in self._programs():
            if family.claim_kind == ACCOUNT:
                yield family.owner_search(program, account)

    def _programs(self) -> Iterator[tuple[InstalledProtocol, Family, str]]:
        for installed in self.protocols:
            family = _family(installed)
            for program in installed.contracts.get(family.role, ()):
                yield installed, family, program

    def _read_at_one_slot(self) -> Plan[None]:
        """Read all positions and wallets at one slot and decode them; after MAX_ATTEMPTS, add issues instead."""
        self._report_skipped_tokens()
        trees = self.compressed.tree_reads()
        for _ in range(MAX_ATTEMPTS):
            claims = list(self._claims())
            inputs = yield from self._read_inputs(claims)
            runs = {_key(installed, claim): _run_decoder(installed, claim, inputs) for installed, claim in claims}
            empty = {key for key, run in runs.items() if not (run.positions or run.fault or run.missing)}
            if len(empty) == len(runs) and not trees:
                break
            failed = {
                read: result for read, result in inputs.items() if isinstance(read, ListRead) and _is_unknown(result)
            }
            skipped = failed.keys() | self.search_results.keys()
            reads = list(
                dict.fromkeys(
                    read for key, run in runs.items() if key not in empty for read in run.reads if read not in skipped
                )
            )
            # A search that failed is not repeated: what it would find stays unknown.
            searches = [search for search, result in self.search_results.items() if not _is_unknown(result)]
            accounts = list(self.wallets)
            wallets, found, tree_results, results = yield from read_groups(
                list(map(WalletRead, accounts)), searches, trees, reads
            )
            self.wallets = dict(zip(accounts, wallets, strict=True))
            self.search_results |= zip(searches, found, strict=True)
            self.compressed.tree_results = dict(zip(trees, tree_results, strict=True))
            if self._decode(failed | self.search_results | dict(zip(reads, results, strict=True)), empty):
                break
        else:
            for account in self.wallets:
                self._add_issue(account, account, "its positions change faster than they can be read")
        self._report_failed_searches()

    def _report_skipped_tokens(self) -> None:
        """Add issues for accounts with more than MAX_CLAIMS NFTs or MAX_SHARES other tokens."""
        for account, wallet in self._read_wallets():
            own_tokens = self.own_tokens[account]
            if skipped := _nft_mints(wallet, own_tokens)[MAX_CLAIMS:]:
                reason = f"{len(skipped)} tokens of which there is one were not looked at for positions"
                self._add_issue(account, account, reason, skipped)
            skipped = [mint for mint, _ in _share_balances(wallet, own_tokens)[MAX_SHARES:]]
            if skipped and any(family.claim_kind == SHARE for _, family, _ in self._programs()):
                reason = f"{len(skipped)} tokens were not looked at for shares of pools"
                self._add_issue(account, account, reason, skipped)

    def _report_failed_searches(self) -> None:
        """Add an issue per account and reason of failed searches, and per search with over MAX_CLAIMS results."""
        protocols_by_failure: dict[tuple[str, Unknown], list[str]] = {}
        for installed, family, program in self._programs():
            for account in self.wallets if family.claim_kind == ACCOUNT else ():
                result = self.search_results[family.owner_search(program, account)]
                if isinstance(result, Unknown):
                    protocols_by_failure.setdefault((account, result), []).append(installed.protocol)
                elif (excess := len(result) - MAX_CLAIMS) > 0:
                    reason = f"{excess} positions of {installed.protocol} were not looked at"
                    self._add_issue(account, account, reason)
        for (account, unknown), protocols in protocols_by_failure.items():
            reason = f"positions of {', '.join(sorted(set(protocols)))} were not looked for: {unknown.reason}"
            # Nodes keep no past state, so every snapshot of the past lacks positions and has balances only.
            self.issues.append(Issue("solana", account, reason, unknown.cause != "absent", account))

    def _read_wallets(self) -> Iterator[tuple[str, Wallet]]:
        for account, wallet in self.wallets.items():
            assert wallet is not None, "every wallet was read"
            yield account, wallet

    def _claims(self) -> Iterator[tuple[InstalledProtocol, Claim]]:
        """Yield every possible position of every account, once for each program that it may belong to."""
        for account, wallet in self._read_wallets():
            time_s, slot = wallet.block.time_us // 1_000_000, wallet.block.height
            for installed, family, program in self._programs():
                for subject, raw in self._subjects(family, program, account, wallet):
                    claim = Claim(account, subject, program, time_s, raw, slot, wallet.epoch, installed.contracts)
                    yield installed, claim

    def _subjects(self, family: Family, program: str, account: str, wallet: Wallet) -> list[tuple[str, int]]:
        """Return the tokens or accounts that may be positions in a program, with their raw units.

        At most MAX_CLAIMS are returned, or MAX_SHARES of shares; none if the search for accounts failed.
        """
        if family.claim_kind == NFT:
            return [(mint, 1) for mint in _nft_mints(wallet, self.own_tokens[account])[:MAX_CLAIMS]]
        if family.claim_kind == SHARE:
            return _share_balances(wallet, self.own_tokens[account])[:MAX_SHARES]
        result = self.search_results[family.owner_search(program, account)]
        return [] if isinstance(result, Unknown) else [(address, 1) for address in result[:MAX_CLAIMS]]

    def _read_inputs(self, claims: Sequence[tuple[InstalledProtocol, Claim]]) -> Plan[Results]:
        """Return results of the decoders' reads, up to `MAX_ROUNDS` rounds; SEARCH_LIMIT after MAX_SEARCHES."""
        results: Results = {**self.search_results}
        unfinished = list(claims)
        search_budget = MAX_SEARCHES
        for _ in range(MAX_ROUNDS):
            runs = [(installed, claim, _run_decoder(installed, claim, results)) for installed, claim in unfinished]
            unfinished = [(installed, claim) for installed, claim, run in runs if run.missing]
            missing = list(dict.fromkeys(read for *_, run in runs for read in run.missing))
            if not missing:
                break
            searches = [read for read in missing if isinstance(read, ListRead)]
            results |= dict.fromkeys(searches[search_budget:], SEARCH_LIMIT)
            search_budget -= len(searches[:search_budget])
            if reads := [read for read in missing if read not in results]:
                results |= zip(reads, (yield from read_all(reads)), strict=True)
        return results

    def _decode(self, results: Results, empty: Collection[ClaimKey]) -> bool:
        """Store the positions and issues by the results of reads.

        Args:
            results: By read.
            empty: Keys of claims that are no positions.

        Returns:
            False, and nothing is stored, if a decoder needs further reads.
        """
        positions: dict[str, list[ClaimedPosition]] = {}
        faults = []
        for installed, claim in self._claims():
            if _key(installed, claim) in empty:
                continue
            run = _run_decoder(installed, claim, results)
            if run.missing:
                return False
            if run.fault:
                faults.append((claim, installed, run.fault))
            positions.setdefault(claim.account, []).extend(
                ClaimedPosition(installed, claim, position) for position in run.positions
            )
        self.positions = positions
        self.issues += [
            issue
            for claimed_positions in positions.values()
            for each in claimed_positions
            for issue in each.notes(self._assets(_mints(each.installed, each.claim)))
        ]
        for claim, installed, fault in faults:
            reason = f"a position of {installed.protocol} could not be read: {fault}"
            self._add_issue(claim.account, claim.subject, reason, _mints(installed, claim))
        return True

    def _add_issue(self, account: str, subject: str, reason: str, mints: Sequence[str] = ()) -> None:
        """Add an issue about positions that were not read. `mints` are their tokens, if tokens are positions."""
        assets, count = self._assets(mints), max(1, len(mints))
        self.issues.append(Issue("solana", subject, reason, account=account, count=count, assets=assets))

    def _assets(self, mints: Sequence[str]) -> tuple[Asset, ...]:
        return tuple(Asset(self.caip2, TOKENS, mint) for mint in mints)


def _family(installed: InstalledProtocol) -> Family:
    assert isinstance(installed.family, Family), "a protocol of this kind of chain"
    return installed.family


def _mints(installed: InstalledProtocol, claim: Claim) -> Sequence[str]:
    """Return the mint of a claim; empty if the claim is an account of a program."""
    return () if _family(installed).claim_kind == ACCOUNT else (claim.subject,)


def _is_unknown(result: object) -> bool:
    return isinstance(result, Unknown)


def _key(installed: InstalledProtocol, claim: Claim) -> ClaimKey:
    return installed.family.name, claim.program, claim.account, claim.subject


def _nft_mints(wallet: Wallet, own_tokens: Collection[str]) -> list[str]:
    """Return the mints of a wallet with one unit and no decimals, the acquired ones first."""
    mints = [mint for mint, balance in wallet.tokens.items() if (balance.raw, balance.decimals) == (1, 0)]
    return sorted(mints, key=lambda mint: mint not in own_tokens)


def _share_balances(wallet: Wallet, own_tokens: Collection[str]) -> list[tuple[str, int]]:
    """Return the other mints of SPL Token in a wallet with their raw units, the acquired ones first.

    Programs issue shares in SPL Token only, not in Token-2022.
    """
    balances = [
        (mint, balance.raw)
        for mint, balance in wallet.tokens.items()
        if balance.raw and balance.program == TOKEN and (balance.raw, balance.decimals) != (1, 0)
    ]
    return sorted(balances, key=lambda balance: balance[0] not in own_tokens)


@dataclass(frozen=True, slots=True)
class _DecoderRun:
    """One run of a decoder on the results of reads.

    Attributes:
        reads: Every read that it asked for.
        missing: Reads whose results it still needs; empty if it has ended.
        positions: Its result.
        fault: The reason of its failure; empty if it did not fail.
    """

    reads: Sequence[AccountRead | ListRead]
    missing: Sequence[AccountRead | ListRead] = ()
    positions: Sequence[DecodedPosition] = ()
    fault: str = ""


def _run_decoder(installed: InstalledProtocol, claim: Claim, results: Results) -> _DecoderRun:
    """Run a decoder up to its first read without a result; any error of the decoder becomes the fault."""
    family = _family(installed)
    requested: list[AccountRead | ListRead] = []
    try:
        plan = family.position(claim)
        reads = next(plan)
        while True:
            requested += reads
            if missing := [read for read in reads if read not in results]:
                return _DecoderRun(requested, missing)
            reads = plan.send([results[read] for read in reads])
    except StopIteration as stop:
        positions = as_positions(stop.value, is_address)
        if isinstance(positions, str):
            return _DecoderRun(requested, fault=positions)
        return _DecoderRun(requested, positions=positions)
    except Unreadable as error:
        return _DecoderRun(requested, fault=str(error))
    except Exception as error:  # a decoder may be third-party code: whatever it raises is its own issue
        return _DecoderRun(requested, fault=f"{type(error).__name__}: {error}")
