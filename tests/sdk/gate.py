"""Servers that do not let everybody in, which the one of the tests cannot be: it trusts whoever comes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

ASKS_FOR_ENCRYPTION = {80877103, 80877104}
WRONG_PASSWORD = ("28P01", 'password authentication failed for user "ada"')


@contextlib.contextmanager
def refusing_server(sqlstate: str, message: str) -> Iterator[int]:
    """A server that answers every start of a session with this error; its port."""
    with Gate(None, sqlstate, message) as gate:
        yield gate.port


class Gate:
    """Before a database: while `refuses` is set, every start of a session is answered with an error."""

    def __init__(self, dsn: str | None, sqlstate: str = "28P01", message: str = WRONG_PASSWORD[1]) -> None:
        self._target = dsn
        self._refusal = b"SFATAL\0VFATAL\0C" + sqlstate.encode() + b"\0M" + message.encode() + b"\0\0"
        self._open: set[socket.socket] = set()
        self.refuses = dsn is None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def dsn(self) -> str:
        assert self._target is not None
        return make_conninfo(
            self._target, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """End every session that was let in."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                session, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._session, args=(session,), daemon=True).start()

    def _session(self, session: socket.socket) -> None:
        with session, contextlib.suppress(OSError, struct.error):
            head = session.recv(8, socket.MSG_WAITALL)
            while struct.unpack("!ii", head)[1] in ASKS_FOR_ENCRYPTION:
                session.sendall(b"N")
                head = session.recv(8, socket.MSG_WAITALL)
            start = head + session.recv(struct.unpack("!i", head[:4])[0] - 8, socket.MSG_WAITALL)
            if self.refuses:
                session.sendall(b"E" + struct.pack("!i", len(self._refusal) + 4) + self._refusal)
                return
            with self._connect() as server:
                server.sendall(start)
                self._open |= {session, server}
                back = threading.Thread(target=_pump, args=(server, session), daemon=True)
                back.start()
                _pump(session, server)
                back.join()
                self._open -= {session, server}

    def _connect(self) -> socket.socket:
        assert self._target is not None
        where = conninfo_to_dict(self._target)
        host, port = str(where["host"]), int(where.get("port") or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(Path(host) / f".s.PGSQL.{port}"))
        return server


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
