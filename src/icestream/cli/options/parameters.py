"""Value types of options: columns, times, ages, properties, table names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from icestream.cli.options.settings import Settings

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:  # generic in later versions of click only
    _Type = click.ParamType

Command = Callable[..., Any]
Option = Callable[[Command], Command]
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, None: 1}


class Columns(_Type):
    """Several column names: `a,b`."""

    name = "columns"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if "" in names:
            self.fail(f"{value!r} has an empty name: write columns like id,price", param, ctx)
        return names


class Selected(_Type):
    """Columns to load: `id,price=amount`."""

    name = "columns"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[Any]:
        if isinstance(value, list):
            return value
        columns: list[Any] = []
        for entry in str(value).split(","):
            name, is_renamed, source = (each.strip() for each in entry.partition("="))
            if not name or (is_renamed and not source):
                example = "id,price=amount"
                self.fail(f"{value!r} has an empty name: write columns like {example}", param, ctx)
            columns.append({"name": name, "from": source} if is_renamed else name)
        return columns


class Moment(_Type):
    """A time: `2026-11-16T08:00:00` (UTC if it has no time zone), or milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime | int:
        if isinstance(value, (datetime, int)):
            return value
        if str(value).isdigit() and len(str(value)) > 8:
            return int(value)
        moment = _moment(str(value))
        if moment is None:
            self.fail(
                f"{value!r} is not a time: write it like 2026-11-16, 2026-11-16T08:00:00 or "
                "milliseconds since 1970",
                param,
                ctx,
            )
        return moment


class Age(_Type):
    """An age such as `3d`, `12h`, `30m` or `90s`, or a time."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta | datetime:
        if isinstance(value, (timedelta, datetime)):
            return value
        age = _AGE.fullmatch(str(value))
        if age:
            return timedelta(seconds=float(age.group(1)) * _SECONDS[age.group(2)])
        moment = _moment(str(value))
        if moment is None:
            self.fail(
                f"{value!r} is not an age: write it like 3d, 12h, 30m, 0s or 2026-11-16T08:00:00",
                param,
                ctx,
            )
        return moment


class Property(_Type):
    """A name and a value: `name=value`."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            form = getattr(param, "metavar", None) or "NAME=VALUE"
            self.fail(f"{value!r} has no value: write {form}", param, ctx)
        return name, text


def add_options(command: Command, options: Sequence[Option]) -> Command:
    """Add options to a command. The help shows them in this order."""
    return reduce(lambda command, option: option(command), reversed(options), command)


def property_option(name: str, variable: str, help: str, metavar: str = "NAME=VALUE") -> Option:
    """Declare an option that takes a property and can be repeated."""
    help = f"{help} (repeatable)."
    return click.option(name, variable, type=Property(), multiple=True, metavar=metavar, help=help)


class TableName(_Type):
    """The name of a table. The shell completes it from the catalog."""

    name = "table"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete namespaces, and the tables of a namespace. Complete nothing if that fails."""
        try:
            return [CompletionItem(name) for name in _names(ctx, incomplete)]
        except Exception:
            return []


def _names(ctx: click.Context, incomplete: str) -> list[str]:
    from icestream.catalogs.lookup import open_catalog

    settings = ctx.ensure_object(Settings)
    catalog = open_catalog(ctx.params.get("catalog") or settings.catalog)
    try:
        namespaces = [".".join(namespace) for namespace in catalog.list_namespaces()]
        inside, dot, _ = incomplete.rpartition(".")
        if dot and inside in namespaces:
            names = [".".join(name) for name in catalog.list_tables(inside)]
        elif len(namespaces) == 1:  # skip the step with a single choice
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


def reader_values(options: Mapping[str, str]) -> dict[str, Any]:
    """The values of reader options: some are lists, and `\\t` is a tab."""
    lists = ("columns", "nulls")
    return {
        key: value.split(",") if key in lists else value.replace("\\t", "\t")
        for key, value in options.items()
    }
