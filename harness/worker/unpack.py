"""Compressed bodies, unpacked up to a bound: a megabyte can be a gigabyte in disguise, and would end the worker.

kombu unpacks while it reads a message, in the worker's parent. What dies there is delivered again to the next worker.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

from kombu import compression as kombu_compression

#: Bytes. What RabbitMQ takes of a body that is not compressed, by default (`max_message_size`, 3.8 to 3.13).
LARGEST = 128 * 1024 * 1024


class TooLarge(ValueError):
    """A compressed body is larger than `LARGEST` when it is unpacked."""


def unpack(body: bytes, compression: str) -> bytes:
    """The unpacked body, by the name that the header `compression` gives to its format.

    Raises TooLarge, and whatever is wrong with the body. A decoder that the project itself has registered with kombu
    unpacks as it likes: only it can keep its own bound. What comes out of it is not carried further than `LARGEST`.
    """
    usual = kombu_compression.get_decoder(compression)
    make = _streams().get(usual)
    if make is None:
        unpacked: bytes = usual(body)
        if len(unpacked) > LARGEST:
            raise _too_large(len(body), compression)
        return unpacked
    parts: list[bytes] = []
    room = LARGEST
    while body:
        stream = make()
        part = stream.decompress(body, room + 1)
        room -= len(part)
        if room < 0:
            raise _too_large(len(body), compression)
        if not stream.eof:
            raise ValueError(f"the compressed body is cut off ({compression})")
        parts.append(part)
        # Streams may stand one after the other; zlib takes the first alone.
        body = b"" if usual is zlib.decompress else stream.unused_data
    return b"".join(parts)


def _too_large(size: int, compression: str) -> TooLarge:
    return TooLarge(f"{size} bytes are more than {LARGEST} when they are unpacked ({compression})")


def _streams() -> dict[Any, Callable[[], Any]]:
    """The incremental form of each decoder that has one."""
    known: dict[Any, Callable[[], Any]] = {
        zlib.decompress: zlib.decompressobj,
        bz2.decompress: bz2.BZ2Decompressor,
        lzma.decompress: lambda: lzma.LZMADecompressor(memlimit=LARGEST),
    }
    if (zstd := getattr(kombu_compression, "zstd", None)) is not None:
        known[zstd.decompress] = zstd.ZstdDecompressor
    if (brotli := getattr(kombu_compression, "brotli", None)) is not None:
        known[brotli.decompress] = lambda: _Brotli(brotli)
    return known


class _Brotli:
    """brotli's decompressor with the interface of the others."""

    unused_data = b""

    def __init__(self, brotli: Any) -> None:
        self._stream, self._error = brotli.Decompressor(), brotli.error

    def decompress(self, body: bytes, most: int) -> bytes:
        try:
            try:
                return bytes(self._stream.process(body, output_buffer_limit=most))
            except TypeError:
                return self._in_small_pieces(body, most)
        except self._error as error:
            raise ValueError(f"no brotli: {error}") from error

    def _in_small_pieces(self, body: bytes, most: int) -> bytes:
        """Before brotli 1.2 there is no limit: few bytes at a time, for each may stand for megabytes."""
        parts: list[bytes] = []
        for start in range(0, len(body), 8):
            parts.append(self._stream.process(body[start : start + 8]))
            most -= len(parts[-1])
            if most <= 0:
                break
        return b"".join(parts)

    @property
    def eof(self) -> bool:
        return bool(self._stream.is_finished())
