"""The commands, each with its line of help: `chainfolio --help` imports this and none of their code."""

from __future__ import annotations

from typing import Final

GROUPS: Final[dict[str, str]] = {
    "demo": "see it on a real local chain",
    "serve": "serve the API",
    "worker": "index until stopped",
    "watch": "index the histories of some accounts",
    "index": "index a chain now, once",
    "materialise": "decode stored data again",
    "portfolio": "what addresses hold",
    "history": "what addresses were worth day by day",
    "performance": "what wallets earned over a span",
    "nav": "net asset value",
    "recompute": "values of many accounts from stored data",
    "price": "what an asset was worth",
    "approvals": "what others may take",
    "transactions": "what an address did",
    "coverage": "how much of it is decoded",
    "pnl": "what addresses gained",
    "export": "files for others to read",
    "close": "the books of a period, to be checked by others",
    "validators": "what validators earned",
    "verify": "prove an answer, and read it again elsewhere",
    "reconcile": "prove that histories are complete",
    "account": "accounts of the API",
    "key": "keys of an account",
    "addressbook": "address books of accounts",
    "subscription": "daily snapshots of addresses",
    "virtual-user": "portfolios that accounts define",
    "alert": "rules, and deliveries of their events",
    "sql": "ask the lake in SQL",
    "check": "compare stored files with their checksums",
    "backup": "copy all data as it is at one moment",
    "restore": "put a backup back",
    "move": "move stores between files, PostgreSQL and object stores",
    "mcp": "answer questions of language models",
    "status": "what is indexed, and how far",
    "top": "live lag, rates and jobs of running processes",
    "jobs": "recurring work and its last runs",
    "doctor": "check endpoints and stores",
    "init": "write a settings file",
    "completion": "complete with the tab key",
    "new-protocol": "start a new protocol",
    "record": "record what decoders read",
    "test-protocol": "replay recordings",
}
# The extra that a command's code needs, and the command as a message names it.
EXTRAS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("server", "the demo"),
    "serve": ("server", "the server"),
    "worker": ("server", "the worker"),
    "top": ("server", "the view of metrics"),
    "jobs": ("server", "the schedule of jobs"),
    "mcp": ("mcp", "the server for models"),
} | dict.fromkeys(
    ("account", "alert", "key", "addressbook", "subscription", "virtual-user"), ("server", "the store of accounts")
)
