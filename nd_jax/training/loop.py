"""The training loop: build or resume the state, step until the run is over, save."""

import contextlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.model.partition import batch_sharding, make_mesh
from nd_jax.training.checkpoint import Checkpoints, Tokenizer
from nd_jax.training.config import Experiment, diff
from nd_jax.training.distributed import compile_together, own_rows, place
from nd_jax.training.metrics import Recorder
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.patience import InputWatch
from nd_jax.training.profile import Profile, read_steps
from nd_jax.training.state import State, abstract_state, new_state, state_shardings
from nd_jax.training.step import FIELDS, Batch, make_step, read_metrics, signals
from nd_jax.training.stopping import Interrupted, StopSignal

MakeBatches = Callable[[int, Sequence[int]], Iterator[Mapping[str, np.ndarray]]]
"""(first step, rows) -> these rows of each global batch from that step on, without end: those that lie on
this host's devices, numbered within the batch."""


Check = Callable[[], None]
"""Raises `Interrupted` where the run is to stop. All hosts call it as often, and get the same answer."""


@dataclass(frozen=True)
class Hook:
    """Something to do every so many steps: evaluate, decode samples."""

    every_steps: int
    """Called after every step that this divides."""

    call: Callable[[int, dict[str, Any], Check], Mapping[str, float | str] | None]
    """Takes the step, the parameters, which it must not keep (the next step uses them up), and a check to
    call between two pieces of work; may give figures or texts to record, by name."""


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
    _check_settings(experiment, tokenizer)
    microbatch = experiment.data.global_batch // experiment.train.accumulation
    mesh = make_mesh(experiment.mesh, experiment.model, microbatch, devices, experiment.data.row_length)
    optimizer = make_optimizer(experiment.optimizer, experiment.model)
    shardings = state_shardings(experiment.model, optimizer, mesh)
    checkpoints = Checkpoints(out, experiment, tokenizer, data_fingerprint)
    with jax.set_mesh(mesh), StopSignal() as stop, contextlib.closing(checkpoints):
        wanted = abstract_state(experiment.model, optimizer, shardings)
        start_from = experiment.train.start_from
        first, elapsed, productive = 0, 0.0, 0.0
        if checkpoints.latest is not None:
            state, record = checkpoints.restore(wanted)
            first, elapsed = record.step, record.elapsed_seconds
            productive = record.productive_seconds
            _say_resumed(checkpoints.path(first), diff(record.experiment, experiment))
        elif start_from:
            state, record = checkpoints.start(Path(start_from), wanted)
            first = record.step
            _say(f"Starting from {start_from}, after step {first}")
        else:
            state = new_state(experiment.model, optimizer, shardings, experiment.train.seed)
        profile = Profile(experiment.metrics.profile, out)
        with Recorder(experiment, out, first, mesh.size, productive) as recorder:
            watch = InputWatch(experiment, first, stop)
            run = _Run(experiment, mesh, checkpoints, recorder, stop, watch, profile, hooks, elapsed)
            rows = batches(first, run.own)
            _say(f"{experiment.model.parameters():,} parameters on {mesh.size} devices; {recorder.peak_text}")
            with watch, profile:
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
        stop: StopSignal, watch: InputWatch, profile: Profile, hooks: Sequence[Hook], elapsed: float,
    ):  # fmt: skip
        self.watch, self.profile = watch, profile
        self.experiment, self.checkpoints, self.recorder = experiment, checkpoints, recorder
        self.stop, self.hooks, self._elapsed_before = stop, hooks, elapsed
        self.mesh, self.sharding = mesh, batch_sharding(mesh)
        self.rows = experiment.data.global_batch
        self.own = own_rows(self.sharding, self.rows)
        self.stopped: str | None = None
        self._clock_start: float | None = None
        self._step: Any = None  # the compiled step

    def steps(
        self, train_step: Any, state: State, step: int, rows: Iterator[Mapping[str, np.ndarray]]
    ) -> int:
        """Step until the run is over, save, and give the number of steps done."""
        pending: tuple[int, jax.Array] | None = None
        seen: dict[str, float] = {"progress": self._progress(step), "stop": 0.0}
        batch = self._next(rows, step)
        if not self._over(step, seen) and not (batch and self._compile(train_step, state, batch, step)):
            seen["stop"] = 1.0
        while not self._over(step, seen):
            # Dispatched, not awaited: the device works while rows are made and the step before is reported.
            self.profile.before(step + 1)
            state, metrics = self._step(state, batch, self._signals(step))
            step += 1
            self._start_clock()
            self.profile.after(step, metrics)
            with self.recorder.input_wait():
                batch = self._next(rows, step)
            if pending:
                seen = self._see(*pending)
            pending = step, metrics
            if batch is None:
                self.stopped = self.stop.received
                break
            hooks = [hook for hook in self.hooks if step % hook.every_steps == 0]
            if (due := self.checkpoints.due(step)) or hooks:
                seen, pending = self._see(*pending), None
            if due:
                self._save(step, state)
                if self.checkpoints.preempted(step):
                    self.stopped = "preemption"
                    break
            try:
                for hook in hooks:
                    with self.recorder.aside():
                        self.recorder.write(step, hook.call(step, state["params"], self._check) or {})
            except Interrupted:
                seen["stop"] = 1.0
        if pending:
            seen = self._see(*pending)
        if seen["stop"] and not self.stopped:
            self.stopped = self.stop.received or "another host's signal"
        self.recorder.flush(step, seen)
        self._save(step, state)
        self.checkpoints.finish(step)
        return step

    def _save(self, step: int, state: State) -> None:
        with self.recorder.aside():
            self.checkpoints.save(step, state, self.elapsed, self.recorder.productive)

    def _check(self) -> None:
        """Raise `Interrupted` where this process or another was asked to stop."""
        asked = self.stop.received is not None
        if jax.process_count() > 1:
            asked = bool(np.asarray(_any(self._signals(0)))[1])
        if asked:
            raise Interrupted

    def _over(self, step: int, seen: Mapping[str, float]) -> bool:
        limit = self.experiment.train.steps
        return (limit is not None and step >= limit) or seen["progress"] >= 1.0 or seen["stop"] > 0

    def _compile(self, train_step: Any, state: State, batch: Batch, step: int) -> bool:
        """Compile the step for these arrays; False where the run was stopped meanwhile."""
        asked = self._signals(step)

        def make() -> Any:
            with jax.set_mesh(self.mesh):  # it holds in one thread only
                return train_step.lower(state, batch, asked).compile()

        self._step = compile_together(make, self.stop)
        return self._step is not None

    def _next(self, rows: Iterator[Mapping[str, np.ndarray]], step: int) -> Batch | None:
        """Put this host's next rows on its devices; None where they are late and the run is to stop."""
        try:
            with self.watch.wait(step):
                arrays = next(rows)
        except Interrupted:
            return None
        kept = {name: array for name, array in arrays.items() if name in FIELDS or name == "kinds"}
        return place(kept, self.sharding, self.own, self.rows)

    def _signals(self, step: int) -> jax.Array:
        local = signals(len(self.own), self._progress(step), self.stop.received is not None)
        return place({"signals": local}, self.sharding, self.own, self.rows)["signals"]

    def _see(self, step: int, metrics: jax.Array) -> dict[str, float]:
        """Wait for a step's metrics, report them, and stop the run if the model has broken down."""
        values = read_metrics(metrics)
        guard = self.experiment.guard
        watched = ("loss", "grad_norm", "param_norm") if guard.nonfinite == "stop" else ("param_norm",)
        if broken := [name for name in watched if not math.isfinite(values[name])]:
            self._give_up(f"{broken[0]} is {values[broken[0]]} at step {step}")
        if values["spike"] and guard.spike == "stop":
            self._give_up(f"the loss jumped to {values['loss']:.4g} at step {step}")
        if values["skipped_in_a_row"] >= guard.most_skips:
            self._give_up(f"{guard.most_skips} steps in a row were left out, the last of them {step}")
        self.recorder.step(step, values)
        return values

    def _give_up(self, why: str) -> None:
        self.checkpoints.settle()
        good = self.checkpoints.latest
        last = self.checkpoints.path(good) if good is not None else "none yet"
        raise UserError(
            f"{why}; last good checkpoint: {last}. "
            "Lower --optimizer.learning_rate or lengthen the warm-up, and start again to resume there"
        )

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


@jax.jit
def _any(signals_Bx2: jax.Array) -> jax.Array:
    return jax.lax.with_sharding_constraint(jnp.max(signals_Bx2, axis=0), jax.sharding.PartitionSpec())


def _check_settings(experiment: Experiment, tokenizer: Tokenizer) -> None:
    """Refuse settings that contradict each other, before anything is allocated."""
    experiment.model.validate()
    read_steps(experiment.metrics.profile)
    if experiment.metrics.wandb and importlib.util.find_spec("wandb") is None:
        raise UserError("--metrics.wandb needs Weights & Biases: pip install 'nd_jax[wandb]'")
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
