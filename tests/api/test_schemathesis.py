"""Schemathesis compares the answers of a listening application with its description.

It generates valid and invalid requests. CHAINFOLIO_TESTS=deep generates many more.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from chainfolio.settings import Limits, Quotas, Settings
from chainfolio.storage.state.ledger import Balance
from tests.api.furnished import GRANTS, furnish
from tests.api.tenants import a_world
from tests.depth import IS_DEEP

EXAMPLES: Final = 1_000 if IS_DEEP else 2
PATIENCE_S: Final = 4 * 3600 if IS_DEEP else 300
ROOT: Final = Path(__file__).resolve().parents[2]
# Routes with a body, with a part of the path that varies, with pages, and with many parameters.
SOME_PATHS: Final = "^/v1/(approvals|addressbook|status|wallet)"
NEVER: Final = 1_000_000_000  # a rate or purse that no run comes to the end of
# Beyond what schemathesis itself takes for a refusal: where it makes a URL or a body that is too long.
CONFIG: Final = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 413, 414, 415, 422, 429, 431]
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 302, 403, 404, 409, 413, 414, 422, 431]
"""


EVERY_ROUTE = pytest.mark.slow("the same checks of the routes that are left")


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("state_url", "paths"),
    [
        pytest.param("sqlite", SOME_PATHS, id="sqlite-some"),
        pytest.param("sqlite", ".*", marks=EVERY_ROUTE, id="sqlite-all"),
        pytest.param(
            "postgresql", ".*", marks=pytest.mark.slow("the same requests over another store"), id="postgresql"
        ),
    ],
    indirect=["state_url"],
)
async def test_what_is_answered_is_what_is_described(state_url: str, paths: str, tmp_path: Path) -> None:
    limits = Limits(per_minute=NEVER, at_block_per_minute=NEVER, waiting_per_key=NEVER)
    settings = Settings(limits=limits, quotas=Quotas(bundles=NEVER))
    async with a_world(state_url, settings) as world:
        tenant = world.tenant("ann", grants=GRANTS, credits=NEVER)
        furnish(world, tenant.account)
        arguments = [
            "--checks",
            "all",
            "--seed",
            "1",
            "--max-examples",
            str(EXAMPLES),
            "--include-path-regex",
            paths,
            "--exclude-path-regex",
            "^/v1/export/",  # its engine is a fake here, which has no chain to export from
            "--continue-on-failure",
            "--header",
            f"Authorization: Bearer {tenant.key}",
            "--warnings",
            "off",
        ]
        (tmp_path / "schemathesis.toml").write_text(CONFIG)
        code, output = await run(["run", *arguments, f"{world.base}/openapi.json"], tmp_path)
        assert code == 0, output
        purse = await world.settled_balance(tenant)
        assert purse == Balance(NEVER - purse.earned, 0, purse.earned)


async def run(arguments: list[str], folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--no-color",
        *arguments,
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.api.beyond_schema", "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
