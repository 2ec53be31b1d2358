"""Serve the API with one or several processes on one port until SIGTERM, and finish running requests."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import multiprocessing
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Final

import msgspec
import structlog
from aiohttp import web

from chainfolio.api.app import App
from chainfolio.api.connection import Server
from chainfolio.api.edge import MAX_HEADERS, MAX_URL
from chainfolio.api.guard import Guard, room
from chainfolio.errors import BadSettings
from chainfolio.loop import run_until_done
from chainfolio.settings import Settings

KEEPALIVE_S: Final = 75.0
MIN_WORKER_LIFE_S: Final = 5.0  # if a worker dies this early, the server stops instead of restarting it in a loop

Make = Callable[[Settings], Awaitable[App]]
log = structlog.stdlib.get_logger("chainfolio.api")


@contextlib.asynccontextmanager
async def listening(
    app: App, host: str, port: int, *, reuse_port: bool = False, notice_s: float = 0, drain_s: float | None = None
) -> AsyncIterator[int]:
    """Run the app while the context is open, and yield its port; on exit, finish running requests.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        reuse_port: Share the port with other processes.
        notice_s: Time on a normal exit during which `/readyz` is 503 and requests are still accepted.
        drain_s: Maximum time in which running requests are then finished; by default `limits.request_s`, within which
            every request but an export has its answer.

    Raises:
        BadSettings: The address cannot be listened on.
    """
    async with contextlib.AsyncExitStack() as stack:
        for lifespan in app.lifespan:
            await stack.enter_async_context(lifespan())
        limits, clock = app.parts.settings.limits, app.parts.environment.clock
        guard = app.parts.traffic.guard = Guard(limits, room(limits), clock.monotonic_s)
        stack.callback(guard.watch(asyncio.get_running_loop()))
        runner = web.ServerRunner(
            Server(
                app,
                guard,
                access_log=None,
                keepalive_timeout=KEEPALIVE_S,
                # Twice the limits, so that the edge can answer 414 or 431; beyond this the parser answers 400.
                max_line_size=2 * MAX_URL,
                max_field_size=2 * MAX_HEADERS,
            ),
            shutdown_timeout=limits.request_s if drain_s is None else drain_s,
        )
        await runner.setup()
        try:
            with _address_errors(host, port):
                await web.TCPSite(runner, host, port, reuse_port=reuse_port or None).start()
            yield runner.addresses[0][1]
            app.announce_stop()
            await asyncio.sleep(notice_s)
        finally:
            app.drain()
            await runner.cleanup()


def serve(make: Make, settings: Settings, *, reuse_port: bool = False, greeting: str = "") -> bool:
    """Serve the app that `make` returns, in `settings.server.workers` processes, until SIGTERM or SIGINT.

    Return True if the app ended itself to be served again with new settings, which only a single process does.

    `make` runs inside each process, on its loop, so that processes share no connections; with several workers it must
    be a module-level function. `reuse_port` lets separately started servers share a port. `greeting` is printed once
    the port is open; with several processes, before they start.

    Raises:
        BadSettings: The address cannot be listened on.
        SystemExit: A worker died within `MIN_WORKER_LIFE_S`.
    """
    if settings.server.workers > 1:
        _greet(greeting)
        _serve_processes(make, settings, reuse_port=reuse_port)
        return False
    return _worker(make, settings, settings.server.port, reuse_port, greeting)


def _greet(text: str) -> None:
    """Print a text for the person at the terminal; nothing if it is empty."""
    if text:
        print(text, flush=True)


def _worker(make: Make, settings: Settings, port: int, reuse_port: bool, greeting: str = "") -> bool:
    configure_log(settings.log_level)
    return run_until_done(_run_worker(make, settings, port, reuse_port, greeting))


async def _run_worker(make: Make, settings: Settings, port: int, reuse_port: bool, greeting: str) -> bool:
    """Serve until SIGTERM, SIGINT, the death of the parent process or `App.restart`; running requests are finished.

    Return True for a restart. `port` is used in place of that of the settings. A second signal of the same kind ends
    the process at once.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop(reason: str) -> None:
        if not stop.is_set():
            log.info("draining", why=reason)
            stop.set()

    def signalled(number: signal.Signals) -> None:
        # A second signal of the same kind ends the process at once.
        loop.remove_signal_handler(number)
        request_stop(number.name)

    def orphaned(sentinel: int) -> None:
        loop.remove_reader(sentinel)
        request_stop("parent died")

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, signalled, each)
    if (parent := multiprocessing.parent_process()) is not None:
        # A worker stops if its parent dies, which could not restart it.
        loop.add_reader(parent.sentinel, orphaned, parent.sentinel)
    app = await make(settings)
    freeze_memory()
    server = settings.server
    async with listening(app, server.host, port, reuse_port=reuse_port, notice_s=server.stop_notice_s) as bound:
        log.info("listening", host=server.host, port=bound)
        _greet(greeting)
        ends = [asyncio.ensure_future(each.wait()) for each in (stop, app.restart)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    log.info("stopped")
    return not stop.is_set()  # a signal may also come while requests are finished


def freeze_memory() -> None:
    """Exclude the objects made at start-up from garbage collection: scans cost more than requests."""
    gc.unfreeze()  # those of an application that was replaced
    gc.collect()
    gc.freeze()


# --- several processes -----------------------------------------------------------------------------------------------


def _serve_processes(make: Make, settings: Settings, *, reuse_port: bool) -> None:
    """Serve by several processes until a signal; raise SystemExit(1) if one died that was not restarted."""
    configure_log(settings.log_level)
    with _reserve_port(settings.server.host, settings.server.port, reuse_port) as port:
        supervisor = _ProcessSupervisor(_worker, lambda number: (make, _worker_settings(settings, number), port, True))
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, supervisor.end)
        for number in range(settings.server.workers):
            supervisor.start(number)
        supervisor.watch()
    if supervisor.failed:
        raise SystemExit(1)


def _worker_settings(settings: Settings, number: int) -> Settings:
    """Return the settings of one worker, whose metrics port is the configured one plus its number."""
    if not (port := settings.server.metrics_port):
        return settings
    server = msgspec.structs.replace(settings.server, metrics_port=port + number)
    return msgspec.structs.replace(settings, server=server)


class _ProcessSupervisor:
    """Starts worker processes, restarts those that die, and passes the signal to stop on to all."""

    def __init__(self, target: Callable[..., object], arguments: Callable[[int], tuple[object, ...]]) -> None:
        self.target, self.arguments = target, arguments
        self.began_s: dict[SpawnProcess, float] = {}
        self.numbers: dict[SpawnProcess, int] = {}
        self.ending = self.failed = False

    def start(self, number: int) -> None:
        """Start a worker: spawned, not forked, so that it inherits no threads and no connections."""
        process = multiprocessing.get_context("spawn").Process(target=self.target, args=self.arguments(number))
        process.start()
        self.began_s[process], self.numbers[process] = time.monotonic(), number
        if self.ending:  # the signal came while it was being started
            process.terminate()

    def end(self, *_: object) -> None:
        """Tell all workers to finish their requests and stop."""
        self.ending = True
        for process in list(self.began_s):
            process.terminate()

    def watch(self) -> None:
        """Wait until all workers have ended; restart those that die unexpectedly."""
        while self.began_s:
            wait([process.sentinel for process in self.began_s])
            for process in [process for process in self.began_s if not process.is_alive()]:
                self._process_ended(process, time.monotonic() - self.began_s.pop(process))

    def _process_ended(self, process: SpawnProcess, lived_s: float) -> None:
        """Start a worker again that lived long enough or was killed; else end all and mark the failure."""
        number = self.numbers.pop(process)
        if self.ending:
            return
        log.error("worker died", exit_code=process.exitcode)
        if lived_s >= MIN_WORKER_LIFE_S or process.exitcode == -signal.SIGKILL:  # killed from outside
            self.start(number)
        else:
            self.failed = True
            self.end()


def check_port(host: str, port: int) -> None:
    """Check that a port can be listened on.

    Raises:
        BadSettings: It cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _address_errors(host, port), socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


@contextlib.contextmanager
def _reserve_port(host: str, port: int, reuse_port: bool) -> Iterator[int]:
    """Reserve a port for all workers and yield it; the port is bound here but never listened on.

    So port 0 becomes the same port for each worker, and no other process can take it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _address_errors(host, port):
        if not reuse_port and port:
            # Two servers on one port would each silently get half of the requests.
            check_port(host, port)
        holder = socket.socket(family)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, port))
    with holder:
        yield holder.getsockname()[1]


@contextlib.contextmanager
def _address_errors(host: str, port: int) -> Iterator[None]:
    """Turn an OSError about the address into BadSettings."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "stop the other server or choose another port"
            raise BadSettings("server.port", f"{port} on {host} is taken", remedy=remedy) from None
        if error.errno in (errno.EACCES, errno.EADDRNOTAVAIL) or isinstance(error, socket.gaierror):
            raise BadSettings("server.host", f"cannot listen on {host}:{port}: {error.strerror}") from None
        raise


# --- logs ------------------------------------------------------------------------------------------------------------


def configure_log(level: str) -> None:
    """Log JSON lines of at least this level to stderr, unless structlog is already configured."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # a plain traceback: the prettier ones show local variables
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # One write per line, because workers share the stream.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
