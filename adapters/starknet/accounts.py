"""What a Starknet chain reads of accounts, as `chainfolio.positions.AccountReader` has it: native coin, tokens, stakes.

A token is asked as young contracts spell their functions, and then, where it has no such function, as others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chainfolio.adapters.starknet.facts import Facts
from chainfolio.adapters.starknet.felts import U128, text, u256
from chainfolio.adapters.starknet.staking import delegated
from chainfolio.adapters.starknet.state import Call, lacks
from chainfolio.assets import Asset
from chainfolio.blocks import Block
from chainfolio.contracts import Issue, Token
from chainfolio.interactions import Interactions
from chainfolio.plans import Plan, Unknown, all_of
from chainfolio.positions import AccountState, Describe

SPELLINGS: Final = {
    "balanceOf": "balance_of",
    "ownerOf": "owner_of",
    "totalSupply": "total_supply",
    "getApproved": "get_approved",
    "isApprovedForAll": "is_approved_for_all",
    "supportsInterface": "supports_interface",
}
MAX_DECIMALS: Final = 255
# What collections call their standard: by that of Ethereum, and by that of Starknet.
ERC721: Final = (0x80AC58CD, 0x33EB2F84C309543403FD69F0D0F363781EF06EF6FAEB0131FF16EA3175BD943)


@dataclass(frozen=True, slots=True)
class Accounts:
    """Reads accounts at any block."""

    facts: Facts
    events: Sequence[str] = ()
    issues: Sequence[Issue] = ()
    finds_tokens: bool = False

    def unread_protocols(self, account: str, interactions: Interactions) -> Iterator[Issue]:
        """Nobody knows which contracts keep something for an account."""
        return iter(())

    def at(self, block: Block) -> Accounts:
        """The same: nothing is remembered of a block."""
        return self

    def read(
        self,
        account: str,
        interactions: Interactions,
        assets: Sequence[Asset],
        describe: Describe | None = None,
        prefetch: Plan[Any, Any, None] | None = None,
    ) -> Plan[Any, Any, AccountState]:
        """As `chainfolio.positions.BlockReader` has it."""
        plans: dict[str, Plan[Any, Any, Any]] = {
            "state": self._state(account, assets, describe),
            "stakes": delegated(self.facts, account, interactions),
            **({"expected": prefetch} if prefetch else {}),
        }
        found = yield from all_of(plans)
        coins, held = found["state"]
        positions, issues = found["stakes"]
        return AccountState(coins, held, positions, issues)

    def _state(
        self, account: str, wanted: Sequence[Asset], named: Describe | None
    ) -> Plan[Any, Any, tuple[Any, Mapping[Asset, Any]]]:
        coin = self.facts.native_asset
        tokens = [asset for asset in wanted if asset != coin and self.facts.contract_of(asset) != self.facts.coin]
        raws = yield from balances(self.facts, [(account, asset) for asset in (coin, *tokens)])
        held = dict(zip(tokens, raws[1:], strict=True))
        if named is not None:
            yield from named([asset for asset, raw in held.items() if raw != 0])
        return raws[0], held


def asked(calls: Sequence[Call]) -> Plan[Any, Any, list[Any]]:
    """What contracts answer, in one round; a second one asks those that spell a function otherwise."""
    answers = list((yield calls)) if calls else []
    again = {
        at: Call(call.contract, SPELLINGS[call.function], call.args)
        for at, call in enumerate(calls)
        if call.function in SPELLINGS and lacks(answers[at])
    }
    if again:
        for at, answer in zip(again, (yield list(again.values())), strict=True):
            answers[at] = answer
    return answers


def asked_at_once(calls: Sequence[Call]) -> Plan[Any, Any, list[Any]]:
    """What contracts answer, by whichever spelling they know: in one round, with twice as many calls."""
    both = [each for call in calls for each in (call, Call(call.contract, SPELLINGS[call.function], call.args))]
    answers = list((yield both)) if both else []
    return [other if lacks(one) else one for one, other in zip(answers[::2], answers[1::2], strict=True)]


def balances(
    facts: Facts, pairs: Sequence[tuple[str, Asset]], ask: Callable[[Sequence[Call]], Plan[Any, Any, list[Any]]] = asked
) -> Plan[Any, Any, list[Any]]:
    """How much accounts have of assets, in this order: an int, or what came in its place. Of a collectible it is
    whether the account owns this one, of a collection how many."""
    calls = [_balance(facts, account, asset) for account, asset in pairs]
    answers = yield from ask(calls)
    return [_raw(account, asset, each) for (account, asset), each in zip(pairs, answers, strict=True)]


def _balance(facts: Facts, account: str, asset: Asset) -> Call:
    contract, owner = facts.contract_of(asset), int(account, 16)
    number = halves(int(asset.token_id)) if asset.token_id else ()
    if _is_one(asset):
        return Call(contract, "ownerOf", number)
    return Call(contract, "balanceOf", (owner, *number))


def _is_one(asset: Asset) -> bool:
    """Whether an asset is a collectible of which there is one, and not all of its collection."""
    return asset.kind == "erc721" and bool(asset.token_id)


def _raw(account: str, asset: Asset, answer: Any) -> Any:
    if not isinstance(answer, tuple):
        return answer
    if _is_one(asset):
        return int(answer == (int(account, 16),))
    found = number_of(answer)
    return Unknown("the contract answers what is no amount", "contract") if found is None else found


def number_of(answer: Any) -> int | None:
    """The number that a contract answered, in one felt or in two halves; None where it answered none."""
    if not isinstance(answer, tuple):
        return None
    return answer[0] if len(answer) == 1 else u256(*answer) if len(answer) == 2 else None


def halves(number: int) -> tuple[int, int]:
    """A number of 256 bits as functions take it."""
    return number % U128, number >> 128


def describe(facts: Facts, assets: Sequence[Asset]) -> Plan[Any, Any, Mapping[Asset, Token]]:
    """Symbol, name and decimals of tokens, in one round; no decimals where the contract does not say them."""
    calls = [
        Call(facts.contract_of(asset), function) for asset in assets for function in ("symbol", "name", "decimals")
    ]
    answers = yield from asked(calls)
    return {asset: _token(asset, answers[3 * at : 3 * at + 3]) for at, asset in enumerate(assets)}


def _token(asset: Asset, said: Sequence[Any]) -> Token:
    symbol, name = (text(each) if isinstance(each, tuple) else "" for each in said[:2])
    match said[2]:
        case (decimals,) if decimals <= MAX_DECIMALS:
            return Token(asset, symbol, name, decimals)
    return Token(asset, symbol, name, None)


def collections(contracts: Sequence[str]) -> Plan[Any, Any, Mapping[str, bool]]:
    """Which contracts are collections: those that say so, and those without decimals that can be asked who owns one."""
    questions = [("decimals", ()), ("ownerOf", (0, 0)), *(("supportsInterface", (each,)) for each in ERC721)]
    answers = yield from asked([Call(each, function, args) for each in contracts for function, args in questions])
    found = {}
    for at, contract in enumerate(contracts):
        decimals, owner, *says = answers[at * len(questions) : (at + 1) * len(questions)]
        found[contract] = (1,) in says or (lacks(decimals) and not lacks(owner))
    return found
