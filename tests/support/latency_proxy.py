"""The proxy process behind `tests.support.s3.LatencyProxy`.

It forwards HTTP requests to one target, each after a delay, counts them, and fails them on demand.
Commands and answers are JSON lines on standard input and output; it ends with its input.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}
# What may happen to a request while the proxy is disturbed, and how often in proportion.
_RANDOM_KINDS = {
    "fail": 6,
    "fail after success": 4,
    "reset": 4,
    "truncate": 4,
    "short": 3,
    "flip": 3,
    "stall": 1,
}
_S3_CODES = {
    400: "ExpiredToken",
    403: "AccessDenied",
    404: "NoSuchKey",
    500: "InternalError",
    503: "SlowDown",
}


@dataclass(slots=True)
class Fault:
    """What to do to a coming request whose method and path fit.

    Attributes:
        kind: `fail` answers with an error at once; `fail after success` when it is done. `reset`
            and `truncate` cut the connection in the middle of the body. `short` sends less than
            there is and says it is all. `flip` changes a bit of the body. `stall` waits.
        methods: Methods of the requests to hit.
        path_contains: A part of the path.
        status: Status code of an error.
        seconds: How long to wait.
        place: Where in the body a bit is changed, from 0 to 1.
    """

    kind: str
    methods: list[str]
    path_contains: str
    status: int = 503
    seconds: float = 0.0
    place: float = 0.5

    def fits(self, method: str, path: str) -> bool:
        """Return whether the fault is meant for such a request."""
        return method in self.methods and self.path_contains in path


@dataclass(slots=True)
class State:
    """What all requests share."""

    target: tuple[str, int]
    latency_seconds: float
    faults: deque[Fault] = field(default_factory=deque)
    log: list[dict[str, Any]] = field(default_factory=list)
    injected: int = 0
    random: Random | None = None
    rate: float = 0.0
    stall_seconds: float = 0.0
    life_requests: int | None = None
    uses: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    max_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_fault(self, method: str, path: str) -> Fault | None:
        """Return the first fault that fits, and forget it."""
        with self.lock:
            for fault in self.faults:
                if fault.fits(method, path):
                    self.faults.remove(fault)
                    self.injected += 1
                    return fault
            fault_at_random = self._drawn(method, path)
            self.injected += fault_at_random is not None
            return fault_at_random

    def is_expired(self, authorization: str) -> bool:
        """Count a request of a vended key, and say whether the key had too many."""
        key = authorization.partition("Credential=")[2].partition("/")[0]
        with self.lock:
            if self.life_requests is None or not key.startswith("vended"):
                return False
            self.uses[key] += 1
            return self.uses[key] > self.life_requests

    def _drawn(self, method: str, path: str) -> Fault | None:
        """A fault for this request, now and then, while the proxy is disturbed."""
        if self.random is None or self.random.random() > self.rate:
            return None
        kinds = dict(_RANDOM_KINDS)
        if method != "GET":
            kinds = {kind: kinds[kind] for kind in ("fail", "fail after success", "stall")}
        elif ".parquet" not in path:
            del kinds["flip"]  # Avro and JSON have no checksums: nobody can tell
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        status = self.random.choice([500, 503])
        place = self.random.random()
        return Fault(kind, [method], "", status, self.stall_seconds, place)

    def obey(self, command: dict[str, Any]) -> Any:
        """Carry out a command of the test's side."""
        action = command.pop("action")
        with self.lock:
            if action == "fault":
                count = command.pop("count")
                self.faults.extend(Fault(**command) for _ in range(count))
            elif action == "latency":
                self.latency_seconds = command["seconds"]
            elif action == "disturb":
                self.random = Random(command["seed"])
                self.rate, self.stall_seconds = command["rate"], command["stall_seconds"]
            elif action == "life":
                self.life_requests = command["requests"]
            elif action == "calm":
                self.random = None
            elif action == "faults":
                return self.injected
            elif action == "clear":
                self.faults.clear()
                self.log.clear()
                self.max_in_flight = self.in_flight
            elif action == "read":
                return {
                    "log": self.log,
                    "faults_left": len(self.faults),
                    "max_in_flight": self.max_in_flight,
                }
        return None


class Handler(BaseHTTPRequestHandler):
    """Forwards requests; one thread per client connection, which is kept alive."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    state: State

    def handle_one_request(self) -> None:
        """Handle a request of any method; the parent class asks for a `do_*` method for each."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            with self.state.lock:
                self.state.in_flight += 1
                self.state.max_in_flight = max(self.state.max_in_flight, self.state.in_flight)
            try:
                self._proxy(self._read_body())
                self.wfile.flush()
            except ConnectionError:
                self.close_connection = True
            finally:
                with self.state.lock:
                    self.state.in_flight -= 1

    def handle_expect_100(self) -> bool:
        """Tell a client that asks first to go on, at once; libcurl would wait a second."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def _proxy(self, body: bytes) -> None:
        time.sleep(self.state.latency_seconds)
        fault = self.state.take_fault(self.command, self.path)
        if self.state.is_expired(self.headers.get("Authorization", "")):
            fault = Fault("fail", [], "", 400)
        kind = fault.kind if fault is not None else None
        if kind == "stall" and fault is not None:
            time.sleep(fault.seconds)
        if kind != "fail":
            status, headers, content, length = self._forward(body)
        if fault is not None and kind in ("fail", "fail after success"):
            status, headers, content = _error(fault.status)
            length = str(len(content))
        elif fault is not None:
            content, length = self._changed(fault, content, length)
        self._record(status, len(content), fault)  # Before the client can know that it is over.
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        if kind == "reset":
            self._reset()

    def _changed(self, fault: Fault, content: bytes, length: str) -> tuple[bytes, str]:
        """A true answer's body and length, made false."""
        if fault.kind in ("truncate", "reset"):
            self.close_connection = True
            return content[: len(content) // 2], length
        if fault.kind == "short":
            return content[: len(content) // 2], str(len(content) // 2)
        if fault.kind == "flip" and content:
            at = int(fault.place * len(content)) % len(content)
            return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], length
        return content, length

    def _reset(self) -> None:
        """Close with RST instead of FIN, once the client has seen some of the answer.

        Before that, libcurl would quietly repeat the request on a new connection by itself.
        """
        self.wfile.flush()
        time.sleep(0.05)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes, str]:
        connection = HTTPConnection(*self.state.target, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_HEADERS | {"expect"}:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
        length = response.headers.get("Content-Length", str(len(content)))
        kept = [(k, v) for k, v in response.headers.items() if k.lower() not in _HOP_HEADERS]
        connection.close()
        return response.status, kept, content, length

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return body

    def _record(self, status: int, sent_bytes: int, fault: Fault | None) -> None:
        with self.state.lock:
            self.state.log.append(
                {
                    "method": self.command,
                    "path": self.path,
                    "byte_range": self.headers.get("Range"),
                    "status": status,
                    "sent_bytes": sent_bytes,
                    "fault": fault.kind if fault else None,
                }
            )


def _error(status: int) -> tuple[int, list[tuple[str, str]], bytes]:
    code = _S3_CODES.get(status, "InternalError")
    content = f"<Error><Code>{code}</Code><Message>Injected.</Message></Error>".encode()
    return status, [("Content-Type", "application/xml")], content


class Server(ThreadingHTTPServer):
    """A threading server that is silent about connections the client or a fault cut."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a broken connection is what the tests ask for."""


def main(host: str, port: str, latency_seconds: str) -> None:
    """Serve until standard input ends; the first line of output is the port."""
    Handler.state = State((host, int(port)), float(latency_seconds))
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _say(server.server_address[1])
    for line in sys.stdin:
        _say(Handler.state.obey(json.loads(line)))


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
