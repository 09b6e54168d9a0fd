"""Vectorised arithmetic on decimals of up to 38 digits, held as two 64-bit halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WORD_BITS = 32
_HALF_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Unscaled:
    """The unscaled values of a decimal array. Values at null positions are undefined.

    Attributes:
        high: The upper 64 bits, with the sign.
        low: The lower 64 bits.
    """

    high: npt.NDArray[np.int64]
    low: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, values: pa.Array) -> Unscaled:
        """The values of a decimal128 array, without a copy."""
        halves = np.frombuffer(values.buffers()[1], dtype="<u8").reshape(-1, 2)
        halves = halves[values.offset : values.offset + len(values)]
        return cls(halves[:, 1].astype(np.int64), halves[:, 0].astype(np.uint64))

    def to_arrow(self, arrow_type: pa.DataType, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
        """A decimal128 array of these values."""
        halves = np.empty((len(self.low), 2), dtype="<u8")
        halves[:, 0] = self.low
        halves[:, 1] = self.high.astype(np.uint64)
        validity = None if nulls is None else pa.array(~nulls).buffers()[1]
        return pa.Array.from_buffers(arrow_type, len(halves), [validity, pa.py_buffer(halves)])

    def floor(self, width: int) -> Unscaled:
        """Round each value down to a multiple of `width` (below 2**31)."""
        rest = self._modulo(width)
        return Unscaled(self.high - (self.low < rest), self.low - rest)

    def below(self, limit: int) -> npt.NDArray[np.bool_]:
        """Which values are smaller than `limit`."""
        high, low = np.int64(limit >> 64), np.uint64(limit & _HALF_MASK)
        smaller: npt.NDArray[np.bool_] = (self.high < high) | (
            (self.high == high) & (self.low < low)
        )
        return smaller

    def minimal_bytes(
        self,
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The shortest big-endian two's complement of each value, as data, starts and lengths."""
        rows = len(self.low)
        halves = np.empty((rows, 2), dtype=">u8")
        halves[:, 0] = self.high.astype(np.uint64)
        halves[:, 1] = self.low
        matrix = halves.view(np.uint8).reshape(rows, 16)
        # Keep the bytes that differ from the sign, and at least one sign bit above them.
        varying = matrix ^ np.where(self.high < 0, 0xFF, 0).astype(np.uint8)[:, None]
        kept = np.argmax(varying != 0, axis=1)
        leading = varying[np.arange(rows), kept]
        lengths = np.where(leading == 0, 1, 16 - kept + (leading >> 7))
        starts = np.arange(1, rows + 1, dtype=np.int64) * 16 - lengths
        return matrix.reshape(-1), starts, lengths

    def _modulo(self, width: int) -> npt.NDArray[np.uint64]:
        """The non-negative remainder of division by `width`, by long division over 32-bit words."""
        rest: Any = np.zeros(len(self.low), dtype=np.uint64)
        divisor, shift = np.uint64(width), np.uint64(_WORD_BITS)
        for half in (self.high.astype(np.uint64), self.low):
            for word in (half >> shift, half & np.uint64((1 << _WORD_BITS) - 1)):
                rest = ((rest << shift) | word) % divisor
        # The halves were read as one unsigned number, so negative values are 2**128 too large.
        surplus = np.uint64((1 << 128) % width)
        corrected: npt.NDArray[np.uint64] = np.where(
            self.high < 0, (rest + divisor - surplus) % divisor, rest
        )
        return corrected
