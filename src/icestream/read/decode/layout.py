"""The layout of a run of row groups, and the memory for decoding it.

A decoder holds a page and a dictionary of each column, however small the step is. Their sizes come
from the footer if its bounds are low enough, and otherwise from page headers. So it is known
whether a column fits before it is opened.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icestream.read.decode.pages import PageSizes, page_sizes
from icestream.read.decode.sizing import PROBE_ROWS, Estimate, Sizing
from icestream.read.project.conversion import is_text

_PAGE_BYTES = 1 << 20
_CODE_BYTES = 3
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_SAMPLED_GROUPS = 8
_CHEAP_SHARE = 16  # Below a 16th of the limit, bounds from the footer are exact enough.
_SPREAD_SHARE = 8  # One column of a step may expand to an eighth of the limit.
_SHORT_BYTES = 64
_PLAIN_PAGE_BYTES = 256 << 10
# Measured overhead of Arrow's decoders: for each value of a text dictionary, and for each value of
# a column that is decoded as a dictionary.
_POINTER_BYTES = 20
_HASHED_BYTES = 128
_DICTIONARY_ROWS = 8_192  # With fewer rows, the dictionary would be larger than the batch.
_RUN_BYTES = 16 << 20


def buffer_bytes(limit_bytes: int, columns: int) -> int:
    """The size of a column's read buffer. All buffers take at most an eighth of the limit.

    Buffers above 64 kB do not help: not on a disk, and not on an object store, where the bytes have
    been fetched ahead.
    """
    return max(16 << 10, min(64 << 10, limit_bytes // 8 // max(columns, 1)))


@dataclass(slots=True)
class _Leaf:
    """A leaf column in a run of row groups."""

    index: int
    chunks: list[pq.ColumnChunkMetaData]
    sizes: PageSizes
    exact: bool = False
    as_dictionary: bool = False
    row_by_row: bool = False

    @property
    def is_text(self) -> bool:
        return bool(self.chunks[0].physical_type == "BYTE_ARRAY")

    def fixed_bytes(self, buffer: int) -> int:
        """Memory of the decoder: a buffer, a page, and a dictionary as stored and as decoded."""
        stored = max(int(chunk.total_compressed_size) for chunk in self.chunks)
        sizes = self.sizes
        page = sizes.largest_bytes
        dictionary = 2 * sizes.dictionary_bytes
        if sizes.dictionary_bytes and not self.is_text:
            # When the dictionary is full, larger pages of plain values follow.
            page = max(page, min(sizes.data_bytes, _PLAIN_PAGE_BYTES))
        if self.is_text:
            dictionary += _POINTER_BYTES * sizes.dictionary_values
        if self.as_dictionary:
            dictionary += self.hashed_bytes
        return min(buffer, stored) + page + dictionary

    @property
    def hashed_bytes(self) -> int:
        """Additional memory if the column is decoded as a dictionary."""
        return 2 * self.sizes.dictionary_bytes + _HASHED_BYTES * self.sizes.dictionary_values

    def row_bytes(self, rows: int) -> float:
        values = sum(int(chunk.num_values) for chunk in self.chunks) / rows
        width = _WIDTHS.get(self.chunks[0].physical_type)
        if width is not None:
            return width * values
        plain = sum(int(chunk.total_uncompressed_size) for chunk in self.chunks) / rows
        sizes = self.sizes
        if self.row_by_row:
            return float(sizes.longest_value_bytes)
        if self.exact and sizes.dictionary_values:
            plain = max(plain, values * sizes.dictionary_bytes / sizes.dictionary_values)
        return plain + 8 * values

    @property
    def longest_bytes(self) -> int:
        """Upper bound for the length of a value, if the column is text."""
        if not self.is_text:
            return 0
        return max(self.sizes.largest_bytes, self.sizes.longest_value_bytes)


class RunLayout:
    """The layout of a run of row groups, for decoding it within the limit.

    Args:
        handle: The open file. None if reading page headers would cost requests.
        metadata: The footer of the file.
        row_groups: The run.
        leaves: The leaf columns to decode.
        sizing: The scan's limit and the size of its steps.

    Attributes:
        buffer: Size of the buffer for each column.
    """

    def __init__(
        self,
        handle: pa.NativeFile | None,
        metadata: pq.FileMetaData,
        row_groups: tuple[int, ...],
        leaves: list[int],
        sizing: Sizing,
    ) -> None:
        limit_bytes = sizing.limit_bytes
        self.buffer = buffer_bytes(limit_bytes, len(leaves))
        self._sizing = sizing
        self._handle = handle
        self._metadata = metadata
        self._limit_bytes = limit_bytes
        self._rows = sum(metadata.row_group(g).num_rows for g in row_groups)
        sampled = row_groups[:_SAMPLED_GROUPS]
        self._sampled = sampled
        groups = [metadata.row_group(g) for g in sampled]
        self._sampled_rows = sum(group.num_rows for group in groups) or 1
        self._leaves = [_bounded(leaf, [g.column(leaf) for g in groups]) for leaf in leaves]
        if handle is None:
            for leaf in self._leaves:
                leaf.sizes = _usual(leaf.sizes)
        elif self._fixed_bytes() > limit_bytes // _CHEAP_SHARE:
            self.read_headers(handle)

    def read_headers(self, handle: pa.NativeFile) -> None:
        """Replace the bounds with exact sizes from page headers."""
        for leaf in self._leaves:
            self._make_exact(leaf, handle)

    def dictionaries(self, file_schema: pa.Schema) -> list[int]:
        """The text columns to decode as dictionaries.

        These are flat columns with short codes, for which this is faster (docs/design/0003), and
        columns with values so long that they must be expanded in parts.
        """
        flat = {field.name for field in file_schema if is_text(field.type)}
        row_bytes = max(self._row_bytes(), 0.125)
        step_rows = self._sizing.step_target_bytes(row_bytes) / row_bytes
        # Steps fit the limit if no value is longer than this.
        most_bytes = self._limit_bytes / _SPREAD_SHARE / min(self._rows, PROBE_ROWS, step_rows)
        doubtful = []
        for leaf in self._leaves:
            chunk = leaf.chunks[0]
            if leaf.is_text and chunk.has_dictionary_page:
                fast = (
                    self._sizing.batch_rows >= _DICTIONARY_ROWS
                    and chunk.path_in_schema in flat
                    and chunk.total_uncompressed_size < _CODE_BYTES * chunk.num_values
                )
                if fast:
                    leaf.as_dictionary = True
                elif self._handle is not None and self._may_be_long(leaf, most_bytes):
                    doubtful.append(leaf)
        self._guard(doubtful, most_bytes)
        return [leaf.index for leaf in self._leaves if leaf.as_dictionary]

    def estimate(self) -> Estimate:
        """The memory that decoding takes."""
        longest = max((leaf.longest_bytes for leaf in self._leaves), default=0)
        unknown = self._handle is None or any(
            "DELTA_BYTE_ARRAY" in leaf.chunks[0].encodings for leaf in self._leaves if leaf.is_text
        )
        return Estimate(
            row_bytes=max(self._row_bytes(), 0.125),
            fixed_bytes=self._fixed_bytes() if self._rows else 0,
            rows=self._rows,
            longest_bytes=longest,
            surprising=unknown and any(leaf.is_text for leaf in self._leaves),
            is_bound=any(leaf.row_by_row for leaf in self._leaves),
        )

    def _row_bytes(self) -> float:
        return sum(leaf.row_bytes(self._sampled_rows) for leaf in self._leaves)

    def _fixed_bytes(self) -> int:
        return sum(leaf.fixed_bytes(self.buffer) for leaf in self._leaves)

    def _make_exact(self, leaf: _Leaf, handle: pa.NativeFile) -> None:
        if leaf.exact:
            return
        leaf.exact = True
        every = leaf.is_text and leaf.sizes.largest_bytes > self._limit_bytes // _CHEAP_SHARE
        exact = [page_sizes(handle, chunk, every=every) for chunk in leaf.chunks]
        most = max(exact, key=lambda sizes: sizes.longest_value_bytes)
        leaf.sizes = PageSizes(
            max(sizes.largest_bytes for sizes in exact),
            most.dictionary_bytes,
            most.dictionary_values,
            max(sizes.data_bytes for sizes in exact),
        )

    def _may_be_long(self, leaf: _Leaf, most_bytes: float) -> bool:
        """Whether the dictionary of a column may contain values that are too long for a step."""
        if leaf.sizes.longest_value_bytes <= most_bytes:
            return False
        assert self._handle is not None
        self._make_exact(leaf, self._handle)
        sizes = leaf.sizes
        if sizes.longest_value_bytes <= most_bytes:
            return False
        # Most rows may be outside the dictionary, and its values short.
        plain = sizes.data_bytes >= _CODE_BYTES * int(leaf.chunks[0].num_values)
        return not plain or sizes.dictionary_bytes >= _SHORT_BYTES * sizes.dictionary_values

    def _guard(self, leaves: list[_Leaf], most_bytes: float) -> None:
        """Choose another way to decode columns with values that are too long for a step."""
        together: list[_Leaf] = []
        taken = 0
        for leaf in leaves:
            held = leaf.fixed_bytes(self.buffer) + leaf.hashed_bytes
            if held > self._limit_bytes:
                leaf.row_by_row = True
                continue
            if together and taken + held > self._limit_bytes // _CHEAP_SHARE:
                self._look_into_dictionaries(together, most_bytes)
                together, taken = [], 0
            together.append(leaf)
            taken += held
        if together:
            self._look_into_dictionaries(together, most_bytes)

    def _look_into_dictionaries(self, leaves: list[_Leaf], most_bytes: float) -> None:
        """Find the columns with long values, by decoding their dictionaries and one row.

        Memory: a buffer, a page and a dictionary of each column.
        """
        leaves = sorted(leaves, key=lambda leaf: leaf.index)
        indices = [leaf.index for leaf in leaves]
        for group in self._sampled:
            file = pq.ParquetFile(
                self._handle,
                metadata=self._metadata,
                pre_buffer=False,
                buffer_size=self.buffer,  # Without a buffer, whole column chunks would be read.
                read_dictionary=indices,
                page_checksum_verification=True,
            )
            batches = file.reader.iter_batches(
                1, row_groups=[group], column_indices=indices, use_threads=False
            )
            columns = next(batches).columns
            for leaf, values in zip(leaves, _dictionaries_in(columns), strict=True):
                if values is not None and _longest_in(values) > most_bytes:
                    leaf.as_dictionary = True


def lay_out(
    handle: pa.NativeFile,
    metadata: pq.FileMetaData,
    file_schema: pa.Schema,
    run: tuple[int, ...],
    leaves: list[int],
    sizing: Sizing,
    *,
    remote: bool,
) -> tuple[RunLayout, list[int]]:
    """Lay out a run of row groups, and choose the columns to decode as dictionaries.

    Args:
        handle: The open file.
        metadata: The footer of the file.
        file_schema: The schema of the file.
        run: The row groups.
        leaves: The leaf columns to decode.
        sizing: The reader's limit and the size of its steps.
        remote: Whether reading page headers costs requests. If so, they are read only if the run
            may not fit.
    """
    layout = RunLayout(None if remote else handle, metadata, run, leaves, sizing)
    if remote and layout.estimate().least_bytes > sizing.limit_bytes:
        layout.read_headers(handle)
    return layout, layout.dictionaries(file_schema)


def runs(groups: Iterable[int], metadata: pq.FileMetaData) -> list[tuple[int, ...]]:
    """Join consecutive row groups to runs of up to about 16 MB, with contiguous positions."""
    joined: list[list[int]] = []
    size = 0
    for group in groups:
        part_bytes = metadata.row_group(group).total_byte_size
        if joined and group == joined[-1][-1] + 1 and size + part_bytes <= _RUN_BYTES:
            joined[-1].append(group)
            size += part_bytes
        else:
            joined.append([group])
            size = part_bytes
    return [tuple(run) for run in joined]


def _bounded(index: int, chunks: list[pq.ColumnChunkMetaData]) -> _Leaf:
    """Upper bounds from the footer: a page and a dictionary as large as the chunk."""
    largest = max(int(chunk.total_uncompressed_size) for chunk in chunks)
    with_dictionary = any(chunk.has_dictionary_page for chunk in chunks)
    dictionary = largest if with_dictionary else 0
    return _Leaf(index, chunks, PageSizes(largest, dictionary, 1, largest))


def _usual(sizes: PageSizes) -> PageSizes:
    """The usual sizes of pages and dictionaries."""
    return PageSizes(
        min(sizes.largest_bytes, _PAGE_BYTES),
        min(sizes.dictionary_bytes, _PAGE_BYTES),
        sizes.dictionary_values,
        sizes.data_bytes,
    )


def _dictionaries_in(arrays: Iterable[pa.Array]) -> Iterator[pa.Array | None]:
    """The dictionary of each leaf column, in order; None for a leaf without one."""
    for array in arrays:
        kind = array.type
        if isinstance(kind, pa.DictionaryType):
            yield array.dictionary
        elif isinstance(kind, pa.StructType):
            yield from _dictionaries_in(array.field(i) for i in range(kind.num_fields))
        elif isinstance(kind, pa.MapType):
            yield from _dictionaries_in((array.keys, array.items))
        elif kind.num_fields:
            yield from _dictionaries_in((array.values,))
        else:
            yield None


def _longest_in(values: pa.Array) -> float:
    """The length of the longest value in a dictionary."""
    if not len(values):  # The row that was read has no value, such as an empty list.
        return math.inf
    return float(pc.max(pc.binary_length(values)).as_py() or 0)
