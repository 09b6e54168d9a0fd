"""A server on loopback that accepts requests and stops answering."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[str, str], bytes | None]
"""From method and path to an answer in JSON, or None for silence."""


@contextmanager
def silent_server(
    answer: Answer = lambda method, path: None, *, sent_bytes: int = 0
) -> Iterator[str]:
    """Serve, and give the address.

    Args:
        answer: What is answered to which request; nothing by default.
        sent_bytes: How much of a body of a megabyte comes before the silence, with its headers.
    """
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = answer(self.command, self.path)
            with suppress(ConnectionError):  # the client has given up
                if body is not None or (sent_bytes and self.command == "HEAD"):
                    self._begin(len(body) if body is not None else 1_000_000)
                    self.wfile.write(body or b"")
                    return
                if sent_bytes:
                    self._begin(1_000_000)
                    self.wfile.write(b"x" * sent_bytes)
                    self.wfile.flush()
                released.wait(60)
                self.close_connection = True

        def _begin(self, length: int) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
            self.end_headers()

        do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = _serve  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def only_config(method: str, path: str) -> bytes | None:
    """A REST catalog that can be opened, and says no more."""
    if "/config" not in path:
        return None
    return json.dumps({"defaults": {}, "overrides": {}}).encode()
