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

    Raises TooLarge, and whatever is wrong with the body. A format that is neither zlib's, bzip2's, lzma's nor zstd's is
    left to the decoder that is registered with kombu, without a bound.
    """
    usual = kombu_compression.get_decoder(compression)
    make = _streams().get(usual)
    if make is None:
        unpacked: bytes = usual(body)
        return unpacked
    parts: list[bytes] = []
    room = LARGEST
    while body:
        stream = make()
        part = stream.decompress(body, room + 1)
        room -= len(part)
        if room < 0:
            raise TooLarge(f"{len(body)} bytes are more than {LARGEST} when they are unpacked ({compression})")
        if not stream.eof:
            raise ValueError(f"the compressed body is cut off ({compression})")
        parts.append(part)
        # Streams may stand one after the other; zlib takes the first alone.
        body = b"" if usual is zlib.decompress else stream.unused_data
    return b"".join(parts)


def _streams() -> dict[Any, Callable[[], Any]]:
    """The incremental form of each decoder that has one."""
    known: dict[Any, Callable[[], Any]] = {
        zlib.decompress: zlib.decompressobj,
        bz2.decompress: bz2.BZ2Decompressor,
        lzma.decompress: lambda: lzma.LZMADecompressor(memlimit=LARGEST),
    }
    if (zstd := getattr(kombu_compression, "zstd", None)) is not None:
        known[zstd.decompress] = zstd.ZstdDecompressor
    return known
