"""The benchmark's corpus, harness, tables and JSON. How fast anything is, is not tested."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfrecord
from indexer import framing
from tfrecord import example_pb2

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
if not (SCRIPTS / "bench.py").exists():
    pytest.skip("the scripts are not here", allow_module_level=True)
sys.path.insert(0, str(SCRIPTS))

import bench  # noqa: E402
import make_corpus  # noqa: E402
from benchlib import growth, report  # noqa: E402
from benchlib.common import draws, read_payloads  # noqa: E402
from benchlib.harness import (  # noqa: E402
    Case,
    Contender,
    Libraries,
    Outcome,
    Target,
    Worker,
    WorkerError,
    judge,
    ratios,
    run_case,
)
from benchlib.plan import Plan  # noqa: E402
from benchlib.suites import SUITES  # noqa: E402
from benchlib.suites_parse import sweeps  # noqa: E402

pytestmark = pytest.mark.one_run


@pytest.mark.parametrize("name", [*make_corpus.MAIN_SHAPES, "wide"])
def test_corpus_is_what_its_shape_says(tmp_path: Path, name: str) -> None:
    shape = make_corpus.SHAPES[name].scaled(0.001)
    path = make_corpus.corpus_file(tmp_path, shape)
    scan = framing.scan(path.read_bytes())
    assert scan.reason is None
    payloads = read_payloads(str(path))
    assert len(payloads) == len(scan.offsets) == shape.records
    for payload in payloads[:5]:
        features = example_pb2.Example.FromString(payload).features.feature
        assert set(features) == {column.name for column in shape.columns}
        for column in shape.columns:
            field = {"bytes": "bytes_list", "float": "float_list", "int": "int64_list"}[column.kind]
            assert features[column.name].WhichOneof("kind") == field
            values = getattr(features[column.name], field).value
            assert len(values) == column.length
            if column.kind == "int":
                assert all(column.low <= value < column.high for value in values)
            if column.kind == "bytes":
                assert all(column.low <= len(value) < column.high for value in values)


def test_corpus_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    shape = make_corpus.SHAPES["tab"].scaled(0.001)
    one, two, other = (list(make_corpus.payloads(shape, seed)) for seed in (1, 1, 2))
    assert one == two != other
    path = make_corpus.corpus_file(tmp_path, shape, 1)
    stamp = path.stat().st_mtime_ns
    assert make_corpus.corpus_file(tmp_path, shape, 1) == path
    assert path.stat().st_mtime_ns == stamp
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_varint_rows_matches_one_at_a_time() -> None:
    values = np.array([[0, 127, 128], [2**14 - 1, 2**14, 2**35], [1, 2**62, 2**63 - 1]], np.int64)
    expected = [b"".join(make_corpus.varint(int(value)) for value in row) for row in values]
    assert make_corpus.varint_rows(values) == expected


def test_many_files_hold_one_number_each(tmp_path: Path) -> None:
    folder = make_corpus.many_files(tmp_path, 12)
    files = sorted(folder.iterdir())
    assert len(files) == 12
    for number, path in enumerate(files):
        (payload,) = read_payloads(str(path))
        example = example_pb2.Example.FromString(payload)
        assert list(example.features.feature["number"].int64_list.value) == [number]


def test_corpus_command(tmp_path: Path) -> None:
    lines: list[str] = []
    assert (
        make_corpus.main(["--out", str(tmp_path), "--shapes", "small", "--scale", "0.0002"], lines.append)
        == 0
    )
    (made,) = map(json.loads, lines)
    assert made["records"] == 100
    assert Path(made["path"]).stat().st_size == made["bytes"]
    with pytest.raises(SystemExit) as stopped:
        make_corpus.main(["--out", str(tmp_path), "--shapes", "nothing"], lines.append)
    assert stopped.value.code == 2


def test_draws_are_the_same_for_everyone() -> None:
    spec = {"records": 10, "take": 4, "draws": 3, "seed": 5}
    assert draws(spec) == draws(dict(spec))
    assert [len(some) for some in draws(spec)] == [4, 4, 4]
    assert all(0 <= i < 10 for some in draws(spec) for i in some)


def test_ratio_is_taken_round_by_round_against_the_best() -> None:
    assert ratios([1.0, 2.0], [[4.0, 4.0], [3.0, 10.0]]) == [3.0, 2.0]
    assert ratios([1.0], []) == []


def _case(*targets: Target) -> Case:
    contenders = tuple(Contender(key, key, "numpy", "sum", {}) for key in ("a", "b", "c"))
    return Case("suite", "shape", "title", contenders, targets)


def _outcomes(case: Case, **costs: list[float]) -> list[Outcome]:
    return [Outcome(c, cost=costs[c.key], records=7) for c in case.contenders if c.key in costs]


@pytest.mark.parametrize(
    ("target", "ratio", "met"),
    [
        (Target("fast", "a", ("b", "c"), 2.0), 2.0, True),
        (Target("fast", "a", ("b", "c"), 2.5), 2.0, False),
        (Target("cheap", "a", ("b",), 0.5, at_most=True), 0.25, True),
        (Target("cheap", "b", ("a",), 2.0, at_most=True), 4.0, False),
        (Target("count", "a", (), 7, measure="records"), 7.0, True),
        (Target("count", "a", (), 8, measure="records"), 7.0, False),
        (Target("gone", "a", ("nobody",), 2.0), None, None),
        (Target("memory", "a", ("b",), 2.0, measure="rss"), None, None),
    ],
)
def test_targets_are_judged(target: Target, ratio: float | None, met: bool | None) -> None:
    case = _case(target)
    (verdict,) = judge(case, _outcomes(case, a=[1.0, 1.0, 1.0], b=[4.0, 4.0, 4.0], c=[2.0, 9.0, 2.0]))
    assert (verdict.ratio, verdict.met) == (ratio, met)


def test_failed_contender_is_shown_and_leaves_no_verdict() -> None:
    case = _case(Target("fast", "a", ("b",), 2.0))
    outcomes = _outcomes(case, a=[1.0], b=[3.0])
    outcomes[1].error = "OSError: no"
    record = report.case_record(case, outcomes, judge(case, outcomes))
    assert record["targets"][0]["met"] is None
    _, heads, rows = report.case_table(record)
    assert [len(row) for row in rows] == [len(heads)] * 2
    assert rows[1][2:] == ["failed", "", "OSError: no"]
    assert report.target_table([record])[2][0][-1] == "not measured"


def test_workers_run_in_turns_and_survive_an_error(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(struct.pack("<4Q", 1, 2, 3, 4))
    spec = {"path": str(path), "bytes": 32, "records": 4, "source": "map"}
    case = Case(
        "suite",
        "shape",
        "title",
        (
            Contender(
                "missing", "a file that is not there", "numpy", "sum", spec | {"path": str(tmp_path / "no")}
            ),
            Contender("good", "sum", "numpy", "sum", spec | {"source": "memory"}),
            Contender("fresh", "sum in a new process", "numpy", "sum", spec, fresh=True),
            Contender("other", "not installed", "tensorflow", "sum", spec),
        ),
    )
    libraries = Libraries({})
    try:
        libraries.probe(["numpy", "lineage"])
        outcomes = run_case(case, libraries, 2)
    finally:
        libraries.close()
    assert libraries.versions == {"numpy": np.__version__}
    assert set(libraries.missing) == {"lineage"}
    by_key = {outcome.contender.key: outcome for outcome in outcomes}
    assert list(by_key) == ["missing", "good", "fresh"]
    assert by_key["missing"].error.startswith("FileNotFoundError")
    for key in ("good", "fresh"):
        assert (by_key[key].error, by_key[key].records, len(by_key[key].cost)) == ("", 4, 2)


def test_worker_that_cannot_start_says_why() -> None:
    worker = Worker(sys.executable, "no_such_library", one_cpu=False)
    try:
        with pytest.raises(WorkerError) as raised:
            worker.ask(do="hello")
    finally:
        worker.close()
    assert "no_such_library" in str(raised.value)


def test_every_suite_names_its_contenders_and_targets(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.flight")
    pytest.importorskip("PIL")
    plan = Plan(tmp_path, make_corpus.MAIN_SHAPES, 0.0001)
    for suite, cases_of in SUITES.items():
        cases = list(cases_of(plan))
        assert cases
        for case in cases:
            keys = [contender.key for contender in case.contenders]
            assert case.suite == suite
            assert len(set(keys)) == len(keys)
            for target in case.targets:
                assert {target.subject, *target.against} <= set(keys)
    assert len({panel for panel, _, _ in sweeps(plan)}) == 3  # one for each panel of the plot


@pytest.mark.parametrize("suite", list(SUITES))
def test_bench_runs_and_writes_json(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    if suite in ("torch", "images"):
        pytest.importorskip("torch")
    if suite == "images":
        pytest.importorskip("PIL")
    if suite == "flight":
        pytest.importorskip("pyarrow.flight")
    if suite == "remote":
        pytest.importorskip("obstore")
        pytest.importorskip("aiohttp")
    options = "--peers= --scale 0.0005 --rounds 1 --at-least 0 --plain --shapes tab,img".split()
    options += ["--only", "epoch"] if suite == "torch" else []  # no file system needs to have a cold cache
    assert bench.main([suite, *options, "--data", str(tmp_path / "data"), "--json", str(out)]) == 0
    result: dict[str, Any] = json.loads(out.read_text())
    assert result["versions"]["tfrecord"].endswith(f"({tfrecord.engine})")
    assert result["machine"]["cpus"] >= 1
    printed = capsys.readouterr().out
    for case in result["cases"]:
        assert case["suite"] == suite
        assert f"{suite}: {case['shape']}, {case['title']}" in printed
        assert case["rows"] or suite == "ray"  # without Ray only the case with our splits has rows
        for row in case["rows"]:
            assert (row["error"], len(row["seconds_per_record"])) == (None, 1), row
            assert row["records"] > 0
    assert "targets (medians" in printed and any(case["rows"] for case in result["cases"])


def test_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    case = _case()
    record = report.case_record(case, _outcomes(case, a=[1.0], b=[2.0]), [])
    points = [{"panel": panel, "x": x, "case": record} for panel in ("size", "width") for x in (1, 10)]
    report.plot(points, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong", [["--shapes", "no"], ["--peers", "no"], ["--peer-python", "no=x"], ["--peer-python", "dali"]]
)
def test_wrong_options_are_usage_errors(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(["index", *wrong])
    assert stopped.value.code == 2


def test_growth_is_measured_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    sizes = "records=100,features=10,shards=10,threads=2"
    out, picture = tmp_path / "out.json", tmp_path / "growth.png"
    options = ["--most", sizes, "--rounds", "1", "--data", str(tmp_path / "data"), "--json", str(out)]
    assert bench.main(["growth", *options, "--plot", str(picture)]) == 0
    points = json.loads(out.read_text())
    assert {point["panel"]: point["size"] for point in points} == {
        "records": 100,
        "features": 10,
        "shards": 10,
        "threads": 2,
    }
    assert all(point["seconds"] > 0 and point["units"] > 0 for point in points)
    assert "growth: records, ns per unit" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        bench.main(["growth", "--most", "nothing=3"])


def test_growth_marks_what_grows_faster_than_its_work() -> None:
    even = [growth.Point("records", "pass", size, 1e-6 * size, size) for size in (1, 10, 100)]
    square = [growth.Point("records", "sort", size, 1e-6 * size * size, size) for size in (1, 10, 100)]
    assert growth.faster_than_work(even) == []
    ((point, factor),) = growth.faster_than_work(even + square)
    assert (point.step, point.size, round(factor)) == ("sort", 100, 100)
    assert growth.lines(even)[-1] == "no step grows faster than its work"
    assert "records 100: sort: 100.0 times" in growth.lines(square)[-1]
