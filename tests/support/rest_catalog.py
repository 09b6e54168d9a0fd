"""A REST catalog in this process, on loopback, with SQLite behind it, that can be made to lie."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS, Capability, RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Identifier
from requests.adapters import HTTPAdapter

from tests.support.catalogs import make_catalog

_STATUS = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    TableAlreadyExistsError: 409,
    ValueError: 400,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request to commit.

    Attributes:
        status: The answer; None: the connection is closed without one.
        commits: Whether the commit happens before the answer.
        late: Whether it happens later, when `RestServer.land_late_commits` is called.
    """

    status: int | None
    commits: bool = False
    late: bool = False


class RestServer:
    """Serves a `SqlCatalog`. Requests to commit go wrong as the faults say, one after the other.

    Attributes:
        uri: The address.
        backend: The catalog behind it.
        faults: What happens to the next requests to commit.
        released: Requests to commit wait until this is set.
        load_status: What requests for tables are answered with; None: the table.
        load_status_after_commit: The same, from the next fault on.
        on_fault: Called before a fault's answer.
        on_load: Called before a table is looked up.
        vended: Makes credentials for each table that is loaded; None: there are none.
        vends_alone: Whether credentials can be asked for without the table.
    """

    def __init__(self, folder: Path) -> None:
        self.vended: Callable[[], dict[str, str]] | None = None
        self.vends_alone = False
        self.backend = make_catalog(folder)
        self.warehouse = f"file://{folder}/warehouse"
        self.faults: list[Fault] = []
        self.released = threading.Event()
        self.released.set()
        self.load_status: int | None = None
        self.load_status_after_commit: int | None = None
        self.on_fault: Callable[[], object] | None = None
        self.on_load: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._under_way = 0
        self._late: list[tuple[Identifier, bytes]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()
        self.uri = f"http://127.0.0.1:{self._http.server_address[1]}"

    def stop(self) -> None:
        """Wait for what is under way, and end."""
        self.released.set()
        self.wait_for_requests()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self.backend.close()

    def land_late_commits(self) -> None:
        """Carry out every commit that a fault has put off; a refusal is told to nobody."""
        refusals = (CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValueError)
        while self._late:
            with contextlib.suppress(*refusals):
                self._commit(*self._late.pop(0))

    def wait_for_requests(self) -> None:
        """Wait until the requests to commit that nobody waits for any more are carried out."""
        while self._under_way:
            time.sleep(0.05)

    def commit(self, identifier: Identifier, body: bytes) -> tuple[int | None, Any]:
        """Carry out a request, or not, and give the answer: a status, and JSON."""
        self._under_way += 1
        try:
            self.released.wait()
            return self._commit_or_fail(identifier, body)
        finally:
            self._under_way -= 1

    def _commit_or_fail(self, identifier: Identifier, body: bytes) -> tuple[int | None, Any]:
        with self._lock:
            fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            return 200, self._commit(identifier, body)
        if fault.late:
            self._late.append((identifier, body))
        elif fault.commits:
            self._commit(identifier, body)
        self.load_status = self.load_status_after_commit
        if self.on_fault is not None:
            self.on_fault()
        return fault.status, _error(fault.status or 0, "as the test asks for")

    def _commit(self, identifier: Identifier, body: bytes) -> dict[str, Any]:
        request = CommitTableRequest.model_validate_json(body)
        with self._lock:
            named = Table(identifier, None, "", None, self.backend)  # type: ignore[arg-type]
            answer = self.backend.commit_table(named, request.requirements, request.updates)
        return _described(answer.metadata, answer.metadata_location)

    def endpoints(self) -> dict[str, Any]:
        """What the server says that it does."""
        if not self.vends_alone:
            return {}
        known = [*DEFAULT_ENDPOINTS, Capability.V1_LOAD_CREDENTIALS]
        return {"endpoints": [str(endpoint) for endpoint in known]}

    def get(self, identifier: Identifier) -> tuple[int, Any]:
        """A table."""
        if self.load_status is not None:
            return self.load_status, _error(self.load_status, "as the test asks for")
        if self.on_load is not None:
            self.on_load()
        table = self.backend.load_table(identifier)
        config = {"config": self.vended()} if self.vended else {}
        return 200, _described(table.metadata, table.metadata_location) | config

    def credentials(self) -> tuple[int, Any]:
        """Credentials, for whatever table."""
        assert self.vended is not None
        return 200, {"storage-credentials": [{"prefix": "s3://", "config": self.vended()}]}

    def create(self, namespace: Identifier, body: bytes) -> tuple[int, Any]:
        """Create a table, or stage one."""
        request = json.loads(body)
        identifier = (*namespace, request["name"])
        schema = Schema.model_validate(request["schema"])
        properties = request.get("properties") or {}
        if self.backend.table_exists(identifier):
            raise TableAlreadyExistsError(".".join(identifier))
        if not request.get("stage-create"):
            spec = request.get("partition-spec")
            assert not spec or not spec["fields"], "tests partition by the backend"
            self.backend.create_table(identifier, schema, properties=properties)
            return self.get(identifier)
        metadata = new_table_metadata(
            schema,
            UNPARTITIONED_PARTITION_SPEC,
            UNSORTED_SORT_ORDER,
            f"{self.warehouse}/{'/'.join(identifier)}",
            properties,
        )
        return 200, _described(metadata, None)


def _handler(server: RestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[2:]]
            try:
                status, answer = self._route(parts, body)
            except tuple(_STATUS) as error:
                status = next(code for kind, code in _STATUS.items() if isinstance(error, kind))
                answer = _error(status, str(error))
            if status is None:
                self.close_connection = True
                return
            data = b"" if answer is None else json.dumps(answer).encode()
            with contextlib.suppress(ConnectionError):  # the client may have given up
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

        def _route(self, parts: list[str], body: bytes) -> tuple[int | None, Any]:
            backend: SqlCatalog = server.backend
            match self.command, parts:
                case _, ["config"]:
                    return 200, {"defaults": {}, "overrides": {}} | server.endpoints()
                case "GET", ["namespaces"]:
                    below = [] if "parent=" in self.path else backend.list_namespaces()
                    return 200, {"namespaces": below}
                case "POST", ["namespaces"]:
                    backend.create_namespace(".".join(json.loads(body)["namespace"]))
                    return 200, json.loads(body) | {"properties": {}}
                case (("GET" | "HEAD"), ["namespaces", name]):
                    backend.load_namespace_properties(name)
                    return 200, {"namespace": [name], "properties": {}}
                case "GET", ["namespaces", name, "tables"]:
                    names = backend.list_tables(name)
                    found = [{"namespace": each[:-1], "name": each[-1]} for each in names]
                    return 200, {"identifiers": found}
                case "POST", ["namespaces", name, "tables"]:
                    return server.create((name,), body)
                case "GET", ["namespaces", _, "tables", _, "credentials"]:
                    return server.credentials()
                case "GET", ["namespaces", name, "tables", table]:
                    return server.get((name, table))
                case "POST", ["namespaces", name, "tables", table]:
                    return server.commit((name, table), body)
                case "DELETE", ["namespaces", name, "tables", table]:
                    purge = "purgerequested=true" in self.path.lower()
                    (backend.purge_table if purge else backend.drop_table)((name, table))
                    return 204, None
                case "POST", ["tables", "rename"]:
                    request = json.loads(body)
                    names = [
                        (*request[end]["namespace"], request[end]["name"])
                        for end in ("source", "destination")
                    ]
                    backend.rename_table(*names)
                    return 204, None
            return 404, _error(404, f"{self.command} {self.path} is not served")

        do_GET = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

    return Handler


def _described(metadata: TableMetadata, location: str | None) -> dict[str, Any]:
    return {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())}


def _error(status: int, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "TestError", "code": status}}


@contextmanager
def rest_catalog(folder: Path) -> Iterator[tuple[RestServer, RestCatalog]]:
    """A server, and a catalog that asks it."""
    server = RestServer(folder)
    catalog = RestCatalog("rest", uri=server.uri, warehouse=server.warehouse)
    try:
        yield server, catalog
    finally:
        catalog.close()
        server.stop()


def impatient(catalog: RestCatalog, *, seconds: float) -> None:
    """Have a catalog give requests up after a time."""
    catalog._session.mount("http://", _Impatient(seconds))


class _Impatient(HTTPAdapter):
    """Gives requests up after a time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: Any, **options: Any) -> Any:  # type: ignore[override]
        return super().send(request, **{**options, "timeout": self._seconds})
