#!/usr/bin/env python3
"""Measure this library beside every TFRecord reader that is installed, in one interleaved run.

    python scripts/bench.py index|decode|read|random|write|torch|compressed|images|memory|tfds|ray|
        remote|flight|growth|all
        [--quick] [--shapes tab,img] [--rounds 7] [--peer-python tensorflow=/path/to/python]
        [--json FILE] [--plot FILE] [--most records=1000000]

Every library runs in its own process, on the same files. After one warm-up pass that is not counted, the
libraries take turns: in each round every library repeats the work until its turn is over, and the order
rotates. The tables show medians; a ratio is the median of the ratios of each round. A missed target is
marked; the exit code is 0 either way. Libraries are looked up in this interpreter; NAME=PATH gives the
interpreter of another environment for one of
tensorflow, tensorflow_datasets, tfx_bsl, dali, array_record, lineage (tfrecord 1.14.6, which shares this
library's import name), ray (this library's part of the suite ray), ray_tensorflow (Ray's own reader),
fsspec (with aiohttp and s3fs, for the suite remote).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchlib import growth, report
from benchlib.harness import PEERS, Libraries, judge, run_case
from benchlib.plan import Plan
from benchlib.suites import SUITES
from benchlib.suites_parse import sweeps
from make_corpus import MAIN_SHAPES


def _pythons(parser: argparse.ArgumentParser, values: Sequence[str]) -> dict[str, str]:
    pythons = {}
    for value in values:
        name, equals, path = value.partition("=")
        name = name.replace("-", "_")
        if not equals or name not in PEERS:
            parser.error(f"--peer-python takes NAME=PATH with a name of {', '.join(PEERS)}, not {value!r}")
        pythons[name] = path
    return pythons


def _arguments(argv: Sequence[str] | None) -> tuple[argparse.Namespace, dict[str, str], tuple[str, ...]]:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", choices=[*SUITES, "growth", "all"])
    parser.add_argument(
        "--most",
        default="",
        metavar="WHAT=N,...",
        help="largest sizes of growth (default records=10000000,features=3000,shards=10000,threads=4)",
    )
    parser.add_argument("--shapes", default=",".join(MAIN_SHAPES), help="some of %(default)s; also ids")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with this text in their title")
    parser.add_argument("--rounds", type=int, help="counted rounds (default 7; 3 with --quick)")
    parser.add_argument(
        "--at-least",
        type=float,
        metavar="SECONDS",
        help="length of each turn (default 0.3; 0.1 with --quick)",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 3 rounds")
    parser.add_argument("--scale", type=float, help="share of the records (default 1; 0.1 with --quick)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the data and the positions")
    parser.add_argument("--peers", help=f"only these of {','.join(PEERS)} (an empty value: none)")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(tempfile.gettempdir()) / "tfrecord-bench",
        help="folder that keeps the files between runs (default %(default)s; you may delete it)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round and every ratio")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also sweep the parsers and plot the results; of growth, plot it (needs matplotlib)",
    )
    parser.add_argument("--plain", action="store_true", help="plain tables even if rich is installed")
    args = parser.parse_args(argv)
    shapes = tuple(name for name in args.shapes.split(",") if name)
    names = (*MAIN_SHAPES, "ids")
    if not shapes or set(shapes) - set(names):
        parser.error(f"--shapes takes names of {', '.join(names)}, not {args.shapes!r}")
    pythons = _pythons(parser, args.peer_python)
    wanted = PEERS if args.peers is None else tuple(name for name in args.peers.split(",") if name)
    if set(wanted) - set(PEERS):
        parser.error(f"--peers takes names of {', '.join(PEERS)}, not {args.peers!r}")
    args.wanted = wanted
    args.most = _most(parser, args)
    args.scale = args.scale or (0.1 if args.quick else 1.0)
    if args.at_least is None:
        args.at_least = 0.1 if args.quick else 0.3
    args.rounds = args.rounds or (3 if args.quick else 7)
    return args, pythons, shapes


def _most(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, int]:
    """The largest size of each panel of growth."""
    sizes = {"records": 10**7, "features": 3000, "shards": 10_000, "threads": 4}
    if args.quick:
        sizes |= {"records": 10**5, "shards": 100}
    for value in filter(None, args.most.split(",")):
        name, _, size = value.partition("=")
        if name not in sizes or not size.isdecimal() or not int(size):
            parser.error(f"--most takes NAME=N with names of {', '.join(sizes)}, not {value!r}")
        sizes[name] = int(size)
    return sizes


def _growth(args: argparse.Namespace) -> int:
    """The suite of its own: this library alone, at many sizes."""
    points = list(growth.measure(args.data, args.most, args.rounds, _tell))
    _tell("")
    print("\n".join(growth.lines(points)))
    if args.json:
        args.json.write_text(
            json.dumps([point._asdict() for point in points], indent=1) + "\n", encoding="utf-8"
        )
    if args.plot:
        growth.plot(points, args.plot)
    return 0


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _swept(plan: Plan, libraries: Libraries, rounds: int, at_least: float) -> list[dict[str, Any]]:
    points = []
    for panel, x, case in sweeps(plan):
        outcomes = run_case(case, libraries, rounds, _tell, at_least=at_least)
        points.append({"panel": panel, "x": x, "case": report.case_record(case, outcomes, [])})
    return points


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested suites; returns 0 whatever the ratios are, 1 if this library does not start."""
    args, pythons, shapes = _arguments(argv)
    if args.suite == "growth":
        return _growth(args)
    libraries = Libraries(pythons)
    result: dict[str, Any] = {"machine": report.machine(), "date": time.strftime("%Y-%m-%d"), "cases": []}
    result["options"] = {
        key: getattr(args, key) for key in ("suite", "shapes", "rounds", "scale", "at_least", "seed")
    }
    plan = Plan(args.data, shapes, args.scale, args.seed)
    try:
        libraries.probe(["tfrecord", "numpy", *args.wanted])
        _tell("")
        result["versions"], result["missing"] = libraries.versions, libraries.missing
        found = [f"{report.NAMES[name]} {version}" for name, version in libraries.versions.items()]
        print(f"{result['machine']['cpu']}, {result['machine']['cpus']} CPUs; " + ", ".join(found))
        for name, reason in libraries.missing.items():
            print(f"left out: {report.NAMES[name]}: {reason}")
        print()
        if "tfrecord" in libraries.missing:
            print("nothing to measure: this library does not start", file=sys.stderr)
            return 1
        for suite in SUITES if args.suite == "all" else [args.suite]:
            for case in SUITES[suite](plan):
                if args.only not in case.title:
                    continue
                outcomes = run_case(case, libraries, args.rounds, _tell, at_least=args.at_least)
                record = report.case_record(case, outcomes, judge(case, outcomes))
                result["cases"].append(record)
                _tell("")
                report.print_table(report.case_table(record), plain=args.plain)
        report.print_table(report.target_table(result["cases"]), plain=args.plain)
        if args.plot:
            result["sweeps"] = _swept(plan, libraries, args.rounds, args.at_least)
            _tell("")
            report.plot(result["sweeps"], args.plot)
    finally:
        libraries.close()
        if args.json:
            args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
