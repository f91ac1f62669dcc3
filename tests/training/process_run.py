"""One of two processes that train the tiny model together: `process_run.py OUT PORT PROCESS`.

Two steps with a sequence axis over both, two with a tensor axis, then six with rows dealt between them, which
pause before the fourth.
"""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
from tiny_run import EXPERIMENT, batches, paused, run

from nd_jax.model.config import MeshConfig
from nd_jax.training.config import DistributedConfig, TrainConfig
from nd_jax.training.distributed import end_process, initialize

out, port, process = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
patient = {"timeout_seconds": 3600, "heartbeat_seconds": 3600}  # however busy the machine
initialize(DistributedConfig("flags", f"127.0.0.1:{port}", 2, process, **patient))
assert (jax.process_count(), jax.device_count()) == (2, 2)


def noted(make, first, own):
    print(json.dumps({"first": first, "own": list(own)}), flush=True)
    return make(EXPERIMENT.data, first, own)


for axis, steps in (("sequence", 2), ("tensor", 2), ("fsdp", 6)):
    sizes = {"fsdp": 1} | {axis: 2}
    experiment = replace(EXPERIMENT, mesh=MeshConfig(**sizes), train=TrainConfig(steps=steps))
    make = partial(paused, out / "go", 3) if axis == "fsdp" else batches
    print(json.dumps(run(out / axis, experiment, batches=partial(noted, make), devices=None)), flush=True)
end_process()
