"""Values as they are typed: columns, moments, ages, properties, table names."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from icestream.cli.settings import Settings

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:  # generic in later versions of click only
    _Type = click.ParamType

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, None: 1}


class Columns(_Type):
    """`a,b`: several columns."""

    name = "columns"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """The names."""
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if "" in names:
            self.fail(f"{value!r} has an empty name: write columns as in id,price", param, ctx)
        return names


class Moment(_Type):
    """`2026-11-16T08:00:00`, UTC unless it says otherwise, or milliseconds since 1970."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | int:
        """A datetime, or milliseconds."""
        if isinstance(value, (datetime, int)):
            return value
        if str(value).isdigit() and len(str(value)) > 8:
            return int(value)
        moment = _moment(str(value))
        if moment is None:
            self.fail(
                f"{value!r} is no time: write it like 2026-11-16, 2026-11-16T08:00:00 or "
                "milliseconds since 1970",
                param,
                ctx,
            )
        return moment


class Age(_Type):
    """`3d`, `12h`, `30m`, `90s`, or a moment."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta | datetime:
        """A duration, or the moment."""
        if isinstance(value, (timedelta, datetime)):
            return value
        found = _AGE.fullmatch(str(value))
        if found:
            return timedelta(seconds=float(found.group(1)) * _SECONDS[found.group(2)])
        moment = _moment(str(value))
        if moment is None:
            self.fail(
                f"{value!r} is no age: write it like 3d, 12h, 30m, 0s or 2026-11-16T08:00:00",
                param,
                ctx,
            )
        return moment


class Property(_Type):
    """`name=value`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The two."""
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is no property: write it like team=sales", param, ctx)
        return name, text


class TableName(_Type):
    """A table's name, completed from the catalog."""

    name = "table"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Namespaces, and after a dot the tables of one; nothing if the catalog has no answer."""
        try:
            return [CompletionItem(name) for name in _names(ctx, incomplete)]
        except Exception:
            return []


def _names(ctx: click.Context, incomplete: str) -> list[str]:
    from icestream.catalogs import open_catalog

    settings = ctx.ensure_object(Settings)
    catalog = open_catalog(ctx.params.get("catalog") or settings.catalog)
    try:
        namespaces = [".".join(namespace) for namespace in catalog.list_namespaces()]
        inside, dot, _ = incomplete.rpartition(".")
        if dot and inside in namespaces:
            names = [".".join(name) for name in catalog.list_tables(inside)]
        elif len(namespaces) == 1:  # one answer is worth its tables at once
            names = [".".join(name) for name in catalog.list_tables(namespaces[0])]
        else:
            names = [f"{namespace}." for namespace in namespaces]
    finally:
        catalog.close()
    return sorted(name for name in names if name.startswith(incomplete))


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
