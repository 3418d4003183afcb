#!/usr/bin/env python3
"""Train on two processes, kill them in the middle of an epoch, continue with three, and count every record.

    python scripts/train_ddp.py [--data FILE] [--epochs 3] [--workers 1]

Two gloo processes train a small model with DistributedDataParallel, on the MNIST file beside the checkout or
on generated data. In the middle of the second epoch they are killed (SIGKILL). Three processes load the last
checkpoint and finish. Each process logs which records it trained on. At the end the script checks that every
record was seen exactly once in each epoch, and exits with 0 if so, else with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tfrecord
from tfrecord.torch import TFRecordDataset

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "mnist.tfrecord"
BATCH = 16
CHECKPOINT_EVERY = 5


def prepare(source: Path, folder: Path) -> Path:
    """Write the data with a number in each record, so that records can be counted, and with an index."""
    path = folder / "numbered.tfrecord"
    features = {
        "image_floats": tfrecord.FixedLenFeature((784,), "float"),
        "image_class": tfrecord.FixedLenFeature((), "int"),
    }
    if source.exists():
        rows = list(tfrecord.TFRecordReader(source, features=features))
        print(f"data: {len(rows)} digits of {source}")
    else:
        generator = np.random.default_rng(0)
        classes = generator.integers(0, 10, 1000)
        centers = generator.random((10, 784), np.float32)
        noise = generator.random((1000, 784), np.float32)
        rows = [
            {"image_floats": centers[label] + noise[i], "image_class": label}
            for i, label in enumerate(classes)
        ]
        print(f"data: {len(rows)} generated records ({source} does not exist)")
    with tfrecord.TFRecordWriter(path, index=True) as writer:
        for number, row in enumerate(rows):
            image, label = row["image_floats"], int(row["image_class"])
            writer.write({"image": (image, "float"), "label": (label, "int"), "number": (number, "int")})
    return path


def save(folder: Path, model: nn.Module, state: dict[str, Any]) -> None:
    """Write a checkpoint, completely or not at all."""
    beside = folder / "checkpoint.tmp"
    torch.save({"model": model.state_dict(), "data": json.dumps(state)}, beside)
    os.replace(beside, folder / "checkpoint.pt")


def write_down(folder: Path, *line: Any) -> None:
    """Log what this process did, for the count at the end."""
    with open(folder / f"seen-{os.getpid()}.jsonl", "a") as log:
        log.write(json.dumps(line) + "\n")


def train(rank: int, world_size: int, port: int, path: Path, folder: Path, epochs: int, workers: int) -> None:
    """One process. It may be killed, or its machine may fail, at any line."""
    os.setpgid(0, 0)  # a group of its own, so that its workers can be killed with it
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    # The rank comes from torch.distributed. Any number of ranks shares one global order of batches.
    dataset = TFRecordDataset(
        path,
        features={
            "image": tfrecord.FixedLenFeature((784,), "float"),
            "label": tfrecord.FixedLenFeature((), "int"),
            "number": tfrecord.FixedLenFeature((), "int"),
        },
        shuffle=True,
        seed=1,
        batch_size=BATCH,
    )
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    first_epoch, position = 0, 0
    if (folder / "checkpoint.pt").exists():
        found = torch.load(folder / "checkpoint.pt")
        model.load_state_dict(found["model"])
        state = json.loads(found["data"])
        dataset.load_state_dict(state)
        first_epoch, position = state["epoch"], state["position"]
        if rank == 0:
            print(
                f"{world_size} processes continue in epoch {first_epoch}, after {position} batches",
                flush=True,
            )

    for epoch in range(first_epoch, epochs):
        dataset.set_epoch(epoch)  # keeps the loaded position if it is in this epoch
        total = 0.0
        # One rank may have one more batch than others; Join makes them wait for it.
        with dist.algorithms.join.Join([model]):
            for step, batch in enumerate(loader):
                loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
                # All ranks together have taken this many batches of the epoch.
                taken = position + (step + 1) * world_size
                write_down(folder, epoch, taken, batch["number"].tolist())
                if rank == 0 and (step + 1) % CHECKPOINT_EVERY == 0 and taken < dataset.num_units():
                    save(folder, model, dataset.state_at(epoch, taken))
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: loss {total / max(1, step + 1):.3f}", flush=True)
            save(folder, model, dataset.state_at(epoch + 1, 0))
        dist.barrier()
        position = 0
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lines(folder: Path) -> list[list[Any]]:
    """All complete lines that were logged so far."""
    return [
        json.loads(line)
        for log in folder.glob("seen-*.jsonl")
        for line in log.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def run(world_size: int, path: Path, folder: Path, options: argparse.Namespace, *, kill: bool) -> None:
    """Train on `world_size` processes; with `kill`, end them in the middle of the second epoch."""
    context = mp.start_processes(
        train,
        (world_size, free_port(), path, folder, options.epochs, options.workers),
        nprocs=world_size,
        start_method="forkserver",  # imports torch once, and forks each process from there
        join=False,
    )
    try:
        if not kill:
            while not context.join():
                pass
            return
        while not any(
            epoch == 1 and taken >= 3 * CHECKPOINT_EVERY * world_size for epoch, taken, _ in lines(folder)
        ):
            if not all(process.is_alive() for process in context.processes):
                raise RuntimeError("a process ended before it was killed")
            time.sleep(0.02)
    finally:
        for process in context.processes:
            if process.is_alive():
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
    print(f"{world_size} processes killed in epoch 1", flush=True)


def check(
    before: list[list[Any]], after: list[list[Any]], state: dict[str, Any], options: argparse.Namespace
) -> bool:
    """Whether the final model has seen every record exactly once in each epoch.

    What the first processes did after their last checkpoint is lost, as the model was restored from it.
    """
    kept = [line for line in before if (line[0], line[1]) <= (state["epoch"], state["position"])]
    total = options.records
    good = True
    for epoch in range(options.epochs):
        seen = Counter(number for line in (*kept, *after) if line[0] == epoch for number in line[2])
        once = sorted(seen) == list(range(total)) and set(seen.values()) == {1}
        missing, twice = total - len(seen), sum(count > 1 for count in seen.values())
        verdict = "every record exactly once" if once else f"{missing} missing, {twice} more than once"
        print(f"epoch {epoch}: {sum(seen.values())} records seen of {total}: {verdict}")
        good = good and once
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="a TFRecord file like the MNIST one")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="DataLoader workers of each process")
    options = parser.parse_args()
    if options.epochs < 2:
        parser.error("the processes are killed in the second epoch: --epochs must be at least 2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = prepare(options.data, folder)
        options.records = len(tfrecord.TFRecordReader(path))
        run(2, path, folder, options, kill=True)
        state = json.loads(torch.load(folder / "checkpoint.pt")["data"])
        before = lines(folder)
        for log in folder.glob("seen-*.jsonl"):
            log.unlink()
        run(3, path, folder, options, kill=False)
        good = check(before, lines(folder), state, options)
    print(
        "every record was seen exactly once in each epoch"
        if good
        else "NOT every record was seen exactly once"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
