"""A REST catalog on loopback that loses answers and gives false ones.

It serves what icestream asks of a catalog (configuration, loading a table, committing to it), with
a SQLite catalog behind it, in a forked process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest, Table

from tests.support.catalogs import make_catalog
from tests.torture.child import start

_COMMIT_RATE, _LOAD_RATE = 0.4, 0.05
_AFTER = (400, 401, 403, 404, 409, 409, 419, 500, 502, 503, 504, "cut", "garbage")
_BEFORE = (400, 403, 409, 500, 503, "cut")
_LATE_SECONDS = 5.0
_TABLE_PARTS = ("v1", "namespaces", "db", "tables", "t")


class RestServer:
    """The server's side of a test. Call `stop` when done.

    Args:
        folder: Where the catalog's database and the warehouse are.
        seed: Seed of the random faults.
    """

    def __init__(self, folder: Path, seed: str) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._pid = start(lambda: _serve(listening, folder, seed))
        listening.close()

    def disturb(self) -> None:
        """Begin to lie."""
        self._ask("disturb")

    def faults(self) -> int:
        """How often it has."""
        return int(self._ask("faults"))

    def stop(self) -> None:
        """Wait until all that is late is there, and end."""
        self._ask("stop")
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.uri}/torture/{what}", timeout=60) as answer:
            return json.loads(answer.read())


class _Backend:
    """The true catalog, one request at a time; it is opened when its table has been made."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder = folder
        self.random = random
        self.disturbed = False
        self.faults = 0
        self.late: list[threading.Thread] = []
        self._lock = threading.Lock()

    @cached_property
    def catalog(self) -> SqlCatalog:
        return make_catalog(self._folder)

    def table(self, name: tuple[str, ...]) -> Table:
        with self._lock:
            return self.catalog.load_table(name)

    def commit(self, name: tuple[str, ...], body: bytes) -> Table:
        request = CommitTableRequest.model_validate_json(body)
        with self._lock:
            table = self.catalog.load_table(name)
            self.catalog.commit_table(table, request.requirements, request.updates)
            return self.catalog.load_table(name)

    def commit_late(self, name: tuple[str, ...], body: bytes) -> None:
        seconds = self.random.uniform(0.05, _LATE_SECONDS)

        def commit() -> None:
            time.sleep(seconds)
            try:
                self.commit(name, body)
            except CommitFailedException:
                return  # the client has been quicker with another try

        thread = threading.Thread(target=commit)
        self.late.append(thread)
        thread.start()

    def drawn(self, rate: float) -> bool:
        if not self.disturbed or self.random.random() > rate:
            return False
        self.faults += 1
        return True


class _Handler(BaseHTTPRequestHandler):
    """Answers, now and then falsely."""

    protocol_version = "HTTP/1.1"
    backend: _Backend

    def do_GET(self) -> None:
        backend = self.backend
        parts = self.path.strip("/").split("/")
        if parts[0] == "torture":
            self._control(parts[1])
        elif parts[-1].startswith("config"):
            self._say(200, {"defaults": {}, "overrides": {}})
        elif len(parts) < len(_TABLE_PARTS):
            self._refuse(404, "there is no such thing here")  # tokens, after a false 401
        elif backend.drawn(_LOAD_RATE):
            self._lie(backend.random.choice((500, 503, "cut", "garbage")))
        else:
            self._say(200, _described(backend.table(_name(parts))))

    def do_POST(self) -> None:
        backend = self.backend
        parts = self.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(parts) < len(_TABLE_PARTS):
            self._refuse(404, "there is no such thing here")
            return
        name = _name(parts)
        if not backend.drawn(_COMMIT_RATE):
            self._commit(name, body)
            return
        when = backend.random.choice(("before", "after", "after", "late"))
        if when == "before":
            self._lie(backend.random.choice(_BEFORE))
        elif when == "late":
            backend.commit_late(name, body)
            self._lie(backend.random.choice((500, 504, "cut")))
        else:
            try:
                backend.commit(name, body)
            except CommitFailedException as error:
                self._refuse(409, str(error))
                return
            self._lie(backend.random.choice(_AFTER))

    def _commit(self, name: tuple[str, ...], body: bytes) -> None:
        try:
            table = self.backend.commit(name, body)
        except CommitFailedException as error:
            self._refuse(409, str(error))
        except ValueError as error:
            self._refuse(400, str(error))
        else:
            self._say(200, _described(table))

    def _control(self, what: str) -> None:
        if what == "disturb":
            self.backend.disturbed = True
        elif what == "stop":
            self.backend.disturbed = False
            for thread in self.backend.late:
                thread.join()
        self._say(200, self.backend.faults)

    def _lie(self, how: int | str) -> None:
        if how == "cut":
            self.close_connection = True
        elif how == "garbage":
            self._send(200, b'{"metadata": {"format-ver')
        else:
            assert isinstance(how, int)
            self._refuse(how, "Injected.")

    def _refuse(self, status: int, message: str) -> None:
        self._say(status, {"error": {"message": message, "type": "Injected", "code": status}})

    def _say(self, status: int, answer: Any) -> None:
        self._send(status, json.dumps(answer).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _described(table: Table) -> dict[str, Any]:
    return {
        "metadata-location": table.metadata_location,
        "metadata": json.loads(table.metadata.model_dump_json()),
        "config": {},
    }


def _name(parts: list[str]) -> tuple[str, ...]:
    """Of `v1/namespaces/db/tables/t?...`."""
    return parts[2], parts[4].partition("?")[0]


def _serve(listening: socket.socket, folder: Path, seed: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    _Handler.backend = _Backend(folder, Random(seed))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler, bind_and_activate=False)
    server.socket = listening
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.2)
