"""The engines of .venv-peers, from the tests' own environment."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.process import REPOSITORY

PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"


class PeerError(Exception):
    """What an engine raised; the message has its traceback."""


class PeerProcess:
    """A process with the engines of `tests.support.write_peers`; use it as a context."""

    def __enter__(self) -> PeerProcess:
        if not PEERS_PYTHON.exists():
            raise FileNotFoundError(f"{PEERS_PYTHON} is missing: run `make peers`")
        self._folder = tempfile.TemporaryDirectory(prefix="icestream-peers-")
        self._process = subprocess.Popen(
            [PEERS_PYTHON, "-W", "ignore", REPOSITORY / "tests" / "support" / "write_peers.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._folder.name,
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate(timeout=30)
        self._folder.cleanup()

    def read(
        self,
        engine: str,
        metadata: str,
        snapshot_id: int | None = None,
        where: tuple[str, Any] | None = None,
    ) -> pa.Table:
        """As the readers of `tests.support.write_peers`."""
        answer, value = Path(self._folder.name, "answer.arrow"), None
        if where:
            value = Path(self._folder.name, "value.arrow")
            _store(pa.table({where[0]: pa.array([where[1]])}), value)
        self._ask(
            action="read",
            engine=engine,
            metadata=metadata,
            snapshot_id=snapshot_id,
            where=value and str(value),
            answer=str(answer),
        )
        with pa.OSFile(str(answer)) as file:
            return pa.ipc.open_file(file).read_all()

    def write(
        self, engine: str, catalog: Mapping[str, str], table: str, rows: pa.Table, mode: str
    ) -> None:
        """Append rows to a table, or overwrite it with them."""
        path = Path(self._folder.name, "rows.arrow")
        _store(rows, path)
        self._ask(
            action="write",
            engine=engine,
            catalog=dict(catalog),
            table=table,
            rows=str(path),
            mode=mode,
        )

    def _ask(self, **request: Any) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"the process ended with {self._process.wait()}: {request}")
        if error := json.loads(line)["error"]:
            raise PeerError(error)


def _store(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
