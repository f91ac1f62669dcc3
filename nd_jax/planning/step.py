"""Compile a run's training step for devices that are not there, and read off what it takes.

Run as a process of its own, ``python -m nd_jax.planning.step COMPILER FIGURES < experiment.json``: the number
of CPU devices must be set before jax starts.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from nd_jax.errors import UserError
from nd_jax.model.attention import resolve
from nd_jax.model.config import AXES
from nd_jax.model.partition import batch_sharding, make_mesh
from nd_jax.planning.hlo import count
from nd_jax.training.config import Experiment, from_dict
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.state import State, abstract_state, state_shardings
from nd_jax.training.step import FIELDS, make_step

QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""For the CPU compiler: no effort on machine code, which nobody will run."""


def compile_step(experiment: Experiment, devices: Sequence[Any]) -> tuple[jax.stages.Compiled, State, Mesh]:
    """Compile the training step for these devices, which may be those of a topology.

    Returns:
      The executable; the shapes and shardings of the state it takes; the mesh.

    Raises:
      UserError: the mesh does not divide the model or the batch.
    """
    model, data = experiment.model, experiment.data
    model.validate()
    microbatch = data.global_batch // experiment.train.accumulation
    mesh = make_mesh(experiment.mesh, model, microbatch, devices, data.row_length)
    optimizer = make_optimizer(experiment.optimizer, model)
    shardings = state_shardings(model, optimizer, mesh)
    rows = batch_sharding(mesh)

    def of_rows(width: int, dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((data.global_batch, width), dtype, sharding=rows)

    batch = {name: of_rows(data.row_length, np.float32 if name == "weights" else np.int32) for name in FIELDS}
    with jax.set_mesh(mesh):
        state = abstract_state(model, optimizer, shardings)
        step: Any = make_step(experiment, optimizer, shardings)
        lowered = step.lower(state, batch, of_rows(2, np.float32))
        compiled = lowered.compile(QUICK if devices[0].platform == "cpu" else None)
    return compiled, state, mesh


def measure(experiment: Experiment, devices: Sequence[Any]) -> dict[str, Any]:
    """Compile the step and give its figures, per device (`nd_jax.planning.plan` says what each is)."""
    compiled, state, mesh = compile_step(experiment, devices)
    memory: Any = compiled.memory_analysis()
    params = _shard_bytes(state["params"])
    optimizer = _shard_bytes(state) - params  # and a few counts
    text: Any = compiled.as_text()
    counts = count(text)
    on_cpu = devices[0].platform == "cpu"
    with jax.set_mesh(mesh):
        attention = resolve(experiment.model.attention, experiment.data.row_length)
    return {
        "attention": attention,
        "mesh": {axis: mesh.shape[axis] for axis in AXES},
        "device_kind": devices[0].device_kind,
        "bytes": {
            "parameters": params,
            "optimizer": optimizer,
            "batch": memory.argument_size_in_bytes - params - optimizer,
            "gradients": params,
            "activations": memory.temp_size_in_bytes - params,
            "outputs": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "code": memory.generated_code_size_in_bytes,
        },
        "collectives": {name: dataclasses.asdict(traffic) for name, traffic in counts.collectives.items()},
        "matmul_flops": counts.matmul_flops if on_cpu else None,
        "unknown_loops": counts.unknown_loops,
    }


def _shard_bytes(tree: Any) -> int:
    """Bytes of one device's part."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape))) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def absent_devices(compiler: str, number: int) -> Sequence[Any]:
    """Devices to compile for: CPU ones, or a topology of TPUs (`tpu:v5e`), which needs libtpu but no TPU."""
    if compiler == "cpu":
        return jax.devices("cpu")[:number]
    chip = compiler.removeprefix("tpu:")
    try:
        return topologies.get_topology_desc(f"{chip}:{grid(chip, number)}", "tpu").devices
    except Exception as error:  # whatever libtpu says of a topology that it does not know
        raise UserError(f"no topology of {number} {chip}: {str(error).splitlines()[0]}") from error


def grid(chip: str, number: int) -> str:
    """How so many TPUs are wired: as square as may be in 2 (v5e, v6e) or 3 dimensions, "4x4x4"."""
    sides = [1, 1] if chip in ("v5e", "v6e") else [1, 1, 1]
    while np.prod(sides) < number:
        sides[sides.index(min(sides))] *= 2
    if np.prod(sides) != number:
        raise UserError(f"TPU topologies have a power of 2 of devices, not {number}")
    return "x".join(map(str, sorted(sides, reverse=len(sides) == 3 and number == 4)))


def main() -> None:
    """Measure the experiment on standard input, and write {figures} or {error} to the file named."""
    compiler, out = sys.argv[1], Path(sys.argv[2])
    experiment = from_dict(json.load(sys.stdin))
    number = int(np.prod(dataclasses.astuple(experiment.mesh)))
    try:
        answer = {"figures": measure(experiment, absent_devices(compiler, number))}
    except UserError as error:
        answer = {"error": str(error)}
    out.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
