"""An S3 server behind a proxy that fails, stalls, cuts connections, and lies."""

from __future__ import annotations

from pathlib import Path

from tests.support.s3 import LatencyProxy, make_bucket, s3_properties, s3_server
from tests.torture.attack import Settings, Verdict
from tests.torture.herd import Herd
from tests.torture.place import Place
from tests.torture.rounds import rounds

_RATE = 0.04
_TIMEOUT_SECONDS = 2
_CALM_SECONDS = 60  # without faults, only a busy machine is slow
_BUCKET = "warehouse"


def attack(settings: Settings) -> Verdict:
    """Two processes change a table behind the proxy; one of the store's clients tries again."""
    verdict = Verdict()
    with s3_server() as url, LatencyProxy(url) as proxy:
        make_bucket(url, _BUCKET)
        given = rounds(
            settings,
            verdict,
            "store",
            faults=60,
            seconds=60,
            place=lambda folder: _place(folder, proxy.url, attempts=_attempts(folder)),
            calm=lambda folder: _place(folder, url, attempts=3, timeout_seconds=_CALM_SECONDS),
        )
        for each in given:
            seed = f"{each.random.random()}"
            proxy.disturb(seed=seed, rate=_RATE, stall_seconds=_TIMEOUT_SECONDS + 1)
            before = known = proxy.faults

            def more(_: int) -> int:
                nonlocal known
                last, known = known, proxy.faults
                return known - last

            each.run(Herd(each.place, each.journals, each.random, size=2), more)
            proxy.calm()
            each.injected = proxy.faults - before
    return verdict


def _attempts(folder: Path) -> int:
    return 1 if folder.name[-1] in "13579" else 3


def _place(
    folder: Path, endpoint: str, *, attempts: int, timeout_seconds: int = _TIMEOUT_SECONDS
) -> Place:
    properties = s3_properties(endpoint, max_attempts=attempts, timeout_seconds=timeout_seconds)
    warehouse = f"s3://{_BUCKET}/{folder.name}"
    return Place("sqlite", str(folder / "catalog.db"), warehouse, properties=properties)
