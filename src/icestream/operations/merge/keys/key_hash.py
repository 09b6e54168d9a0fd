"""Hashes keys of any type to numbers of fixed size.

A key of one column of up to eight bytes becomes a unique 64-bit number. Any other key becomes a
128-bit hash. The hash uses secret random multipliers, new for each merge, so that nobody can choose
keys that collide. Among a billion different keys, the probability of a collision is below 1 in
10^20. Keys that do collide are distinguished by their values (`key_values`).

0.0 equals -0.0, and NaN equals NaN. A key with a null in any of its columns equals no other key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.write.partition.stable_order import stable_order

Words = npt.NDArray[np.uint64]
Mix = Callable[[Words, Words, Words], None]
BUCKET_BITS = 8
BUCKETS = 1 << BUCKET_BITS

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of some rows.

    Attributes:
        first: The first 64 bits of each key.
        second: 64 more bits; None if the first 64 are unique for each key.
        nulls: Marks rows with a null in their key; None if there are none.
    """

    first: Words
    second: Words | None
    nulls: npt.NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.first)

    @property
    def buckets(self) -> npt.NDArray[np.int32]:
        """The bucket of each key, from 0 to `BUCKETS` - 1; equal keys have the same bucket."""
        return (self.first >> np.uint64(64 - BUCKET_BITS)).astype(np.int32)

    @classmethod
    def joined(cls, parts: Sequence[Keys]) -> Keys:
        """The keys of several batches of rows, one after the other."""
        first = np.concatenate([part.first for part in parts])
        second = [part.second for part in parts if part.second is not None]
        nulls = None
        if any(part.nulls is not None for part in parts):
            none = (np.zeros(len(p), np.bool_) if p.nulls is None else p.nulls for p in parts)
            nulls = np.concatenate(list(none))
        return cls(first, np.concatenate(second) if second else None, nulls)

    def where(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Keys:
        """Some of the keys."""
        return Keys(
            self.first[chosen],
            None if self.second is None else self.second[chosen],
            None if self.nulls is None else self.nulls[chosen],
        )


class KeyHash:
    """Converts key columns to `Keys`. Both sides of a merge, and all workers, use the same object.

    It mixes in one word of eight bytes after the other. Each time it combines the hash with the
    word, multiplies it by a secret number to 128 bits, and folds both halves together. The two
    hashes of a key have different secrets.
    """

    def __init__(self) -> None:
        secrets = np.frombuffer(os.urandom(32), np.uint64)
        self._seed1, self._seed2 = secrets[0], secrets[1]
        self._secret1, self._secret2 = secrets[2] | np.uint64(1), secrets[3] | np.uint64(1)

    def __call__(self, columns: Sequence[pa.Array]) -> Keys:
        """The keys of rows, from columns of the table's types."""
        nulls = None
        for column in columns:
            if column.null_count:
                missing = column.is_null().to_numpy(zero_copy_only=False)
                nulls = missing if nulls is None else nulls | missing
        parts = [_Part(column) for column in columns]
        if len(parts) == 1 and (words := parts[0].word()) is not None:
            return Keys(self._permuted(words), None, nulls)
        rows = len(columns[0])
        first, second = np.full(rows, self._seed1), np.full(rows, self._seed2)
        for part in parts:
            part.mix_into(first, second, self._mix)
        return Keys(_spread(first), _spread(second), nulls)

    def _permuted(self, words: Words) -> Words:
        """A permutation of words by the secrets: different words stay different."""
        words = (words ^ self._seed1) * self._secret1
        words ^= words >> _HALF
        words *= self._secret2
        return _spread(words ^ self._seed2)

    def _mix(self, first: Words, second: Words, words: Words) -> None:
        """Mix a word into both hashes."""
        for hashes, secret in ((first, self._secret1), (second, self._secret2)):
            hashes ^= words
            hashes[:] = _folded(hashes, secret)
            hashes += words  # A product of zero would otherwise erase the earlier words.


def key_values(columns: Sequence[pa.Array]) -> pa.Array:
    """Keys as byte strings that are equal if and only if the keys are; null keys are undefined.

    They distinguish different keys that have the same hash.
    """
    parts = [_Part(column).values() for column in columns]
    if len(parts) == 1:
        return parts[0]
    framed = []
    for part in parts:
        lengths = pc.binary_length(part).cast(pa.int64())
        framed += [_as_bytes(_plain(lengths)), pc.fill_null(part, b"")]
    return pc.binary_join_element_wise(*framed, pa.scalar(b"", pa.large_binary()))


def _as_bytes(words: npt.NDArray[Any]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(words))
    fixed = pa.Array.from_buffers(pa.binary(_WORD_BYTES), len(words), [None, data])
    return fixed.cast(pa.binary()).cast(pa.large_binary())


class _Part:
    """One column of a key."""

    def __init__(self, column: pa.Array) -> None:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
            text = pa.types.is_string_view(column.type)
            column = column.cast(pa.large_string() if text else pa.large_binary())
        self._column = column

    def word(self) -> Words | None:
        """The values as one word each; None if they may be longer than a word."""
        column, kind = self._column, self._column.type
        if pa.types.is_boolean(kind):
            return _as_word(_plain(column.cast(pa.uint8())))
        if pa.types.is_floating(kind):
            # Adding zero turns -0.0 into 0.0; every NaN becomes the same one.
            with np.errstate(invalid="ignore"):
                values: npt.NDArray[np.float64] = _plain(column.cast(pa.float64())) + 0.0
            values[np.isnan(values)] = np.nan
            return values.view(np.uint64)
        if pa.types.is_integer(kind):
            return _as_word(_plain(column))
        if pa.types.is_temporal(kind):
            bits = pa.int64() if kind.bit_width == 64 else pa.int32()
            return _as_word(_plain(column.view(bits)))
        return None

    def values(self) -> pa.Array:
        """The values as byte strings."""
        words = self.word()
        if words is not None:
            return _as_bytes(words)
        kind = self._column.type
        if pa.types.is_decimal(kind):
            return (
                self._column.view(pa.binary(kind.byte_width))
                .cast(pa.binary())
                .cast(pa.large_binary())
            )
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_string(kind):
            return self._column.cast(pa.binary()).cast(pa.large_binary())
        return self._column.cast(pa.large_binary())

    def mix_into(self, first: Words, second: Words, mix: Mix) -> None:
        """Mix the values into the hashes."""
        words = self.word()
        if words is not None:
            mix(first, second, words)
        elif pa.types.is_decimal(self._column.type) or pa.types.is_fixed_size_binary(
            self._column.type
        ):
            width = self._column.type.byte_width
            starts = np.arange(len(self._column), dtype=np.int64) + self._column.offset
            data = np.frombuffer(self._column.buffers()[1] or b"", np.uint8)
            lengths = np.full(len(starts), width)
            _mix_bytes(first, second, data, starts * width, lengths, mix)
        else:
            self._mix_variable(first, second, mix)

    def _mix_variable(self, first: Words, second: Words, mix: Mix) -> None:
        column = self._column
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        offset_type = np.int64 if large else np.int32
        _, offset_buffer, data_buffer = column.buffers()
        count = len(column)
        if offset_buffer is None:
            offsets = np.zeros(count + 1, np.int64)
        else:
            offsets = np.frombuffer(offset_buffer, offset_type)[
                column.offset : column.offset + count + 1
            ].astype(np.int64)
        data = np.frombuffer(data_buffer or b"", np.uint8)
        _mix_bytes(first, second, data, offsets[:-1], np.diff(offsets), mix)


def _plain(column: pa.Array) -> Any:
    """The values, with zero in place of nulls."""
    if column.null_count:
        column = pc.fill_null(column, 0)
    return column.to_numpy()


def _as_word(values: npt.NDArray[Any]) -> Words:
    words: Words = values.astype(np.int64).view(np.uint64)
    return words


def _mix_bytes(
    first: Words,
    second: Words,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    mix: Mix,
) -> None:
    """Mix in byte strings, eight bytes at a time, the longest first; then their lengths."""
    if len(starts):
        low, high = int(starts.min()), int((starts + lengths).max())
        padded = np.zeros(high - low + _WORD_BYTES, np.uint8)
        padded[: high - low] = data[low:high]
        words: Words = np.ndarray(
            (len(padded) - _WORD_BYTES + 1,), dtype="<u8", buffer=padded, strides=(1,)
        )
        if int(lengths.min()) == int(lengths.max()):
            _mix_blocks(first, second, words, starts - low, lengths.copy(), mix)
        else:
            order = stable_order(-lengths)
            mixed1, mixed2 = first[order], second[order]
            _mix_blocks(mixed1, mixed2, words, starts[order] - low, lengths[order], mix)
            first[order], second[order] = mixed1, mixed2
    mix(first, second, lengths.astype(np.uint64))


def _mix_blocks(
    first: Words,
    second: Words,
    words: Words,
    starts: npt.NDArray[np.int64],
    left: npt.NDArray[np.int64],
    mix: Mix,
) -> None:
    """Mix in eight bytes at a time, in place. Strings must be sorted by `left`, descending."""
    active = int(np.count_nonzero(left > 0))
    while active:
        starts, left = starts[:active], left[:active]
        block = words[starts]
        if left[-1] < _WORD_BYTES:
            partial = left < _WORD_BYTES
            bits = (left[partial] * 8).astype(np.uint64)
            block[partial] &= (np.uint64(1) << bits) - np.uint64(1)
        mix(first[:active], second[:active], block)
        starts += _WORD_BYTES
        left -= _WORD_BYTES
        active = int(np.count_nonzero(left > 0))


def _folded(words: Words, secret: np.uint64) -> Words:
    """The two halves of the 128-bit products, combined by exclusive or."""
    low1, high1 = words & _LOW, words >> _HALF
    low2, high2 = secret & _LOW, secret >> _HALF
    carry = low1 * low2
    carry >>= _HALF
    carry += high1 * low2
    low1 *= high2
    low1 += carry & _LOW
    carry >>= _HALF
    low1 >>= _HALF
    high1 *= high2
    high1 += carry
    high1 += low1
    high1 ^= words * secret
    return high1


def _spread(words: Words) -> Words:
    """Let every bit affect all bits; different words stay different."""
    words = words ^ (words >> np.uint64(30))
    words *= _MIX1
    words ^= words >> np.uint64(27)
    words *= _MIX2
    words ^= words >> np.uint64(31)
    return words
