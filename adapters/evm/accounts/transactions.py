"""Read the transactions of accounts, and the coins that calls moved for them. Logs show neither.

Their blocks are found by the best method that an endpoint has, which is remembered: `trace_filter`, Erigon's search, an
explorer, or else past state. Only these blocks are read. Past state also shows how each block changed an account's
coins: what transactions and withdrawals do not explain, calls moved. Changes that traces do not explain either are
reported as unexplained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chainfolio.adapters.evm.accounts import otterscan, state
from chainfolio.adapters.evm.accounts.active_blocks import ActiveBlocks
from chainfolio.adapters.evm.accounts.actor_heights import ActorHeights
from chainfolio.adapters.evm.accounts.bodies import Body, BodyReader, KnownHashes
from chainfolio.adapters.evm.accounts.boundary_check import Boundaries, net_coins, read_boundaries
from chainfolio.adapters.evm.accounts.header_cache import HeaderCache
from chainfolio.adapters.evm.accounts.internal_transfers import TraceTarget, read_internal_transfers
from chainfolio.adapters.evm.accounts.payments import find_payments, withdrawn_coins
from chainfolio.adapters.evm.accounts.replay import MissingPayment, replay_payments
from chainfolio.adapters.evm.accounts.simulate import simulate_transfers
from chainfolio.adapters.evm.accounts.trace_filter import TraceFilter
from chainfolio.adapters.evm.datasets.dataset import EvmDataset
from chainfolio.adapters.evm.datasets.internal import CoinTransfer
from chainfolio.adapters.evm.facts import WITHDRAWALS
from chainfolio.adapters.evm.node import Header
from chainfolio.blocks import Span
from chainfolio.chain_results import UnexplainedChange
from chainfolio.errors import BadAnswer, HistoryUnavailable, UnsupportedMethod
from chainfolio.transport.endpoint import Endpoint

if TYPE_CHECKING:
    from chainfolio.adapters.evm.explorer import Explorer

CAPABILITY = "places"  # the search method of an endpoint: an index into its own methods, or their number for others
UNTRACED = "no endpoint traces or simulates the block: calls inside its transactions may have moved these coins"
UNEXPLAINED_WINDOW = (
    "since the window before, the coins changed by so much more than what was found explains: calls or fees of "
    "proposed blocks that no endpoint lists"
)
UNEXPLAINED_BLOCK = "neither transactions, withdrawals nor calls of the block explain this change"
HAS_CODE = (
    "the account has or had code: its coins can go and come within one interval of the search, and nonces do not show "
    "it; use an endpoint with trace_filter"
)
NEVER_SENT = (
    "the account has no code, no coins and never sent a transaction: a contract that destroyed itself looks the same, "
    "and states do not show what it did; use an endpoint with trace_filter"
)


@dataclass(slots=True)
class AccountTransactions:
    """The transactions and internal transfers of some accounts in a window.

    Attributes:
        blocks: The blocks in which the accounts were active.
        bodies: These blocks by height.
        transfers: The internal transfers by height; None if no endpoint can trace, or if they were not requested.
        unexplained: Changes of balances that neither transactions nor transfers explain.
        has_payments: True if blocks in which the protocol itself paid the accounts are among the bodies.
    """

    blocks: ActiveBlocks
    bodies: Mapping[int, Body]
    transfers: Mapping[int, Sequence[CoinTransfer]] | None
    unexplained: tuple[UnexplainedChange, ...] = ()
    has_payments: bool = False

    def covers(self, dataset: EvmDataset) -> bool:
        """Return True if the rows of a dataset can be made from this."""
        return self.transfers is not None if dataset.of_traces else self.has_payments or not dataset.of_headers


class _BlockTransfers(NamedTuple):
    """Internal transfers of blocks, in order; None for a block that no endpoint can trace or simulate.

    `are_traced` is False for simulations, which can be wrong.
    """

    transfers: Sequence[list[CoinTransfer] | None]
    are_traced: bool


class TransactionReader:
    """Reads transactions of accounts for one chain."""

    def __init__(self, bodies: BodyReader, explorer: Explorer | None, headers: HeaderCache) -> None:
        self.node, self.bodies, self.explorer, self.headers = bodies.node, bodies, explorer, headers
        self.actor_heights = ActorHeights()
        self._methods = (TraceFilter().find, otterscan.find_active_blocks)

    async def read(
        self,
        span: Span,
        accounts: Sequence[str],
        hashes: Mapping[int, str],
        headers: Sequence[Header] = (),
        *,
        with_transfers: bool,
    ) -> AccountTransactions:
        """Read the next window of a span, and compare it with the accounts' states at both ends.

        It is not compared if state was searched, or if it has only blocks that are not final, all without activity.
        Coins are compared only if internal transfers are read, because nothing else explains them. If transactions
        are missing, state is searched instead, and the search methods of that endpoint are not used any more; only an
        explorer is asked again for the next window. Coins that stay unexplained are reported.

        Args:
            span: The blocks to read; the window starts with the first of them.
            accounts: Addresses in lower case.
            hashes: Block hashes by height, for blocks that are not final.
            headers: All headers of the span, if they were read.
            with_transfers: Read internal transfers, too; a search of state always does.

        Raises:
            HistoryUnavailable: No endpoint has the state that the search needs.
            Reorged: A block no longer has its hash in `hashes`.
            SourceError: No endpoint answers.
        """
        source, blocks = await self._search(span, accounts, hashes)
        result = await self._read_blocks(blocks, accounts, hashes, with_transfers=with_transfers)
        if blocks.method == state.METHOD or (hashes and not blocks.heights):  # a check would cost more than the search
            return result
        window = blocks.span
        boundaries = await read_boundaries(self.node, window, accounts, hashes)
        suspects = [each.account for each in boundaries if each.missing_count(result.bodies) > 0]
        if await self._is_incomplete(suspects, window, hashes):
            note = f"{blocks.method} leaves out transactions of blocks {window.first}..{window.last}"
            source.errors.note(BadAnswer(source.name, note))
            if source is not self.explorer:
                source.learn(CAPABILITY, len(self._methods))  # from now on, its own search methods are not used
            hints = self.actor_heights.in_span(accounts, window)
            blocks = await self.node.with_any(
                lambda endpoint: state.find_active_blocks(endpoint, window, accounts, hashes, hints),
                kind="account places",
            )
            return await self._read_blocks(blocks, accounts, hashes, with_transfers=with_transfers)
        if not with_transfers:
            return result
        remainders = {each: each.unexplained_coins(result.bodies, result.transfers or {}) for each in boundaries}
        if headers:
            remainders = {
                each: raw - withdrawn_coins(headers, each.account, self.node.facts) for each, raw in remainders.items()
            }
        elif boundaries and WITHDRAWALS in self.node.facts.pays:
            await self._add_payments(result, [each for each, raw in remainders.items() if raw], accounts)
            return result
        if result.transfers is not None:
            for each, raw in remainders.items():
                result.unexplained += self._unexplained(window.last, {each.account: raw}, UNEXPLAINED_WINDOW)
        return result

    async def find_active_blocks(self, span: Span, accounts: Sequence[str]) -> ActiveBlocks:
        """Find the final blocks of the next window of a span in which accounts were active.

        Raises:
            HistoryUnavailable: No endpoint has the state that the search needs.
        """
        return (await self._search(span, accounts, {}))[1]

    async def _search(
        self, span: Span, accounts: Sequence[str], hashes: Mapping[int, str]
    ) -> tuple[Endpoint, ActiveBlocks]:
        """Find active blocks by the best method, and return the endpoint or explorer that found them.

        The endpoint's search methods are tried in order and remembered; then the explorer, then state.
        """

        async def at(endpoint: Endpoint) -> tuple[Endpoint, ActiveBlocks]:
            for number in range(endpoint.capabilities.get(CAPABILITY, 0), len(self._methods)):
                try:
                    blocks = await self._methods[number](endpoint, span, accounts)
                except UnsupportedMethod as refusal:
                    endpoint.errors.note(refusal)
                    continue
                endpoint.learn(CAPABILITY, number)
                return endpoint, blocks
            endpoint.learn(CAPABILITY, len(self._methods))
            if self.explorer is not None:
                return self.explorer, await self.explorer.active_blocks(span, accounts)
            hints = self.actor_heights.in_span(accounts, span)
            return endpoint, await state.find_active_blocks(endpoint, span, accounts, hashes, hints)

        return await self.node.with_any(at, kind="account places")

    async def _read_blocks(
        self, blocks: ActiveBlocks, accounts: Sequence[str], hashes: Mapping[int, str], *, with_transfers: bool
    ) -> AccountTransactions:
        """Read the bodies of active blocks, and their internal transfers as far as needed."""
        known_hashes = None if hashes or blocks.tx_hashes is None else KnownHashes(blocks.tx_hashes, self.headers)
        bodies = await self.bodies.read(blocks.heights, accounts, hashes, known_hashes)
        result = AccountTransactions(blocks, bodies, None)
        if blocks.method == state.METHOD:
            await self._explain_changes(result)
        elif with_transfers:
            result.transfers = await self._transfers_of(bodies, blocks.traced_hashes)
        return result

    async def _is_incomplete(self, suspects: Sequence[str], span: Span, hashes: Mapping[int, str]) -> bool:
        """Return True if a suspect has no code: only then does its nonce prove that transactions are missing.

        The nonce of a contract counts what it created, that of a delegated account what others sent for it.
        """
        if not suspects:
            return False
        contracts = await self.node.with_any(
            lambda endpoint: state.accounts_with_code(endpoint, span.last, suspects, hashes), kind="account code"
        )
        return len(contracts) < len(suspects)

    async def _add_payments(
        self, result: AccountTransactions, boundaries: Sequence[Boundaries], accounts: Sequence[str]
    ) -> None:
        """Add to `result` the blocks in which coins changed by more than transactions and calls explain.

        What withdrawals do not explain either is added as unexplained, unless `result.transfers` is None.

        Args:
            result: The transactions of a window.
            boundaries: The accounts whose coins are not explained.
            accounts: All accounts, whose transactions in new blocks are added.
        """
        result.has_payments = True
        if not boundaries:
            return
        changes = await find_payments(self.node, result.blocks.span, boundaries, result.bodies, result.transfers or {})
        new_heights = sorted({each.height for each in changes} - result.bodies.keys())
        new_bodies = await self.bodies.read(new_heights, accounts, {})
        result.bodies = dict(sorted({**result.bodies, **new_bodies}.items()))
        for each in changes:
            body = result.bodies[each.height]
            raw = each.after - each.before - body.withdrawn_coins(each.account)
            raw -= body.coin_change(each.account) if each.height in new_bodies else 0
            if result.transfers is not None:
                result.unexplained += self._unexplained(each.height, {each.account: raw}, UNEXPLAINED_BLOCK)

    async def _transfers_of(
        self, bodies: Mapping[int, Body], hashes: Mapping[int, frozenset[str]]
    ) -> dict[int, list[CoinTransfer]] | None:
        """Return the internal transfers of some transactions by height; None if no endpoint can trace them.

        They are read from the explorer if there is one. Heights without such transactions are absent.
        """
        targets = [
            TraceTarget(bodies[height], index)
            for height, block_hashes in hashes.items()
            for index, tx_hash in enumerate(bodies[height].tx_hashes)
            if tx_hash in block_hashes
        ]
        try:
            if self.explorer is not None:
                transfers = [
                    await self.explorer.transaction_transfers(each.body.traced_block, each.index) for each in targets
                ]
            else:
                transfers = await read_internal_transfers(self.node, targets)
        except (UnsupportedMethod, HistoryUnavailable):
            return None
        return _by_height(targets, transfers)

    # --- from state changes ------------------------------------------------------------------------------------------

    async def _explain_changes(self, result: AccountTransactions) -> None:
        """Trace the blocks whose transactions and withdrawals do not explain how accounts' coins changed.

        Transfers, changes that stay unexplained, and accounts whose coins the search can miss are stored in `result`.
        If no endpoint traces, blocks are simulated, then single transactions run again.
        """
        result.has_payments = True
        changes: dict[int, dict[str, int]] = {}
        contracts = dict.fromkeys(result.blocks.contracts)
        for each in result.blocks.changes:
            body = result.bodies[each.height]
            if not 0 <= each.after.nonce - each.before.nonce <= body.sent_count(each.account):
                contracts[each.account] = None  # it was created or destroyed, delegates, or created a contract
            raw = each.after.coins - each.before.coins
            raw -= body.coin_change(each.account) + body.withdrawn_coins(each.account)
            if raw:
                changes.setdefault(each.height, {})[each.account] = raw
        traced = await self._trace_blocks([result.bodies[height] for height in changes])
        transfers_by_height = dict(zip(changes, traced.transfers, strict=True))
        result.transfers = {height: transfers for height, transfers in transfers_by_height.items() if transfers}
        remainders: dict[int, dict[str, int]] = {}
        for height, block_changes in changes.items():
            transfers = transfers_by_height[height] or []
            remainders[height] = {
                account: raw - net_coins(transfers, account) for account, raw in block_changes.items()
            }
            if any(remainders[height].values()) and not traced.are_traced:
                result.transfers.pop(height, None)  # a simulation that contradicts the balances is worthless
                remainders[height] = block_changes
        if not traced.are_traced:
            await self._replay(result, remainders)
        for height, raws in remainders.items():
            reason = UNTRACED if transfers_by_height[height] is None else UNEXPLAINED_BLOCK
            result.unexplained += self._unexplained(height, raws, reason)
        last, unproven = result.blocks.span.last, dict.fromkeys(result.blocks.unproven)
        result.unexplained += self._unexplained(last, contracts, HAS_CODE)
        result.unexplained += self._unexplained(last, unproven, NEVER_SENT)

    async def _trace_blocks(self, blocks: Sequence[Body]) -> _BlockTransfers:
        """Return the internal transfers of whole blocks, from traces or else from simulations."""
        targets = [TraceTarget(body, index) for body in blocks for index in range(len(body.full.transactions))]
        try:
            transfers = await read_internal_transfers(self.node, targets)
        except (UnsupportedMethod, HistoryUnavailable):
            return _BlockTransfers(await simulate_transfers(self.node, blocks), are_traced=False)
        by_height = _by_height(targets, transfers)
        return _BlockTransfers([by_height.get(body.full.height, []) for body in blocks], are_traced=True)

    async def _replay(self, result: AccountTransactions, remainders: dict[int, dict[str, int]]) -> None:
        """Run transactions again that must have paid accounts, and add the transfers to `result`.

        Only accounts without code that got more than is explained count. Explained remainders are deleted from
        `remainders`.
        """
        payments = [
            MissingPayment(result.bodies[height], account, raw)
            for height, raws in remainders.items()
            for account, raw in raws.items()
            if raw > 0 and account not in result.blocks.contracts
        ]
        for payment, transfers in (await replay_payments(self.node, payments)).items():
            height = payment.body.full.height
            del remainders[height][payment.account]
            assert result.transfers is not None
            merged = sorted([*result.transfers.get(height, ()), *transfers], key=lambda transfer: transfer.tx_index)
            result.transfers = {**result.transfers, height: merged}

    def _unexplained(self, height: int, raws: Mapping[str, int | None], reason: str) -> tuple[UnexplainedChange, ...]:
        """Return the changes that are not zero; None stands for an unknown amount, which is reported as 0."""
        coin = self.node.facts.info.native.asset
        return tuple(
            UnexplainedChange(account, height, coin, raw or 0, reason) for account, raw in raws.items() if raw != 0
        )


def _by_height(
    targets: Sequence[TraceTarget], transfers: Sequence[Sequence[CoinTransfer]]
) -> dict[int, list[CoinTransfer]]:
    by_height: defaultdict[int, list[CoinTransfer]] = defaultdict(list)
    for target, tx_transfers in zip(targets, transfers, strict=True):
        by_height[target.height] += tx_transfers
    return by_height
