"""Typed client of the Chainfolio API: `Client` for programs without an event loop, `AsyncClient` for those with one."""

from chainfolio_client.aio import AsyncDownload, AsyncPages
from chainfolio_client.async_client import AsyncClient
from chainfolio_client.calls import Event
from chainfolio_client.client import Client
from chainfolio_client.errors import ApiError, ChainfolioError, ConnectionFailed, InvalidAnswer
from chainfolio_client.retries import Retry
from chainfolio_client.sync import Download, Pages
from chainfolio_client.version import __version__

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncDownload",
    "AsyncPages",
    "ChainfolioError",
    "Client",
    "ConnectionFailed",
    "Download",
    "Event",
    "InvalidAnswer",
    "Pages",
    "Retry",
    "__version__",
]
