"""`icestream branch` and `icestream tag` list, create and delete branches and tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from icestream.cli.command import command, group
from icestream.cli.options.parameters import Age, Command, TableName, add_options
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import columns, moment

if TYPE_CHECKING:
    from datetime import timedelta

    from icestream.operations.upkeep.metadata.refs import Kind, Retention


class _RefName(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic later
    """The name of a branch or a tag. The shell completes it from the table."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the branches or tags of the table. Complete nothing if that fails."""
        assert ctx.parent is not None
        try:
            settings = ctx.ensure_object(Settings)
            settings.quiet = True
            settings.catalog = ctx.params.get("catalog") or settings.catalog
            with settings.open_table(ctx.params["table"]) as table:
                refs = table.metadata.refs
            kind = ctx.parent.info_name
            return [
                CompletionItem(name)
                for name, ref in sorted(refs.items())
                if ref.snapshot_ref_type.value == kind and name.startswith(incomplete)
            ]
        except Exception:
            return []


class _Length(Age):
    """A length of time such as `7d`."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from datetime import timedelta

        age = super().convert(value, param, ctx)
        if not isinstance(age, timedelta) or not age:
            self.fail(f"{value!r} is not an age: write it like 7d, 12h or 30m", param, ctx)
        return age


_table = click.argument("table", type=TableName())
_name = click.argument("name", type=_RefName())
_new_name = click.argument("name")
_AT = (
    click.option("--at", metavar="ID", type=int, help="Its snapshot.  [default: the head of main]"),
    click.option("--from", "from_", metavar="NAME", help="Branch or tag to start at."),
    click.option(
        "--max-age",
        type=_Length(),
        metavar="AGE",
        help="Age at which expiry removes it, such as 30d.  [default: the table's]",
    ),
)
_SNAPSHOTS_KEPT = (
    click.option(
        "--max-snapshot-age",
        type=_Length(),
        metavar="AGE",
        help="Age at which expiry removes its snapshots.  [default: the table's]",
    ),
    click.option(
        "--min-snapshots",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of its snapshots that expiry always keeps.  [default: the table's]",
    ),
)


def _at_options(function: Command) -> Command:
    return add_options(function, _AT)


def _kept_options(function: Command) -> Command:
    return add_options(function, _SNAPSHOTS_KEPT)


def _list(settings: Settings, table: str, kind: Kind) -> None:
    from icestream.operations.upkeep.metadata.refs import list_refs

    with settings.open_table(table) as opened:
        refs = list_refs(opened, kind)
        metadata = opened.metadata
    listed = []
    for name, ref in refs.items():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        listed.append(
            {
                "name": name,
                "snapshot_id": str(ref.snapshot_id),
                "committed_ms": snapshot.timestamp_ms if snapshot else None,
                "max_ref_age_ms": ref.max_ref_age_ms,
                "max_snapshot_age_ms": ref.max_snapshot_age_ms,
                "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            }
        )
    plural = {"branch": "branches", "tag": "tags"}[kind]
    settings.show({"table": table, plural: listed}, lambda: _list_text(table, plural, listed))


def _list_text(table: str, plural: str, refs: list[dict[str, Any]]) -> list[str]:
    if not refs:
        return [f"{table} has no {plural}"]
    rows = [
        (each["name"], each["snapshot_id"], moment(each["committed_ms"]), _kept(each))
        for each in refs
    ]
    return columns(("name", "snapshot", "committed (UTC)", ""), rows)


def _kept(ref: Mapping[str, Any]) -> str:
    rules = []
    if ref["max_ref_age_ms"] is not None:
        rules.append(f"removed after {_age(ref['max_ref_age_ms'])}")
    if ref["max_snapshot_age_ms"] is not None:
        rules.append(f"its snapshots after {_age(ref['max_snapshot_age_ms'])}")
    if ref["min_snapshots_to_keep"] is not None:
        rules.append(f"at least {ref['min_snapshots_to_keep']} kept")
    return ", ".join(rules)


def _age(milliseconds: int) -> str:
    for unit, each in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % each == 0:
            return f"{milliseconds // each}{unit}"
    return f"{milliseconds} ms"


def _create(
    settings: Settings,
    table: str,
    name: str,
    kind: Kind,
    at: int | None,
    from_: str | None,
    retention: Retention,
) -> None:
    from icestream.operations.upkeep.metadata.refs import create_ref

    if at is not None and from_ is not None:
        raise click.UsageError("--at and --from both say where to start: pass one of them")
    with settings.open_table(table) as opened, settings.changing(opened):
        snapshot_id = create_ref(opened, name, kind, snapshot_id=at, at=from_, retention=retention)
    _show(settings, table, kind, name, "created", snapshot_id)


def _delete(settings: Settings, table: str, name: str, kind: Kind) -> None:
    from icestream.operations.upkeep.metadata.refs import delete_ref

    with settings.open_table(table) as opened, settings.changing(opened):
        snapshot_id = delete_ref(opened, name, kind)
    _show(settings, table, kind, name, "deleted", snapshot_id)


def _show(
    settings: Settings,
    table: str,
    kind: Kind,
    name: str,
    action: str,
    snapshot_id: int,
    **more: Any,
) -> None:
    document = {
        "table": table,
        kind: name,
        "action": action,
        "snapshot_id": str(snapshot_id),
        **more,
    }
    what = {
        "created": "created at",
        "deleted": "deleted; it was at",
        "renamed": f"renamed to {more.get('new_name')}, at",
        "published": f"published onto {more.get('onto')}, now at",
    }[action]
    settings.show(document, lambda: [f"{table}: {kind} {name} {what} snapshot {snapshot_id}"])


def _milliseconds(age: timedelta | None) -> int | None:
    return None if age is None else int(age.total_seconds() * 1000)


@command(
    "list",
    short_help="List branches.",
    examples=("icestream branch list shop.orders",),
)
@_table
def _list_branches(settings: Settings, table: str) -> None:
    """List the branches of TABLE."""
    _list(settings, table, "branch")


@command(
    "create",
    short_help="Create a branch.",
    examples=("icestream branch create shop.orders nightly --max-age 7d",),
)
@_table
@_new_name
@_at_options
@_kept_options
def _create_branch(
    settings: Settings,
    table: str,
    name: str,
    at: int | None,
    from_: str | None,
    max_age: timedelta | None,
    max_snapshot_age: timedelta | None,
    min_snapshots: int | None,
) -> None:
    """Create the branch NAME of TABLE. Commands write to it with --branch NAME."""
    from icestream.operations.upkeep.metadata.refs import Retention

    retention = Retention(
        max_ref_age_ms=_milliseconds(max_age),
        max_snapshot_age_ms=_milliseconds(max_snapshot_age),
        min_snapshots_to_keep=min_snapshots,
    )
    _create(settings, table, name, "branch", at, from_, retention)


@command(
    "publish",
    short_help="Move main forward to a branch.",
    examples=("icestream branch publish shop.orders audit --delete",),
)
@_table
@_name
@click.option(
    "--onto", default="main", show_default=True, metavar="NAME", help="Branch to move forward."
)
@click.option("--delete", is_flag=True, help="Delete the published branch in the same commit.")
def _publish_branch(settings: Settings, table: str, name: str, onto: str, delete: bool) -> None:
    """Move main forward to the head of the branch NAME (a fast-forward).

    The command stops if main has snapshots that the branch lacks.
    """
    from icestream.operations.upkeep.metadata.refs import publish_branch

    with settings.open_table(table) as opened, settings.changing(opened):
        done = publish_branch(opened, name, onto=onto, delete=delete)
    before = None if done.previous_snapshot_id is None else str(done.previous_snapshot_id)
    _show(
        settings, table, "branch", name, "published", done.snapshot_id,
        onto=onto, previous_snapshot_id=before, deleted=delete,
    )  # fmt: skip


@command(
    "rename",
    short_help="Rename a branch.",
    examples=("icestream branch rename shop.orders audit november",),
)
@_table
@_name
@click.argument("new_name")
def _rename_branch(settings: Settings, table: str, name: str, new_name: str) -> None:
    """Rename the branch NAME of TABLE to NEW_NAME, in one commit."""
    from icestream.operations.upkeep.metadata.refs import rename_branch

    with settings.open_table(table) as opened, settings.changing(opened):
        snapshot_id = rename_branch(opened, name, new_name)
    _show(settings, table, "branch", name, "renamed", snapshot_id, new_name=new_name)


@command(
    "delete",
    short_help="Delete a branch.",
    examples=("icestream branch delete shop.orders audit",),
)
@_table
@_name
def _delete_branch(settings: Settings, table: str, name: str) -> None:
    """Delete the branch NAME of TABLE. Snapshots that only it has stay until they expire."""
    _delete(settings, table, name, "branch")


branch = group(
    "branch",
    short_help="List, create, publish, rename and delete branches.",
    help="List, create, publish, rename and delete the branches of a table.",
    commands=(_list_branches, _create_branch, _publish_branch, _rename_branch, _delete_branch),
)


@command("list", short_help="List tags.", examples=("icestream tag list shop.orders",))
@_table
def _list_tags(settings: Settings, table: str) -> None:
    """List the tags of TABLE."""
    _list(settings, table, "tag")


@command(
    "create",
    short_help="Create a tag.",
    examples=("icestream tag create shop.orders end-of-2026 --max-age 3650d",),
)
@_table
@_new_name
@_at_options
def _create_tag(
    settings: Settings,
    table: str,
    name: str,
    at: int | None,
    from_: str | None,
    max_age: timedelta | None,
) -> None:
    """Create the tag NAME of TABLE. Its snapshot does not expire before the tag does."""
    from icestream.operations.upkeep.metadata.refs import Retention

    retention = Retention(max_ref_age_ms=_milliseconds(max_age))
    _create(settings, table, name, "tag", at, from_, retention)


@command(
    "delete",
    short_help="Delete a tag.",
    examples=("icestream tag delete shop.orders v1",),
)
@_table
@_name
def _delete_tag(settings: Settings, table: str, name: str) -> None:
    """Delete the tag NAME of TABLE. Its snapshot stays until it expires."""
    _delete(settings, table, name, "tag")


tag = group(
    "tag",
    short_help="List, create and delete tags.",
    help="List, create and delete the tags of a table.",
    commands=(_list_tags, _create_tag, _delete_tag),
)
