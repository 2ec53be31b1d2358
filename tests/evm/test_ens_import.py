"""The import of web3, which resolves ENS names, leaves the process unchanged."""

from __future__ import annotations

import subprocess
import sys

RESOLVE_ONCE = """
import asyncio, json, sys
import msgspec
from chainfolio.adapters.evm.chain import EvmChain

class Nodeless:
    node = None
    async def heads(self):
        raise LookupError

limit = sys.getrecursionlimit()
for call in (EvmChain.address_of, EvmChain.name_of):
    try:
        asyncio.run(call(Nodeless(), "alice.eth"))
    except LookupError:
        pass
assert "py_ecc" in sys.modules and sys.getrecursionlimit() == limit
for decode in (json.loads, msgspec.json.decode):
    try:
        decode("[" * 500_000 + "]" * 500_000)
    except RecursionError:
        print("refused")
"""


def test_nested_json_ends_no_process_that_has_resolved_an_ens_name() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RESOLVE_ONCE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "refused\nrefused\n", "")
