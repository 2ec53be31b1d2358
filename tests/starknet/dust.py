"""A Starknet wallet with hostile tokens: its node counts the steps of calls, and some calls never end."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from unittest import mock

from chainfolio.adapters.starknet import state
from chainfolio.adapters.starknet.felts import format_felt, selector
from chainfolio.adapters.starknet.state import MAX_UNTRUSTED_CALLS
from chainfolio.assets import Asset
from chainfolio.transport.exchange import HttpResponse
from chainfolio.untrusted import MAX_SECONDS
from tests.chains.dust import DustKind, Mix, Wallet, Work, counts, wallet_of
from tests.json_rpc import Refuse
from tests.starknet.fakes import TOKEN, WALLET, FakeNode
from tests.starknet.recorded import FACTS

STEPS: Final = 10_000_000  # of one call, as nodes have it
READ: Final = 1_000
OWN: Final = format_felt(0x0A11)
ROUNDS: Final = 4  # in which contracts are asked: balances and names, by two spellings
BALANCES: Final = {selector("balanceOf"), selector("balance_of")}
NO_PATIENCE_S: Final = 0.02  # instead of seconds, where calls never end
BEHAVIOURS: Final = (
    "loops for ever",
    "loops in its name",
    "refuses",
    "answers nothing",
    "answers too much",
    "answers no numbers",
    "answers one",
    "breaks its node",
    "never ends",
)


class DustNode(FakeNode):
    """A fake node with contracts. `steps` is what its calls used."""

    def __init__(self, behaviours: dict[int, str]) -> None:
        super().__init__(starknet_call=self._run)
        self.behaviours, self.steps, self.requests = behaviours, 0, 0

    async def post(self, source: str, url: str, body: bytes, timeout_s: float) -> HttpResponse:
        """One request, or several at once. One that calls a contract without an end is not answered."""
        self.requests += 1
        requests = json.loads(body)
        for each in requests if isinstance(requests, list) else [requests]:
            if each["method"] == "starknet_call" and self._is_endless(each["params"][0]):
                await asyncio.Event().wait()
        return await super().post(source, url, body, timeout_s)

    def _is_endless(self, call: Any) -> bool:
        return self.behaviours.get(int(call["contract_address"], 16)) == "never ends"

    def _run(self, params: Any) -> Any:
        contract, function = (int(params[0][name], 16) for name in ("contract_address", "entry_point_selector"))
        is_balance = function in BALANCES
        self.steps += READ
        match self.behaviours.get(contract, "honest"):
            case "loops for ever":
                self.steps += STEPS
                raise Refuse(40, "Contract error", {"revert_error": "Could not reach the end of the program"})
            case "loops in its name" if not is_balance:
                self.steps += STEPS
                raise Refuse(40, "Contract error", {"revert_error": "Could not reach the end of the program"})
            case "refuses":
                raise Refuse(40, "Contract error", {"revert_error": "Error at pc=0:1"})
            case "answers nothing":
                return []
            case "answers too much":
                return ["0x7"] * 5_000
            case "answers no numbers":
                return ["zero"]
            case "breaks its node":
                raise Refuse(-32099, "unexpected error")
        return ["0x5", "0x0"] if is_balance else ["0x6"]


def token(contract: str) -> Asset:
    """The token of a contract."""
    return Asset(FACTS.caip2, "erc20", contract)


async def read(mix: Mix) -> Wallet:
    """Read the wallet: its coins, a listed token, one of its own actions, and the hostile ones."""
    behaviours = {(number % 2 + 1) * 2**200 + number: each for number, each in enumerate(counts(mix), 1)}
    node = DustNode(behaviours)
    trusted = {"listed": token(format_felt(int(TOKEN, 16))), "own": token(OWN)}
    dust = [token(format_felt(each)) for each in behaviours]
    patience_s = NO_PATIENCE_S if "never ends" in behaviours.values() else MAX_SECONDS
    with mock.patch.object(state, "MAX_SECONDS", patience_s):
        return await wallet_of(
            node.chain(), format_felt(int(WALLET, 16)), trusted, dust, lambda: Work(node.requests, node.steps)
        )


def allowance(count: int) -> Work:
    """Each contract is asked for its balance and its names, fifty calls a request."""
    requests = ROUNDS + -(-2 * 4 * count // MAX_UNTRUSTED_CALLS) + ROUNDS
    return Work(requests, 4 * (STEPS + 2 * READ) * count, turns=requests)


STARKNET: Final = DustKind(BEHAVIOURS, read, allowance, DustNode)
