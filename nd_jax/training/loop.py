"""The training loop: build or resume the state, step until the run is over, save."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.model.partition import batch_sharding, make_mesh
from nd_jax.training.checkpoint import Checkpoints, Tokenizer
from nd_jax.training.config import Experiment, diff
from nd_jax.training.metrics import Recorder
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.state import State, abstract_state, new_state, state_shardings
from nd_jax.training.step import FIELDS, Batch, make_step, read_metrics, signals
from nd_jax.training.stopping import StopSignal

MakeBatches = Callable[[int, int, int], Iterator[Mapping[str, np.ndarray]]]
"""(first step, host, hosts) -> this host's rows of each global batch from that step on, without end."""


@dataclass(frozen=True)
class Hook:
    """Something to do every so many steps: evaluate, decode samples."""

    every_steps: int
    """Called after every step that this divides."""

    call: Callable[[int, dict[str, Any]], Mapping[str, float] | None]
    """Takes the step and the parameters, which it must not keep (the next step uses them up); may give
    figures to record, by name."""


def train(
    experiment: Experiment,
    batches: MakeBatches,
    data_fingerprint: str,
    tokenizer: Tokenizer,
    out: Path,
    hooks: Sequence[Hook] = (),
    devices: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Train a model, resuming where the run in `out` stopped.

    Ends by steps or wall time (`TrainConfig`), or after the step under way on SIGTERM or Ctrl-C; in each case
    with a checkpoint. Every host calls this with the same arguments.

    Args:
      experiment: all settings.
      batches: makes the rows; with `data.pipeline.global_batches`: a partial over rows and config.
      data_fingerprint: names the rows and their order; a checkpoint of other rows is refused.
      tokenizer: goes into the checkpoints.
      out: the run's directory: checkpoints, `metrics.jsonl`, TensorBoard files.
      hooks: called between steps.
      devices: what to train on; default: every device of every host.

    Returns:
      The run's figures: ``step``, ``stopped`` ("finished" or the signal's name), ``seconds`` trained over all
      resumptions, ``checkpoint`` (path), ``parameters``, and the newest record of `metrics.jsonl`.

    Raises:
      UserError: settings that do not fit together or the checkpoint; a loss that is no longer finite.
    """
    _check(experiment, tokenizer)
    microbatch = experiment.data.global_batch // experiment.train.accumulation
    mesh = make_mesh(experiment.mesh, experiment.model, microbatch, devices, experiment.data.row_length)
    optimizer = make_optimizer(experiment.optimizer, experiment.model)
    shardings = state_shardings(experiment.model, optimizer, mesh)
    checkpoints = Checkpoints(out, experiment, tokenizer, data_fingerprint)
    with jax.set_mesh(mesh), StopSignal() as stop, contextlib.closing(checkpoints):
        wanted, start_from = (
            abstract_state(experiment.model, optimizer, shardings),
            experiment.train.start_from,
        )
        if checkpoints.latest is not None:
            state, record = checkpoints.restore(wanted)
            first, elapsed = record.step, record.elapsed_seconds
            _say_resumed(checkpoints.path(first), diff(record.experiment, experiment))
        elif start_from:
            state, record = checkpoints.start(Path(start_from), wanted)
            first, elapsed = record.step, 0.0
            _say(f"Starting from {start_from}, after step {first}")
        else:
            state = new_state(experiment.model, optimizer, shardings, experiment.train.seed)
            first, elapsed = 0, 0.0
        rows = batches(first, jax.process_index(), jax.process_count())
        with Recorder(experiment, out, first, mesh.size) as recorder:
            run = _Run(experiment, mesh, checkpoints, recorder, stop, hooks, elapsed)
            _say(f"{experiment.model.parameters():,} parameters on {mesh.size} devices; {recorder.peak_text}")
            step = run.steps(make_step(experiment, optimizer, shardings), state, first, rows)
        stopped = run.stopped or "finished"
        _say(f"{'Finished' if stopped == 'finished' else f'Stopped by {stopped}'} after step {step}: "
             f"{checkpoints.path(step)}")  # fmt: skip
        return recorder.last | {
            "step": step,
            "stopped": stopped,
            "seconds": run.elapsed,
            "parameters": experiment.model.parameters(),
            "checkpoint": str(checkpoints.path(step)),
        }


class _Run:
    """What stays the same during a run, and its clock."""

    def __init__(
        self, experiment: Experiment, mesh: Mesh, checkpoints: Checkpoints, recorder: Recorder,
        stop: StopSignal, hooks: Sequence[Hook], elapsed: float,
    ):  # fmt: skip
        self.experiment, self.checkpoints, self.recorder = experiment, checkpoints, recorder
        self.stop, self.hooks, self._elapsed_before = stop, hooks, elapsed
        self.sharding = batch_sharding(mesh)
        self.stopped: str | None = None
        self._clock_start: float | None = None

    def steps(
        self, train_step: Callable[..., tuple[State, jax.Array]], state: State, step: int,
        rows: Iterator[Mapping[str, np.ndarray]],
    ) -> int:  # fmt: skip
        """Step until the run is over, save, and give the number of steps done."""
        limit = self.experiment.train.steps
        pending: tuple[int, jax.Array] | None = None
        seen: dict[str, float] = {"progress": self._progress(step), "stop": 0.0}
        batch = self._load(rows)
        while not (limit is not None and step >= limit) and seen["progress"] < 1.0 and not seen["stop"]:
            # Dispatched, not awaited: the device works while rows are made and the step before is reported.
            state, metrics = train_step(state, batch, self._signals(step))
            step += 1
            self._start_clock()
            with self.recorder.input_wait():
                batch = self._load(rows)
            if pending:
                seen = self._see(*pending)
            pending = step, metrics
            hooks = [hook for hook in self.hooks if step % hook.every_steps == 0]
            if (due := self.checkpoints.due(step)) or hooks:
                seen, pending = self._see(*pending), None
            if due:
                self.checkpoints.save(step, state, self.elapsed)
                if self.checkpoints.preempted(step):
                    self.stopped = "preemption"
                    break
            for hook in hooks:
                with self.recorder.aside():
                    self.recorder.write(step, hook.call(step, state["params"]) or {})
        if pending:
            seen = self._see(*pending)
        if seen["stop"] and not self.stopped:
            self.stopped = self.stop.received or "another host's signal"
        self.recorder.flush(step, seen)
        self.checkpoints.save(step, state, self.elapsed)
        self.checkpoints.finish()
        return step

    def _load(self, rows: Iterator[Mapping[str, np.ndarray]]) -> Batch:
        """Put this host's next rows on its devices."""
        arrays = next(rows)
        return {name: jax.make_array_from_process_local_data(self.sharding, arrays[name]) for name in FIELDS}

    def _signals(self, step: int) -> jax.Array:
        rows = self.experiment.data.global_batch // jax.process_count()
        local = signals(rows, self._progress(step), self.stop.received is not None)
        return jax.make_array_from_process_local_data(self.sharding, local)

    def _see(self, step: int, metrics: jax.Array) -> dict[str, float]:
        """Wait for a step's metrics, report them, and stop the run if the model has broken down."""
        values = read_metrics(metrics)
        broken = [name for name in ("loss", "grad_norm", "param_norm") if not math.isfinite(values[name])]
        if broken:
            self.checkpoints.finish()
            good = self.checkpoints.latest
            last = self.checkpoints.path(good) if good else "none yet"
            raise UserError(
                f"{broken[0]} is {values[broken[0]]} at step {step}; last good checkpoint: {last}. "
                "Lower --optimizer.learning_rate or lengthen the warm-up, and start again to resume there"
            )
        self.recorder.step(step, values)
        return values

    def _progress(self, step: int) -> float:
        config = self.experiment.train
        by_steps = step / config.steps if config.steps else 0.0
        by_time = self.elapsed / config.max_seconds if config.max_seconds else 0.0
        return min(1.0, max(by_steps, by_time))

    def _start_clock(self) -> None:
        if self._clock_start is None:
            self._clock_start = time.perf_counter()
            self.recorder.begin()

    @property
    def elapsed(self) -> float:
        """Seconds of the run since its first step, over all resumptions."""
        now = 0.0 if self._clock_start is None else time.perf_counter() - self._clock_start
        return self._elapsed_before + now


def _check(experiment: Experiment, tokenizer: Tokenizer) -> None:
    """Refuse settings that contradict each other, before anything is allocated."""
    experiment.model.validate()
    config, rows = experiment.train, experiment.data.global_batch
    if config.steps is None and config.max_seconds is None:
        raise UserError("the run would never end: give --train.steps or --train.max_seconds")
    if (size := experiment.model.vocab_size) < tokenizer.vocab_size:
        raise UserError(
            f"model.vocab_size={size} is less than the tokenizer's: "
            f"give --model.vocab_size {tokenizer.vocab_size}"
        )
    if config.accumulation < 1 or rows % config.accumulation:
        raise UserError(
            f"train.accumulation={config.accumulation} does not divide data.global_batch={rows}: "
            f"use one of {[n for n in range(1, rows + 1) if rows % n == 0]}"
        )


def _say(text: str) -> None:
    if jax.process_index() == 0:
        console.print(text)


def _say_resumed(path: Path, changed: list[str]) -> None:
    _say(f"Resuming from {path}" + (f" with changed {'; '.join(changed)}" if changed else ""))
