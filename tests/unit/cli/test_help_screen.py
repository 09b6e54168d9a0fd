"""The screens of `icestream` and `icestream --help`."""

from __future__ import annotations

from icestream.cli.help_screen import START
from icestream.cli.main import cli
from tests.unit.cli.conftest import Run


def test_without_a_command_it_shows_where_to_start_on_one_screen(run: Run) -> None:
    shown = run()
    lines = shown.stdout.splitlines()
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for line, what in START:
        assert any(f"icestream {line}" in each and what in each for each in lines)


def test_the_help_lists_all_commands_by_subject_and_the_exit_codes(run: Run) -> None:
    shown = run("--help").stdout
    assert max(map(len, shown.partition("Exit codes")[0].splitlines())) <= 80
    for name, each in cli.commands.items():
        assert f"\n  {name} " in shown
        assert each.get_short_help_str(100) in shown
    assert "\nLoad and change:\n  load " in shown
    assert "\nMore:" not in shown  # each command has a subject
    assert "  130  Ctrl-C" in shown
