"""The 32-bit Murmur3 hash (x86 variant, seed 0) of many values at once.

This is Iceberg's bucket hash. It decides which file a row goes to, so it must agree bit for bit
with every other engine. The tests check the values in appendix B of the specification.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from icestream.write.partition.stable_order import stable_order

_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_STEP = 0xE6546B64
_MASK = 0xFFFFFFFF

# With fewer values left than this, a loop over plain integers is faster than NumPy.
_FEW_VALUES = 24

Hashes = npt.NDArray[np.uint32]


def hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    """Hash integers as eight little-endian bytes."""
    words = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2)
    hashes = np.zeros(len(words), dtype=np.uint32)
    for column in (0, 1):
        _mix_block(hashes, words[:, column].astype(np.uint32))
    return _finish(hashes, np.uint32(8))


def hash_byte_strings(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Hashes:
    """Hash the byte strings `data[starts[i] : starts[i] + lengths[i]]`, for each i.

    Strings are sorted longest first and hashed together, one block at a time. Those with blocks
    left are then always at the front.

    Memory: about 40 bytes for each byte string, in addition to `data`.
    """
    order = stable_order(-lengths)
    starts, lengths = starts[order].astype(np.int64), lengths[order].astype(np.int64)
    hashes = np.zeros(len(order), dtype=np.uint32)
    _mix_whole_blocks(hashes, data, starts, lengths >> 2)
    _mix_tails(hashes, data, starts, lengths)
    _finish(hashes, lengths.astype(np.uint32))
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _mix_whole_blocks(
    hashes: Hashes,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
) -> None:
    """Mix in all whole four-byte blocks. `blocks` counts them for each string, in falling order."""
    if not len(blocks) or not blocks[0]:
        return
    # A view with a stride of one byte, to read four bytes from any position.
    words: Any = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    block = 0
    active = int(np.searchsorted(-blocks, 0, side="left"))
    while active > _FEW_VALUES:
        _mix_block(hashes[:active], words[starts[:active] + 4 * block].astype(np.uint32))
        block += 1
        active = int(np.searchsorted(-blocks[:active], -block, side="left"))
    for row in range(active):
        first = int(starts[row]) + 4 * block
        last = int(starts[row]) + 4 * int(blocks[row])
        hashes[row] = _mix_one(int(hashes[row]), data[first:last].view("<u4"))


def _mix_tails(
    hashes: Hashes,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    """Mix in the one to three bytes after the last whole block."""
    tails = lengths & 3
    rows = np.flatnonzero(tails)
    if not len(rows):
        return
    positions = starts[rows] + (lengths[rows] & ~np.int64(3))
    words = data[positions].astype(np.uint32)
    for byte in (1, 2):
        longer = tails[rows] > byte
        words[longer] |= data[positions[longer] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashes[rows] ^= _scramble(words)


def _scramble(words: Hashes) -> Hashes:
    """Scramble the bits within each word. Changes `words` in place."""
    words *= np.uint32(_C1)
    words = _rotate(words, 15)
    words *= np.uint32(_C2)
    return words


def _mix_block(hashes: Hashes, words: Hashes) -> None:
    hashes ^= _scramble(words)
    hashes[:] = _rotate(hashes, 13)
    hashes *= np.uint32(5)
    hashes += np.uint32(_STEP)


def _mix_one(state: int, words: npt.NDArray[np.uint32]) -> int:
    for word in _scramble(words.astype(np.uint32)).tolist():
        state ^= word
        state = (state << 13 | state >> 19) & _MASK
        state = (state * 5 + _STEP) & _MASK
    return state


def _rotate(words: Hashes, bits: int) -> Hashes:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finish(hashes: Hashes, lengths: Hashes | np.uint32) -> Hashes:
    """Mix in the lengths and apply the final avalanche. Changes `hashes` in place."""
    hashes ^= lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return hashes
