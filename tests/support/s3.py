"""A real S3 protocol on the loopback: moto's server, and a proxy that is slow or fails on demand.

Both run in processes of their own, so that they neither share the reader's interpreter lock nor
show up among its threads. They end when their context closes or this process does.

PyArrow tries each request three times by default, with growing pauses, and waits long for a silent
server. Tables of `make_s3_catalog` therefore use `SingleAttempt` (PyIceberg's property
`s3.retry-strategy-impl`) and timeouts of a few seconds: an injected fault comes through at once.
Pass `max_attempts=3` to see PyArrow's own retries succeed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.catalogs import sqlite_catalog
from tests.support.process import REPOSITORY

_MOTO = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class SingleAttempt(AwsStandardS3RetryStrategy):
    """No retries: the first failure of a request is the caller's."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request that passed the proxy.

    Attributes:
        method: GET, HEAD, PUT, ...
        path: The path with its query, as sent.
        byte_range: The `Range` header.
        status: The status answered.
        sent_bytes: Bytes of the answer's body.
        fault: The kind of fault, where one was injected.
    """

    method: str
    path: str
    byte_range: str | None
    status: int
    sent_bytes: int
    fault: str | None


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's S3 server and give its URL."""
    with _child(["-c", _MOTO]) as process:
        yield f"http://127.0.0.1:{_answer(process)}"


class LatencyProxy:
    """An HTTP proxy that delays each request, counts them, and injects faults.

    Use it as a context. Faults hit the next requests whose method is in `methods` and whose path
    has `path_contains` in it, in the order in which they were asked for.
    """

    def __init__(self, target: str, latency_seconds: float = 0.0) -> None:
        self._target = target
        self._latency_seconds = latency_seconds
        self._context: Any = None
        self.url = ""

    def __enter__(self) -> LatencyProxy:
        host, port = self._target.removeprefix("http://").split(":")
        arguments = ["-m", "tests.support.latency_proxy", host, port, str(self._latency_seconds)]
        self._context = _child(arguments)
        self._process = self._context.__enter__()
        self.url = f"http://127.0.0.1:{_answer(self._process)}"
        return self

    def __exit__(self, *exception: object) -> None:
        self._context.__exit__(None, None, None)

    @property
    def latency_seconds(self) -> float:
        """The delay of each request; may be set at any time."""
        return self._latency_seconds

    @latency_seconds.setter
    def latency_seconds(self, seconds: float) -> None:
        self._tell("latency", seconds=seconds)
        self._latency_seconds = seconds

    @property
    def requests(self) -> int:
        """The number of requests since the start or `clear`."""
        return len(self.log())

    @property
    def sent_bytes(self) -> int:
        """The bytes of all answers' bodies since the start or `clear`."""
        return sum(request.sent_bytes for request in self.log())

    @property
    def max_in_flight(self) -> int:
        """Highest number of requests under way at one time, since the start or `clear`."""
        return int(self._tell("read")["max_in_flight"])

    @property
    def faults_left(self) -> int:
        """The faults asked for that have not hit a request yet."""
        return int(self._tell("read")["faults_left"])

    def log(self, method: str | None = None) -> list[ProxiedRequest]:
        """Return the requests since the start or `clear`, of all methods or one."""
        requests = [ProxiedRequest(**entry) for entry in self._tell("read")["log"]]
        return [request for request in requests if method in (None, request.method)]

    def clear(self) -> None:
        """Forget the requests counted and the faults still to come."""
        self._tell("clear")

    def fail_next(
        self,
        n: int = 1,
        status: int = 503,
        *,
        methods: tuple[str, ...] = ("GET",),
        path_contains: str = "",
    ) -> None:
        """Answer the next `n` requests with an error status instead of forwarding them.

        PyArrow names the error now by the answer's body (SLOW_DOWN), now by its status
        (SERVICE_UNAVAILABLE): expect either.
        """
        self._fault("fail", n, methods, path_contains, status=status)

    def reset_connection_next(
        self, n: int = 1, *, methods: tuple[str, ...] = ("GET",), path_contains: str = ""
    ) -> None:
        """Reset the connection of the next `n` requests in the middle of their answers."""
        self._fault("reset", n, methods, path_contains)

    def truncate_next(
        self, n: int = 1, *, methods: tuple[str, ...] = ("GET",), path_contains: str = ""
    ) -> None:
        """Send half of the next `n` answers' bodies, then close the connection."""
        self._fault("truncate", n, methods, path_contains)

    def disturb(self, *, seed: str, rate: float, stall_seconds: float) -> None:
        """From now on inject faults of every kind, at random.

        Args:
            seed: Seed of the random choices.
            rate: The share of requests that are hit.
            stall_seconds: How long an answer takes that stalls.
        """
        self._tell("disturb", seed=seed, rate=rate, stall_seconds=stall_seconds)

    def calm(self) -> None:
        """Inject no more faults."""
        self._tell("calm")

    @property
    def faults(self) -> int:
        """The number of faults that have hit a request since the start."""
        return int(self._tell("faults"))

    def expire_after(self, requests: int | None) -> None:
        """Answer `ExpiredToken` to each key that begins with `vended`, after so many requests."""
        self._tell("life", requests=requests)

    def _fault(
        self, kind: str, n: int, methods: tuple[str, ...], path_contains: str, **more: int
    ) -> None:
        self._tell(
            "fault", kind=kind, count=n, methods=methods, path_contains=path_contains, **more
        )

    def _tell(self, action: str, **command: Any) -> Any:
        self._process.stdin.write(json.dumps({"action": action, **command}) + "\n")
        self._process.stdin.flush()
        return _answer(self._process)


def make_s3_catalog(
    tmp_path: Path, endpoint: str, *, bucket: str = "warehouse", max_attempts: int = 1
) -> SqlCatalog:
    """Return a SQLite catalog below `tmp_path` whose tables lie in a new bucket behind `endpoint`.

    Args:
        tmp_path: Where the catalog's database goes.
        endpoint: The URL of `s3_server` or of a `LatencyProxy` before it.
        bucket: The bucket, created if it is missing; S3 wants three letters or more.
        max_attempts: 1 for faults that come through at once, 3 for PyArrow's own retries.
    """
    make_bucket(endpoint, bucket)
    properties = s3_properties(endpoint, max_attempts=max_attempts)
    database = tmp_path / "s3-catalog.db"
    return sqlite_catalog(database, warehouse=f"s3://{bucket}/tables", **properties)


def make_bucket(endpoint: str, bucket: str) -> None:
    """Create a bucket, if it is missing."""
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()


def s3_properties(
    endpoint: str, *, max_attempts: int = 1, timeout_seconds: int = 10
) -> dict[str, str]:
    """Properties of a catalog whose tables lie behind `endpoint`."""
    properties = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "s3.endpoint": endpoint,
        "s3.access-key-id": "test",
        "s3.secret-access-key": "test",
        "s3.region": "us-east-1",
        "s3.connect-timeout": "5",
        "s3.request-timeout": str(timeout_seconds),
    }
    if max_attempts == 1:
        properties["s3.retry-strategy-impl"] = f"{__name__}.{SingleAttempt.__name__}"
    elif max_attempts != 3:
        raise ValueError(f"max_attempts is 1 or 3, PyArrow's default, not {max_attempts}")
    return properties


@contextmanager
def _child(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run Python with pipes to its standard input and output; it ends when its input does."""
    command = [sys.executable, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()


def _answer(process: subprocess.Popen[str]) -> Any:
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args} ended with exit code {process.wait()}")
    return json.loads(line)
