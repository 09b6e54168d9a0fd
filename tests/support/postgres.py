"""A real PostgreSQL server for a test run: Debian's packages, a data directory of its own.

PostgreSQL refuses to run as root, so the server then runs as an unprivileged user. It listens on a
Unix socket in its own directory, where clients need no password; and on a port of loopback, with
passwords, if it is asked to. It ends when its context closes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

_PACKAGED = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")
_START_SECONDS = 60
_PORT = 5432  # of the name of the socket


def postgres_binaries() -> Path | None:
    """Return the newest installed server's programs; None if there is no server."""
    found = sorted(_PACKAGED.glob("*/bin/initdb"), key=lambda path: _version(path.parents[1].name))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextmanager
def postgres_server(port: int | None = None) -> Iterator[str]:
    """Run a server and give the SQLAlchemy URI of its database.

    Args:
        port: A port of the loopback interface to listen on, too.
    """
    binaries = postgres_binaries()
    if binaries is None:
        raise FileNotFoundError("PostgreSQL is not installed: apt install postgresql")
    identity = _identity()
    # pytest's own directories are closed to other users.
    home = Path(tempfile.mkdtemp(prefix="icestream-pg-"))
    try:
        if identity:
            os.chown(home, identity["user"], identity["group"])
        data = home / "data"
        access = ["--auth-local=trust", "--auth-host=scram-sha-256"]
        _run([binaries / "initdb", "-D", data, "-U", "tests", *access, "--no-sync"], identity)
        addresses = "127.0.0.1" if port else ""
        command = [binaries / "postgres", "-D", data, "-k", home]
        command += ["-c", f"listen_addresses={addresses}", "-c", f"port={port or _PORT}"]
        # No test survives a power cut.
        command += ["-c", "fsync=off", "-c", "max_connections=200"]
        with open(home / "log", "wb") as log:
            process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, **identity)
        try:
            _wait_until_ready(binaries, home, port or _PORT, process, identity)
            yield f"postgresql+psycopg2://tests@/postgres?host={home}&port={port or _PORT}"
        finally:
            _stop(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def postgres_catalog(uri: str, *, warehouse: str, **properties: str) -> SqlCatalog:
    """Return a catalog in the server, with a namespace `db`. Call `close()` on it when done."""
    catalog = SqlCatalog("tests", uri=uri, warehouse=warehouse, **properties)
    catalog.create_namespace_if_not_exists("db")
    return catalog


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in name.split("."))


def _identity() -> dict[str, Any]:
    """Whom the server runs as, for `subprocess`: an unprivileged user instead of root."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next(known[name] for name in _UNPRIVILEGED if name in known)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(command: list[Any], identity: dict[str, Any]) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, **identity, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr}")


def _wait_until_ready(
    binaries: Path,
    home: Path,
    port: int,
    process: subprocess.Popen[bytes],
    identity: dict[str, Any],
) -> None:
    give_up = time.monotonic() + _START_SECONDS
    check = [binaries / "pg_isready", "-q", "-h", home, "-p", str(port), "-U", "tests"]
    check += ["-d", "postgres"]
    while True:
        if subprocess.run(check, cwd="/", **identity, check=False).returncode == 0:
            return
        if process.poll() is not None or time.monotonic() > give_up:
            raise RuntimeError(f"PostgreSQL did not start: {(home / 'log').read_text()}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # rolls open transactions back and ends
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)  # ends its children as well; SIGKILL would not
        process.wait(timeout=20)
