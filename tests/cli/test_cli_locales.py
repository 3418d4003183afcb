"""The command in locales that are not UTF-8, and text that could drive a terminal or hide."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from samples import MakeFile, Run

from tfrecord._cli.terminal import safe
from tfrecord.encode import encode_example

pytestmark = pytest.mark.one_run

ROOT = Path(__file__).resolve().parents[2]
LOCALES = {
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "ascii:strict": {"PYTHONIOENCODING": "ascii:strict"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
}
# What turns the direction of text, marks, joins, tags, or drives a terminal.
HIDING = "\u061c\u200e\u200f\u202e\u2066\u2069\u00ad\u200b\u2060\ufeff\U000e0001\U000e0041\x1b\x7f\x9b\u2028"
COMMANDS = [
    ["info", "FILE"],
    ["info", "--json", "FILE"],
    ["head", "FILE"],
    ["head", "--json", "FILE"],
    ["show", "FILE", "0"],
    ["show", "--json", "FILE", "0"],
    ["stats", "FILE"],
    ["stats", "--json", "FILE", "--columns", "größe"],
    ["verify", "FILE"],
    ["verify", "--json", "FILE"],
    ["index", "--force", "FILE"],
    ["index", "--json", "FILE"],
    ["select", "--json", "FILE", "OUT", "--where", "größe=3"],
    ["convert", "FILE", "OUT.jsonl"],
    ["salvage", "FILE", "OUT"],
    ["salvage", "--json", "FILE", "OUT"],
]
WRONG = [["head", "größe"], ["größe"], ["head", "--größe", "FILE"], ["stats", "FILE", "--columns", "grösse"]]


def hostile() -> list[bytes]:
    datum = {"größe": (3, "int"), "名" + HIDING: (1.5, "float"), "text": ("日本語 …" + HIDING, "bytes")}
    return [encode_example(datum)] * 3


SCRIPT = """
import sys
from tfrecord.cli import main
for line in sys.argv[1].split("|"):
    code = main(line.split("&"))
    print("\\n%", code, flush=True)
"""


@pytest.mark.parametrize("name", LOCALES)
def test_every_locale(make_file: MakeFile, tmp_path: Path, name: str) -> None:
    path = str(make_file(hostile(), f"größe{HIDING}.tfrecord"))
    lines = [*COMMANDS, *WRONG]
    words = "|".join("&".join(line).replace("OUT", f"{tmp_path}/out") for line in lines).replace("FILE", path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, words],
        cwd=ROOT,
        env={**os.environ, **LOCALES[name]},
        capture_output=True,
        timeout=120,
    )
    errors = done.stderr.decode(errors="replace")
    assert "Traceback" not in errors, errors
    text = done.stdout.decode("latin-1" if name == "latin-1" else "ascii")
    outputs = re.split(r"^% (\d)$", text, flags=re.MULTILINE)
    assert len(outputs) == 2 * len(lines) + 1
    for line, output, code in zip(lines, outputs[::2], outputs[1::2], strict=False):
        assert code == ("0" if line in COMMANDS else "2"), (line, errors)
        assert not set(HIDING) & set(output), line
        if "--json" in line:
            assert [json.loads(part) for part in output.split("\n") if part]


@pytest.mark.parametrize("command", [c for c in COMMANDS if "OUT" not in " ".join(c)], ids=" ".join)
def test_what_hides_is_escaped(run: Run, make_file: MakeFile, command: list[str]) -> None:
    path = make_file(hostile(), f"a{HIDING}.tfrecord")
    outcome = run(*[path if word == "FILE" else word for word in command])
    assert outcome.code == 0
    assert not set(HIDING) & set(outcome.out + outcome.err)
    if "--json" in command:
        assert outcome.out.isascii() and [json.loads(line) for line in outcome.out.splitlines()]


def test_wrong_usage_is_escaped_too(run: Run) -> None:
    for words in (["head", HIDING], [HIDING], ["head", "--" + HIDING], ["head", "x", "-n", HIDING]):
        outcome = run(*words)
        assert outcome.code == 2 and not set(HIDING) & set(outcome.err)


def test_safe() -> None:
    assert safe("plain größe 名") == "plain größe 名"
    assert safe("a\tb\n", keep="\n") == "a\\tb\n"
    assert safe("\u061c\U000e0001") == "\\u061c\\U000e0001"
    assert safe("\udcff") == "\\udcff"
