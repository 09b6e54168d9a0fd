"""What people read is plain English: none of the phrases of `tests/support/plain_english.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plain_english import REPOSITORY, Text, complaints, participles_of, texts_of

# Add "src/icestream/**/*.py" to check docstrings, messages and comments of modules, too.
_CHECKED = (
    "src/icestream/**/*.py",
    "*.md",
    "docs/**/*.md",
    "benchmarks/README.md",
    "benchmarks/**/*.py",
    "examples/**/*.py",
    "tests/docs/*.py",
)
_FILES = sorted({path for pattern in _CHECKED for path in REPOSITORY.glob(pattern)})


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def _package(path: Path) -> str:
    """A package of icestream, or the folder of a document."""
    return "/".join(path.relative_to(REPOSITORY).parent.parts[:3])


_PACKAGES = sorted({_package(path) for path in _FILES})


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_file_has_a_phrase_that_must_be_read_twice(package: str) -> None:
    files = [path for path in _FILES if _package(path) == package]
    phrases = [line for path in files for text in texts_of(path) for line in complaints(text)]
    assert not phrases, "\n" + "\n".join(phrases)


@pytest.mark.parametrize("package", _PACKAGES)
def test_variables_are_nouns(package: str) -> None:
    modules = [path for path in _FILES if path.suffix == ".py" and _package(path) == package]
    assert not [place for path in modules for place in participles_of(path)]


def test_the_documents_of_the_project_are_checked() -> None:
    names = {_name(path) for path in _FILES}
    assert {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/cli.md"} <= names
    assert len(names) > 40


@pytest.mark.parametrize(
    "sentence",
    [
        "The value is no UUID.",
        "A text that is no\nUTF-8.",
        "Stop. Of a stream that ends, the rest is lost.",
        "The most rows.",
        "limit: the most bytes held.",
        "Reads all that there is.",
        "branch: as of `append`; likewise load_id.",
        "Mend or leave out the file.",
        "The values are spread out.",
        "What becomes of the rows that are there.",
        "Rows would come back, or come twice.",
        "A footer does not tell decoded sizes.",
        "As required (S1.6).",
    ],
)
def test_a_phrase_is_noticed(sentence: str) -> None:
    assert list(complaints(Text("somewhere", sentence)))


@pytest.mark.parametrize(
    "sentence",
    [
        "There is no other catalog.",
        "A scan no longer waits, and it is no longer slow.",
        "Maximum number of rows.",
        "The task that held the most.",
        "One of the files, and of the rest none.",
        "Of course it ends.",
        "Recommended: s3://bucket in version 1.6.",
    ],
)
def test_plain_sentences_pass(sentence: str) -> None:
    assert not list(complaints(Text("somewhere", sentence)))


def test_the_texts_of_a_module_are_its_docstrings_messages_and_comments() -> None:
    module = REPOSITORY / "tests" / "support" / "plain_english.py"
    texts = [text.text for text in texts_of(module)]
    assert "A piece of text with the place where it is written." in texts
    assert any("Names that say what was done" in text for text in texts)
    assert any(text.startswith("{}: ...{}...") for text in texts)
