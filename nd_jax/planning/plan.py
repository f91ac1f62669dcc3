"""What a training step costs on devices that are not there: compiled ahead of time, in a process of its own.

By default the CPU's compiler partitions the step over so many CPU devices: it works everywhere, but lays
out temporary memory as a CPU would (bfloat16 is computed in float32, and moved so), and writes a
reduce-scatter as an all-reduce. Where libtpu is installed, TPU's own compiler can be asked
(`compiler="tpu"`), which needs no TPU either.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from nd_jax.console import console, table
from nd_jax.errors import UserError
from nd_jax.model.config import AXES, MeshConfig
from nd_jax.training.chips import CHIPS, GIB
from nd_jax.training.config import Experiment, to_dict

Compiler = Literal["cpu", "tpu"]

USABLE = 0.95
"""Share of a chip's memory that a program may fill: its runtime keeps some."""


def read_mesh(text: str) -> MeshConfig:
    """Read "replica=2,fsdp=32"; axes that are not named have size 1.

    Raises:
      UserError: another axis, or no positive number.
    """
    sizes = dict.fromkeys(AXES, 1)
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in AXES or not size.isdecimal() or int(size) < 1:
            raise UserError(
                f"mesh part {part!r}: write AXIS=SIZE with one of {', '.join(AXES)}, as in fsdp=64"
            )
        sizes[name] = int(size)
    return MeshConfig(**sizes)


def plan(experiment: Experiment, chip: str | None = None, compiler: Compiler = "cpu") -> dict[str, Any]:
    """Compile the experiment's step for its mesh, every size of which is given, and tell what it takes.

    Args:
      experiment: `auto` becomes what accelerators compute in: bfloat16. The CPU compiler is given blocked
        attention in place of a kernel that only an accelerator has (the reference on a sequence axis).
      chip: a name of `CHIPS`: tells whether it fits; TPU's compiler needs one of its own.
      compiler: whose memory analysis to take.

    Returns:
      ``parameters``; ``mesh``; ``compiler``, ``attention`` and ``dtype`` as compiled; ``flops_per_token`` and
      ``flops_per_step`` (the model's, by `ModelConfig.flops_per_token`); ``matmul_flops`` (one device's,
      counted in the program, recomputation included; None from TPU's compiler); ``bytes``, per device:
      ``parameters``, ``optimizer``, ``batch`` (together what the program takes), ``gradients`` (as large as
      the parameters) and ``activations`` (the rest of its temporary memory), ``outputs``, ``code``;
      ``total_bytes``, their sum; ``collectives``: ``{name: {count, bytes}}`` per device and step;
      ``unknown_loops``; and for a chip ``fits`` (an estimate), ``memory_bytes``, ``seconds_at_peak``.

    Raises:
      UserError: an unknown chip, a mesh that does not divide the model or the batch, no libtpu.
    """
    if chip is not None and chip not in CHIPS:
        raise UserError(f"chip {chip!r} is unknown; use one of {', '.join(CHIPS)}")
    if compiler == "tpu" and (chip is None or not CHIPS[chip].kind.startswith("TPU")):
        tpus = [name for name, known in CHIPS.items() if known.kind.startswith("TPU")]
        raise UserError(f"TPU's compiler needs a TPU: give --chip {', '.join(tpus)}")
    if compiler == "tpu" and importlib.util.find_spec("libtpu") is None:
        raise UserError("TPU's compiler is in libtpu, which is not installed: pip install -e '.[tpu]'")
    model = experiment.model
    model = replace(
        model,
        dtype="bfloat16" if model.dtype == "auto" else model.dtype,
        attention=_attention(experiment, compiler),
    )
    experiment = replace(experiment, model=model)
    figures = _in_child(experiment, compiler if compiler == "cpu" else f"tpu:{chip}")
    per_token = model.flops_per_token(experiment.data.row_length)
    step_flops = per_token * experiment.data.row_length * experiment.data.global_batch
    result: dict[str, Any] = {
        "parameters": model.parameters(),
        "compiler": compiler,
        "dtype": model.dtype,
        "flops_per_token": per_token,
        "flops_per_step": step_flops,
        **figures,
        "total_bytes": sum(figures["bytes"].values()),
    }
    if chip is not None:
        known, devices = CHIPS[chip], _devices(experiment.mesh)
        result |= {
            "chip": chip,
            "fits": result["total_bytes"] <= USABLE * known.memory,
            "memory_bytes": known.memory,
            "seconds_at_peak": step_flops / devices / known.peak_flops,
        }
    return result


def _attention(experiment: Experiment, compiler: Compiler) -> Any:
    backend = experiment.model.attention
    if compiler == "cpu" and backend != "xla":
        return "xla" if experiment.mesh.sequence > 1 else "blocked"
    return backend


def _devices(mesh: MeshConfig) -> int:
    number = 1
    for axis in AXES:
        if (size := getattr(mesh, axis)) < 1:
            raise UserError(f"mesh {axis}={size}: a plan needs every size, as in --mesh fsdp=64")
        number *= size
    return number


def _in_child(experiment: Experiment, compiler: str) -> dict[str, Any]:
    """Measure in a process that has as many devices as the mesh."""
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(_devices(experiment.mesh)),
        "TPU_SKIP_MDS_QUERY": "1",  # do not look for a TPU's metadata server
    }
    environment.pop("XLA_FLAGS", None)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        done = subprocess.run(
            [sys.executable, "-m", "nd_jax.planning.step", compiler, str(out)],
            input=json.dumps(to_dict(experiment)), env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode or not out.exists():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise UserError(f"the step does not compile for this mesh: {lines[-1]}")
        answer = json.loads(out.read_text(encoding="utf-8"))
    if "error" in answer:
        raise UserError(answer["error"])
    return answer["figures"]


def show(figures: dict[str, Any]) -> None:
    """Print a plan for people."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in figures["mesh"].items() if size > 1) or "one device"
    console.print(
        f"{figures['parameters']:,} parameters on mesh {mesh}; {figures['dtype']}, attention "
        f"{figures['attention']}, as compiled by {figures['compiler'].upper()}'s compiler",
        soft_wrap=True,
    )
    counted = figures["matmul_flops"]
    rows = [
        ("model FLOPs per token", f"{figures['flops_per_token']:.4g}"),
        ("model FLOPs per step", f"{figures['flops_per_step']:.4g}"),
        ("matmul FLOPs in the program, per device", f"{counted:.4g}" if counted else None),
    ]
    table("work (causal attention halved, head included)", ["per training step", "FLOPs"], rows)
    memory = [(name, f"{size / GIB:.3f}") for name, size in figures["bytes"].items()]
    memory.append(("total", f"{figures['total_bytes'] / GIB:.3f}"))
    table("memory per device", ["kind", "GiB"], memory)
    moved = [
        (name, f"{t['count']:,}", f"{t['bytes'] / GIB:.3f}") for name, t in figures["collectives"].items()
    ]
    table("collectives in a step, per device", ["operation", "times", "GiB"], moved)
    if figures["unknown_loops"]:
        console.print(f"{figures['unknown_loops']} loops of unknown length are counted as one round")
    for name in [figures["chip"]] if "chip" in figures else CHIPS:
        known = CHIPS[name]
        share = figures["total_bytes"] / known.memory
        fits = "fits" if share <= USABLE else "does not fit"
        console.print(f"{name}: {fits} (estimate: {share:.0%} of {known.memory / GIB:.0f} GiB)")
    if "seconds_at_peak" in figures:
        console.print(f"a step takes at least {figures['seconds_at_peak']:.3g} s at {figures['chip']}'s peak")
