"""Every example of docs/torch.md, in the order of the page; and the training script."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "torch.md"

# What torch and torchdata say of this machine and of each other.
pytestmark = [
    pytest.mark.one_run,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
]


def test_the_guide_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    code = "import torch\n" + "\n".join(blocks)
    code += "\ntrain(torch.nn.Linear(784, 10), torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), 1)\n"
    names: dict[str, object] = {"__name__": "guide"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create|'set_vital' is deprecated")
        exec(compile(code, str(GUIDE), "exec"), names)
    assert names["images"].shape == (104, 28, 28)  # type: ignore[attr-defined]
    assert names["remaining"] == 5
    assert names["batch"].num_rows == 32  # type: ignore[attr-defined]


def test_training_goes_on_after_a_kill() -> None:
    """On generated data; by hand, the script can also use the shared file."""
    command = [
        sys.executable,
        str(ROOT / "scripts" / "train_ddp.py"),
        "--data",
        "none",
        "--epochs",
        "2",
        "--workers",
        "0",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert found.returncode == 0, found.stdout + found.stderr[-3000:]
    assert found.stdout.count("every record exactly once") == 2
    assert (
        "2 processes killed in epoch 1" in found.stdout and "3 processes continue in epoch 1" in found.stdout
    )
