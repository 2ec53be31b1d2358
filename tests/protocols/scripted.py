"""Run decoders on answers from a dictionary, for answers that no real chain gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from chainfolio.adapters.evm.positions.interactions import ContractInteractions
from chainfolio.adapters.evm.positions.matching import Protocols
from chainfolio.adapters.evm.positions.outcomes import Outcome, outcome_of
from chainfolio.adapters.evm.positions.rules import DecoderPlan, run_decoder
from chainfolio.adapters.evm.positions.shares import Shares
from chainfolio.adapters.evm.reads import Call
from chainfolio.plans import Plan, Report, Unknown, batched, run_offline
from chainfolio.reads import AtParent, Read

# A key is a contract and a function's name, and may go on with arguments; or it begins with how many blocks before.
Says = Mapping[tuple[Any, ...], Any]
NO_CODE = Unknown("there is no contract", "absent")


def read(decoder: Callable[..., DecoderPlan], *args: Any, says: Says) -> Report[Any]:
    """Run a `position` or `unwrap` and return its report; calls without a key have no contract."""
    reports: dict[str, Report[Any]] = run_offline(
        batched({"": run_decoder(decoder, *args)}), lambda ask: _answer(ask, says)
    )
    return reports[""]


def decode(decoder: Callable[..., DecoderPlan], *args: Any, says: Says) -> Any:
    """Return a decoder's result, or raise its error."""
    report = read(decoder, *args, says=says)
    if report.error is not None:
        raise report.error
    return report.result


def outcomes(protocols: Protocols, account: str, match: ContractInteractions) -> Plan[list[Outcome]]:
    """Return the outcomes of all decoders that match an account, with shares not unfolded."""
    shares = Shares(protocols)
    yield from shares.read_answers(sorted(match.tokens))
    matches = [*protocols.by_contract(account, match), *shares.by_token(account, match.tokens, match.sent)]
    judged = [replace(each, is_own_action=protocols.is_own_action(each.match, match)) for each in matches]
    reports: dict[str, Report[Outcome]] = yield from batched(
        {str(at): outcome_of(each) for at, each in enumerate(judged)}
    )
    return [report.result for report in reports.values() if report.result is not None]


def _answer(ask: Read[object], says: Says) -> Any:
    blocks = 0
    while isinstance(ask, AtParent):  # what is not said of blocks before was the same there
        ask, blocks = ask.read, blocks + 1
    assert isinstance(ask, Call)
    key = (ask.to, ask.signature.partition("(")[0])
    here = says.get((*key, *ask.args), says.get(key, NO_CODE))
    return says.get((blocks, *key), here) if blocks else here
