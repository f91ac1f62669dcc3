"""Verbs that take a config file, whose settings they override by dotted names."""

import argparse
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError


def _config_words(
    verb: Callable[..., None], words: Sequence[str], options: Mapping[str, Callable[[str], Any]]
) -> tuple[Path, argparse.Namespace, list[str]]:
    """Part a verb's words into its config file, its own options, and overrides of the config's settings."""
    name = verb.__name__.replace("_", " ")
    parser = argparse.ArgumentParser(prog=f"nd {name}", add_help=False, allow_abbrev=False)
    for option, kind in options.items():
        if kind is bool:
            parser.add_argument(f"--{option}", action="store_true")
        else:
            parser.add_argument(f"--{option}", type=kind)
    if not words or words[0].startswith("-"):
        print(inspect.getdoc(verb))
        raise SystemExit(0 if words and words[0] in ("-h", "--help") else 2)
    return Path(words[0]), *parser.parse_known_args(words[1:])


def pack(words: Sequence[str]) -> None:
    """Write the rows of a config file to disk, for when reading them must be faster than making them.

    usage: nd pack CONFIG --out DIR --rows N [--workers N] [--SETTING VALUE ...]

    Examples:
      nd pack configs/nano.py --out packed --rows 100000
      nd train configs/nano.py --data.packed packed

    A folder that holds some of these rows is added to. Training on them gives the same batches as without.
      --out DIR        the folder of rows
      --rows N         how many: a run reads steps times global batch
      --workers N      processes that make rows (default: one a core)
    """
    config, options, overrides = _config_words(pack, words, {"out": Path, "rows": int, "workers": int})
    if options.out is None or not options.rows or options.rows < 1:
        raise UserError("say where and how many: --out DIR --rows N")

    from nd_jax.console import console
    from nd_jax.data.pipeline import pack_rows
    from nd_jax.training.config import load_config

    data = load_config(config, overrides).data
    rows = pack_rows(data, options.out, options.rows, options.workers or os.cpu_count() or 1)
    console.print(f"{options.out} holds {rows} rows of {data.row_length} tokens")


def data_inspect(words: Sequence[str]) -> None:
    """Show a row that a config file trains on: what it says, and what of it is learned.

    usage: nd data inspect CONFIG [--row N] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd data inspect configs/nano.py --row 7
      nd data inspect configs/nano.py --data.policy.turning 9

      --row N          number of the row (default: 0)
      --json FILE      also write {row, tokens, padding, sessions} to this file
    """
    config, options, overrides = _config_words(data_inspect, words, {"row": int, "json": Path})

    from nd_jax.console import console, write_json
    from nd_jax.data.inspect import read_row, show_row
    from nd_jax.data.pipeline import open_rows
    from nd_jax.training.config import load_config

    data = load_config(config, overrides).data
    row = read_row(open_rows(data), data, options.row or 0)
    console.print(show_row(row), soft_wrap=True)
    write_json(options.json, row)


def train(words: Sequence[str]) -> None:
    """Train a model as a config file says, resuming where the run stopped.

    usage: nd train CONFIG [--out DIR] [--distributed] [--profile STEPS] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd train configs/nano.py --train.steps 200
      nd train configs/nano.py --help                     (all settings and their values there)
      nd train configs/nano.py --out runs/wide --model.d_model 256 --optimizer.learning_rate 0.002

    CONFIG is a Python file with `config = Experiment(...)`, or FILE.py:NAME, one of a file's `configs`. Its
    settings are overridden by dotted names.
      --out DIR        the run's directory: checkpoints, metrics.jsonl, TensorBoard (default: runs/CONFIG)
      --distributed    one of several processes, which jax finds (--distributed.cluster says otherwise how)
      --profile 10:15  trace these steps, for TensorBoard and Perfetto
      --json FILE      also write the run's figures to this file
    """
    own = {"out": Path, "json": Path, "distributed": bool, "profile": str}
    config, options, overrides = _config_words(train, words, own)

    from nd_jax.training.config import load_config, run_name

    experiment = load_config(config, overrides)
    if options.distributed and experiment.distributed.cluster == "none":
        experiment = replace(experiment, distributed=replace(experiment.distributed, cluster="auto"))
    if options.profile:
        experiment = replace(experiment, metrics=replace(experiment.metrics, profile=options.profile))

    from nd_jax.console import write_json
    from nd_jax.evaluation.during import hooks
    from nd_jax.training.distributed import end_process, initialize
    from nd_jax.training.run import run

    initialize(experiment.distributed)
    figures = run(experiment, options.out or Path("runs") / run_name(config), hooks(experiment))
    write_json(options.json, figures)
    if figures["stopped"] != "finished":
        end_process()


def plan(words: Sequence[str]) -> None:
    """Tell what a config file's training step costs on devices that are not there.

    usage: nd plan CONFIG --mesh SIZES [--chip NAME] [--compiler NAME] [--json FILE] [--SETTING VALUE ...]

    Examples:
      nd plan configs/nd_1p8b.py --mesh fsdp=64 --chip v5p
      nd plan configs/nd_1p8b.py --mesh replica=2,fsdp=32 --json plan.json
      nd plan configs/nd_350m.py --mesh fsdp=8 --data.global_batch 64 --model.remat full

    The real step is compiled ahead of time: bytes are the program's own, collectives are counted in it.
      --mesh SIZES     devices on each axis (replica, fsdp, sequence, tensor; those not named: 1)
      --chip NAME      whether it fits there, an estimate (v5e, v5p, v6e, h100, ...; default: all are told)
      --compiler NAME  cpu (default) or tpu: TPU's own compiler; needs libtpu, but no TPU
      --json FILE      also write {parameters, flops_per_step, bytes, total_bytes, collectives, fits} there
    """
    own = {"mesh": str, "chip": str, "compiler": str, "json": Path}
    config, options, overrides = _config_words(plan, words, own)
    compiler = options.compiler or "cpu"
    if options.mesh is None or compiler not in ("cpu", "tpu"):
        raise UserError("say which devices, and whose compiler: --mesh fsdp=64 --compiler cpu or tpu")

    from nd_jax.console import write_json
    from nd_jax.planning.plan import plan as make_plan
    from nd_jax.planning.plan import read_mesh, show
    from nd_jax.training.config import load_config

    experiment = replace(load_config(config, overrides), mesh=read_mesh(options.mesh))
    figures = make_plan(experiment, options.chip, compiler)
    show(figures)
    write_json(options.json, figures)


VERBS: dict[str, Callable[..., None]] = {
    "data inspect": data_inspect,
    "pack": pack,
    "train": train,
    "plan": plan,
}
