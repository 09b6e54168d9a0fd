"""A REST catalog that vends keys, before an S3 store that lets them expire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.support.rest_catalog import RestServer
from tests.support.s3 import LatencyProxy, make_s3_catalog


@dataclass
class Vending:
    """A REST catalog that vends a new key each time, before a store that lets keys expire."""

    server: RestServer
    catalog: Catalog
    store: LatencyProxy
    vended: int = 0
    expires_in_seconds: float | None = None

    def vend(self) -> dict[str, str]:
        """What the catalog answers with."""
        self.vended += 1
        found = {
            "s3.access-key-id": f"vended-{time.monotonic_ns()}",
            "s3.secret-access-key": "secret",
            "s3.session-token": "token",
        }
        if self.expires_in_seconds is not None:
            at = int((time.time() + self.expires_in_seconds) * 1000)
            found["s3.session-token-expires-at-ms"] = str(at)
        return found

    def table(self) -> Table:
        """As a client has it, with keys of its own."""
        return self.catalog.load_table("db.t")


@contextmanager
def vending_catalog(folder: Path, store: LatencyProxy, *, alone: bool = False) -> Iterator[Vending]:
    """The catalog, with an empty namespace `db`.

    Args:
        alone: Whether keys come from an endpoint of their own, and not with the table.
    """
    store.clear()
    store.expire_after(None)
    server = RestServer(folder)
    server.backend.close()
    server.backend = make_s3_catalog(folder, store.url, bucket=f"b{time.monotonic_ns()}")
    server.vends_alone = alone
    own = server.backend.properties
    for_client = {
        key: value
        for key, value in own.items()
        if key.startswith(("s3.", "py-io")) and "key" not in key
    }
    catalog = RestCatalog("vending", uri=server.uri, **for_client)
    made = Vending(server, catalog, store)
    server.vended = made.vend
    try:
        yield made
    finally:
        store.expire_after(None)
        catalog.close()
        server.stop()
