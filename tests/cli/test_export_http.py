"""`/v1/export` over a real index gives the bytes of `chainfolio export`, and readable statements."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import httpx2
import pypdf
import pytest

from tests.cli.conftest import Run
from tests.cli.test_mcp_http import served

pytestmark = pytest.mark.node


async def test_each_file_is_that_of_the_command(wallets: dict[str, str], here: Path, run: Run) -> None:
    frank = wallets["frank"]
    exports = (("holdings", "csv"), ("transactions", "parquet"), ("gains", "json"), ("approvals", "csv"))
    for kind, format_name in exports:
        output = str(here / f"{kind}.of-command")
        ran = await asyncio.to_thread(run, "export", kind, frank, "--format", format_name, "-o", output)
        assert ran.code == 0, ran.err
    async with served() as at, httpx2.AsyncClient(timeout=60) as http:
        account, key = at.account("portfolio")
        url, headers = at.url.replace("/mcp", "/v1/export"), {"Authorization": f"Bearer {key}"}
        for kind, format_name in exports:
            answer = await http.get(f"{url}/{kind}?addresses={frank}&format={format_name}", headers=headers)
            assert answer.status_code == 200, answer.text
            assert answer.content == (here / f"{kind}.of-command").read_bytes(), kind
        statement = await http.get(f"{url}/gains?addresses={frank}&format=pdf&method=average", headers=headers)
        page = pypdf.PdfReader(io.BytesIO(statement.content)).pages[0].extract_text()
        assert statement.headers["Chainfolio-Data-Digest"] in page.replace("\n", "")
        no_past = await http.get(f"{url}/history?addresses={frank}", headers=headers)
        assert no_past.status_code == 403
        assert await at.credits(account, 95)
