"""kill -9 at any moment: nothing is lost but the steps since the newest complete checkpoint."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from test_loop import losses, records
from tiny_run import digest

from nd_jax.training.checkpoint import checkpoints_in

STEPS, KILLS = 24, 10


class Trainer:
    """Trains in forks that end, or are killed, one after the other."""

    def __init__(self, out):
        program = [sys.executable, str(Path(__file__).with_name("killed_run.py")), str(out), str(STEPS)]
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}  # a kill loses nothing that was printed
        self.process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def train(self, name, moment=0):
        """Give what was printed without its line breaks, the last count, and the status."""
        self.process.stdin.write(f"{name} {moment}\n")
        self.process.stdin.flush()
        printed, seen = "", {}
        for line in self.process.stdout:
            if line.startswith('{"status"'):
                return printed, seen, json.loads(line)["status"]
            printed += line.strip()
            seen = json.loads(line) if line.startswith("{") else seen
        raise AssertionError(printed)


@pytest.fixture
def trainer(tmp_path):
    trainer = Trainer(tmp_path)
    yield trainer
    trainer.process.kill()
    trainer.process.wait()


def test_killed_at_ten_moments_ends_with_the_same_weights(tmp_path, trainer):
    _, whole, status = trainer.train("whole")
    assert status == 0
    before, rest = whole["before rows"], whole["moments"] - whole["before rows"]
    drawn = random.Random(6)
    broken, newest, named, kills = [], None, 0, 0
    while kills < KILLS:
        printed, _, status = trainer.train("killed", drawn.randrange(1, before + rest // 6))
        assert status == 9, "it came to its end before it was killed often enough: give it more steps"
        kills += 1
        if "parameters" in printed:  # it was not killed before it said all this
            printed = printed.replace(" ", "")
            for path in broken:
                assert f"Thecheckpoint{path}wasneverfinished" in printed
                named += 1
            assert newest is None or f"Resumingfrom{newest}" in printed
        folder = tmp_path / "killed/checkpoints"
        complete, broken = checkpoints_in(folder) if folder.exists() else ([], [])
        newest = complete[-1] if complete else None
    printed, _, status = trainer.train("killed")
    assert status == 0
    assert digest(tmp_path / f"killed/checkpoints/{STEPS}") == digest(tmp_path / f"whole/checkpoints/{STEPS}")
    assert losses(records(tmp_path / "killed")) == losses(records(tmp_path / "whole"))
    assert named, "no kill came in the middle of a save: draw other moments"
