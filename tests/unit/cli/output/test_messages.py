"""Messages of the library in the words of the command line."""

from __future__ import annotations

import pytest

from icestream.cli.output.messages import in_options


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("or load with schema_mode='evolve'", "or load with --schema-mode evolve"),
        ('give where="..."', "give --where ..."),
        ("pass catalog= the name", "pass --catalog with the name"),
        ("raise memory to 3 MB", "raise --memory to 3 MB"),
        ("run ice.compact(table)", "run icestream compact db.t"),
        ("ice.orphans(table, delete=True)", "icestream orphans db.t --delete"),
        ("a path such as /day=1/where=2", "a path such as /day=1/where=2"),
        ("into is 'ab', which is not a name", "--into is 'ab', which is not a name"),
        ("keys is for mode='merge', and mode is 1", "--keys is for --mode merge, and --mode is 1"),
        ("name keys, such as on=['id', 'day']", "name keys, such as --keys id,day"),
        ("there are id, mode, keys", "there are id, mode, keys"),
        ("give this load its own checkpoint=", "give this load its own --checkpoint"),
        ("ignore names with hive_partitions=False", "ignore names with --no-hive-partitions"),
        ("give incremental=True, too", "give --incremental, too"),
        ("so leave catalog out", "so leave --catalog out"),
        ("a limit: give schema= other types, or x", "a limit: give --type COLUMN=TYPE, or x"),
        ("pass its id: dropped=['a-b']", "pass its id: --dropped a-b"),
        ("partition_by has 'x'", "--partition-by has 'x'"),
        ("properties has 'x', which", "--property has 'x', which"),
        ("a load with a load_id runs once", "a load with a --load-id runs once"),
        ("no column 'x' (last_by): it has", "no column 'x' (--last-by): it has"),
        ("schema says that 'id' is 'x'", "--type says that 'id' is 'x'"),
        ("memory 'x' is not a size", "--memory 'x' is not a size"),
        ("give one of branch, tag, not 2", "give one of --branch, --tag, not 2"),
        ("table.history() lists those", "`icestream snapshots db.t` lists those"),
    ],
)  # fmt: skip
def test_messages_name_options_instead_of_arguments(message: str, expected: str) -> None:
    assert in_options(message, "db.t") == expected


def test_a_command_has_its_own_words() -> None:
    message = "give on=['id'], or mode='append' and state= another folder"
    assert in_options(message, command="merge").startswith("give --on id, or --mode append")
    assert in_options(message, command="run") == (
        "give keys: id, or mode: append and --state with another folder"
    )
    assert in_options("mode is 'x': give create=False", command="run") == (
        "mode is 'x': give create: false"
    )


def test_commands_in_messages_can_be_pasted() -> None:
    message = "run ice.compact(table) and ice.orphans(table, delete=True)"
    assert in_options(message, "db.t", catalog="my prod", branch="b") == (
        "run icestream compact db.t --branch b --catalog 'my prod' and "
        "icestream orphans db.t --delete --catalog 'my prod'"
    )
    lists = "`icestream snapshots db.t --catalog p` lists"
    assert in_options("table.history() lists", "db.t", catalog="p") == lists
    assert in_options("db.t has no snapshot 5: table.history() lists", catalog="p").endswith(lists)
    assert in_options("table.history() lists") == "`icestream snapshots NAME` lists"
