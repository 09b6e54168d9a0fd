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
from collections import deque
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_S3_CODES = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}


@dataclass(slots=True)
class Fault:
    """What to do to a coming request whose method and path fit."""

    kind: str
    methods: list[str]
    path_contains: str
    status: int = 503

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
    in_flight: int = 0
    max_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_fault(self, method: str, path: str) -> Fault | None:
        """Return the first fault that fits, and forget it."""
        with self.lock:
            for fault in self.faults:
                if fault.fits(method, path):
                    self.faults.remove(fault)
                    return fault
        return None

    def obey(self, command: dict[str, Any]) -> Any:
        """Carry out a command of the test's side."""
        action = command.pop("action")
        with self.lock:
            if action == "fault":
                count = command.pop("count")
                self.faults.extend(Fault(**command) for _ in range(count))
            elif action == "latency":
                self.latency_seconds = command["seconds"]
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
        if fault is not None and fault.kind == "fail":
            status, headers = fault.status, [("Content-Type", "application/xml")]
            code = _S3_CODES.get(status, "InternalError")
            content = f"<Error><Code>{code}</Code><Message>Injected.</Message></Error>".encode()
            length = str(len(content))
        else:
            status, headers, content, length = self._forward(body)
        if fault is not None and fault.kind in ("truncate", "reset"):
            content = content[: len(content) // 2]
            self.close_connection = True
        self._record(status, len(content), fault)  # Before the client can know that it is over.
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        if fault is not None and fault.kind == "reset":
            self._reset()

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
