"""A Spark standalone cluster on this machine: a master and workers, each a process of its own.

They are PySpark's own classes, started on loopback with free ports. Only these processes are ended,
and the executors that the workers have started: those are in the workers' process groups.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.java import java_environment

_HOST = "127.0.0.1"
# What a session needs so that executors find it.
LOOPBACK = {"spark.driver.host": _HOST, "spark.driver.bindAddress": _HOST}
_WAIT_SECONDS = 120
_END_SECONDS = 20
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass(slots=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        url: The address of its master: `spark://127.0.0.1:12345`.
        workers: The workers' processes.
        folder: Where their logs are.
    """

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def executors(self) -> list[int]:
        """The process ids of the executors that run, in the order of the workers."""
        return [pid for worker in self.workers for pid in _executors_of(worker.pid)]


@contextmanager
def spark_cluster(
    folder: Path, *, workers: int = 2, cores: int = 1, env: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Start a cluster, and end it.

    Args:
        folder: For logs and the workers' files.
        workers: How many there are.
        cores: What each of them offers.
        env: Further variables for the workers; executors and their Pythons inherit them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _start("master.Master", folder / "master.log", {}, "--host", _HOST, "--port", "0")
        started.append(master)
        url = _awaited(_MASTER, folder / "master.log", master)
        cluster = SparkCluster(url, folder)
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            # Each a host of its own: Spark tries a task a second time on another host only.
            host = f"127.0.0.{number + 1}"
            options = ["--host", host, "--cores", str(cores), "--memory", "1g"]
            options += ["--work-dir", str(folder / f"worker-{number}"), url]
            variables = {**(env or {}), "SPARK_LOCAL_IP": host}
            cluster.workers.append(_start("worker.Worker", log, variables, *options))
            started.append(cluster.workers[-1])
        for number, worker in enumerate(cluster.workers):
            _awaited(_REGISTERED, folder / f"worker-{number}.log", worker)
        yield cluster
    finally:
        for process in reversed(started):
            _end(process)


def _start(name: str, log: Path, env: Mapping[str, str], *options: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark_module().__file__).parent
    core = next((home / "jars").glob("spark-core_*.jar")).name
    variables = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        # Without it a worker looks for a build tree to find out.
        "SPARK_SCALA_VERSION": core.removeprefix("spark-core_").partition("-")[0],
        **env,
    }
    for key, value in java_environment(pyspark_module().__version__).items():
        if value is None:
            variables.pop(key, None)
        else:
            variables[key] = value
    java_home = variables.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    assert java is not None
    settings = log.parent / "log4j2.properties"
    settings.write_text(_LOGGING)
    command = [java, "-Xmx256m", f"-Dlog4j2.configurationFile={settings}", *_OPENS]
    command += ["-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{name}", *options]
    with log.open("wb") as output:
        # A session of its own: its group holds the process and the executors that it starts.
        return subprocess.Popen(
            [*command, "--webui-port", "0"] if name.startswith("master") else command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=variables,
            start_new_session=True,
        )


def _awaited(pattern: re.Pattern[str], log: Path, process: subprocess.Popen[bytes]) -> str:
    end = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < end:
        text = log.read_text(errors="replace")
        if (found := pattern.search(text)) is not None:
            return found.group(found.lastindex or 0)
        if process.poll() is not None:
            raise RuntimeError(
                f"{process.args} has ended with {process.returncode}: {text[-2000:]}"
            )
        time.sleep(0.05)
    raise RuntimeError(f"no {pattern.pattern!r} in {log} after {_WAIT_SECONDS} seconds")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group; executors among them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait(_END_SECONDS)


def _executors_of(worker: int) -> list[int]:
    """The JVMs in the process group of a worker that run tasks."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if os.getpgid(int(folder.name)) != worker:
                continue
            if _EXECUTOR in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return sorted(found)


_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""
_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.net",
        "java.nio",
        "java.util",
        "sun.nio.ch",
        "sun.security.action",
    )
]
