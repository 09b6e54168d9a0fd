"""Any Arrow stream, opened once and read batch by batch."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError, SchemaMismatchError
from icestream.write.schema.columns import empty_batch

_ACCEPTED = (
    "a pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, an iterable of batches, "
    "an object with __arrow_c_stream__ (a Polars or pandas frame, a DuckDB relation, an icestream "
    "scan), or a function without arguments that returns one of these"
)
_logger = logging.getLogger(__name__)


class ArrowSource:
    """A stream of batches with the same schema (apart from nullability), read exactly once.

    Args:
        schema: Its schema; None if the stream is empty.
        batches: The batches, in order. Batches without rows are skipped.
        close: Called once at the end, or when the reader stops early.

    Attributes:
        schema: The first batch's schema; None for an iterable without items, whose columns are
            not known.

    Memory: holds at most one batch.
    """

    def __init__(
        self,
        schema: pa.Schema | None,
        batches: Iterator[pa.RecordBatch],
        close: Callable[[], None],
    ) -> None:
        self.schema = schema
        self._batches: Iterator[pa.RecordBatch] | None = batches
        self._close: Callable[[], None] | None = close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches, self._batches = self._batches, None
        if batches is None:
            raise InvalidArgumentError("this stream has been read already: open it again")
        return self._read(batches)

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            numbers = itertools.count()  # enumerate() holds the batch while the next one is made
            for batch in batches:
                number = next(numbers)
                if not isinstance(batch, pa.RecordBatch):
                    raise _no_batch(batch, number)
                if not batch.schema.equals(self.schema):
                    _check_same(batch.schema, self.schema, number)
                if batch.num_rows:
                    yield batch
                del batch  # before the next one is made
        finally:
            self.close()

    def close(self) -> None:
        """Release what the stream reads from. A second call does nothing."""
        self._batches = None
        close, self._close = self._close, None
        if close is not None:
            close()

    def __enter__(self) -> ArrowSource:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            _logger.debug("closing the stream failed after another error", exc_info=True)


def open_source(source: object) -> ArrowSource:
    """Open any source of Arrow batches.

    Args:
        source: A `pa.Table`, `pa.RecordBatch`, `pa.RecordBatchReader`, dataset or scanner; an
            object with `__arrow_c_stream__` or `__arrow_c_array__`; an iterable of these, whose
            first item is read at once for its schema; or a function without arguments that returns
            any of these.

    Raises:
        InvalidArgumentError: If it is something else; the message says what to pass instead.
        SchemaMismatchError: If two columns have the same name.

    Memory: one batch at a time, in the source's sizes. A `Dataset` is scanned with little
        read-ahead; a `Scanner` reads ahead as it is configured.
    """
    opened = _open(source)
    if opened is None and callable(source):
        source = _call(source)
        opened = _open(source)
    if opened is None:
        raise _refusal(source)
    if opened.schema is not None:
        try:
            _check_names(opened.schema)
        except SchemaMismatchError:
            opened.close()
            raise
    return opened


def can_reopen(source: object) -> bool:
    """Whether opening the source a second time gives the same rows again.

    True for functions, and for objects that hold their rows: tables, batches, datasets, and lists
    and tuples of batches. Frames and relations of other libraries look like streams that can be
    read once: pass `lambda: frame`.
    """
    if isinstance(source, (pa.Table, pa.RecordBatch)) or _is_dataset(source):
        return True
    if isinstance(source, (list, tuple)):
        return all(isinstance(item, (pa.Table, pa.RecordBatch)) for item in source)
    return not _is_stream(source) and not isinstance(source, Iterable) and callable(source)


def _open(source: Any) -> ArrowSource | None:
    if isinstance(source, ArrowSource):
        return source
    if isinstance(source, pa.RecordBatch):
        return ArrowSource(source.schema, iter([source]), _nothing)
    if _is_dataset(source):
        source = source.scanner(batch_readahead=2, fragment_readahead=1)
    if isinstance(source, pa.Table) or _is_dataset(source, "Scanner"):
        source = source.to_reader()
    if isinstance(source, pa.RecordBatchReader):
        return ArrowSource(source.schema, _read_all(source), source.close)
    if _gives_batches(source):
        batches = iter(source)
        return ArrowSource(source.schema, batches, getattr(batches, "close", _nothing))
    if _is_stream(source):
        return _open_capsule(source)
    return _open_items(iter(source)) if _has_items(source) else None


def _has_items(source: object) -> bool:
    """Whether it may be an iterable of batches, unlike text, mappings, paths and frames."""
    if isinstance(source, (str, bytes, bytearray, Mapping, PathLike)) or _is_frame(source):
        return False
    return isinstance(source, Iterable)


def _is_frame(source: object) -> bool:
    return _type(source).startswith("pandas.") or hasattr(source, "collect_batches")


def _nothing() -> None:
    pass


def _read_all(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch
        del batch


def _is_stream(source: object) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


def _is_dataset(source: object, kind: str = "Dataset") -> bool:
    """Whether an object has a class of `pyarrow.dataset`, without importing that module."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(source, getattr(module, kind, ()))


def _gives_batches(source: Any) -> bool:
    """Whether iterating over it gives batches, as with our own scans: errors keep their types."""
    return (
        hasattr(source, "__arrow_c_stream__")
        and isinstance(getattr(source, "schema", None), pa.Schema)
        and isinstance(source, Iterable)
    )


def _open_capsule(source: Any) -> ArrowSource:
    try:
        if hasattr(source, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(source)
        else:
            batch = pa.record_batch(source)
            return ArrowSource(batch.schema, iter([batch]), _nothing)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"the {_type(source)} does not hold rows of named columns ({error}): pass {_ACCEPTED}"
        ) from error
    return ArrowSource(reader.schema, _read_all(reader), reader.close)


def _open_items(items: Iterator[Any]) -> ArrowSource:
    """Open an iterable: its first item has the schema."""
    close: Callable[[], None] = getattr(items, "close", _nothing)
    try:
        for first in items:
            opened = _open_item(first, 0)
            return ArrowSource(opened.schema, _chain(opened, items), close)
    except BaseException:
        close()
        raise
    return ArrowSource(None, iter(()), close)


def _chain(first: ArrowSource, items: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield from _batches(first)
    del first
    numbers = itertools.count(1)
    for item in items:
        number = next(numbers)
        if isinstance(item, pa.RecordBatch):
            yield item
        else:
            yield from _batches(_open_item(item, number))
        del item


def _batches(item: ArrowSource) -> Iterator[pa.RecordBatch]:
    """The batches of an item; an item without rows gives one empty batch with its schema."""
    assert item.schema is not None
    seen = False
    for batch in item:
        seen = True
        yield batch
        del batch
    if not seen:
        yield empty_batch(item.schema)


def _open_item(item: object, number: int) -> ArrowSource:
    if isinstance(item, (pa.RecordBatch, pa.Table)) or _is_stream(item):
        opened = _open(item)
        if opened is not None:
            return opened
    if isinstance(item, Mapping):
        raise InvalidArgumentError(
            f"item {number} of the stream is a {_type(item)}: convert rows to Arrow batches, a few "
            "thousand at a time, with pyarrow.RecordBatch.from_pylist(rows)"
        )
    raise _no_batch(item, number)


def _no_batch(item: object, number: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"item {number} of the stream is a {_type(item)}, not a pyarrow RecordBatch or Table: "
        f"pass {_ACCEPTED}"
    )


def _call(source: Callable[..., object]) -> object:
    try:
        inspect.signature(source).bind()
    except TypeError:
        raise InvalidArgumentError(
            f"{source!r} needs arguments: pass a function without arguments, such as lambda: "
            "open_it(path)"
        ) from None
    except ValueError:  # a built-in without a signature
        pass
    return source()


def _refusal(source: object) -> InvalidArgumentError:
    if isinstance(source, (str, bytes, PathLike)):
        what = "open the files first, for example with pyarrow.dataset.dataset(path)"
    elif isinstance(source, Mapping):
        what = "convert it with pyarrow.table(columns)"
    elif hasattr(source, "collect_batches"):
        what = "pass frame.collect_batches() or frame.collect()"
    elif _is_frame(source):
        what = "convert it with pyarrow.Table.from_pandas(frame, preserve_index=False)"
    else:
        what = f"pass {_ACCEPTED}"
    return InvalidArgumentError(f"a {_type(source)} is not a stream of Arrow batches: {what}")


def _type(source: object) -> str:
    kind = type(source)
    module = kind.__module__.split(".")[0]
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def _check_names(schema: pa.Schema) -> None:
    doubled = [name for name, count in Counter(schema.names).items() if count > 1]
    if doubled:
        differences = tuple(f"column {name!r} is in the stream more than once" for name in doubled)
        raise SchemaMismatchError(
            f"{'; '.join(differences)}: rename them, because columns are matched by name",
            differences=differences,
        )


def _check_same(given: pa.Schema, first: pa.Schema, number: int) -> None:
    """Refuse a batch with other columns; nullability may differ.

    Raises:
        SchemaMismatchError: If names, their order or types differ.
    """
    differences = tuple(_differences(given, first))
    if differences:
        raise SchemaMismatchError(
            f"batch {number} of the stream (from 0) has another schema than the first: "
            f"{'; '.join(differences)}: give all batches the same schema",
            differences=differences,
        )


def _differences(given: pa.Schema, first: pa.Schema) -> Iterator[str]:
    if given.names == first.names:
        for now, before in zip(given, first, strict=True):
            if _nullable(now.type) != _nullable(before.type):
                yield f"column {now.name!r} is {now.type}, and was {before.type}"
        return
    missing = [name for name in first.names if name not in given.names]
    new = [name for name in given.names if name not in first.names]
    yield from (f"column {name!r} is missing" for name in missing)
    yield from (f"column {name!r} is new" for name in new)
    if not missing and not new:
        yield f"its columns are {', '.join(given.names)}, and were {', '.join(first.names)}"


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type with all its fields nullable, for comparison."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    for is_kind, make in (
        (pa.types.is_list, pa.list_),
        (pa.types.is_large_list, pa.large_list),
        (pa.types.is_list_view, pa.list_view),
        (pa.types.is_large_list_view, pa.large_list_view),
    ):
        if is_kind(kind):
            return make(_nullable(kind.value_type))
    return kind
