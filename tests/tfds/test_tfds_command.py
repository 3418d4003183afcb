"""What the commands say of prepared folders."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prepared import TEXT, dict_of, image, node, sequence, tensor, write_folder

pytest.importorskip("click")

from tfrecord import tfds  # noqa: E402
from tfrecord._cli.prepared import about, describe, title_of  # noqa: E402
from tfrecord._cli.viewer.data import ViewData  # noqa: E402
from tfrecord._cli.viewer.hints import hints_of  # noqa: E402
from tfrecord._cli.viewer.server import ViewServer  # noqa: E402
from tfrecord.cli import main  # noqa: E402
from tfrecord.reader import TFRecordReader  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    label = node("ClassLabel", "classLabel", numClasses="2")
    features = dict_of(
        x=tensor("int64"), obs=dict_of(t=TEXT), boxes=sequence(dict_of(l=label)), i=image(-1, -1, 3)
    )
    record = {"x": (1, "int"), "obs/t": (b"a", "byte"), "boxes/l": ([1], "int"), "i": (b"", "byte")}
    splits = {"train": [[record] * 3, [record]], "test": [[record]]}
    return write_folder(tmp_path / "things" / "big" / "1.0.0", features, splits, configName="big")


class Outcome(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def call(*arguments: Any) -> Outcome:
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


Run = Callable[..., Outcome]


def test_info(run: Run, folder: Path) -> None:
    done = run("info", folder)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[lines.index("TFDS things/big/1.0.0: train (4), test (1)") + 1 :] == [
        "  boxes/l: Sequence[ClassLabel] int64, 2 classes",
        "  i: Image uint8(?, ?, 3)",
        "  obs/t: Text bytes",
        "  x: Tensor int64",
    ]
    assert "not read" not in done.stderr
    (found,) = json.loads(run("info", folder, "--json").stdout)["tfds"]
    assert found["splits"][0] == {"name": "train", "examples": 4, "shards": 2} and found["problem"] is None
    assert found["features"][1] == {
        "name": "i",
        "connector": "Image",
        "dtype": "uint8",
        "shape": [None, None, 3],
    }


def test_info_of_what_is_wrong(run: Run, folder: Path) -> None:
    path = folder / "dataset_info.json"
    text = path.read_text()
    path.write_text(text.replace('"3"', '"5"'))
    done = run("info", folder)
    assert done.exit_code == 1 and "00000-of-00002 holds 3 records, not 5" in done.stdout
    path.write_text(text)
    (folder / "things-test.tfrecord-00000-of-00001").unlink()
    done = run("info", folder)
    assert done.exit_code == 1 and "of split 'test' is missing" in done.stdout
    path.write_text("{")
    done = run("info", folder)
    assert done.exit_code == 1 and "not valid JSON" in done.stdout


def test_a_parent(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("info", tmp_path / "things")
    assert (done.exit_code, done.stdout.splitlines()) == (0, [str(folder)])
    found = json.loads(run("info", tmp_path, "--json").stdout)
    assert found == {"ok": True, "tfds_versions": {str(tmp_path): ["things/big/1.0.0"]}}
    done = run("view", tmp_path, "--no-browser")
    assert done.exit_code == 2 and "holds TFDS datasets; name one: 'things/big/1.0.0'" in done.stderr


def test_view(folder: Path) -> None:
    (folder / "boxes-l.labels.txt").write_text("cat\ndog\n")
    found = describe([str(folder)])
    lines = [line for one in found for line in about(one)]
    hints = hints_of([str(folder), str(folder.parent)])
    assert hints.names == {"boxes/l": ["cat", "dog"]} and hints.sequences == {"boxes": {"boxes/l": 1}}
    with TFRecordReader(str(folder / "things-train*"), record_type="bytes") as reader:
        data = ViewData(reader, lines, title=title_of(found[0]))
        with ViewServer(data, hints=hints) as server:
            page = server.single.page({}).decode()
            assert "1 (dog)" in page and "<title>#0 · things/big/1.0.0</title>" in page
            assert lines[0] in server.overview.page(server.parts.state({}), {}).decode()


def test_episodes_are_shown_as_steps(tmp_path: Path) -> None:
    label = node("ClassLabel", "classLabel", numClasses="2")
    step = dict_of(
        action=tensor("float32", 2), image=image(-1, -1, 3), kind=label, open=tensor("float32", -1)
    )
    features = dict_of(steps=sequence(step, connector="Dataset"), boxes=sequence(node("BBoxFeature")))
    record = {
        "steps/action": ([0.5, 1, 2, 3, 4, 5], "float"),
        "steps/image": ([b"a", b"b", b"c"], "byte"),
        "steps/kind": ([0, 1, 0], "int"),
        "boxes": ([0.0] * 8, "float"),
    }
    folder = write_folder(tmp_path / "robot" / "1.0.0", features, {"train": [[record]]})
    hints = hints_of([str(folder)])
    assert hints.sequences["steps"] == {"steps/action": 2, "steps/image": 1, "steps/kind": 1}
    assert hints.sequences["boxes"] == {"boxes": 4} and hints.boxes == {"boxes"}
    with TFRecordReader(str(folder), record_type="bytes") as reader:
        with ViewServer(ViewData(reader), hints=hints) as server:
            page = server.single.page({}).decode()
    assert "3 steps" in page and "<td>0.5, 1</td><td>2, 3</td><td>4, 5</td>" in page
    assert "<td>&quot;b&quot;</td>" in page and "2 objects" in page


def test_a_reader_of_a_split_has_a_page(tmp_path: Path) -> None:
    label = node("ClassLabel", "classLabel", numClasses="2")
    features = dict_of(steps=sequence(dict_of(kind=label), connector="Dataset"))
    records = [{"steps/kind": ([0, 1, i % 2], "int")} for i in range(5)]
    folder = write_folder(tmp_path / "robot" / "1.0.0", features, {"train": [records]})
    (folder / "steps-kind.labels.txt").write_text("cat\ndog\n")
    with tfds.open(folder, "train[1:4]") as reader:
        for one, count in ((reader, 3), (reader.steps(2), 6)):
            with one.view(open_browser=False) as viewer:
                with urllib.request.urlopen(viewer.url + "records?view=list", timeout=20) as answer:
                    page = answer.read().decode()
                assert f">{count} records<" in page and "<td>1 (dog)</td>" in page
                assert "things train[1:4]" in page
                with urllib.request.urlopen(viewer.url + "overview?all=1", timeout=20) as answer:
                    assert f"of {count} records" in answer.read().decode()
