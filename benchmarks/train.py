"""How fast a training step is: model FLOPs utilisation, the loop's overhead, and PyTorch beside it.

    make interop
    python -m benchmarks.train --device cpu [--interop .venv-interop/bin/python] [--rounds 5] [--json FILE]
    python -m benchmarks.train --device gpu [--json FILE] [--SETTING VALUE ...]

cpu: the 5M model at length 512, float32, beside `transformers`' Llama of the same shape in PyTorch: the same
weights and batch, clipping, and AdamW (PyTorch's fused), so that both sides have the same losses. PyTorch is
in an environment of its own, so it runs in a process of its own. gpu: 125M and 1.8B at 2,048 and 4,096 on one
GPU, without PyTorch. Settings are those of `nd train`, by their dotted names (`--model.remat none`).

Everything that is compared takes turns, and each figure is the fastest turn: other load on the machine only
ever adds time. On a machine that is busy all along, compare processor time, and on one core (`taskset -c 0
python -m benchmarks.train`), since PyTorch's threads spin while they wait for each other. The peak behind the
MFU is measured by a matmul in the type that the model computes in. The loop's overhead is that of
`nd_jax.training.loop.train`, rows in memory, over its bare jitted step: both take turns in one run, and both
end by waiting for the device.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peer import start, write_model
from nd_jax.__main__ import restart_with_allocator
from nd_jax.console import console, table, write_json
from nd_jax.errors import UserError
from nd_jax.model.attention import resolve
from nd_jax.model.partition import batch_sharding, make_mesh
from nd_jax.model.transformer import compute_dtype
from nd_jax.training.chips import peak_of_kind
from nd_jax.training.config import (
    CheckpointConfig,
    Experiment,
    MetricsConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
    load_config,
)
from nd_jax.training.loop import Hook, train
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.state import new_state, state_shardings
from nd_jax.training.step import FIELDS, make_step, read_metrics, signals

CONFIGS = Path(__file__).parent.parent / "configs"


class Case(NamedTuple):
    """A shape to measure: a config file, rows of a step and their length, steps of one turn."""

    config: str
    rows: int
    length: int
    steps: int


CASES = {
    "cpu": {"5M, 512": Case("nd_5m", 8, 512, 5)},
    "gpu": {
        "125M, 2,048": Case("nd_125m", 32, 2048, 5),
        "125M, 4,096": Case("nd_125m", 16, 4096, 5),
        "1.8B, 2,048": Case("nd_1p8b", 16, 2048, 2),
        "1.8B, 4,096": Case("nd_1p8b", 8, 4096, 2),
    },
}
MATMUL = {"cpu": 2048, "gpu": 8192}
"""Size of the square matrices whose product measures the peak."""


class Turn(NamedTuple):
    """What one turn took, per step.

    Attributes:
      seconds: wall time.
      cpu_seconds: time of all cores together; it says more where other load takes turns with us.
      loss: of its last step.
    """

    seconds: float
    cpu_seconds: float
    loss: float = 0.0


TakeTurn = Callable[[], Turn]


class NoTokenizer:
    """Stands for a tokenizer in the checkpoint that a run ends with."""

    vocab_size = 0
    fingerprint = "none"

    def save(self, directory: Path) -> None:
        """Write nothing but the directory."""
        directory.mkdir(parents=True, exist_ok=True)


def device_of(kind: str) -> Any:
    """The first device of a kind."""
    try:
        return jax.devices(kind)[0]
    except RuntimeError as error:
        raise UserError(f"no {kind} here: {str(error).splitlines()[0]}") from error


def read_experiment(kind: str, case: Case, overrides: list[str]) -> Experiment:
    """The case's config file, with what is the same on both sides: AdamW, a constant learning rate."""
    experiment = load_config(CONFIGS / f"{case.config}.py")
    # On CPU it is compared with Llama, which knows no QK-norm.
    model = replace(experiment.model, qk_norm=False) if kind == "cpu" else experiment.model
    experiment = Experiment(
        model=model,
        data=replace(experiment.data, row_length=case.length, global_batch=case.rows),
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-3),
        schedule=ScheduleConfig(shape="constant", warmup_steps=0),
        train=TrainConfig(steps=1),
        checkpoint=CheckpointConfig(every_steps=10**9, asynchronous=False),
        metrics=MetricsConfig(every_steps=case.steps, line_seconds=1e9, tensorboard=False),
    )
    return load_config_words(experiment, overrides)


def load_config_words(experiment: Experiment, overrides: list[str]) -> Experiment:
    """The experiment with settings as on the command line of `nd train`."""
    import tyro

    return tyro.cli(Experiment, default=experiment, args=overrides, use_underscores=True,
                    config=(tyro.conf.FlagConversionOff,))  # fmt: skip


def random_rows(experiment: Experiment) -> dict[str, np.ndarray]:
    """Rows of random tokens, each one document; the last token of a row predicts nothing."""
    B, T = experiment.data.global_batch, experiment.data.row_length
    tokens_BxT = np.random.default_rng(0).integers(0, experiment.model.vocab_size, (B, T)).astype(np.int32)
    weights_BxT = np.ones((B, T), np.float32)
    weights_BxT[:, -1] = 0
    return {
        "tokens": tokens_BxT, "targets": np.roll(tokens_BxT, -1, 1), "weights": weights_BxT,
        "segments": np.ones((B, T), np.int32), "positions": np.tile(np.arange(T, dtype=np.int32), (B, 1)),
    }  # fmt: skip


class Ours:
    """Our bare jitted step on one batch that lies on the device, from the run's own parts."""

    def __init__(self, experiment: Experiment, device: Any, steps: int):
        data = experiment.data
        mesh = make_mesh(experiment.mesh, experiment.model, data.global_batch, [device], data.row_length)
        optimizer = make_optimizer(experiment.optimizer, experiment.model)
        shardings = state_shardings(experiment.model, optimizer, mesh)
        self._mesh, self._steps = mesh, steps
        rows = random_rows(experiment)
        with jax.set_mesh(mesh):
            self.attention = resolve(experiment.model.attention, data.row_length)
            self.dtype = compute_dtype(experiment.model).name
            self.state = new_state(experiment.model, optimizer, shardings, experiment.train.seed)
            self._step = make_step(experiment, optimizer, shardings)
            batch = {name: rows[name] for name in FIELDS}, signals(data.global_batch, 0.0, False)
            self._batch = jax.device_put(batch, batch_sharding(mesh))

    def turn(self, steps: int | None = None) -> Turn:
        """Take the steps of a turn and wait for the last."""
        steps = steps or self._steps
        metrics: Any = None
        start, cpu_start = time.perf_counter(), time.process_time()
        with jax.set_mesh(self._mesh):
            for _ in range(steps):
                self.state, metrics = self._step(self.state, *self._batch)
            jax.block_until_ready(metrics)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        return Turn(wall / steps, cpu / steps, read_metrics(metrics)["loss"])


def theirs(python: Path, folder: Path, experiment: Experiment, params: Any, steps: int) -> TakeTurn:
    """The step of transformers in a process of its own."""
    write_model(folder, experiment.model, params, experiment.data.row_length)
    np.save(folder / "tokens.npy", random_rows(experiment)["tokens"])
    rule = experiment.optimizer
    (folder / "optimizer.json").write_text(json.dumps({
        "lr": rule.learning_rate, "betas": [rule.b1, rule.b2], "eps": rule.eps,
        "weight_decay": rule.weight_decay, "clip_norm": rule.clip_norm,
    }))  # fmt: skip
    answer = start(python, "transformers_train.py", folder, steps, len(os.sched_getaffinity(0)))
    return lambda: Turn(**answer())


def matmul(kind: str, device: Any, dtype: str) -> tuple[TakeTurn, float]:
    """A matmul that reaches what the device can do, and its operations."""
    n, repeats = MATMUL[kind], 2 if kind == "cpu" else 20
    x_NxN = jax.device_put(jnp.ones((n, n), dtype), device)
    # One reads what the one before wrote, scaled to stay finite: none can be left out.
    multiply = jax.jit(lambda x_NxN, y_NxN: (x_NxN @ y_NxN) * (1 / n))
    jax.block_until_ready(multiply(x_NxN, x_NxN))

    def turn() -> Turn:
        start, cpu_start, y_NxN = time.perf_counter(), time.process_time(), x_NxN
        for _ in range(repeats):
            y_NxN = multiply(x_NxN, y_NxN)
        jax.block_until_ready(y_NxN)
        return Turn((time.perf_counter() - start) / repeats, (time.process_time() - cpu_start) / repeats)

    return turn, 2.0 * n**3


def take_turns(sides: Mapping[str, TakeTurn], rounds: int) -> dict[str, list[Turn]]:
    """So many turns of each, one after the other."""
    turns: dict[str, list[Turn]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, turn in sides.items():
            turns[side].append(turn())
    return turns


def fastest(turns: list[Turn]) -> float:
    """Seconds of the fastest."""
    return min(turn.seconds for turn in turns)


def loop_against(
    bare: Ours, experiment: Experiment, device: Any, steps: int, rounds: int
) -> dict[str, float]:
    """A run of the loop, whose hook takes the bare steps in turn with it.

    On CPU two copies of one step differ by 2 to 3 %, by where their arrays lie. So the loop is held against
    the mean of two, whose arrays were made before its own and after.
    """
    rows = random_rows(experiment)
    loop: list[Turn] = []
    bares = [bare]
    alone: list[list[Turn]] = [[], []]
    since: list[float] = []

    def batches(*_: int) -> Iterator[Mapping[str, np.ndarray]]:
        while True:
            yield rows

    def hook(*_: Any) -> None:
        if since:  # the first turn compiles
            wall, cpu = time.perf_counter() - since[0], time.process_time() - since[1]
            loop.append(Turn(wall / steps, cpu / steps))
        if device.platform == "cpu" and not loop and len(bares) == 1:
            bares.append(Ours(experiment, device, steps))
            bares[-1].turn()  # compiles
        for turns, step in zip(alone, bares, strict=False):
            turns.append(step.turn())
        since[:] = time.perf_counter(), time.process_time()

    experiment = replace(experiment, train=replace(experiment.train, steps=steps * (rounds + 1)))
    with tempfile.TemporaryDirectory() as folder:
        record = train(
            experiment, batches, "random tokens", NoTokenizer(), Path(folder), [Hook(steps, hook)], [device]
        )
    alone = [turns for turns in alone if turns]
    cpu = fmean(min(turn.cpu_seconds for turn in turns) for turns in alone)
    return {
        "loop_overhead": fastest(loop) / fmean(map(fastest, alone)) - 1,
        "loop_overhead_cpu": min(turn.cpu_seconds for turn in loop) / cpu - 1,
        "input_wait": record["input_wait"],
    }


def measure(
    kind: str, case: Case, overrides: list[str], interop: Path | None, rounds: int, with_loop: bool
) -> dict[str, Any]:
    """All figures of one case."""
    experiment, device = read_experiment(kind, case, overrides), device_of(kind)
    data, model = experiment.data, experiment.model
    tokens = data.global_batch * data.row_length
    bare = Ours(experiment, device, case.steps)
    peak_turn, operations = matmul(kind, device, bare.dtype)
    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, TakeTurn] = {"ours": bare.turn, "peak": peak_turn}
        if interop is not None:
            params = jax.device_get(bare.state["params"])
            sides["torch"] = theirs(interop, Path(folder), experiment, params, case.steps)
        first = bare.turn(1)  # compiles
        if interop is not None:
            sides["torch"]()  # warms up, by one step too
        turns = take_turns(sides, rounds)
    rate, peak = tokens / fastest(turns["ours"]), operations / fastest(turns["peak"])
    per_token = model.flops_per_token(data.row_length)
    work = rate * per_token
    figures: dict[str, Any] = {
        "parameters": model.parameters(), "rows": data.global_batch, "length": data.row_length,
        "device": device.device_kind, "attention": bare.attention, "dtype": bare.dtype,
        "first_step_seconds": first.seconds, "flops_per_token": per_token, "tokens_per_s": rate,
        "peak_flops": peak, "mfu": work / peak,
    }  # fmt: skip
    if known := peak_of_kind(device.device_kind):
        figures |= {"data_sheet_peak_flops": known, "mfu_of_data_sheet": work / known}
    if interop is not None:
        cpu = {side: min(turn.cpu_seconds for turn in turns[side]) for side in ("ours", "torch")}
        pairs = zip(turns["ours"], turns["torch"], strict=True)
        figures |= {
            "torch_tokens_per_s": tokens / fastest(turns["torch"]),
            "ratio_to_torch": fastest(turns["torch"]) / fastest(turns["ours"]),
            "cpu_time_ratio": cpu["torch"] / cpu["ours"],
            "first_loss": first.loss,
            "loss": turns["ours"][-1].loss,
            "largest_loss_difference": max(abs(a.loss - b.loss) for a, b in pairs),
        }
    if with_loop:
        figures |= loop_against(bare, experiment, device, case.steps, rounds)
    return figures


def main(words: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=CASES, default="cpu")
    parser.add_argument("--interop", type=Path, default=Path(".venv-interop/bin/python"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args(words)
    interop = options.interop if options.device == "cpu" and options.interop.exists() else None
    if options.device == "cpu" and interop is None:
        console.print(f"{options.interop} is not there: run `make interop` to compare with transformers")
    figures: dict[str, Any] = {}
    for number, (name, case) in enumerate(CASES[options.device].items()):
        try:
            figures[name] = measure(options.device, case, overrides, interop, options.rounds, number == 0)
        except jax.errors.JaxRuntimeError as error:  # the other cases are worth the machine's time
            figures[name] = {"error": str(error).splitlines()[0]}
        rows = [(key, _shown(value)) for key, value in figures[name].items()]
        table(name, ["figure", "value"], rows)
    first, *_ = figures.values()
    write_json(options.json, {"ratio_to_torch": None, **first, "cases": figures})


def _shown(value: Any) -> Any:
    """Large numbers with separators; the table writes fractions."""
    if isinstance(value, (int, float)) and value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2e}" if isinstance(value, float) and 0 < abs(value) < 0.001 else value


if __name__ == "__main__":
    restart_with_allocator()  # as `nd train` does
    main()
