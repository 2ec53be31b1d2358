"""The link to the dashboard that `serve` and `demo` print: it logs in the first who opens it."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlencode

from chainfolio.storage.state import State, ledger
from chainfolio.storage.state.accounts import GRANTS, Account, grant
from chainfolio.storage.state.sessions import LINK_NAME, LINK_US

OWNER: Final = "owner of this machine"
CREDITS: Final = 1_000_000_000_000  # restored at each start, so that an owner's own reads do not run out


def url_of(host: str, port: int) -> str:
    """Return the URL of a server that listens on a host; an IPv6 address stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def new_link(state: State, account_id: str, url: str, page: str = "portfolio", **view: str) -> str:
    """Create a link that logs one browser in as an account, once and within ten minutes, and return it.

    Args:
        url: The server's own address.
        page: The page that the link opens.
        view: What the page shows first, for example `addresses`.
    """
    _, token = state.create_key(account_id, LINK_NAME, state.clock.now_us() + LINK_US)
    # Browsers send nothing behind the # to the server, so that no log has it.
    return f"{url}/#/{page}?{urlencode({**view, 'link': token}, safe=',')}"


def owner_account(state: State) -> Account:
    """Return the account of the server's owner, with all rights and credits; create it if needed.

    Its plan does not end. Each call fills its credits up.
    """
    account = next((each for each in state.accounts() if each.name == OWNER), None)
    if account is None:
        return state.create_account(OWNER, "PRO", CREDITS, GRANTS)[0]
    missing, now_us = CREDITS - state.balance(account.id), state.clock.now_us()
    if missing > 0:
        state.database.write(lambda tx: ledger.credit(tx, account.id, missing, now_us, "own machine"))
    for name in sorted(set(GRANTS) - account.grants):  # of a newer release
        state.database.write(partial(grant, id=account.id, name=name, now_us=now_us))
    return account


def is_own_machine(host: str) -> bool:
    """Return True if only programs on this machine reach a server that listens on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
