"""`chainfolio recompute`: values of many accounts from stored data, the same from each executor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from chainfolio.errors import AccessDenied, StoreError, StoreUnavailable
from chainfolio.storage.lake import Lake
from chainfolio.storage.results import write_result
from tests.cli.conftest import Run
from tests.engine.recomputed import NATIVE, USDC, Snap, SnapshotAsset, wallet, write_prices, write_snapshots
from tests.storage.s3_server import S3

WALLETS = [wallet(number) for number in range(1, 4)]


@pytest.fixture
def stored(here: Path) -> Path:
    """Settings, a file of three wallets, and two days of two of them."""
    (here / "chainfolio.toml").write_text('data = "d"\n[chains.ethereum]\nrpc = ["http://127.0.0.1:9"]\n')
    (here / "wallets.txt").write_text("\n".join(WALLETS) + "  # the last has no snapshot\n")
    holdings = [
        SnapshotAsset(NATIVE, 2 * 10**18, value="1"),
        SnapshotAsset(USDC, 10**6, 6, value="1", side="borrowed", name="Loan"),
    ]
    snapshots = [Snap(each, day, 100 + day, holdings) for each in WALLETS[:2] for day in range(2)]
    write_snapshots(here / "d" / "lake", snapshots)
    write_prices(here / "d" / "lake", [(100, NATIVE, "10.25", None), (101, NATIVE, "20", None)])
    return here


def recompute_command(*options: str) -> tuple[str, ...]:
    return ("recompute", "--accounts", "wallets.txt", "--chain", "ethereum", *options)


DAYS = ("--from", "2025-01-01", "--to", "2025-01-31")


def test_a_block_gives_a_value_for_each_account(run: Run, stored: Path) -> None:
    document = run(*recompute_command("--block", "100", "--json")).json
    assert [(each["address"], each["value"]) for each in document["values"]] == [(each, "19.5") for each in WALLETS[:2]]
    assert document["values"][0] == {
        "address": WALLETS[0],
        "day": "2025-01-01",
        "block": 100,
        "value": "19.5",
        "completeness": "complete",
        "valued": 2,
        "unpriced": 0,
    }
    assert (document["block"], document["from"], document["withoutSnapshot"]) == (100, None, WALLETS[2:])


def test_days_are_printed_as_a_table_and_as_csv(run: Run, stored: Path) -> None:
    ran = run(*recompute_command(*DAYS))
    assert ran.code == 0
    assert (ran.out.count("19.50"), ran.out.count("39.00")) == (2, 2)
    assert f"1 account without a stored snapshot, the first {WALLETS[2]}" in ran.err
    lines = run(*recompute_command(*DAYS, "--csv")).out.splitlines()
    assert lines[:2] == [
        "address,day,block,completeness,value,valued,unpriced",
        f"{WALLETS[0]},2025-01-01,100,complete,19.5,2,0",
    ]
    assert len(lines) == 5


def test_processes_print_and_write_what_inline_does(run: Run, stored: Path) -> None:
    outputs, files = list[str](), list[bytes]()
    for executor in ("inline", "processes"):
        outputs.append(run(*recompute_command(*DAYS, "--json", "--executor", executor, "--workers", "1")).out)
        assert run(*recompute_command(*DAYS, "--executor", executor, "--workers", "1", "--out", "v.parquet")).code == 0
        files.append(Path("v.parquet").read_bytes())
    assert outputs[0] == outputs[1] != ""
    assert files[0] == files[1]
    assert not list(stored.glob("*.partial"))


def test_a_delta_table_is_replaced_in_one_commit(run: Run, stored: Path) -> None:
    assert run(*recompute_command(*DAYS, "--out", "values")).out == "values: 4 values\n"
    assert run(*recompute_command("--block", "500", "--out", "values")).code == 0
    table = DeltaTable("values")
    assert table.version() == 1
    rows = pl.DataFrame(pl.from_arrow(table.to_pyarrow_table()))
    assert rows["value_usd"].to_list() == ["39", "39"]
    assert rows.columns == ["chain", "account", "day", "height", "completeness", "value_usd", "valued", "unpriced"]


def test_no_stored_snapshot_gives_an_empty_answer(run: Run, stored: Path) -> None:
    assert run(*recompute_command("--block", "1", "--json")).json["values"] == []
    assert run(*recompute_command("--block", "1", "--out", "v.parquet")).code == 0
    assert pl.read_parquet("v.parquet").height == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "either one block or a range of days"),
        (("--block", "1", *DAYS), "either one block or a range of days"),
        (DAYS[:2], "either one block or a range of days"),
        (("--block", "-1"), "at least 0"),
        (("--from", "2025-02-01", "--to", "2025-01-01"), "2025-02-01 is after 2025-01-01"),
        (("--from", "yesterday", "--to", "2025-01-01"), "yesterday"),
        (("--block", "1", "--workers", "-1"), "not between 0 and 1000"),
        (("--block", "1", "--ray", "ray://head:10001"), "uses no cluster"),
        (("--block", "1", "--out", "wallets.txt/v.parquet"), "wallets.txt/v.parquet"),
    ],
    ids=["none", "both", "half", "negative", "reversed", "no-day", "workers", "ray", "out"],
)
def test_what_cannot_be_computed_is_refused(run: Run, stored: Path, options: tuple[str, ...], message: str) -> None:
    ran = run(*recompute_command(*options, "--json"))
    assert ran.code in (2, 5), ran.out
    assert message in ran.out


def test_a_file_without_accounts_of_the_chain_is_refused(run: Run, stored: Path) -> None:
    Path("wallets.txt").write_text("# nothing\n")
    assert "wallets.txt has no address" in run(*recompute_command("--block", "1")).err
    Path("wallets.txt").write_text("So11111111111111111111111111111111111111112\n")
    assert run(*recompute_command("--block", "1")).code == 2


def test_a_result_that_cannot_replace_a_file_leaves_it(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    write_result(pl.DataFrame({"a": [1]}), str(file))
    before = file.read_bytes()
    write_result(pl.DataFrame({"a": [1]}), str(file))
    assert file.read_bytes() == before


def test_a_result_that_cannot_be_written_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(StoreError):
        write_result(pl.DataFrame({"a": [1]}), str(tmp_path / "a.parquet"))
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_a_lake_and_results_in_a_bucket_are_reached_by_the_settings(
    run: Run, here: Path, s3: S3, bucket_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_snapshots(bucket_lake.uri, [Snap(WALLETS[0], 0, 100, [SnapshotAsset(USDC, 10**6, 6, value="1")])])
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    lake = f'[lake]\nuri = "{bucket_lake.uri}"\nendpoint = "{s3.url}"\nregion = "eu-central-1"\n'
    Path("chainfolio.toml").write_text(f'data = "d"\n{lake}[chains.ethereum]\nrpc = ["http://127.0.0.1:9"]\n')
    Path("wallets.txt").write_text(WALLETS[0])
    output_options = ("--out", f"{s3.bucket()}/values")
    (value,) = run(*recompute_command("--block", "100", "--json", *output_options)).json["values"]
    assert value["value"] == "1"
    with s3.failing("denied"):
        ran = run(*recompute_command("--block", "100", *output_options))
    assert (ran.code, "not-to-be-shown" in ran.err, "AKIAEXAMPLE" in ran.err) == (5, False, False)


def test_results_that_a_bucket_refuses_are_a_typed_error(s3: S3, bucket_lake: Lake) -> None:
    rows, target = pl.DataFrame({"a": [1]}), f"{bucket_lake.uri}/values"
    for how, kind in (("denied", AccessDenied), ("slow", StoreUnavailable)):
        with s3.failing(how), pytest.raises(kind, match=r"results: s3://") as caught:
            write_result(rows, target)
        assert caught.value.__cause__ is None
        assert not any(secret in str(caught.value) for secret in ("not-to-be-shown", "AKIAEXAMPLE"))
    with pytest.raises(StoreError, match="cannot write it"):
        write_result(rows, "s3://no-such-bucket/values")


@pytest.mark.slow("waits for worker processes of an interrupted command")
def test_an_interrupt_ends_the_command_and_its_workers(stored: Path) -> None:
    wallets = [wallet(number) for number in range(1, 4_001)]
    write_snapshots(
        stored / "d" / "lake", [Snap(each, 5, 700, [SnapshotAsset(USDC, 1, 6, "1")]) for each in wallets], 1
    )
    Path("wallets.txt").write_text("\n".join(wallets))
    command = [
        sys.executable,
        "-m",
        "chainfolio",
        *recompute_command(*DAYS, "--executor", "processes", "--workers", "2"),
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until_s = time.monotonic() + 60
    while len(workers := children.read_text().split()) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert workers
    while any(_is_running(int(each)) for each in workers) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not [each for each in workers if _is_running(int(each))]


def _is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z"
