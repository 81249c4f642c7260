"""Compressed bodies: unpacked as kombu does, but never to more than a bound."""

import bz2
import lzma
import subprocess
import sys
import zlib

import brotli
import pytest
from kombu import compression

from harness.worker import unpack as module
from harness.worker.unpack import LARGEST, TooLarge, unpack

FORMATS = {
    "application/x-gzip": zlib.compress,
    "zlib": zlib.compress,
    "application/x-bz2": bz2.compress,
    "xz": lzma.compress,
    "brotli": brotli.compress,
}
BODY = b'[[], {"x": "' + b"y" * 5000 + b'"}, {}]'


@pytest.mark.parametrize("name", FORMATS)
def test_what_kombu_packs_is_unpacked(name: str) -> None:
    packed, kind = compression.compress(BODY, name)
    assert unpack(packed, name) == unpack(packed, kind) == BODY
    assert unpack(compression.compress(b"", name)[0], name) == b""


@pytest.mark.parametrize("name", FORMATS)
def test_the_bound_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = FORMATS[name](BODY)
    monkeypatch.setattr(module, "LARGEST", len(BODY) if "xz" not in name else 1 << 27)
    assert unpack(packed, name) == BODY
    if "xz" not in name:
        monkeypatch.setattr(module, "LARGEST", len(BODY) - 1)
        with pytest.raises(TooLarge, match=f"more than {len(BODY) - 1}"):
            unpack(packed, name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_body_that_is_cut_off(name: str) -> None:
    with pytest.raises(ValueError, match="cut off"):
        unpack(FORMATS[name](BODY)[: -6 if name != "brotli" else -2], name)


def test_a_brotli_without_limits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    make = brotli.Decompressor

    class Old:
        """As before brotli 1.2."""

        def __init__(self) -> None:
            self.usual = make()
            self.is_finished = self.usual.is_finished

        def process(self, data: bytes) -> bytes:
            found: bytes = self.usual.process(data)
            return found

    packed = brotli.compress(BODY)
    monkeypatch.setattr(brotli, "Decompressor", Old)
    assert unpack(packed, "brotli") == BODY
    with pytest.raises(ValueError, match="cut off"):
        unpack(packed[:-2], "brotli")
    monkeypatch.setattr(module, "LARGEST", len(BODY) - 1)
    with pytest.raises(TooLarge):
        unpack(packed, "brotli")


def test_a_decoder_of_the_projects_own(monkeypatch: pytest.MonkeyPatch) -> None:
    compression.register(lambda body: body, lambda body: body * 2, "application/x-twice", aliases=["twice"])
    assert unpack(b"ab", "twice") == b"abab"
    monkeypatch.setattr(module, "LARGEST", 3)
    with pytest.raises(TooLarge):
        unpack(b"ab", "twice")


def test_streams_one_after_the_other() -> None:
    assert unpack(bz2.compress(b"a") + bz2.compress(b"b"), "bzip2") == b"ab"


def test_a_format_that_nobody_knows() -> None:
    with pytest.raises(KeyError):
        unpack(b"", "application/x-rar")


@pytest.mark.parametrize("name", FORMATS)
def test_a_bomb_takes_no_more_memory_than_the_bound(name: str) -> None:
    """In a process of its own, which may have so much memory and no more."""
    code = f"""
import bz2, lzma, resource, zlib
import brotli
from harness.worker.unpack import TooLarge, unpack
zeros = bytes(1 << 20)
packer = {{"application/x-gzip": zlib.compressobj, "zlib": zlib.compressobj,
           "application/x-bz2": bz2.BZ2Compressor, "xz": lambda: lzma.LZMACompressor(preset=0),
           "brotli": lambda: brotli.Compressor(quality=1)}}[{name!r}]()
pack = getattr(packer, "compress", None) or packer.process
bomb = b"".join([*(pack(zeros) for _ in range(300)), (packer.finish if {name!r} == "brotli" else packer.flush)()])
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
try:
    unpack(bomb, {name!r})
except TooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - used)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < LARGEST * 2.5
