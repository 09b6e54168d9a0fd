"""Spark with Iceberg's Java runtime, of .venv-interop, from the tests' own environment."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from tests.support.process import REPOSITORY

JAVA_PYTHON = REPOSITORY / ".venv-interop" / "bin" / "python"


class JavaError(Exception):
    """What Spark raised; the message has its traceback."""


class JavaSpark:
    """A Spark, and the REST catalog that it shares with these tests; use it as a context.

    Spark's current catalog is the shared one, so that tables have the same names in both.
    """

    def __enter__(self) -> JavaSpark:
        if not JAVA_PYTHON.exists():
            raise FileNotFoundError(f"{JAVA_PYTHON} is missing: run `make java`")
        self._folder = tempfile.TemporaryDirectory(prefix="icestream-java-")
        self._log = Path(self._folder.name, "log.txt").open("w+")
        self._process = subprocess.Popen(
            [JAVA_PYTHON, "-W", "ignore", "-m", "tests.interop.java_spark", self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=REPOSITORY,
        )
        self.uri = self._answer("the start")["uri"]
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate(timeout=60)
        self._log.close()
        self._folder.cleanup()

    def catalog(self) -> RestCatalog:
        """The catalog, for PyIceberg."""
        return RestCatalog("java", uri=self.uri)

    def sql(self, *statements: str) -> None:
        """Run statements for what they do."""
        for statement in statements:
            self._ask(sql=statement)

    def query(self, statement: str) -> pa.Table:
        """The rows of a statement."""
        answer = str(Path(self._folder.name, "answer.arrow"))
        self._ask(sql=statement, answer=answer)
        with pa.OSFile(answer) as file:
            return pa.ipc.open_file(file).read_all()

    def _ask(self, **request: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        if error := self._answer(request["sql"])["error"]:
            raise JavaError(f"{request['sql']}\n{error}")

    def _answer(self, to: str) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._log.seek(0)
            raise JavaError(f"the process ended with {status} at {to}: {self._log.read()[-4000:]}")
        return json.loads(line)
