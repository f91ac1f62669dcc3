"""Trains the tiny model in forks that are killed: `killed_run.py OUT STEPS`, then on each line of its input
the moment, a number of file operations and rows. Forks, since importing jax takes longer than training.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from tiny_run import EXPERIMENT, batches, run

from nd_jax.training import loop  # noqa: F401  (all that training imports)
from nd_jax.training import run as _

MOMENTS = ("open", "os.", "shutil.", "row")


def rows(config, first, own):
    for batch in batches(config, first, own):
        sys.audit("row")
        yield batch


def train(out, steps, moment):
    seen = {"moments": 0, "before rows": 0}

    def count(event, _):
        if event.startswith(MOMENTS):
            seen["moments"] += 1
            if event == "row" and not seen["before rows"]:
                seen["before rows"] = seen["moments"]
            if seen["moments"] == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    experiment = replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=steps))
    experiment = replace(experiment, checkpoint=replace(experiment.checkpoint, keep=3))
    run(out, experiment, batches=partial(rows, experiment.data))
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    for line in sys.stdin:
        name, moment = line.split()
        if not (child := os.fork()):
            train(out / name, steps, int(moment))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": status}), flush=True)
