"""Strangers' contracts on Tron change no present or past portfolio and no comparison of a wallet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from eth_abi.abi import encode as abi

from chainfolio.adapters.tron import calls, untrusted
from chainfolio.adapters.tron.node import TronNode as Endpoint
from chainfolio.cli.main import main
from chainfolio.localchain.hostile import GOOD, TRANSFER, gives
from chainfolio.localchain.tron.forms import base58check
from chainfolio.localchain.tron.node import TronNode
from tests.chains.tron import RICH, Signer
from tests.tron.chains import facts

pytestmark = pytest.mark.node
PAID, FORGED, LOOPING = 7_000_000, 5 * 10**18, 20
WORTH: Final = "25000001.75"  # of what the victim was endowed with and paid, at 0.25 a coin
LOOP: Final = "5b5f56"  # JUMPDEST, PUSH0, JUMP
Run = Callable[..., tuple[int, Any]]


def address_topic(address: str) -> str:
    """Return an address as a topic."""
    return address.removeprefix("0x")[-40:].rjust(64, "0")


def looping(sender: str, recipient: str) -> str:
    """The creation code of a contract that loops for ever, and logs a transfer when it is made."""
    log = f"60015f527f{address_topic(recipient)}7f{address_topic(sender)}7f{TRANSFER[2:]}60205fa3"
    return f"{log}62{LOOP}5f526003601df3"


@dataclass(frozen=True)
class Dusted:
    """A victim with coins, to whom a stranger's token logged a false transfer.

    `before` is the height of a block before it and `after` of one after it.
    """

    node: TronNode
    victim: Signer
    stranger: Signer
    token: str
    multicall: str
    before: int
    after: int

    @property
    def address(self) -> str:
        """The victim as people write it."""
        return base58check(self.victim.hex)

    def flood(self, count: int) -> None:
        """Send the victim so many tokens that loop for ever."""
        for number in range(count):
            code = looping(self.stranger.hex, self.victim.hex)
            new = {"origin_address": self.stranger.hex, "bytecode": code, "consume_user_resource_percent": 100}
            new["name"] = f"L{number}"
            self.stranger.send(self.node, "CreateSmartContract", 15 * 10**9, new_contract=new)
            assert self.node.advance().results == ("SUCCESS",)
        self.node.advance(4)


@pytest.fixture
def dusted() -> Iterator[Dusted]:
    victim, payer, stranger = Signer(11), Signer(12), Signer(13)
    with TronNode(lag=2, grid=True, balances=True, maintenance=10) as node:
        for each in (victim, payer, stranger):
            node.endow(each.hex, RICH)
        node.advance()
        payer.send(node, "TransferContract", to_address=victim.hex, amount=PAID)
        multicall = payer.create(node, "Multicall3")
        node.advance(4)
        before = node.head.height - 2
        answers = {**GOOD, "balanceOf(address)": gives("uint256", 0)}
        code = abi(["(bytes4,uint8,uint256,bytes)[]"], [[each.row(name) for name, each in answers.items()]])
        token = stranger.create(node, "Hostile", code)
        node.advance()
        topics = [
            bytes.fromhex(each) for each in (TRANSFER[2:], address_topic(stranger.hex), address_topic(victim.hex))
        ]
        stranger.call(node, token, "log(bytes32[],bytes)", topics, FORGED.to_bytes(32, "big"))
        assert node.advance().results == ("SUCCESS",)
        node.advance(4)
        yield Dusted(node, victim, stranger, token, multicall, before, node.head.height - 2)


@pytest.fixture
def run(dusted: Dusted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on that chain: its exit code and its document."""
    monkeypatch.chdir(tmp_path)
    path = facts(dusted.node, tmp_path, multicall=dusted.multicall)
    (tmp_path / "chainfolio.toml").write_text(
        f'[chains.tron]\nadapter = "tron"\nindex = "accounts"\nrpc = ["{dusted.node.url}"]\ntrongrid = true\n'
        f'facts = "{path}"\n[prices]\n"tron:{dusted.node.chain_id}/slip44:195" = "0.25"\n'
    )

    def ran(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main((*arguments, "--json"))
        printed = capsys.readouterr().out
        return code, json.loads(printed) if printed.startswith(("{", "[")) else printed

    return ran


def reasons(portfolio: Any) -> list[str]:
    return [each["reason"] for each in portfolio["issues"]]


def test_a_forged_transfer_makes_no_past_portfolio_partial(dusted: Dusted, run: Run) -> None:
    assert run("watch", dusted.address)[0] == 0
    for block, reason_text in ((dusted.before, "more of it came since than there is"), (dusted.after, "add up to")):
        code, [portfolio] = run("portfolio", dusted.address, "--chain", "tron", "--block", str(block))
        assert (code, portfolio["completeness"]) == (0, "complete")
        assert any(reason_text in reason for reason in reasons(portfolio)), block


def test_a_forged_transfer_is_listed_apart_by_reconcile(dusted: Dusted, run: Run) -> None:
    assert run("watch", dusted.address)[0] == 0
    code, [report] = run("reconcile", dusted.address)
    assert (code, report["differences"], report["counts"]["untrusted"]) == (0, [], 1)
    [apart] = report["untrusted"]
    assert (apart["count"], apart["assets"]) == (1, [f"tron:{dusted.node.chain_id}/trc20:{base58check(dusted.token)}"])


@pytest.mark.slow("takes seconds, and faster tests take its branches")
def test_tokens_that_loop_for_ever_leave_a_wallet_readable(
    dusted: Dusted, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    dusted.flood(LOOPING)
    assert run("watch", dusted.address)[0] == 0
    batch_sizes: list[int] = []
    real = calls.send_calls

    async def count_calls(endpoint: Endpoint, batch: Sequence[Any]) -> Any:
        batch_sizes.append(len(batch))
        return await real(endpoint, batch)

    monkeypatch.setattr(untrusted, "send_calls", count_calls)
    code, [portfolio] = run("portfolio", dusted.address)
    assert (code, portfolio["completeness"]) == (0, "complete")
    assert portfolio["networth"] == WORTH
    assert sum(each.get("count", 1) for each in portfolio["issues"] if each["adapter"] == "balance") >= LOOPING
    assert 0 < sum(batch_sizes) <= 4 * untrusted.MAX_FAILED
    assert run("nav", dusted.address)[0] == 0
    code, [compared] = run("reconcile", dusted.address)
    assert (code, compared["counts"]["unreadable"]) == (0, 0)
    assert compared["counts"]["untrusted"] == LOOPING + 1
