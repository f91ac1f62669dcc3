"""What a run reports: `metrics.jsonl`, TensorBoard files, and a line that people watch.

Conventions. Tokens are positions of rows, padding included (`fill` is the share that is none). FLOPs are
`ModelConfig.flops_per_token`: causal attention halved, embedding lookup excluded, head included, nothing
recomputed. MFU is FLOPs per second over the peak of all devices. Times leave out compilation, hooks and what
saves hold up; the input wait is the share of the time that the loop spent getting rows. Goodput is the share
of the time since the run was first started in which steps were computed that counted: what restarts, redone
steps, compilation, evaluation, saves and waiting took is lost. Losses by kind are unweighted means.
"""

import contextlib
import datetime
import importlib
import json
import math
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from rich.progress import BarColumn, Progress, TextColumn

from nd_jax.console import console
from nd_jax.training.chips import peak_of_kind
from nd_jax.training.config import Experiment
from nd_jax.training.step import BY_KIND, losses_by_kind


def peak_flops(device: Any) -> float | None:
    """Peak FLOP/s of a device: by table, on CPU what a float32 matmul reaches; None where it is unknown."""
    if device.platform == "cpu":
        return _measured_matmul() / jax.local_device_count()
    return peak_of_kind(device.device_kind)


def _measured_matmul(n: int = 1024, tries: int = 5) -> float:
    # A mesh of its own: the run's may span devices that this matmul does not use.
    alone = jax.make_mesh((1,), ("one",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:1])
    with jax.set_mesh(alone):
        multiply = jax.jit(jnp.matmul)
        x = jnp.ones((n, n), jnp.float32)
        multiply(x, x).block_until_ready()
        seconds = []
        for _ in range(tries):
            start = time.perf_counter()
            multiply(x, x).block_until_ready()
            seconds.append(time.perf_counter() - start)
    return 2.0 * n**3 / min(seconds)


SUMS = ("steps", "loss", "accuracy", "weight", "tokens", *BY_KIND)
"""What is summed over the steps of a record; loss and accuracy by weight."""


class Recorder:
    """Gathers the metrics of steps into records and reports them. Only the first host writes and prints.

    Used as a context; `step` takes each step's metrics once they have arrived.
    """

    def __init__(
        self, experiment: Experiment, out: Path, start: int, devices: int, productive_before: float = 0.0
    ):
        """Continue the files in `out` after step `start`; records of steps to be redone are dropped.

        Args:
          experiment: the settings.
          out: the run's directory.
          start: steps done so far.
          devices: how many the mesh has.
          productive_before: seconds in which these steps were computed.
        """
        self._productive_before = productive_before
        self._config, self._out, self._devices = experiment.metrics, out, devices
        self._row_tokens = experiment.data.global_batch * experiment.data.row_length
        self._step_flops = experiment.model.flops_per_token(experiment.data.row_length) * self._row_tokens
        self._peak = self._config.peak_flops or peak_flops(jax.devices()[0])
        self._first = jax.process_index() == 0
        self._start = start
        self._begun: float | None = None
        self._aside = 0.0
        self._waited = 0.0
        self._sums: dict[str, float] = dict.fromkeys(SUMS, 0.0)
        self._progress_at_start: float | None = None
        self._last_line = float("-inf")
        self._since = (0.0, 0.0)  # seconds trained and seconds waited at the last record
        self.last: dict[str, float] = {}
        """The newest record, also of the run before its resumption."""

    def __enter__(self) -> "Recorder":
        self._stack = contextlib.ExitStack()
        if not self._first:
            return self
        self._out.mkdir(parents=True, exist_ok=True)
        self._life = _life(self._out / "life.json")
        path = self._out / "metrics.jsonl"
        self.last = _drop_after(path, self._start)
        self._file = path.open("a", encoding="utf-8")
        self._stack.callback(self._flush, close=True)
        self._board = None
        if self._config.tensorboard:
            from tensorboardX import SummaryWriter

            self._board = SummaryWriter(str(self._out / "tensorboard"), purge_step=self._start + 1)
            self._stack.callback(self._board.close)
        self._wandb = None
        if self._config.wandb:
            wandb = importlib.import_module("wandb")  # an extra
            self._wandb = wandb.init(
                project=self._config.wandb, id=self._life["id"], name=self._out.resolve().name,
                dir=str(self._out), resume="allow",
            )  # fmt: skip
            self._stack.callback(self._wandb.finish)
        self._bar = None
        if console.is_terminal:
            columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
            self._bar = self._stack.enter_context(Progress(*columns, console=console, transient=True))
            self._task = self._bar.add_task("compiling", total=1.0)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    @property
    def peak_text(self) -> str:
        """The peak that MFU is given against, for people."""
        if self._peak is None:
            return "peak FLOP/s unknown for this device: give --metrics.peak_flops for MFU"
        known = "measured" if jax.default_backend() == "cpu" else "table"
        source = "given" if self._config.peak_flops else known
        return f"MFU against {self._peak / 1e12:.3g} TFLOP/s per device ({source})"

    def begin(self) -> None:
        """Start the clock: the first step is compiled and under way."""
        if self._begun is None:
            self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds trained in this process: since `begin`, without what was put aside."""
        return 0.0 if self._begun is None else time.perf_counter() - self._begun - self._aside

    @property
    def productive(self) -> float:
        """Seconds in which the steps that count were computed, over all resumptions."""
        return self._productive_before + self.seconds - self._waited

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the time of this block out of the throughput (hooks: evaluation and the like)."""
        start = time.perf_counter()
        yield
        self._aside += time.perf_counter() - start

    @contextlib.contextmanager
    def input_wait(self) -> Iterator[None]:
        """Count the time of this block as waiting for rows."""
        start = time.perf_counter()
        yield
        self._waited += time.perf_counter() - start

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step (`step` counts from 1), and report when a record is full."""
        weight = metrics["weight"]
        gathered = {"steps": 1.0, "tokens": metrics["tokens"]}
        if math.isfinite(metrics["loss"]):  # else the step was left out
            gathered["weight"] = weight
            gathered |= {name: metrics[name] * weight for name in ("loss", "accuracy")}
            gathered |= {name: metrics.get(name, 0.0) for name in BY_KIND}
        for name, value in gathered.items():
            self._sums[name] += value
        if self._progress_at_start is None:
            self._progress_at_start = metrics["progress"]
        if step % self._config.every_steps == 0:
            self._report(step, metrics)

    def flush(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report the steps gathered since the last record, at the end of the run."""
        if self._sums["steps"]:
            self._report(step, metrics, last=True)

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        """Write further values of a step (a hook's figures); texts go to TensorBoard alone."""
        if not self._first:
            return
        figures = {name: value for name, value in values.items() if not isinstance(value, str)}
        if figures:
            self._file.write(json.dumps({"step": step, **figures}) + "\n")
            self._flush()
        if self._board:
            for name, value in values.items():
                if isinstance(value, str):
                    self._board.add_text(name, value, step)
                else:
                    self._board.add_scalar(name, value, step)
        if self._wandb and figures:
            self._wandb.log(figures, step=step)

    def _flush(self, close: bool = False) -> None:
        """Write to disk; where it is full, say so and keep the lines for the next time."""
        try:
            self._file.flush()
        except OSError as error:
            console.print(f"{self._file.name} could not be written: {error}", style="bold red")
        if close:
            with contextlib.suppress(OSError):
                self._file.close()

    def _report(self, step: int, metrics: Mapping[str, float], last: bool = False) -> None:
        sums, weight, seconds = self._sums, self._sums["weight"] or 1.0, self.seconds
        passed = max(seconds - self._since[0], 1e-9)
        steps_per_s = sums["steps"] / passed
        record = {
            "loss": sums["loss"] / weight,
            "accuracy": sums["accuracy"] / weight,
            "weight": sums["weight"] / sums["steps"],
            "fill": sums["tokens"] / (sums["steps"] * self._row_tokens),
            "grad_norm": metrics["grad_norm"],
            "param_norm": metrics["param_norm"],
            "learning_rate": metrics["learning_rate"],
            "progress": metrics["progress"],
            "tokens_seen": float(step * self._row_tokens),
            "step_seconds": 1.0 / steps_per_s,
            "tokens_per_s": steps_per_s * self._row_tokens,
            "input_wait": (self._waited - self._since[1]) / passed,
            "skipped": metrics.get("skipped", 0.0),
        }
        record |= {f"loss/{kind}": loss for kind, loss in losses_by_kind(sums).items()}
        if self._first:
            record["goodput"] = self.productive / max(time.time() - self._life["started"], 1e-9)
        if self._peak:
            record["mfu"] = steps_per_s * self._step_flops / (self._peak * self._devices)
        self._since = (seconds, self._waited)
        self._sums = dict.fromkeys(SUMS, 0.0)
        record = {name: value for name, value in record.items() if math.isfinite(value)}
        self.last = record
        self.write(step, record)
        if self._first:
            self._show(step, record, last)

    def _show(self, step: int, record: Mapping[str, float], last: bool) -> None:
        mfu = f"MFU {record['mfu']:.1%}  " if "mfu" in record else ""
        line = (
            f"step {step}  loss {record['loss']:.4f}  lr {record['learning_rate']:.2e}  "
            f"{record['tokens_per_s']:,.0f} tokens/s  {mfu}input wait {record['input_wait']:.0%}  "
            f"ETA {self._time_left(record['progress'])}"
        )
        if self._bar:
            self._bar.update(self._task, completed=record["progress"], description=line)
        elif last or time.perf_counter() - self._last_line >= self._config.line_seconds:
            console.print(line, soft_wrap=True)
            self._last_line = time.perf_counter()

    def _time_left(self, progress: float) -> str:
        done = progress - (self._progress_at_start or 0.0)
        if done <= 0:
            return "?"
        left = int(max(0.0, 1.0 - progress) / done * self.seconds)
        return str(datetime.timedelta(seconds=left))


def _life(path: Path) -> dict[str, Any]:
    """Give when the run was first started, and its name for W&B, which never change."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the first start, or killed in it
        life = {"started": time.time(), "id": uuid.uuid4().hex}
        path.write_text(json.dumps(life) + "\n", encoding="utf-8")
        return life


def _drop_after(path: Path, step: int) -> dict[str, float]:
    """Drop the records of later steps and a half-written last line, and give the last record that is kept."""
    if not path.exists():
        return {}
    kept, last = [], {}
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            record = json.loads(line)
            if record["step"] <= step:
                kept.append(line + "\n")
                last = record if "loss" in record else last
    new = path.with_suffix(".new")
    new.write_text("".join(kept), encoding="utf-8")
    os.replace(new, path)
    return last
