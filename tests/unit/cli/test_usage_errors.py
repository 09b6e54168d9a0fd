"""Wrong calls are answered with the name that exists, on one line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from icestream.cli.main import cli
from icestream.cli.usage_errors import _COMMANDS, _OPTIONS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("merge a.csv --into a.b --keys id", "No such option '--keys': use --on. See"),
        ("load a.csv --into a.b --on id", "'--on': use --keys. See"),
        ("load a.csv --to a.b", "'--to': use --into. See"),
        ("load a.csv --into a.b --delimiter ;", "'--delimiter': use --option delimiter=... See"),
        ("load a.csv --into a.b --header false", "'--header': use --option header=... See"),
        ("scan a.b --filter x", "'--filter': use --where. See"),
        ("scan a.b --lmit 3", "'--lmit': did you mean --limit?"),
        ("rollback a.b --snapshot 3", "'--snapshot': use --to. See"),
        ("drop a.b --force", "'--force': use --yes. See"),
        ("rollback a.b 17", "(17): options have names, and a value with spaces needs quotes. See"),
        ("-V", "'-V': use --version. See"),
        ("lod a.csv", "No such command 'lod': did you mean 'load'? See `icestream --help`.\n"),
        ("history a.b", "No such command 'history': use `icestream snapshots`. See"),
        ("help", "No such command 'help': use `icestream --help`. See"),
        ("help load", "No such command 'help': use `icestream load --help`. See"),
        ("xyz", "No such command 'xyz'. See `icestream --help`.\n"),
        ("branch list a.b --verbose", "'--verbose': use --debug. See `icestream branch list"),
        ("branch help", "No such command 'help'. See `icestream branch --help`.\n"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_one(line: str, words: str) -> None:
    failed = CliRunner().invoke(cli, line.split())
    assert failed.exit_code == 2
    assert failed.stderr.startswith("icestream: ")
    assert failed.stderr.count("\n") == 1
    assert words in failed.stderr


def test_answers_name_commands_and_options_that_exist() -> None:
    commands = dict(cli.commands)
    assert all(name.startswith("--") or name in commands for name in _COMMANDS.values())
    assert not _COMMANDS.keys() & commands.keys()
    groups = [each for each in commands.values() if hasattr(each, "commands")]
    inner = [each for group in groups for each in group.commands.values()]
    known = {
        name for each in (cli, *commands.values(), *inner) for p in each.params for name in p.opts
    }
    assert {other.split()[0] for others in _OPTIONS.values() for other in others} <= known
