"""The command as a whole: help, examples, exit codes, missing packages, completion."""

from __future__ import annotations

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from samples import MakeFile, Run, examples

from indexer.outputs import Outputs
from tfrecord._cli.app import _COMMANDS, app

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parents[2]


def help_of(run: Run, *arguments: str) -> str:
    outcome = run(*arguments, "--help")
    assert outcome.code == 0
    return str(outcome.out)


def test_overview_fits_a_screen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(run).splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert all(any(line.startswith(f"  {name} ") for line in lines) for name in _COMMANDS)


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_of_each_command(run: Run, name: str) -> None:
    text = help_of(run, name)
    assert re.search(r"Examples?:\n +tfrecord " + name, text)


@pytest.fixture
def folder(run: Run, make_file: MakeFile, tmp_path: Path) -> Path:
    """The files that the examples of the help speak of."""
    make_file(examples(200), "data.tfrecord")
    for i in range(2):
        make_file(examples(30), f"data/part-{i}.tfrecord")
    damaged = bytearray(make_file(examples(5), "damaged.tfrecord").read_bytes())
    damaged[60] ^= 1
    (tmp_path / "damaged.tfrecord").write_bytes(bytes(damaged))
    assert run("split", tmp_path / "data.tfrecord", tmp_path / "part.tfrecord", "--shards", "4").code == 0
    assert run("convert", tmp_path / "data.tfrecord", tmp_path / "data.parquet").code == 0
    return tmp_path


@pytest.mark.parametrize("name", [name for name in _COMMANDS if name not in ("view", "serve")])
def test_examples_work(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(folder)
    found = re.findall(r"^ +tfrecord (.*)$", help_of(run, name), re.MULTILINE)
    assert found
    for line in found:
        arguments = [word for word in shlex.split(line.partition(">")[0])]
        outcome = run(*arguments, *(["--seconds", "0.01"] if name == "bench" else []))
        assert outcome.code == (1 if name == "salvage" else 0), (line, outcome)


def test_exit_codes_of_wrong_use(run: Run, tmp_path: Path) -> None:
    for arguments in (
        ["nonsense"],
        ["info"],
        ["info", "--nonsense", "x"],
        ["info", tmp_path / "absent"],
        ["info", tmp_path],
    ):
        outcome = run(*arguments)
        assert outcome.code == 2 and outcome.err and outcome.out == "", arguments
    outcome = run("--version")
    assert outcome.code == 0 and outcome.out.startswith("tfrecord")


def test_without_arguments_it_shows_the_overview(run: Run) -> None:
    outcome = run()
    assert outcome.code == 2 and outcome.err == help_of(run)


def test_a_missing_choice_is_one_line(run: Run) -> None:
    outcome = run("completion")
    assert outcome.code == 2 and outcome.err.endswith("Choose from: bash, zsh, fish\n")


def test_unknown_compression_lists_names(run: Run, make_file: MakeFile) -> None:
    outcome = run("verify", "--compression", "SNAPPY", make_file([b"a"]))
    assert outcome.code == 2 and "GZIP" in outcome.err
    assert run("verify", "--compression", "gzip", make_file([b"a"])).code == 1
    assert run("verify", "--compression", "GZIP", make_file([b"a"], "g", "gzip")).code == 0


def test_without_pyarrow(
    run: Run, make_file: MakeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = run("convert", make_file(examples(2)), tmp_path / "o.parquet")
    assert outcome.code == 2 and "pip install 'tfrecord[arrow]'" in outcome.err
    assert not (tmp_path / "o.parquet").exists()
    assert run("convert", make_file(examples(2)), tmp_path / "o.jsonl").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(run: Run, shell: str) -> None:
    outcome = run("completion", shell)
    assert outcome.code == 0 and "_TFRECORD_COMPLETE" in outcome.out
    assert app.name is not None


def test_completion_completes() -> None:
    environment = {
        **os.environ,
        "_TFRECORD_COMPLETE": "bash_complete",
        "COMP_WORDS": "tfrecord sal",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv = ['tfrecord']; from tfrecord.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, timeout=60
    )
    assert b"salvage" in done.stdout


@pytest.mark.parametrize("arguments", [["head", "-n", "3000"], ["head", "--json", "-n", "3000"], ["merge"]])
def test_reader_that_goes_away(make_file: MakeFile, arguments: list[str]) -> None:
    path = make_file(examples(3000))
    command = [sys.executable, "-W", "ignore", "-m", "tfrecord.cli", *arguments, str(path)]
    command += ["-"] if "merge" in arguments else []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(60) == 0 and b"Traceback" not in error


INTERRUPTED = """
import os, sys
module = sys.argv[1]
first = ("tfrecord", "tfrecord._startup")
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module or (module == "any" and name not in first):
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupting())
sys.argv[:] = ["bin/tfrecord", "bench", "x"]
from tfrecord.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["any", "numpy", "indexer.build", "tfrecord.reader", "click", "tfrecord._cli.bench"]
)
def test_interrupt_while_it_starts(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130 and done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1 and "interrupted" in done.stderr


def test_interrupts_of_other_programs_are_left_alone() -> None:
    code = (
        "import signal; import tfrecord; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    for name in ("other", "tfrecord"):
        script = f"import sys; sys.argv[0] = {name!r}; {code}"
        done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr


def test_closed_standard_output(make_file: MakeFile) -> None:
    command = f'"$0" -W ignore -m tfrecord.cli head {shlex.quote(str(make_file(examples(1))))} >&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_disk_full_names_the_output(run: Run, make_file: MakeFile, tmp_path: Path) -> None:
    """As far as one can without a small disk."""
    with pytest.raises(OSError) as found, Outputs() as outputs:
        outputs.open(str(tmp_path / "o"))
        raise OSError(errno.ENOSPC, "No space left on device")
    assert found.value.filename == str(tmp_path / "o") and not list(tmp_path.iterdir())


FULL = """
import resource, sys
from tfrecord.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["convert", "FILE", "OUT/o.tfrecord"],
        ["convert", "FILE", "OUT/o.jsonl"],
        ["convert", "FILE", "OUT/o.tar"],
        ["convert", "FILE", "OUT/o.npz"],
        ["salvage", "FILE", "OUT/o"],
        ["split", "FILE", "OUT/o", "--shards", "2"],
        ["shuffle", "FILE", "OUT/o"],
        ["index", "FILE"],
    ],
    ids=" ".join,
)
def test_full_disk_names_the_file(make_file: MakeFile, tmp_path: Path, words: list[str]) -> None:
    path, folder = make_file(examples(400)), tmp_path / "out"
    folder.mkdir()
    words = [word.replace("FILE", str(path)).replace("OUT", str(folder)) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", FULL, *words], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    place = str(folder / "o") if words[0] != "index" else f"{path}.tfindex"
    assert place in done.stdout + done.stderr and "too large" in done.stdout + done.stderr
    assert done.returncode == (1 if words[0] == "index" else 2)
    assert not list(folder.iterdir()) and "Errno" not in done.stdout + done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["info"], ["info", "--json"], ["head", "--json"], ["stats"], ["verify"]])
def test_full_standard_output(make_file: MakeFile, words: list[str]) -> None:
    path = make_file(examples(5))
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tfrecord.cli", *words, str(path)]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "tfrecord: standard output: No space left on device\n")


def test_salvage_tells_losses_from_an_output_that_cannot_be_written(
    run: Run, make_file: MakeFile, tmp_path: Path
) -> None:
    path = make_file([b"abc", b"def"])
    data = bytearray(path.read_bytes())
    data[13] ^= 1
    path.write_bytes(data)
    assert run("salvage", path, tmp_path / "o").code == 1
    if os.path.exists("/dev/full"):
        outcome = run("salvage", path, "/dev/full")
        assert outcome.code == 2 and "/dev/full" in outcome.err and outcome.out == ""
    assert run("salvage", path, tmp_path / "no" / "o").code == 2


def test_no_progress_where_there_is_no_terminal(run: Run, make_file: MakeFile) -> None:
    assert run("verify", make_file(examples(100))).err == ""


def test_importing_the_command_is_light() -> None:
    heavy = "{'torch', 'pyarrow', 'pandas'}"
    code = f"import sys, tfrecord.cli, tfrecord._cli.app; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_urls(run: Run, make_file: MakeFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_file(examples(2))
    before = path.read_bytes()
    for command in ("convert", "merge", "salvage"):
        outcome = run(command, f"file://{path}", path)
        assert outcome.code == 2 and "is also an input" in outcome.err and path.read_bytes() == before
    assert run("salvage", f"file://{path}", tmp_path / "o").code == 0
    assert (tmp_path / "o").read_bytes() == before
    for module in ("obstore", "fsspec", "fsspec.core"):  # an earlier test may have loaded it
        monkeypatch.setitem(sys.modules, module, None)
    outcome = run("verify", "s3://bucket/x.tfrecord")
    assert outcome.code == 2 and "pip install 'tfrecord[remote]'" in outcome.err
    assert len(outcome.err.splitlines()) == 1
