"""Self-contained checkpoints: a directory per step that a run resumes from and that is used without its run.

``RUN/checkpoints/STEP/`` holds ``params`` and ``optimizer`` (Orbax), ``tokenizer`` (its files) and ``run``
(JSON: the experiment, the fingerprints of tokenizer and data, the step, which is also the position in the
data, and the time trained). Orbax writes to a temporary name and renames at the end, so a checkpoint is
complete or recognised as broken.
"""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.language.tokenizer import Tokenizer as TraceTokenizer
from nd_jax.training.config import Experiment, diff, from_dict, to_dict
from nd_jax.training.state import State, abstract_params

FOLDER = "checkpoints"
"""Where a run's checkpoints are, under its directory."""

COMPUTE_ONLY = ("dtype", "scan_layers", "remat", "attention", "attention_block", "loss_chunk")
"""Fields of ModelConfig that say how to compute, not what: free to change on resumption."""


class Tokenizer(Protocol):
    """What training and its checkpoints need of a tokenizer."""

    @property
    def fingerprint(self) -> str:
        """Equal for tokenizers that encode alike."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    def save(self, directory: Path) -> None:
        """Write its files."""
        ...


@dataclass(frozen=True)
class RunRecord:
    """What a checkpoint says of its run."""

    experiment: Experiment
    step: int
    elapsed_seconds: float
    tokenizer: str
    """The tokenizer's fingerprint."""
    data: str
    """The fingerprint of the rows; the position in them is `step` global batches."""
    productive_seconds: float = 0.0
    """Of the elapsed ones, those in which steps were computed."""


class TokenizerFiles(ocp.CheckpointHandler):
    """Orbax handler for a tokenizer: its own files, readable without Orbax."""

    def save(self, directory: Any, args: "SaveTokenizer") -> None:
        """Write the files, on one host."""
        if jax.process_index() == 0:
            args.tokenizer.save(Path(directory))

    def restore(self, directory: Any, args: "RestoreTokenizer") -> Path:
        """Give the directory that the files are in."""
        return Path(directory)


@ocp.args.register_with_handler(TokenizerFiles, for_save=True)
@dataclass
class SaveTokenizer(ocp.args.CheckpointArgs):
    """Asks for a tokenizer to be saved."""

    tokenizer: Tokenizer


@ocp.args.register_with_handler(TokenizerFiles, for_restore=True)
@dataclass
class RestoreTokenizer(ocp.args.CheckpointArgs):
    """Asks for the directory of a tokenizer's files."""


class Checkpoints:
    """The checkpoints that one run writes and resumes from."""

    def __init__(self, run: Path, experiment: Experiment, tokenizer: Tokenizer, data_fingerprint: str):
        """Open the run's directory; checkpoints that were never finished are named and set aside."""
        self.directory = run.resolve() / FOLDER
        self.directory.mkdir(parents=True, exist_ok=True)
        self._experiment, self._tokenizer, self._data = experiment, tokenizer, data_fingerprint
        if jax.process_index() == 0:
            _set_broken_aside(self.directory)
        if jax.process_count() > 1:  # no other host lists the folder before that
            multihost_utils.sync_global_devices("broken checkpoints set aside")
        self._manager = self._open()
        self._saving: int | None = None
        self.failed = 0
        """How many saves failed."""

    def _open(self) -> ocp.CheckpointManager:
        config, policies = self._experiment.checkpoint, ocp.checkpoint_managers
        options = ocp.CheckpointManagerOptions(
            save_decision_policy=policies.AnySavePolicy([
                policies.FixedIntervalPolicy(config.every_steps),
                policies.SpecificStepsPolicy(config.keep_steps),
                policies.PreemptionCheckpointingPolicy(),
            ]),
            preservation_policy=policies.AnyPreservationPolicy([
                policies.LatestN(config.keep), policies.CustomSteps(config.keep_steps),
            ]),
            enable_async_checkpointing=config.asynchronous,
        )  # fmt: skip
        return ocp.CheckpointManager(self.directory, options=options)

    @property
    def latest(self) -> int | None:
        """Step of the newest complete checkpoint."""
        return self._manager.latest_step()

    def path(self, step: int) -> Path:
        """Directory of the checkpoint of a step."""
        return self.directory / str(step)

    def due(self, step: int) -> bool:
        """Tell whether to save after this step: by interval, or since the platform announced a preemption.

        To be called after every step, since this is what polls for preemption on several hosts.
        """
        if self._saving is not None and not self._manager.is_saving_in_progress():
            self.settle()
        return self._manager.should_save(step)

    def preempted(self, step: int) -> bool:
        """Tell whether the platform announced a preemption; all hosts get the same answer."""
        return self._manager.reached_preemption(step)

    def save(self, step: int, state: State, elapsed_seconds: float, productive_seconds: float = 0.0) -> None:
        """Write the checkpoint of a step, unless it exists; returns once the arrays are copied.

        Where that fails, as on a full disk, it is said and nothing else happens: the next save may work.
        """
        self.settle()
        if step in self._manager.all_steps():
            return
        record = RunRecord(
            self._experiment, step, elapsed_seconds, self._tokenizer.fingerprint, self._data,
            productive_seconds,
        )  # fmt: skip
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(state["params"]),
            optimizer=ocp.args.StandardSave(_rest(state)),
            tokenizer=SaveTokenizer(self._tokenizer),
            run=ocp.args.JsonSave(record_to_dict(record)),
        )
        self._saving = step
        try:
            self._manager.save(step, args=items, force=True)
        except Exception as error:  # Orbax and TensorStore raise many kinds
            self._fail(error)

    def settle(self) -> None:
        """Wait for the save under way; say so if it failed."""
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
            if self._saving is not None and (lacking := _lacks(self.path(self._saving))):
                raise OSError(f"no {lacking} was written")  # Orbax only logs some failures
        except Exception as error:
            self._fail(error)
        self._saving = None

    def _fail(self, error: Exception) -> None:
        step, self._saving = self._saving, None
        self.failed += 1
        with contextlib.suppress(Exception):  # it fails again with what it failed with
            self._manager.close()
        if jax.process_index() == 0:
            for path in checkpoints_in(self.directory)[1]:
                shutil.rmtree(path, ignore_errors=True)
        self._manager = self._open()  # of the save that failed, nothing counts
        kept = f"the newest is that of step {self.latest}" if self.latest is not None else "there is none yet"
        console.print(
            f"THE CHECKPOINT OF STEP {step} COULD NOT BE SAVED ({_first_line(error)}); {kept}. Training goes "
            f"on; make room in {self.directory}.", style="bold red",
        )  # fmt: skip

    def restore(self, wanted: State) -> tuple[State, RunRecord]:
        """Restore the newest checkpoint into shapes, types and shardings as `abstract_state` gives them.

        Raises:
          UserError: it is of another model, tokenizer, optimizer or data (says what differs), or damaged.
        """
        step = self.latest
        assert step is not None, "ask for `latest` first"
        path = self.path(step)
        record = self._read(path, "give another --out, or the settings of the checkpoint")
        return _restore_state(path, self._manager, wanted), record

    def start(self, directory: Path, wanted: State) -> tuple[State, RunRecord]:
        """Restore another run's checkpoint, for this run to start from; otherwise as `restore`.

        Raises:
          UserError: also where there is none, or this run would be over there.
        """
        path = find_checkpoint(directory)
        record = self._read(path, "start from another one, or give its settings")
        steps = self._experiment.train.steps
        if steps is not None and record.step >= steps:
            raise UserError(
                f"checkpoint {path} has done {record.step} steps: give more than {steps} --train.steps"
            )
        with _reading(path) as manager:
            return _restore_state(path, manager, wanted), record

    def _read(self, path: Path, mend: str) -> RunRecord:
        """Read a checkpoint's record, unless it does not fit this run."""
        record = read_record(path)
        changed = diff(record.experiment, self._experiment)
        computed = {f"model.{name}" for name in COMPUTE_ONLY}
        model = [line for line in changed if line.startswith("model.") and line.split(":")[0] not in computed]
        if model:
            raise UserError(f"checkpoint {path} holds another model ({'; '.join(model)}): {mend}")
        if self._tokenizer.fingerprint != record.tokenizer:
            raise UserError(
                f"checkpoint {path} was trained with another tokenizer "
                f"({record.tokenizer}, here {self._tokenizer.fingerprint}): {mend}"
            )
        if optimizer := [line for line in changed if line.startswith("optimizer.name:")]:
            raise UserError(f"checkpoint {path} holds another optimizer's state ({optimizer[0]}): {mend}")
        if self._data != record.data:
            data = [line for line in changed if line.startswith("data.")] or ["other traces"]
            raise UserError(f"checkpoint {path} was trained on other rows ({'; '.join(data)}): {mend}")
        return record

    def finish(self, step: int) -> None:
        """Wait until everything is on disk.

        Raises:
          UserError: the checkpoint of this step, the run's last, is not.
        """
        self.settle()
        if step not in self._manager.all_steps():
            raise UserError(
                f"the checkpoint of step {step} could not be saved in {self.directory}; "
                f"{'there is none' if self.latest is None else f'the newest is that of step {self.latest}'}: "
                "make room, and start again to resume there"
            )

    def close(self) -> None:
        """Finish and let go of Orbax's threads."""
        self.settle()
        self._manager.close()


def load_for_inference(directory: str | Path) -> tuple[Experiment, dict[str, Any], TraceTokenizer]:
    """Load a trained model: (experiment, params on one device, tokenizer), all from within the checkpoint.

    Args:
      directory: a run (its newest complete checkpoint is taken) or one checkpoint.

    Raises:
      UserError: there is no checkpoint, or it is damaged.
    """
    path = find_checkpoint(Path(directory))
    record = read_record(path)
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    wanted = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device),
        abstract_params(record.experiment.model),
    )
    with _reading(path) as manager:
        params = _restore(path, manager, int(path.name), {"params": wanted})["params"]
    return record.experiment, params, TraceTokenizer.load(path / "tokenizer")


def save_for_inference(
    run: Path, record: RunRecord, params: dict[str, Any], tokenizer: TraceTokenizer
) -> Path:
    """Write a checkpoint without an optimizer's state: for `load_for_inference`, not to be trained on.

    Returns:
      Its directory.

    Raises:
      UserError: the run has checkpoints already.
    """
    folder = run.resolve() / FOLDER
    if folder.exists():
        raise UserError(f"{folder} is already there: give another --out")
    items = ocp.args.Composite(
        params=ocp.args.StandardSave(params),
        optimizer=ocp.args.StandardSave({"step": jnp.int32(record.step)}),
        tokenizer=SaveTokenizer(tokenizer),
        run=ocp.args.JsonSave(record_to_dict(record)),
    )
    with ocp.CheckpointManager(folder) as manager:
        manager.save(record.step, args=items, force=True)
    return folder / str(record.step)


def find_checkpoint(directory: Path) -> Path:
    """Find the newest complete checkpoint of a run, or take the directory if it is one itself.

    Raises:
      UserError: no such directory, or no complete checkpoint in it (what is there instead is named).
    """
    directory = directory.resolve()
    if not directory.is_dir():
        raise UserError(f"no directory {directory}: give a run's directory or one of its checkpoints")
    if directory.name.isdigit() and (directory / "run").is_dir():
        if lacking := _lacks(directory):
            raise UserError(
                f"checkpoint {directory} is incomplete (no {lacking}): use another one of its run"
            )
        return directory
    folder = directory / FOLDER if (directory / FOLDER).is_dir() else directory
    complete, broken = checkpoints_in(folder)
    if not complete:
        found = f", only what was never finished: {', '.join(path.name for path in broken)}" if broken else ""
        raise UserError(f"no checkpoint in {directory}{found}: train first, or give another directory")
    _name_broken(broken, complete[-1])
    return complete[-1]


def read_record(path: Path) -> RunRecord:
    """Read what a checkpoint says of its run.

    Raises:
      UserError: the record is damaged or of another version.
    """
    try:
        # Through Orbax, so that it may lie where `open` does not reach.
        return record_from_dict(ocp.JsonCheckpointHandler().restore(ocp.path.step.epath.Path(path / "run")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"checkpoint {path} cannot be read ({_first_line(error)}): move it away") from error


def record_to_dict(record: RunRecord) -> dict[str, Any]:
    """Give the record as JSON would hold it."""
    return {**asdict(record), "experiment": to_dict(record.experiment)}


def record_from_dict(text: Mapping[str, Any]) -> RunRecord:
    """Make a record of what `record_to_dict` gave; UserError for settings that this version lacks."""
    return RunRecord(**{**text, "experiment": from_dict(text["experiment"])})


def _rest(state: State) -> State:
    """What is saved beside the parameters."""
    return {name: tree for name, tree in state.items() if name != "params"}


def _reading(path: Path) -> ocp.CheckpointManager:
    """Open the folder of a finished run's checkpoint."""
    return ocp.CheckpointManager(path.parent, options=ocp.CheckpointManagerOptions(read_only=True))


def _restore_state(path: Path, manager: ocp.CheckpointManager, wanted: State) -> State:
    trees = {"params": wanted["params"], "optimizer": _rest(wanted)}
    items = _restore(path, manager, int(path.name), trees)
    return {**items["optimizer"], "params": items["params"]}


def _restore(path: Path, manager: ocp.CheckpointManager, step: int, wanted: dict[str, Any]) -> Any:
    """Restore items into the given abstract trees, turning Orbax's errors into one line."""
    items = ocp.args.Composite(**{name: ocp.args.StandardRestore(tree) for name, tree in wanted.items()})
    try:
        return manager.restore(step, args=items)
    except Exception as error:  # Orbax and TensorStore raise many kinds
        raise UserError(
            f"checkpoint {path} cannot be restored ({_first_line(error)}): it is damaged or does not fit; "
            "move it away to use an older one"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"


def checkpoints_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """Give the complete checkpoints of a run's folder, oldest first, and the broken ones."""
    complete, broken = [], []
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.isdigit():
            (broken if _lacks(path) else complete).append(path)
        elif ocp.path.step.TMP_DIR_SUFFIX in path.name:
            broken.append(path)
    return sorted(complete, key=lambda path: int(path.name)), sorted(broken)


def _lacks(path: Path) -> str | None:
    """Name what a checkpoint lacks to be complete."""
    parts = ("params/_METADATA", "optimizer/_METADATA", "tokenizer", "run/metadata")
    return next((part for part in parts if not (path / part).exists()), None)


def _name_broken(broken: list[Path], newest: Path | None) -> None:
    for path in broken:
        instead = f"using {newest.name}" if newest else "starting anew"
        console.print(f"The checkpoint {path} was never finished; {instead}.", style="yellow")


def _set_broken_aside(folder: Path) -> None:
    """Free the names of unfinished checkpoints, which the run will write again."""
    complete, broken = checkpoints_in(folder)
    _name_broken(broken, complete[-1] if complete else None)
    for path in broken:
        if path.name.isdigit():
            path.rename(path.with_name(f"broken-{path.name}"))
        else:
            shutil.rmtree(path)
