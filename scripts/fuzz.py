#!/usr/bin/env python3
"""Coverage-guided fuzzing of the compiled kernels, under address and undefined-behaviour sanitizers.

    python scripts/fuzz.py TARGET [--seconds 1800] [--work FOLDER] [-- LIBFUZZER-OPTIONS]
    python scripts/fuzz.py TARGET --native [--seconds 1800] [--runs 100000000] [-- LIBFUZZER-OPTIONS]

TARGET is one of ``framing``, ``example``, ``sequence``, ``index``, ``points``. Needs clang, and the packages
atheris, Cython and those that the library itself needs. The kernels are rebuilt from this checkout with
coverage instrumentation, so that libFuzzer sees the branches of the C code. Each input goes through the
kernel and through the Python reference: they must agree on values and on which inputs they refuse. (For
``points``, where Python is instrumented, each record must be right or an error.) The first disagreement,
crash, leak or hang ends the run with exit code 1 and leaves the input in the work folder. Inputs that reach
new code are kept in FOLDER/corpus-TARGET; the seeds are those of ``tests/corpus``, which the tests run too.

``--native`` fuzzes the C headers of the kernels without an interpreter (``scripts/fuzzing``), which is
tens of times faster: ``framing``, ``example``, ``sequence`` and ``encode``. It needs only clang. Each file
states its invariants: for example that all ways of decoding agree. At the end a sample of the inputs found
goes through the kernels and the Python reference as above.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("indexer._kernel._framing", "tfrecord._kernels.decode", "tfrecord._kernels.encode")
FLAGS = (
    "-shared -fPIC -fwrapv -O1 -g -fno-omit-frame-pointer -w "
    "-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined"
).split()


# ---- targets: what must hold for any bytes -----------------------------------------------------------


def same(what: str, native: Any, reference: Any) -> None:
    if native != reference:
        raise AssertionError(f"{what} differ:\n  kernel    {native!r}\n  reference {reference!r}")


def values_of(kind: int, values: Any, buffers: tuple[bytes, ...]) -> Any:
    if kind == 1:
        parts = (part.tolist() for part in values[:2])
        return [buffers[0][start : start + size] for start, size in zip(*parts, strict=True)]
    return None if values is None else values.tobytes()


def decoded(decoder: Any, buffers: tuple[bytes, ...], threads: int) -> Any:
    """The columns of a batch in comparable form, or None if it is refused."""
    import numpy as np

    # In one buffer with more data after them, as in a file, the kernel may read ahead.
    lengths = np.array([len(buffer) for buffer in buffers], np.int64)
    whole = (b"".join(buffers) + bytes(100),)
    failure, *found = decoder.decode(whole, np.cumsum(lengths) - lengths, lengths, None, threads)
    if failure is not None:
        return None
    result = []
    for present, columns in filter(None, found):
        for flags, (key, kind, *arrays, values) in zip(present.tolist(), columns, strict=True):
            tables = [None if array is None else array.tolist() for array in arrays]
            result.append((key, kind, flags, tables, values_of(kind, values, whole)))
    return result


def check_messages(data: bytes, lists: bool) -> None:
    """The first byte says which columns to decode, the second where to split the rest into two records."""
    import numpy as np

    from tfrecord._kernels import decode, decode_reference

    if len(data) < 2:
        return
    cut = data[1] * (len(data) - 2) // 255
    first, second = data[2 : 2 + cut], data[2 + cut :]
    some = (("a", 3, None, None), ("b", 2, (), b"\0\0\0\0"), ("cc", 0, None, None), ("", 1, None, None))
    more = (("a", 3, (2,), None), ("key_of_more_than_sixteen_bytes", 1, (), None))
    columns = (None, some, more, some[:1])[data[0] & 3]
    level = min(data[0] >> 2 & 3, decode.BEST_LEVEL)
    request = (columns, columns if lists else False)
    decoder, oracle = decode.Decoder(*request, simd=level), decode_reference.Decoder(*request)
    batch = (first, second, second, second, first, first) if data[0] & 16 else (first, second)
    same("columns", decoded(decoder, batch, 1), decoded(oracle, batch, 1))
    native, reference = decoder.record(second), oracle.record(second)
    same("refusals of one record", native[0] is None, reference[0] is None)
    if native[0] is None:
        for own, others in zip(native[1:], reference[1:], strict=True):
            same("records", repr(own), repr(others))
    together = [native[1]] * 3 if native[0] is None and not lists else []
    same("records together", repr(decoder.records((second,) * 3)), repr(together))
    same("kinds", decode.record_class(second), decode_reference.record_class(second))
    lengths = np.array([len(record) for record in batch], np.int64)
    places = (b"".join(batch),), np.cumsum(lengths) - lengths, lengths
    same("checks", decode.check_records(*places).tolist(), decode_reference.check_records(*places).tolist())


def check_example(data: bytes) -> None:
    check_messages(data, False)


def check_sequence(data: bytes) -> None:
    check_messages(data, True)


def check_framing(data: bytes) -> None:
    """The first byte says how to scan, and whether the rest is frames as it is or the payloads to make them
    of."""
    from indexer import framing

    if not data:
        return
    mode, rest = data[0], data[1:]
    if (
        mode & 1
    ):  # payloads of up to 63 bytes; a length byte above that damages a byte of what is there so far
        made = bytearray()
        while rest:
            size, rest = rest[0], rest[1:]
            if size < 64:
                made += framing.frame_record(rest[:size])
                rest = rest[size:]
            elif made:
                made[(size * 7919) % len(made)] ^= size
        rest = bytes(made)
    options = {"verify": (mode >> 1) % 3, "final": bool(mode & 16), "num_threads": 1 + (mode >> 5)}
    kernel = framing._kernel
    native = framing.scan(rest, **options)
    checked = framing.check_frames(
        rest, native.offsets, native.lengths + (mode >> 7), verify=options["verify"]
    )
    framing._kernel = None
    try:
        reference = framing.scan(rest, **options)
        again = framing.check_frames(
            rest, native.offsets, native.lengths + (mode >> 7), verify=options["verify"]
        )
    finally:
        framing._kernel = kernel
    same(
        "scans", [str(part) for part in map(list_of, native)], [str(part) for part in map(list_of, reference)]
    )
    same("checks of frames", checked, again)


def list_of(part: Any) -> Any:
    return part.tolist() if hasattr(part, "tolist") else part


def check_index(data: bytes) -> None:
    """An index file for a data file of five records; an extended one gets the checksum that its header
    needs."""
    import numpy as np

    from indexer import formats, framing
    from indexer.errors import IndexFileError

    if not data:
        return
    payloads = [b"", b"one", b"four", bytes(40), b"last"]
    stored = b"".join(map(framing.frame_record, payloads))
    mode, content = data[0], data[1:]
    if mode & 1 and len(content) >= 24:
        length = min(struct.unpack("<I", content[12:16])[0], len(content) - 24)
        header = content[24 : 24 + length]
        fixed = (formats.MAGIC, 1, length, framing.crc32c(header), 0)
        content = struct.pack("<8s4I", *fixed) + content[24:]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        data_path, index_path = os.path.join(folder, "d"), os.path.join(folder, "i")
        Path(data_path).write_bytes(stored)
        Path(index_path).write_bytes(content)
        try:
            index = formats.load_index(index_path, data_path)
        except IndexFileError as error:
            assert error.index_path == index_path and error.path == data_path
            return
        end = index.offsets[-1] + index.lengths[-1] + np.uint64(framing.FRAME_OVERHEAD) if len(index) else 0
        assert int(end) == len(stored), "an index that does not end where its file ends was accepted"
        if not framing.check_frames(stored, np.asarray(index.offsets), np.asarray(index.lengths)):
            for position, offset in enumerate(index.offsets.tolist()):
                framing.slices(
                    stored, index.offsets[position : position + 1], index.lengths[position : position + 1]
                )
                assert offset < len(stored)


@functools.cache
def packed_records() -> tuple[list[bytes], bytes, Any]:
    """Records, a gzip file of two members that holds them, and its index, with many points."""
    import gzip
    import random

    from indexer import scanning
    from indexer.datafile import BytesFile
    from indexer.framing import frame_record

    rng = random.Random(1)
    words = [rng.randbytes(rng.randrange(2, 9)) for _ in range(60)]
    # All of different lengths, so that none can be taken for another.
    content = b"".join(rng.choices(words, k=20_000))
    records = [content[at * 1000 :][:size] for at, size in enumerate(rng.sample(range(1200), 60))]
    data = b"".join(map(frame_record, records))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = [
        packer.compress(data[at : at + 4000]) + packer.flush(zlib.Z_SYNC_FLUSH)
        for at in range(0, 20_000, 4000)
    ]
    stored = b"".join(parts) + packer.flush() + gzip.compress(data[20_000:], mtime=0)
    spacing, scanning.PointBuilder = scanning.PointBuilder, _closer(scanning.PointBuilder)
    try:
        index = scanning.scan_index(BytesFile("packed", memoryview(stored)), points=True)
    finally:
        scanning.PointBuilder = spacing
    return records, stored, index


def _closer(builder: Any) -> Any:
    """A builder of points that are close together."""

    def make(size: int) -> Any:
        made = builder(size)
        made._spacing = 3000
        return made

    return make


def check_points(data: bytes) -> None:
    """A points section, or changes of a good one or of the data: every record is right, or an error."""
    import numpy as np

    from indexer.datafile import BytesFile
    from indexer.errors import TFRecordError
    from indexer.framing import crc32c
    from indexer.points import Points
    from tfrecord._reading.damage import DamagePolicy
    from tfrecord._reading.fetching import fetch_record, start_fetch
    from tfrecord._reading.pointed import PointedFile

    records, stored, index = packed_records()
    if not data:
        return
    mode, content = data[0], data[1:]
    section, changed = bytearray(index.points.stored), bytearray(stored)
    if mode & 1:  # the rest is a section
        section = bytearray(content)
    else:  # triples: where, and what
        target = changed if mode & 2 else section
        for at in range(0, len(content) - 2, 3):
            target[int.from_bytes(content[at : at + 2], "little") % len(target)] = content[at + 2]
    if mode & 4 and len(section) >= 16:  # with the checksum that its table needs
        count = min(struct.unpack_from("<Q", section, 8)[0], (len(section) - 16) // 24)
        section[4:8] = struct.pack("<I", crc32c(bytes(section[16 : 16 + 24 * count])))
    points = Points(bytes(section), index.file_size, index.stream_size)
    file = PointedFile(BytesFile("packed", memoryview(bytes(changed))), index.replace(points=points), None, 1)
    order = [(place * 37 + mode) % len(records) for place in range(len(records))]
    for record in order[:: 1 + mode % 7]:
        try:
            assert fetch_record(file, index, record, 0 if mode & 8 else 2) == records[record]
        except TFRecordError:
            pass
    errors: list[Any] = []
    try:
        found = start_fetch(file, index, np.array(order), 2, DamagePolicy(errors.append))()
    except TFRecordError:
        return
    assert len(found.bad) == len(errors)
    for row in set(range(len(order))) - set(found.bad):
        start, length = int(found.starts[row]), int(found.lengths[row])
        assert bytes(found.buffers[0][start : start + length]) == records[order[row]]


TARGETS: dict[str, Callable[[bytes], None]] = {
    "framing": check_framing,
    "example": check_example,
    "sequence": check_sequence,
    "index": check_index,
    "points": check_points,
}


# ---- without an interpreter ----------------------------------------------------------------------------

NATIVE = {
    "framing": ("framing.c",),
    "example": ("messages.c",),
    "sequence": ("messages.c", "-DLISTS"),
    "encode": ("encode.c",),
}
NATIVE_FLAGS = "-O2 -g -w -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined".split()
SAMPLE = 1000


def run_native(target: str, seconds: int, runs: int | None, work: Path, options: list[str]) -> int:
    """Build and run one of `NATIVE`, and run a sample of the inputs that it found on both engines."""
    corpus, seeds = work / f"corpus-{target}", ROOT / "tests" / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    source, *defines = NATIVE[target]
    program = work / f"native-{target}"
    build = ["clang", *NATIVE_FLAGS, *defines, str(ROOT / "scripts" / "fuzzing" / source), "-o", str(program)]
    subprocess.run(build, check=True)
    arguments = [str(corpus), *([str(seeds)] if seeds.is_dir() else []), "-max_len=256", "-timeout=20"]
    arguments.append(f"-max_total_time={seconds}" if runs is None else f"-runs={runs}")
    arguments += ["-print_final_stats=1", f"-artifact_prefix={work}/"]
    fast = os.environ | {"ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=16"}
    code = subprocess.run([str(program), *arguments, *options], env=fast, check=False).returncode
    if code or target not in TARGETS:
        return code
    sys.path.insert(0, str(ROOT))
    found = sorted(corpus.iterdir())
    sample = found[:: max(1, len(found) // SAMPLE)]
    for path in sample:
        TARGETS[target](path.read_bytes())
    print(f"{target}: kernels and reference agree on {len(sample)} of {len(found)} inputs")
    return 0


# ---- building and running ----------------------------------------------------------------------------


def build(folder: Path) -> None:
    """Build the packages with instrumented kernels in a separate folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for package in ("indexer", "tfrecord"):
        ignore = shutil.ignore_patterns("*.so", "_*.c", "build", "__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignore)
    include = sysconfig.get_paths()["include"]
    for name in KERNELS:
        source = folder / (name.replace(".", "/") + ".pyx")
        subprocess.run([sys.executable, "-m", "cython", "-3", str(source)], check=True, cwd=folder)
        out = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
        command = ["clang", *FLAGS, f"-I{include}", str(source.with_suffix(".c")), "-o", str(out)]
        subprocess.run(command, check=True, cwd=folder)


def run(target: str, seconds: int, work: Path, options: list[str]) -> int:
    """Start over, with the sanitizer's runtime loaded first, in a process that fuzzes."""
    import atheris

    packages, corpus, seeds = work / "packages", work / f"corpus-{target}", ROOT / "tests" / "corpus" / target
    build(packages)
    corpus.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "LD_PRELOAD": str(Path(atheris.path()) / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0:handle_abort=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(packages),
        "TFRECORD_ENGINE": "native",
        "TFRECORD_FUZZ_CHILD": target,
    }
    arguments = [str(corpus), *([str(seeds)] if seeds.is_dir() else [])]
    arguments += [
        f"-max_total_time={seconds}",
        "-timeout=20",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={work}/",
    ]
    command = [sys.executable, __file__, *arguments, *options]
    return subprocess.run(command, env=environment, check=False).returncode


def child(target: str) -> None:
    import atheris

    check = TARGETS[target]
    if target == "points":  # the code in question is Python's
        with atheris.instrument_imports(
            include=["indexer", "tfrecord._reading"], enable_loader_override=False
        ):
            check(b"\0")
    atheris.Setup(sys.argv, lambda data: check(bytes(data)))
    atheris.Fuzz()


def main() -> int:
    if target := os.environ.get("TFRECORD_FUZZ_CHILD"):
        child(target)
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=[*TARGETS, "encode"])
    parser.add_argument("--native", action="store_true", help="the C headers alone, without an interpreter")
    parser.add_argument("--runs", type=int, help="with --native: number of inputs, instead of --seconds")
    parser.add_argument("--seconds", type=int, default=1800, help="how long (default 1800)")
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "fuzz", help="folder of builds and corpora"
    )
    parser.add_argument("options", nargs="*", help="options of libFuzzer, behind --")
    arguments = parser.parse_intermixed_args()
    target, work = arguments.target, arguments.work.resolve()
    if target not in (NATIVE if arguments.native else TARGETS):
        parser.error(
            f"no such target: {target} is fuzzed {'without' if arguments.native else 'with'} --native"
        )
    if arguments.runs is not None and not arguments.native:
        parser.error("--runs needs --native")
    if arguments.native:
        code = run_native(target, arguments.seconds, arguments.runs, work, arguments.options)
    else:
        code = run(target, arguments.seconds, work, arguments.options)
    print(f"{arguments.target}: {'nothing found' if code == 0 else f'FAILED ({code})'}")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
