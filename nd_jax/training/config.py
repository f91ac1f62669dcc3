"""What an experiment is: one typed tree of settings, read from a Python file, with overrides by words.

Nothing here imports jax, so that `nd train CONFIG --help` is quick.
"""

import runpy
import traceback
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from nd_jax.data.config import DataConfig
from nd_jax.errors import UserError
from nd_jax.model.config import MeshConfig, ModelConfig

T = TypeVar("T")


@dataclass(frozen=True)
class OptimizerConfig:
    """The update rule. The learning rate of a step is `learning_rate` times the schedule's factor."""

    name: Literal["adamw", "muon"] = "adamw"
    """adamw for every parameter, or muon for the layers' matrices and adamw for the rest."""

    learning_rate: float = 3e-3
    """Peak learning rate. Muon's updates are scaled to AdamW's size, so one value serves both."""

    b1: float = 0.9
    """AdamW: decay of the mean of gradients."""

    b2: float = 0.95
    """AdamW: decay of the mean of squared gradients."""

    eps: float = 1e-8
    """Added to denominators."""

    weight_decay: float = 0.1
    """Decay of matrices (never of norm scales) per step, times the learning rate."""

    clip_norm: float = 1.0
    """Gradients are scaled down to at most this global norm."""

    muon_beta: float = 0.95
    """Muon: decay of the momentum."""

    muon_iterations: int = 5
    """Muon: Newton-Schulz iterations that orthogonalise the momentum."""

    def state_bytes(self, model: ModelConfig) -> int:
        """Memory of the moments, float32: two for what AdamW updates, one for what Muon does."""
        single = model.matrix_parameters() if self.name == "muon" else 0
        return 4 * (2 * model.parameters() - single)


@dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate's factor as a function of the run's progress, which goes from 0 to 1."""

    shape: Literal["cosine", "wsd", "constant"] = "cosine"
    """cosine: half a cosine over the whole run; wsd: stable, then a decay over the last `decay_share`."""

    warmup_steps: int = 100
    """Steps over which the learning rate grows linearly from 0."""

    warmup_share: float = 0.0
    """The same as a share of the run; the slower of the two counts."""

    decay_share: float = 0.2
    """wsd: share of the run at its end over which the learning rate decays. A run of S steps that starts from
    step S * (1 - decay_share) of a constant one is the decay alone, and ends as if it were the whole run."""

    decay_shape: Literal["linear", "sqrt"] = "linear"
    """wsd: decay as 1 - x or as 1 - sqrt(x)."""

    floor: float = 0.1
    """Factor that the decay ends at."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how, and from which seed. The run ends by `steps` or by `max_seconds`: the first of them."""

    steps: int | None = 1000
    """Optimizer steps of the run; None: as many as `max_seconds` allows."""

    max_seconds: float | None = None
    """Wall time of the run in seconds, compilation not counted, over all resumptions; None: no limit."""

    accumulation: int = 1
    """Microbatches per step: the global batch is worked off in this many parts."""

    seed: int = 0
    """Seeds the parameters. The rows have their own seed, in `data`."""

    start_from: str = ""
    """Checkpoint (RUN/checkpoints/STEP) that a new run starts from: weights, optimizer state, and its step,
    which counts as done and is the position in the data. So several decays branch off one run: see
    `ScheduleConfig.decay_share`."""


@dataclass(frozen=True)
class GuardConfig:
    """What happens when training breaks down."""

    nonfinite: Literal["stop", "skip"] = "stop"
    """Where a step's loss or gradient is not finite: end the run, naming the last good checkpoint, or leave
    the step out and count it."""

    spike: Literal["ignore", "stop", "skip"] = "ignore"
    """The same where a step's loss jumps."""

    spike_deviations: float = 8.0
    """A loss jumps when it lies above its running mean by more than so many of its standard deviations."""

    spike_steps: int = 100
    """Steps that mean and deviation are taken over; before so many nothing is a jump."""

    most_skips: int = 20
    """Steps left out in a row that end the run."""

    input_seconds: float = 30.0
    """How long a step waits for rows before the worker that owes them is named, again and again."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written and how many are kept."""

    every_steps: int = 1000
    """Steps between checkpoints; one more is written when the run ends or is stopped."""

    keep: int = 3
    """How many of the newest are kept."""

    keep_steps: tuple[int, ...] = ()
    """Steps whose checkpoints are written besides, and kept: other runs start from them."""

    asynchronous: bool = True
    """Write to disk while training goes on."""


@dataclass(frozen=True)
class MetricsConfig:
    """What is reported and where."""

    every_steps: int = 10
    """Steps between two records in `metrics.jsonl` and TensorBoard; each covers the steps since the last."""

    line_seconds: float = 10.0
    """Where the output is no terminal: seconds between two lines."""

    tensorboard: bool = True
    """Write TensorBoard files beside `metrics.jsonl`."""

    wandb: str = ""
    """Weights & Biases project to log to as well (needs the extra `wandb`); empty: none."""

    profile: str = ""
    """Steps of which a trace is written below the run's directory, "10:15"; ``--profile`` is short for it."""

    peak_flops: float | None = None
    """Peak FLOP/s of one device for MFU; None: from a table by device kind (on CPU: measured by a matmul)."""


@dataclass(frozen=True)
class HeldOutConfig:
    """What is measured on held-out programs while training goes on."""

    every_steps: int = 1000
    """Steps between two evaluations; 0: none."""

    batches: int = 4
    """Global batches of rows that the held-out loss is the mean of, always the same ones."""

    sessions: int = 200
    """Sessions that next-state accuracy is measured on, always the same ones; 0: it is not."""

    samples: int = 2
    """Programs that the model steps through, shown as text in TensorBoard (runs of one process only)."""


@dataclass(frozen=True)
class DistributedConfig:
    """How the processes of a run on several hosts find each other; ``--distributed`` alone means "auto"."""

    cluster: Literal["none", "auto", "slurm", "gke", "tpu", "flags"] = "none"
    """Who tells. none: there is one process; auto: whichever jax finds, also Open MPI and indexed jobs of
    Kubernetes; slurm; gke: TPUs on GKE; tpu: TPU VMs' metadata; flags: those below."""

    coordinator: str = ""
    """HOST:PORT of process 0, reached by all."""

    processes: int | None = None
    """How many there are."""

    process: int | None = None
    """Which of them this one is, from 0."""

    timeout_seconds: int = 300
    """How long to wait for the others at the start."""

    heartbeat_seconds: int = 100
    """How long a process may be silent until all are ended."""


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a training run, apart from the files it reads."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    guard: GuardConfig = field(default_factory=GuardConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    heldout: HeldOutConfig = field(default_factory=HeldOutConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read a config file, Python with a top-level ``config = Experiment(...)``, and apply the overrides.

    A file may hold several, ``configs = {name: Experiment(...)}``: then ``FILE.py:NAME`` is one of them.
    Overrides are words as on the command line, ``["--train.steps", "200"]``; ``--help`` lists all and exits.

    Raises:
      UserError: no such file, an error in it (with its line), or no `config` in it.
      SystemExit: 2 for an override of a wrong name or type, with the nearest right one printed.
    """
    import tyro  # here, because a checkpoint's config is read without it

    config = _read_one(str(path))
    return tyro.cli(
        Experiment, default=config, args=list(overrides), prog=str(path), use_underscores=True,
        description=f"The settings of {path} and their values there.", config=(tyro.conf.FlagConversionOff,),
    )  # fmt: skip


def load_configs(path: Path) -> dict[str, Experiment]:
    """Read all experiments of a config file that holds several.

    Raises:
      UserError: as `load_config`, or there is no `configs` in it.
    """
    configs = run_file(path).get("configs")
    if not isinstance(configs, dict) or not all(isinstance(one, Experiment) for one in configs.values()):
        raise UserError(f"{path} has no top-level `configs = {{name: Experiment(...)}}`")
    return configs


def run_name(path: Path) -> str:
    """Name a run after its config: ``configs/ladder.py:164k`` gives ``ladder-164k``."""
    return path.name.replace(".py:", "-").removesuffix(".py")


def _read_one(path: str) -> Experiment:
    file, named, name = path.rpartition(".py:")
    if named:
        configs = load_configs(Path(f"{file}.py"))
        if name not in configs:
            raise UserError(f"{file}.py has no experiment {name!r}; it has {', '.join(configs)}")
        return configs[name]
    found = run_file(Path(path))
    if isinstance(config := found.get("config"), Experiment):
        return config
    if isinstance(configs := found.get("configs"), dict):
        raise UserError(f"{path} holds several experiments: give {path}:NAME, one of {', '.join(configs)}")
    raise UserError(f"{path} has no top-level `config = Experiment(...)`")


def run_file(path: Path) -> dict[str, Any]:
    """Run a Python file of settings, and give its top-level names.

    Raises:
      UserError: no such file, or an error in it, with its line.
    """
    if not path.is_file():
        raise UserError(f"no config file {path}: give a Python file of settings")
    try:
        return runpy.run_path(str(path))
    except SyntaxError as error:
        raise UserError(f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}") from error
    except Exception as error:
        # The innermost line of the config file itself: where its writer can mend it.
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        raise UserError(f"{path}:{lines[-1] if lines else '?'}: {type(error).__name__}: {error}") from error


def to_dict(config: Experiment) -> dict[str, Any]:
    """Give the experiment as JSON would hold it."""
    return _plain(asdict(config))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_dict(settings: Mapping[str, Any]) -> Experiment:
    """Make an experiment of what `to_dict` gave. Settings that are missing take their defaults.

    Raises:
      UserError: a setting that this version does not know.
    """
    return _build(Experiment, settings, "")


def _build(kind: Any, value: Any, place: str) -> Any:
    """Give `value`, as JSON holds it, the type `kind`."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if unknown := sorted(set(value) - {f.name for f in fields(kind)}):
            raise UserError(f"unknown setting {place}{unknown[0]}: another version of nd_jax wrote it")
        return kind(**{name: _build(hints[name], item, f"{place}{name}.") for name, item in value.items()})
    if typing.get_origin(kind) is tuple:
        kinds = typing.get_args(kind)
        kinds = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_build(k, item, place) for k, item in zip(kinds, value, strict=True))
    if typing.get_origin(kind) in (types.UnionType, typing.Union) and value is not None:
        inner = [k for k in typing.get_args(kind) if k is not type(None)]
        return _build(inner[0], value, place) if len(inner) == 1 else value
    return value


def diff(old: Experiment, new: Experiment) -> list[str]:
    """List what differs, one line for each setting: ``train.steps: 100 -> 200``."""
    before, after = _flat(to_dict(old)), _flat(to_dict(new))
    return [
        f"{name}: {before.get(name)} -> {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
