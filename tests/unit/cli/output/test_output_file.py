"""An output file appears under its name when it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

import icestream as ice
from icestream.cli.output.output_file import open_output


def test_the_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with open_output(str(path)) as file:
        file.write(b"id\n")
        assert not path.exists()
    assert path.read_bytes() == b"id\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")

    def write_half() -> None:
        with open_output(str(path)) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_stopped_output_drops_what_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with open_output(str(path)) as file:
        file.write(b"rows")
        file.stop()
        assert file.write(b"footer") == 6
        file.flush()
    assert path.read_bytes() == b"rows"


def test_a_folder_and_a_file_in_a_missing_folder_are_refused(tmp_path: Path) -> None:
    for name, message in ((tmp_path, "is a folder"), (tmp_path / "no" / "a.csv", "check its")):
        with pytest.raises(ice.WriteError, match=message), open_output(str(name)):
            pytest.fail("opened")
