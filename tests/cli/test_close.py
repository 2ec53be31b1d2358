"""`chainfolio close`: a pack of a wallet on a real chain, checked by both checkers and by ssh-keygen."""

from __future__ import annotations

import csv
import filecmp
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from chainfolio.errors import UnsupportedMethod
from chainfolio.exports.close import check, check_pack
from chainfolio.exports.close.tables import COLUMNS
from tests.cli.close_world import PERIOD, POLICY, SAVINGS, WALLET, ClosedWorld, trading_world
from tests.cli.conftest import Run, configure

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen here"),
]
USDC = "usdc"
NO_NETWORK = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(refuse)
"""


@pytest.fixture(scope="module")
def traders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClosedWorld]:
    """Yield a chain whose wallets trade, lend and farm for two days and a half."""
    with trading_world(tmp_path_factory.mktemp("traders")) as world:
        yield world


def rows(pack: Path, name: str) -> list[dict[str, str]]:
    with (pack / "tables" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def offline(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that may not open any socket."""
    command = [sys.executable, "-c", NO_NETWORK + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copied(closed: ClosedWorld, here: Path) -> Path:
    """The folder of the world as the working folder."""
    shutil.copytree(closed.folder, here, dirs_exist_ok=True)
    return here


def make(run: Run, *more: str, policy: str = "policy.toml", period: tuple[str, ...] = PERIOD) -> tuple[int, str]:
    ran = run("close", "make", "--accounts", "accounts.txt", "--policy", policy, "--out", "new", *period, *more)
    return ran.code, ran.err


def test_a_pack_is_checked_without_network_and_all_follows(pack: Path) -> None:
    code = "from chainfolio.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    ours = offline(code, "close", "check", str(pack), "--signer", str(pack.parent / "key.pub"), "--json")
    assert ours.returncode == 0, ours.stdout + ours.stderr
    result = json.loads(ours.stdout)
    assert (result["wrong"], result["open"]) == ([], [])
    manifest = json.loads((pack / "manifest.json").read_text())
    assert Decimal(result["evidence"]["proven"]) == Decimal(manifest["totals"]["closingValue"]) > 0
    code = "import runpy\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    theirs = offline(code, str(pack / "check_pack.py"), str(pack), "--signer", str(pack.parent / "key.pub"))
    assert (theirs.returncode, theirs.stdout) == (0, "0 wrong, 0 open\n"), theirs.stderr


def test_the_independent_checker_is_short_and_shares_no_code() -> None:
    text = Path(check_pack.__file__).read_text()
    assert len(text.splitlines()) <= 600
    imported = [line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))]
    own = {name.partition(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert own == {"pyarrow", "sha3"}


def test_ssh_keygen_verifies_the_manifest(pack: Path, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed_signers"
    allowed.write_text(f"fund {(pack.parent / 'key.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "fund", "-n", "chainfolio-close"]
    command += ["-s", str(pack / "manifest.json.sig")]
    with (pack / "manifest.json").open() as manifest:
        assert subprocess.run(command, stdin=manifest, capture_output=True, check=False).returncode == 0


def test_the_same_inputs_give_the_same_bytes(closed: ClosedWorld, pack: Path) -> None:
    assert closed.make("again", "--key", "key") == 0
    again = closed.folder / "again"
    paths = sorted(path.relative_to(pack) for path in pack.rglob("*") if path.is_file())
    assert paths == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(pack, again, map(str, paths), shallow=False)[0] == [*map(str, paths)]


def test_a_manifest_is_of_its_schema_and_settings_have_no_secret(pack: Path) -> None:
    manifest = json.loads((pack / "manifest.json").read_text())
    jsonschema.validate(manifest, json.loads((pack / "manifest.schema.json").read_text()))
    assert {each["path"] for each in manifest["files"]} >= {f"tables/{name}.parquet" for name in COLUMNS}
    assert json.loads((pack / "settings.json").read_text())["chains"]["local"]["rpc"][0].endswith("/…")


def test_balances_are_those_of_the_chain_at_both_blocks(closed: ClosedWorld, pack: Path) -> None:
    heights = {row["end"]: int(row["height"]) for row in rows(pack, "blocks")}
    instants = json.loads((pack / "manifest.json").read_text())["period"]
    for end, height in heights.items():
        times = [int(closed.node.block(each)["timestamp"], 16) for each in (height, height + 1)]
        at_s = {"opening": 1_700_064_000, "closing": 1_700_150_400}[end]
        assert times[0] < at_s <= times[1]
        assert instants[end].startswith(("2023-11-15T16:00:00", "2023-11-16T16:00:00")[end == "closing"])
    of_chain = 0
    for row in rows(pack, "balances"):
        for end, height in heights.items():
            if "/slip44:" in row["asset"]:
                raw = int(closed.node.rpc("eth_getBalance", row["account"], hex(height)), 16)
            else:
                contract = row["asset"].partition("/erc20:")[2]
                raw = closed.node.call(contract, "balanceOf(address)(uint256)", row["account"], block=height)
            assert int(row[end]) == raw, row
            of_chain += raw > 0
        assert int(row["closing"]) - int(row["opening"]) == int(row["moved"])
    assert of_chain >= 10
    assert {row["account"] for row in rows(pack, "balances")} == {WALLET, SAVINGS}


def test_gains_are_those_of_the_same_days_by_the_other_command(run: Run, closed: ClosedWorld, pack: Path) -> None:
    with chdir(closed.folder):
        report = run("pnl", WALLET, SAVINGS, "--json").json
    of_pnl = [row for row in report["gains"] if "2023-11-15T16:00" <= row["time"] < "2023-11-16T16:00"]
    gains = rows(pack, "gains")
    assert [(row["transaction"], row["kind"]) for row in gains] == [(row["transaction"], row["kind"]) for row in of_pnl]
    for ours, theirs in zip(gains, of_pnl, strict=True):
        assert abs(Decimal(ours["gain"]) - Decimal(theirs["gain"]) * Decimal("0.89")) < Decimal("1e-25")
    assert len(gains) > 20


def test_every_balance_with_units_is_proven_under_the_hash_of_its_block(closed: ClosedWorld, pack: Path) -> None:
    for row in rows(pack, "blocks"):
        assert row["hash"] == closed.node.block(int(row["height"]))["hash"]
        assert row["header"].startswith("0x")
    proven = [(row["end"], row["account"], row["asset"]) for row in rows(pack, "proofs")]
    for row in rows(pack, "balances"):
        for end in ("opening", "closing"):
            is_proven = row[f"{end}Evidence"] == "proven"
            assert is_proven == ((end, row["account"], row["asset"]) in proven)
            assert is_proven == (row[end] != "0" or "/slip44:" in row["asset"]), row
    assert len(proven) >= 10


def test_without_proofs_a_second_endpoint_confirms_or_contradicts(
    run: Run, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_proofs(*_: object) -> object:
        raise UnsupportedMethod("node", "eth_getProof")

    monkeypatch.setattr("chainfolio.adapters.evm.prover.prove", no_proofs)
    assert make(run)[0] == 0
    assert {row["closingEvidence"] for row in rows(Path("new"), "balances")} == {"as one source says"}
    settings = (copied / "chainfolio.toml").read_text()
    for second, source in ((r"\1/?b", "one source says"), (r"http://localhost:\2", "two sources say")):
        rpc = rf'rpc = ["\1", "{second}"]'
        (copied / "chainfolio.toml").write_text(re.sub(r'rpc = \["([^"]+:(\d+))[^"]*"\]', rpc, settings))
        shutil.rmtree("new")
        assert make(run)[0] == 0
        assert {row["closingEvidence"] for row in rows(Path("new"), "balances")} == {f"as {source}"}
    assert run("close", "check", "new").code == 13
    assert check_pack.run("new").wrong == []


@pytest.mark.slow("other tests compare both checkers on the pack of one wallet", fast=["dave-*"])
@pytest.mark.parametrize("rules", ["fifo owner", "hifo wallet", "average owner", "uk owner", "ca owner"])
@pytest.mark.parametrize("names", ["alice", "bob", "carol", "dave", "erin", "frank", "alice bob carol frank"])
def test_both_checkers_agree_on_packs_of_traders(traders: ClosedWorld, names: str, rules: str) -> None:
    (method, lots), pack = rules.split(), f"{names} {rules}".replace(" ", "-")
    accounts = json.loads((traders.folder / "names.json").read_text())
    (traders.folder / "accounts.txt").write_text("\n".join(accounts[name] for name in names.split()))
    text = f'method = "{method}"\nlots = "{lots}"\n[prices]\nmax_age_hours = 1000\n'
    (traders.folder / "policy.toml").write_text(text)
    assert traders.make(pack) == 0
    ours, theirs = check.check_pack(traders.folder / pack), check_pack.run(traders.folder / pack)
    assert (list(ours.wrong), theirs.wrong) == ([], [])
    assert len(ours.open) == len(theirs.open)
    assert len(rows(traders.folder / pack, "gains")) > 0


# --- what stops a close ----------------------------------------------------------------------------------------------


def test_a_stale_price_stops_the_close_until_an_override_gives_a_reason(run: Run, copied: Path, pack: Path) -> None:
    (copied / "strict.toml").write_text("[prices]\nmax_age_hours = 1\n")
    code, err = make(run, policy="strict.toml")
    assert code == 2
    assert "hours old, and at most 1 are allowed" in err
    assert "an [[override]] with asset, date, price, who and reason" in err
    overrides = "".join(
        f'[[override]]\nasset = "{row["asset"]}"\ndate = "{date}"\nprice = "1.5"\nwho = "Ann"\nreason = "seen"\n'
        for end, date in (("opening", "2023-11-15"), ("closing", "2023-11-16"))
        for row in rows(pack, "prices")
        if row["end"] == end
    )
    (copied / "strict.toml").write_text(f"{(copied / 'strict.toml').read_text()}{overrides}")
    assert make(run, "--key", "key", policy="strict.toml")[0] == 0
    assert {(row["price"], row["rule"]) for row in rows(Path("new"), "prices")} == {("1.5", "override by Ann: seen")}
    assert run("close", "check", "new", "--signer", "key.pub").code == 0
    assert check_pack.run("new", "key.pub").wrong == []


def test_an_asset_without_a_price_stops_the_close_and_names_itself(run: Run, copied: Path) -> None:
    prices = (copied / "prices.toml").read_text()
    (copied / "prices.toml").write_text("\n".join(line for line in prices.splitlines() if "erc20" not in line))
    shutil.rmtree(copied / "lake" / "prices", ignore_errors=True)
    code, err = make(run)
    assert (code, "has no price" in err) == (2, True), err
    assert not (copied / "new").exists()


@pytest.mark.parametrize(
    ("period", "more", "code", "problem"),
    [
        (("2023-11-15", "2999-01-01"), (), 2, "to: the cut-off is in the future"),
        (("2023-11-01", "2023-11-16"), (), 2, "from: local began after the cut-off"),
        (("2023-11-16", "2023-11-15"), (), 2, "2023-11-16 is not before 2023-11-15"),
        (("2023-11-15", "2024-01-01"), (), 3, "is from before the moment asked for"),
        (("2023-11-15", "2023-11-16"), ("--key", "gone"), 2, "gone: No such file"),
        (("2023-11-15", "2023-11-16"), ("--currency", "ZZZ"), 2, "currency"),
        (("2023-11-15", "2023-11-16"), ("--currency", "ETH"), 2, "currency"),
        (("2023-11-15", "2023-11-16"), ("--chain", "mars"), 2, "mars is not configured"),
    ],
    ids=["future", "before the chain", "no period", "after the head", "no key", "no currency", "coin", "no chain"],
)
def test_what_cannot_be_closed_is_refused(
    run: Run, copied: Path, period: tuple[str, str], more: tuple[str, ...], code: int, problem: str
) -> None:
    words = ("--from", period[0], "--to", period[1], *PERIOD[4:])
    assert make(run, *more, period=words)[0] == code
    assert problem in make(run, *more, period=words)[1]
    assert not (copied / "new").exists()


def test_files_that_do_not_fit_are_refused(run: Run, copied: Path) -> None:
    for name, text, problem in (
        ("accounts.txt", "\n# none\n", "has no address"),
        ("accounts.txt", f"{WALLET}\n0x12\n", "line 2 of accounts.txt"),
        ("policy.toml", "method = 'best'", "'best' is no method"),
    ):
        before = (copied / name).read_text()
        (copied / name).write_text(text)
        code, err = make(run)
        assert (code, problem in err) == (2, True), err
        (copied / name).write_text(before)
    (copied / "new").mkdir()
    assert make(run) == (2, make(run)[1])
    assert "new exists" in make(run)[1]


def test_a_chain_that_is_not_indexed_whole_is_refused(run: Run, closed: ClosedWorld, here: Path) -> None:
    (here / "accounts.txt").write_text(f"{WALLET}\n")
    (here / "policy.toml").write_text(POLICY)
    configure(here, closed.node.url, chain="local", more='[rates]\nCHF = "0.89"')
    code, err = make(run)
    assert (code, "not indexed" in err) == (4, True), err


def test_an_account_that_is_named_twice_counts_once_and_an_empty_one_is_closed(run: Run, copied: Path) -> None:
    stranger = "0x" + "ab" * 20
    (copied / "accounts.txt").write_text(f"{WALLET}\n{WALLET.upper().replace('X', 'x')}\n{stranger}\n")
    assert make(run)[0] == 0
    assert [row["address"] for row in rows(Path("new"), "accounts")] == [WALLET, stranger]
    ran = run("close", "check", "new")
    assert (ran.code, "the manifest is not signed" in ran.out) == (13, True)


def test_a_pack_of_another_version_or_none_is_refused(run: Run, copied: Path, pack: Path) -> None:
    shutil.copytree(pack, "other")
    text = (pack / "manifest.json").read_text()
    for content, problem in (
        (text.replace('"version": 1', '"version": 2'), "it has version 2"),
        (text.replace("chainfolio-close", "other"), "is not one of chainfolio-close"),
        (text[:100], "is no JSON"),
        (text.replace('"digest"', '"digests"'), "is malformed"),
    ):
        (copied / "other" / "manifest.json").write_text(content)
        ran = run("close", "check", "other")
        assert (ran.code, problem in ran.err) == (2, True), ran.err
    assert run("close", "check", "nowhere").code == 2
