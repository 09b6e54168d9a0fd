"""Text files in blocks of whole lines, or of whole records.

Nearly all blocks are parsed at once. A block that can't be parsed is cut in halves until the bad
lines are alone, so that the number and the text of each are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from icestream.catalogs.redaction import redact
from icestream.errors import MemoryBudgetError
from icestream.memory.budget import (
    DEFAULT_MEMORY,
    MemoryBudget,
    format_bytes,
    over_limit,
    parse_bytes,
)
from icestream.write.sources.bad_record import BadRecord, OnBad
from icestream.write.sources.file_store import FileStore
from icestream.write.sources.source_file import SourceFile
from icestream.write.sources.text.json_documents import (
    OBJECT_COST,
    document_lines,
    holds_documents,
)
from icestream.write.sources.text.text_content import check_text
from icestream.write.sources.text.text_format import CsvFormat

BLOCK_BYTES = 1 << 20
_UTF8 = "utf-8"
_BOM = b"\xef\xbb\xbf"
_ROW = re.compile(r"Row #\d+: | in row \d+")
_REASON_CHARACTERS = 300
LINE_COST = 4  # bytes held for each byte of a long line; writers refuse rows by the same rule
_MOST_COUNTED = 1 << 30

Parse = Callable[[bytes], pa.RecordBatch]
"""Parses whole lines, one record each; raises `pa.ArrowInvalid` if a line is bad."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines.

    Attributes:
        text: The lines, each with its end.
        line: The number of the first line, from 0, in the part of the file.
    """

    text: bytes
    line: int


def line_limit(memory_bytes: int) -> int:
    """Maximum length of a line: memory holds it as text, parsed, and as a row."""
    return max(memory_bytes // LINE_COST, 1)


MOST_LINE_BYTES = line_limit(parse_bytes(DEFAULT_MEMORY))


def blocks(
    file: SourceFile,
    store: FileStore,
    most_line_bytes: int = MOST_LINE_BYTES,
    encoding: str = _UTF8,
) -> Iterator[Block]:
    """Read the lines that begin in a part of a file.

    A JSON array, and objects over several lines, are cut into lines with one object each. The first
    part of such a file has all of them.

    Raises:
        SourceError: If the file is not text.
        MemoryBudgetError: If a line is too long. The rest of it is counted, and not kept.

    Memory: a block of 1 MB, or twice the longest line if that is more.
    """
    is_json = file.format == "json"
    is_part = file.start > 0 or file.end is not None
    if is_json and is_part and _is_documents(file, store):
        if file.start:
            return
        file = whole_file(file)
    whole = file.start == 0 and file.end is None
    opened = file.open_stream(store) if whole else file.open(store)
    with opened:
        if encoding != _UTF8:
            opened = pa.transcoding_input_stream(opened, encoding, _UTF8)
        if file.start:
            opened.seek(file.start - 1)
        # Bytes left in the part; a line that begins in it is read to its end.
        left = None if file.end is None else file.end - file.start
        carried = _Pieces()
        line, skipping = 0, file.start > 0
        first = not skipping
        if skipping:
            left = None if left is None else left + 1
        while left is None or left > 0 or carried:
            ended = left is not None and left <= 0
            read = opened.read(BLOCK_BYTES if left is None or ended else min(left, BLOCK_BYTES))
            if left is not None:
                left -= len(read)
            if not read:
                if carried:
                    yield Block(carried.join(), line)
                return
            if ended:
                read = read[: read.find(b"\n") + 1] or read
            if first:
                check_text(file.path, read, is_csv=not is_json)
                read, first = read.removeprefix(_BOM), False
                if is_json and whole and holds_documents(read):
                    yield from _documents(file, read, opened, most_line_bytes)
                    return
            if skipping:
                _, newline, read = read.partition(b"\n")
                if not newline:
                    continue
                skipping = False
            cut = read.rfind(b"\n") + 1
            if cut:
                text = carried.join(read[:cut])
                yield Block(text, line)
                line += text.count(b"\n")
                del text
            carried.add(read[cut:])
            if carried.bytes > most_line_bytes:
                rest = _rest_of_line(opened)
                number = lines_before(file, store) + line + 1
                raise _too_long(file, number, carried.bytes + rest, most_line_bytes)


def whole_file(file: SourceFile) -> SourceFile:
    """The file that a part belongs to."""
    size = file.bytes if file.file_bytes is None else file.file_bytes
    return replace(file, start=0, end=None, bytes=size, file_bytes=None)


def _is_documents(file: SourceFile, store: FileStore) -> bool:
    with whole_file(file).open_stream(store) as opened:
        return holds_documents(opened.read(BLOCK_BYTES).removeprefix(_BOM))


def _documents(
    file: SourceFile, first: bytes, opened: pa.NativeFile, most_line_bytes: int
) -> Iterator[Block]:
    line, most = 0, most_line_bytes * LINE_COST // OBJECT_COST
    for text in document_lines(first, opened.read, path=file.path, most_bytes=most):
        yield Block(text, line)
        line += text.count(b"\n")


def record_blocks(
    lines: Iterable[Block], csv: CsvFormat, path: str, most_bytes: int
) -> Iterator[Block]:
    """The same text in blocks of whole records, whose values may have line breaks.

    Raises:
        MemoryBudgetError: If a record is too long, for example because a quote is not closed.
    """
    carried, line = _Pieces(), 0  # the beginning of a record
    for block in lines:
        line = line if carried else block.line
        if carried and not csv.quotes(block.text):  # it goes on
            carried.add(block.text)
        else:
            text = carried.join(block.text)
            end = _end_of_records(text, csv)
            if end:
                yield Block(text[:end] if end < len(text) else text, line)
            line += text.count(b"\n", 0, end)
            carried.add(text[end:])
            del text
        if carried.bytes > most_bytes:
            raise over_limit(
                f"the record in line {line + 1} of {redact(path)!r} has more than "
                f"{format_bytes(most_bytes)}",
                needed_bytes=4 * carried.bytes * LINE_COST,
                limit_bytes=most_bytes * LINE_COST,
                otherwise="check whether a quote is not closed",
            )
    if carried:
        yield Block(carried.join(), line)


def _end_of_records(text: bytes, csv: CsvFormat) -> int:
    """Where the last whole record ends."""
    end, quotes = len(text), csv.quotes(text)
    while end and quotes % 2:
        start = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= csv.quotes(text[start:end])
        end = start
    return end


def records(text: bytes, csv: CsvFormat) -> list[bytes]:
    """The records of a text, each with its end."""
    whole: list[bytes] = []
    waiting: list[bytes] = []
    quotes = 0
    for line in lines_of(text):
        waiting.append(line)
        quotes += csv.quotes(line)
        if quotes % 2 == 0:
            whole.append(b"".join(waiting))
            waiting = []
    return [*whole, b"".join(waiting)] if waiting else whole


class _Pieces:
    """A line that spans several reads, joined once its end was read."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.bytes = 0

    def __bool__(self) -> bool:
        return self.bytes > 0

    def add(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.bytes += len(piece)

    def join(self, last: bytes = b"") -> bytes:
        """The whole line; the pieces are dropped."""
        joined = b"".join([*self._pieces, last]) if self._pieces else last
        self._pieces, self.bytes = [], 0
        return joined


def _rest_of_line(opened: pa.NativeFile) -> int:
    """Count the rest of a line, up to a gigabyte."""
    count = 0
    while count < _MOST_COUNTED and (read := opened.read(BLOCK_BYTES)):
        end = int(read.find(b"\n"))
        if end >= 0:
            return count + end
        count += len(read)
    return count


def _too_long(file: SourceFile, number: int, length: int, most_bytes: int) -> MemoryBudgetError:
    needed = length * LINE_COST
    return over_limit(
        f"line {number} of {redact(file.path)!r} has {format_bytes(length)}, which takes "
        f"{format_bytes(needed)} to load",
        needed_bytes=needed,
        limit_bytes=most_bytes * LINE_COST,
        otherwise="remove the line",
    )


def lines_before(file: SourceFile, store: FileStore) -> int:
    """Number of lines that begin before a part of a file."""
    if not file.start:
        return 0
    count, left = 0, file.start - 1
    with file.open(store) as opened:
        while left > 0 and (read := opened.read(min(left, BLOCK_BYTES))):
            count += read.count(b"\n")
            left -= len(read)
    return count + 1


@dataclass(slots=True)
class LineReader:
    """Parses the lines of a file, and passes bad lines on.

    Attributes:
        file: The file, or a part of it.
        store: Opens the file.
        parse: Parses whole lines.
        schema: The schema of the batches.
        on_bad: Called with each bad line, in order.
        most_line_bytes: Maximum length of a line.
        budget: Charged while a block with a long line is parsed.
        split: Splits a text into records; by default each line is one.
    """

    file: SourceFile
    store: FileStore
    parse: Parse
    schema: pa.Schema
    on_bad: OnBad
    most_line_bytes: int = MOST_LINE_BYTES
    budget: MemoryBudget | None = None
    split: Callable[[bytes], list[bytes]] = field(default=lambda text: lines_of(text))
    _before: int | None = field(default=None, init=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for block in blocks(self.file, self.store, self.most_line_bytes):
            yield from self.read(block)
            del block

    def read(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The rows of a block, or an empty batch if all its lines are bad.

        So the caller can write collected bad lines after every block.
        """
        has_rows = False
        for batch in self._read(block):
            has_rows = True
            yield batch
            del batch
        if not has_rows:
            yield pa.RecordBatch.from_pylist([], schema=self.schema)

    def _read(self, block: Block) -> Iterator[pa.RecordBatch]:
        if not block.text.strip():
            return
        try:
            with self._charged(block):
                batch = self.parse(block.text)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
            reason = str(error)
        else:
            yield batch
            return
        pieces = self.split(block.text)
        if len(pieces) < 2:
            self._report(block, reason)
            return
        middle = len(pieces) // 2
        first = b"".join(pieces[:middle])
        yield from self._read(Block(first, block.line))
        after = block.line + first.count(b"\n")
        yield from self._read(Block(b"".join(pieces[middle:]), after))

    @contextmanager
    def _charged(self, block: Block) -> Iterator[None]:
        """Charge a large block. Never waits: the budget may be held by this reader's own rows."""
        if self.budget is None or len(block.text) <= 2 * BLOCK_BYTES:
            yield
            return
        lease = self.budget.force(len(block.text) * (LINE_COST - 1))
        try:
            yield
        finally:
            lease.release()

    def _report(self, block: Block, reason: str) -> None:
        if self._before is None:
            self._before = lines_before(self.file, self.store)
        plain = " ".join(_ROW.sub("", reason).split())[:_REASON_CHARACTERS]
        if "UTF8" in plain:
            plain = "it is not valid UTF-8: if the file has another encoding, give it" + (
                ", such as option encoding='latin-1'" if self.file.format == "csv" else " as UTF-8"
            )
        record = block.text.decode("utf-8", "replace").rstrip("\r\n")
        self.on_bad(BadRecord(self.file.path, self._before + block.line + 1, record, plain))


def lines_of(text: bytes) -> list[bytes]:
    """Split at newlines only: `splitlines` would split at carriage returns, too."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def first_lines(
    file: SourceFile,
    store: FileStore,
    most_bytes: int = BLOCK_BYTES,
    most_line_bytes: int = MOST_LINE_BYTES,
    encoding: str = _UTF8,
) -> bytes:
    """About `most_bytes` of whole lines from the beginning of a file.

    Raises:
        MemoryBudgetError: If a line is too long.
    """
    texts, size = [], 0
    for block in blocks(whole_file(file), store, most_line_bytes, encoding):
        cut = block.text.find(b"\n", max(most_bytes - size - 1, 0)) + 1
        if cut:
            texts.append(block.text[:cut] if cut < len(block.text) else block.text)
            break
        texts.append(block.text)
        size += len(block.text)
    return texts[0] if len(texts) == 1 else b"".join(texts)
