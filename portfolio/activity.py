"""Classify transactions: read signs from an account's activity and apply a table of rules to them.

A rule names a type only if the movements prove it, or the called protocol and function do; a protocol's file says what
its functions mean. Any other transaction is an INTERACTION, or UNDEFINED if another account sent it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal

from chainfolio.assets import Asset
from chainfolio.contracts import TransactionDetails
from chainfolio.portfolio.transactions import TransactionType
from chainfolio.tables import REWARD

TRANSFERS: Final = frozenset(
    {
        "transfer",
        "transferFrom",
        "safeTransferFrom",
        "safeBatchTransferFrom",
        "transferAndCall",
    }
)
WRAPPING: Final = frozenset({"wrap", "unwrap"})  # standards of movements
WITHDRAWAL: Final = "withdrawal"  # of a validator
OF_PROTOCOL: Final = frozenset({WITHDRAWAL, REWARD})  # the protocol itself pays it, and no transaction
# Who stakes less than half a validator is sent away by the protocol: so much at once is a stake that comes back.
STAKE: Final = 16 * 10**18


@dataclass(frozen=True, slots=True)
class Movement:
    """One asset that the account received or sent.

    `raw` is in smallest units, `standard` is that of the table row.
    """

    log_index: int
    item: int
    direction: Literal["in", "out"]
    standard: str
    asset: Asset
    raw: int
    counterparty: str


@dataclass(frozen=True, slots=True)
class Permission:
    """One approval event of the account's, of a token or of a collection."""

    log_index: int
    asset: Asset
    spender: str


@dataclass(frozen=True, slots=True)
class Activity:
    """One transaction as one account saw it. `details` is None until they are looked up."""

    chain: str
    account: str
    height: int
    time_us: int
    tx_index: int
    tx_hash: str
    movements: tuple[Movement, ...] = ()
    permissions: tuple[Permission, ...] = ()
    details: TransactionDetails | None = field(default=None, compare=False)

    @property
    def sort_key(self) -> tuple[int, int, int, str, str, str]:
        """The position in a list over all chains and accounts; no two activities share it."""
        return self.time_us, self.height, self.tx_index, self.tx_hash, self.chain, self.account

    @property
    def is_of_protocol(self) -> bool:
        """True if the protocol itself made all movements; `tx_hash` is then the hash of the block."""
        return bool(self.movements) and all(move.standard in OF_PROTOCOL for move in self.movements)

    @property
    def counterparties(self) -> set[str]:
        """The other addresses of the movements, of the approvals and of the transaction itself."""
        details = self.details
        ends = {details.sender, details.recipient, details.created} if details else set()
        counterparties = {move.counterparty for move in self.movements} | {each.spender for each in self.permissions}
        return {each for each in counterparties | ends if each} - {self.account}


@dataclass(frozen=True, slots=True)
class Functions:
    """Names of functions, and the transaction types of calls to them, by selector."""

    names: dict[bytes, str] = field(default_factory=dict)
    types: dict[bytes, TransactionType] = field(default_factory=dict)


def sort_activities(activities: Collection[Activity], newest_first: bool) -> list[Activity]:
    """Return activities of any chains and accounts in the order of pages: by `sort_key`."""
    return sorted(activities, key=lambda each: each.sort_key, reverse=newest_first)


# --- signs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddressFacts:
    """Tokens and addresses whose role is known apart from the activity.

    Attributes:
        spam: Tokens that are judged to be spam.
        trusted: Tokens that are beyond suspicion.
        burn_addresses: Addresses that mint and burn.
        fee_collectors: Addresses that take fees as token movements. Such a payment is ignored.
    """

    spam: Collection[Asset] = ()
    trusted: Collection[Asset] = ()
    burn_addresses: Collection[str] = ()
    fee_collectors: Collection[str] = ()


NO_FACTS: Final = AddressFacts()


def signs(
    activity: Activity, function: str, facts: AddressFacts = NO_FACTS, *, called: str = "", imitated: bool = False
) -> frozenset[str]:
    """Return the names of all statements that certainly hold for an activity.

    Args:
        activity: Its `details` must be known.
        function: Name of the called function; empty if unknown.
        called: The transaction type that the function stands for; empty if none.
        imitated: Look-alike addresses made the whole activity.
    """
    details = activity.details
    assert details is not None, "what is not known of a transaction says nothing"
    movements = _without_fee(activity, details, facts.fee_collectors)
    burn_addresses = facts.burn_addresses
    net: dict[Asset, int] = defaultdict(int)
    for move in movements:
        net[move.asset] += move.raw if move.direction == "in" else -move.raw
    gains, losses = ({asset for asset, raw in net.items() if raw * sign > 0} for sign in (1, -1))
    incoming = [move for move in movements if move.direction == "in" and move.asset in gains]
    outgoing = [move for move in movements if move.direction == "out" and move.asset in losses]
    is_sender, is_of_protocol = details.sender == activity.account, activity.is_of_protocol
    standards = {move.standard for move in movements}
    holds_by_sign = {
        "failed": details.failed,
        "sent": is_sender,
        "approval": bool(activity.permissions),
        "moved": bool(movements),
        "self": any(move.counterparty == activity.account for move in movements),
        "gain": bool(gains),
        "known gain": bool(gains) and all(asset.is_native or asset.collection in facts.trusted for asset in gains),
        "loss": bool(losses),
        "plain": not details.selector,
        "withdrawn": is_of_protocol,
        "stake": is_of_protocol and any(move.standard == WITHDRAWAL and move.raw >= STAKE for move in movements),
        "bridged": "mint" in standards,
        "transfer": function in TRANSFERS and all(_is_of(move.asset, details.recipient) for move in movements),
        "poison": not is_sender and bool(movements) and not any(move.raw for move in movements),
        "imitated": imitated,
        f"called {called}": bool(called),
        "spam": not is_sender
        and bool(gains | losses)
        and all(move.asset.collection in facts.spam for move in movements),
        "wrap": "wrap" in standards,
        "unwrap": "unwrap" in standards,
        "other": _is_other_token(movements, gains | losses),
        **_minting(incoming, gains, losses, burn_addresses),
        **_issuing(incoming, outgoing, gains, losses, burn_addresses),
        **_returning(outgoing, burn_addresses, details.recipient),
    }
    return frozenset(sign for sign, holds in holds_by_sign.items() if holds)


def _without_fee(
    activity: Activity, details: TransactionDetails, fee_collectors: Collection[str]
) -> tuple[Movement, ...]:
    """Return the movements without the last payment of the account to a fee collector.

    All stay if the account did not send the transaction.
    """
    if details.sender == activity.account:
        for i in reversed(range(len(activity.movements))):
            move = activity.movements[i]
            if move.direction == "out" and move.counterparty in fee_collectors:
                return activity.movements[:i] + activity.movements[i + 1 :]
    return activity.movements


def _is_of(asset: Asset, contract: str | None) -> bool:
    """Return True if the asset is a token of the contract."""
    return not asset.is_native and asset.reference == contract


def _is_other_token(movements: Sequence[Movement], changed: set[Asset]) -> bool:
    """Return True if tokens changed besides wrapped and unwrapped coins."""
    wrapped = {move.asset for move in movements if move.standard in WRAPPING}
    return any(not asset.is_native for asset in changed - wrapped)


def _minting(
    incoming: Sequence[Movement], gains: set[Asset], losses: set[Asset], burn_addresses: Collection[str]
) -> dict[str, bool]:
    """Return the facts about minting by name: where gained assets came from, and their kinds.

    `into position`: one collectible was created, and nothing else was gained for several assets.

    Args:
        incoming: The movements that brought the gained assets.
    """
    minted = {move.asset for move in incoming if move.counterparty in burn_addresses}
    collectible = {move.asset for move in incoming if move.asset.is_collectible}
    return {
        "minted": bool(gains) and all(move.counterparty in burn_addresses for move in incoming),
        "collectible minted": bool(minted & collectible),
        "collectible gain": bool(collectible),
        "fungible gain": bool(gains - collectible),
        "token loss": any(not asset.is_native for asset in losses),
        "into position": len(collectible) == len(gains) == 1 and minted == gains and len(losses) > 1,
    }


def _issuing(
    incoming: Sequence[Movement],
    outgoing: Sequence[Movement],
    gains: set[Asset],
    losses: set[Asset],
    burn_addresses: Collection[str],
) -> dict[str, bool]:
    """Return the signs of deposits in a contract that issues shares, whichever contract was called.

    `issued`: something left, and all that came was one created share. `redeemed`: the reverse. `into issuer`: one share
    was issued, and all that left went to its contract. `from issuer`: one share was burnt or returned to its contract,
    and all that arrived came from it. `into pool` and `from pool`: the same with several assets, and a router may have
    passed some on.
    """
    recipients, senders = ({move.counterparty for move in moves} for moves in (outgoing, incoming))
    issuers, redeemers = {share.reference for share in gains}, {share.reference for share in losses}
    is_issued = len(gains) == 1 and _are_shares(incoming, burn_addresses)
    is_redeemed = len(losses) == 1 and _are_shares(outgoing, burn_addresses)
    return {
        "issued": is_issued and bool(losses),
        "redeemed": is_redeemed and bool(gains),
        "into issuer": is_issued and recipients == issuers,
        "from issuer": is_redeemed and senders == redeemers,
        "into pool": is_issued and len(losses) > 1 and issuers <= recipients,
        "from pool": is_redeemed and len(gains) > 1,
    }


def _are_shares(moves: Sequence[Movement], burn_addresses: Collection[str]) -> bool:
    """Return True if all movements issue or return shares of the contract of their token."""
    return all(_is_share(move) and move.counterparty in {*burn_addresses, move.asset.reference} for move in moves)


def _returning(outgoing: Sequence[Movement], burn_addresses: Collection[str], contract: str | None) -> dict[str, bool]:
    """Return two signs; both are False if nothing left.

    `burnt`: all that left were tokens, and they were burnt. `returned`: all tokens that left are of the called
    contract, which took or burnt them.
    """
    tokens = [move for move in outgoing if not move.asset.is_native]
    return {
        "burnt": bool(outgoing)
        and all(not move.asset.is_native and move.counterparty in burn_addresses for move in outgoing),
        "returned": bool(tokens)
        and all(_is_of(move.asset, contract) and move.counterparty in {*burn_addresses, contract} for move in tokens),
    }


def _is_share(move: Movement) -> bool:
    """Return True if the asset may be a share: a fungible token that is no wrapped coin."""
    return not (move.asset.is_native or move.asset.is_collectible or move.standard in WRAPPING)


LEAVES: Final = frozenset({"loss", "burnt", "issued"})  # signs of rules by whose movements a contract took something


# --- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A transaction type with its conditions: all signs of `needs`, and none of `bars`.

    `functions`: the called function must be one of these; empty allows any. `counterparties`: without functions, one of
    these contracts of the protocol must take what the rule needs to leave, or give what it needs to come.
    """

    type: TransactionType
    needs: frozenset[str]
    bars: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    counterparties: frozenset[str] = frozenset()

    def fits(self, activity_signs: frozenset[str], function: str) -> bool:
        """Return True if an activity fulfils the conditions."""
        called = not self.functions or function in self.functions
        return called and self.needs <= activity_signs and not self.bars & activity_signs

    def is_of_movements(
        self, movements: Sequence[Movement], others: Collection[str], is_trusted: Callable[[Asset], bool]
    ) -> bool:
        """Return True if a rule without functions is about these movements: its contracts made or took one.

        False if something left for an address that is neither such a contract nor one of `others`. Anybody can deploy a
        token that logs a transfer of any contract, but what really left shows what the transaction was. Anybody can
        also transfer nothing, or claim for others. So a claim is False, too, if any other address paid something.

        Args:
            others: Addresses that may take or create something in addition to the contracts of the rule.
            is_trusted: Returns False for assets whose movements the sender of the transaction may have invented.
        """
        net: dict[Asset, int] = defaultdict(int)
        for move in movements:
            net[move.asset] += move.raw if move.direction == "in" else -move.raw
        recipients = {move.counterparty for move in movements if move.direction == "out" and net[move.asset] < 0}
        payers = {move.counterparty for move in movements if move.direction == "in" and net[move.asset] > 0}
        others = {*self.counterparties, *others}
        if self.type == "CLAIM" and not payers <= others:
            return False
        direction = "out" if self.needs & LEAVES else "in"
        of_contracts = [
            move for move in movements if move.direction == direction and move.counterparty in self.counterparties
        ]
        return recipients <= others and any(
            move.raw and (move.asset.is_native or is_trusted(move.asset.collection)) for move in of_contracts
        )


def _rule(type_: TransactionType, needs: str = "", bars: str = "") -> Rule:
    def parse_signs(text: str) -> frozenset[str]:
        return frozenset(sign.strip() for sign in text.split(",") if sign.strip())

    return Rule(type_, parse_signs(needs), parse_signs(bars))


# The first fitting rule counts: of `FIRST`, of the called protocol (`[[transactions]]` of its file), or of `RULES`.
# `called X`: `configs/functions.toml` lists the function under that type. Anybody may call a contract of their own, so
# assets sent by third parties count only if the coin or the token is trusted.
# No rule gives IGNORE or MULTITYPE: these are a user's own labels, for hidden and for combined transactions.
FIRST: Final[tuple[Rule, ...]] = (
    _rule("FAILED", "failed"),
    _rule("SPAM", "poison", "approval"),
    _rule("SPAM", "spam", "approval"),
    _rule("SPAM", "imitated", "approval"),
)
RULES: Final[tuple[Rule, ...]] = (
    _rule("UNSTAKE", "withdrawn, stake"),
    _rule("COLLECT", "withdrawn"),
    _rule("BRIDGEIN", "bridged, gain", "loss"),
    _rule("VOTE", "called VOTE, sent", "loss"),
    _rule("SIGN", "called SIGN, sent"),
    _rule("FOLLOW", "called FOLLOW, sent"),
    _rule("DONATION", "called DONATION, loss"),
    _rule("EXPENSE", "called EXPENSE, loss"),
    _rule("BRIDGEOUT", "called BRIDGEOUT, loss"),
    _rule("BRIDGEIN", "called BRIDGEIN, known gain", "loss"),
    _rule("BRIDGEIN", "called BRIDGEIN, sent, gain", "loss"),
    _rule("CLAIM", "called CLAIM, known gain", "loss"),
    _rule("CLAIM", "called CLAIM, sent, gain", "loss"),
    _rule("COLLECT", "called COLLECT, sent, gain", "loss"),
    _rule("AIRDROP", "called AIRDROP, gain", "sent, loss"),
    _rule("OPENVAULT", "called OPENVAULT, sent"),
    _rule("CLOSEVAULT", "called CLOSEVAULT, sent"),
    _rule("REPAYVAULT", "called REPAYVAULT, sent, loss"),
    _rule("BORROW", "called BORROW, sent, gain"),
    _rule("LEND", "called LEND, sent, loss"),
    _rule("STAKE", "called STAKE, sent, loss"),
    _rule("UNSTAKE", "called UNSTAKE, sent"),
    _rule("ADDLIQUIDITY", "called ADDLIQUIDITY, sent, loss"),
    _rule("REMOVELIQUIDITY", "called REMOVELIQUIDITY, sent, loss"),
    _rule("DEPOSIT", "called DEPOSIT, sent, loss"),
    _rule("CLAIM", "called DEPOSIT, sent, gain", "loss"),
    _rule("WITHDRAW", "called WITHDRAW, sent, gain"),
    _rule("WITHDRAW", "called WITHDRAW, sent, returned"),
    _rule("SWAP", "called SWAP, sent, loss"),
    _rule("SELFTRANSFER", "self", "gain, loss"),
    _rule("WRAP", "wrap", "unwrap, other"),
    _rule("UNWRAP", "unwrap", "wrap, other"),
    _rule("REMOVELIQUIDITY", "called REMOVELIQUIDITY, sent", "gain, loss"),
    _rule("ADDLIQUIDITY", "into pool"),
    _rule("ADDLIQUIDITY", "into position"),
    _rule("REMOVELIQUIDITY", "from pool"),
    _rule("DEPOSIT", "into issuer"),
    _rule("WITHDRAW", "from issuer"),
    _rule("MINT", "sent, minted", "loss"),
    _rule("MINT", "sent, minted, collectible gain", "token loss, fungible gain"),
    _rule("SWAP", "gain, loss", "collectible minted"),
    _rule("TRANSFEROUT", "loss, plain", "gain"),
    _rule("TRANSFEROUT", "loss, transfer", "gain"),
    _rule("TRANSFEROUT", "loss", "gain, sent"),
    _rule("TRANSFERIN", "gain, transfer", "loss"),
    _rule("TRANSFERIN", "gain", "loss, sent"),
    _rule("APPROVAL", "approval", "moved"),
    _rule("INTERACTION", "sent"),
    _rule("UNDEFINED"),
)


def type_of(activity_signs: frozenset[str], function: str, protocol_rules: Sequence[Rule] = ()) -> TransactionType:
    """Return the type of the first rule that fits: of `FIRST`, of the called protocol, or of `RULES`."""
    first, last = _own_types(activity_signs)
    of_protocol = (rule.type for rule in protocol_rules if rule.fits(activity_signs, function))
    return next(of_protocol, last) if first is None else first


@lru_cache(maxsize=4096)
def _own_types(activity_signs: frozenset[str]) -> tuple[TransactionType | None, TransactionType]:
    """Return the type by `FIRST`, or None, and that by `RULES`: neither depends on a function."""
    first = next((rule.type for rule in FIRST if rule.fits(activity_signs, "")), None)
    return first, next(rule.type for rule in RULES if rule.fits(activity_signs, ""))
