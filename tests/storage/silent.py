"""A proxy before PostgreSQL that can go silent: it holds bytes back and closes nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

PORT = ".s.PGSQL.5432"


class Line:
    """A socket before a server's; while it is silent it holds bytes back and closes nothing."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.server, self.speaks = server, threading.Event()
        self.speaks.set()
        self.accepted = 0
        self._ours: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / PORT))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self.server / PORT))
                self._ours += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65536):
                self.speaks.wait()
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End all of it."""
        self.speaks.set()
        for each in (self._listener, *self._ours):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
