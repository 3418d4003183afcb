#!/usr/bin/env python3
"""Coverage-guided fuzzing of the compiled kernels, under address and undefined-behaviour sanitizers.

    python scripts/fuzz.py TARGET [--seconds 1800] [--work FOLDER] [-- LIBFUZZER-OPTIONS]
    python scripts/fuzz.py TARGET --native [--seconds 1800] [--runs 100000000] [-- LIBFUZZER-OPTIONS]

TARGET is one of ``framing``, ``example``, ``sequence``, ``index``, ``points``. Needs clang, and the packages
atheris, Cython and those that the library itself needs. The kernels are rebuilt from this checkout with
coverage instrumentation, so that libFuzzer sees the branches of the C code. Each input goes through the
kernel and through the Python reference: they must agree on values and on which inputs they refuse. (For
``points``, where Python is instrumented, each record must be right or an error.) ``scripts/fuzzing`` holds
the targets. The first disagreement, crash, leak or hang ends the run with exit code 1 and leaves the input in
the work folder. Inputs that reach new code are kept in FOLDER/corpus-TARGET; the seeds are those of
``tests/corpus``, which the tests run too.

``--native`` fuzzes the C headers of the kernels without an interpreter, which is tens of times faster:
``framing``, ``example``, ``sequence`` and ``encode``. It needs only clang. Each file states its invariants:
for example that all ways of decoding agree. At the end a sample of the inputs found goes through the kernels
and the Python reference as above.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from fuzzing import TARGETS

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ("indexer._kernel._framing", "tfrecord._kernels.decode", "tfrecord._kernels.encode")
FLAGS = (
    "-shared -fPIC -fwrapv -O1 -g -fno-omit-frame-pointer -w "
    "-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined"
).split()
# Short stacks and a small quarantine: sanitizers spend most of their time on these.
FAST = "malloc_context_size=2:quarantine_size_mb=16"


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
    environment = os.environ | {"ASAN_OPTIONS": FAST}
    code = subprocess.run([str(program), *arguments, *options], env=environment, check=False).returncode
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
        "ASAN_OPTIONS": f"allocator_may_return_null=1:detect_leaks=0:handle_abort=1:{FAST}",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")])),
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
