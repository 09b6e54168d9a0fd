"""Catalogs whose answers get lost, or are false: they commit and say no, or nothing, or later."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
)
from sqlalchemy.exc import OperationalError

from tests.torture.attack import Settings, Verdict
from tests.torture.child import Journal, read_journals
from tests.torture.herd import Herd
from tests.torture.place import Place
from tests.torture.rest_server import RestServer
from tests.torture.rounds import Round, on_sqlite, rounds

_RATE = 0.4
_LOOK_UP_RATE = 0.2
_ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: CommitStateUnknownException("lost"),
    lambda: CommitFailedException("another commit was first"),
    lambda: requests.ConnectionError("lost"),
    lambda: OperationalError("COMMIT", {}, Exception("server closed the connection")),
    lambda: OperationalError("UPDATE", {}, Exception("database is locked")),
    lambda: ConnectionResetError("lost"),
    lambda: OSError("disk"),
    lambda: ValueError("false"),
    lambda: TypeError("false"),
    lambda: KeyError("false"),
    lambda: RuntimeError("false"),
    lambda: ForbiddenError("no"),
    lambda: NoSuchTableError("gone"),
)


def of_sql(settings: Settings) -> Verdict:
    """Calls of a catalog in the process raise, before or after they have done their work."""
    verdict = Verdict()
    for each in rounds(settings, verdict, "catalog-sql", faults=40, seconds=60):
        herd = Herd(each.place, each.journals, each.random, size=2, prepare=_lie)
        _run_until(each, herd, lambda each=each: _noted(each))
    return verdict


def of_rest(settings: Settings) -> Verdict:
    """A server commits and answers with an error, cuts the connection, or commits much later."""
    verdict = Verdict()
    servers: dict[str, RestServer] = {}

    def place(folder: Any) -> Place:
        seed = settings.random("rest", folder.name).random()
        servers[str(folder)] = RestServer(folder, f"{seed}")
        return Place("rest", servers[str(folder)].uri, f"file://{folder}/warehouse")

    given = rounds(
        settings, verdict, "catalog-rest", faults=40, seconds=60, place=place, calm=on_sqlite
    )
    for each in given:
        server = servers[str(each.folder)]
        herd = Herd(each.place, each.journals, each.random, size=2)
        server.disturb()
        _run_until(each, herd, server.faults)
        server.stop()
    return verdict


def _run_until(each: Round, herd: Herd, faults: Callable[[], int]) -> None:
    """Let the workers work until something else has counted enough faults."""
    known = 0

    def more(_: int) -> int:
        nonlocal known
        before, known = known, faults()
        return known - before

    each.run(herd, more)
    each.injected = faults()


def _noted(each: Round) -> int:
    return sum(line["outcome"] == "fault" for line in read_journals(each.journals))


def _lie(journal: Journal, random: Random) -> None:
    """Have this process's catalogs lie."""
    commit, load = SqlCatalog.commit_table, SqlCatalog.load_table
    silent = [0]  # look-ups that fail from now on

    def fault(kind: str, error: Exception) -> Exception:
        journal.note(operation=kind, outcome="fault", error=repr(error))
        if random.random() < _LOOK_UP_RATE:
            silent[0] = random.randrange(1, 12)
        return error

    def commit_table(*args: Any, **options: Any) -> Any:
        if random.random() > _RATE:
            return commit(*args, **options)
        error = random.choice(_ERRORS)()
        if random.random() < 0.3:
            raise fault("before a commit", error)
        commit(*args, **options)
        raise fault("after a commit", error)

    def load_table(*args: Any, **options: Any) -> Any:
        if silent[0]:
            silent[0] -= 1
            error = random.choice(_ERRORS)()
            journal.note(operation="a look-up", outcome="fault", error=repr(error))
            raise error
        return load(*args, **options)

    SqlCatalog.commit_table = commit_table  # type: ignore[method-assign]
    SqlCatalog.load_table = load_table  # type: ignore[method-assign]
