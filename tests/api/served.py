"""A process that serves fakes: `python -m tests.api.served WORKERS PORT SECONDS NOTICE YOUNG`.

NOTICE is `server.stop_notice_s`. A worker that dies is young until YOUNG seconds; 0: as usual."""

from __future__ import annotations

import sys

from chainfolio.api import serve as serving
from chainfolio.api.app import App
from chainfolio.api.serve import serve
from chainfolio.settings import Server, Settings
from tests.api.fakes import FakeEngine, FakeKeys, an_app


async def make(settings: Settings) -> App:
    """Return the application; each call of its engine takes `server.cache_s` seconds."""
    return an_app(FakeEngine(delay_s=settings.server.cache_s), FakeKeys(), settings.server)


if __name__ == "__main__":
    workers, port, seconds, notice_s, young = map(int, sys.argv[1:])
    if young:
        serving.MIN_WORKER_LIFE_S = young  # type: ignore[misc]
    serve(make, Settings(server=Server(workers=workers, port=port, cache_s=seconds, stop_notice_s=notice_s)))
