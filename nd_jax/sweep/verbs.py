"""What `nd sweep` does: the study's table, its runs here or on a cluster, their state, what is kept of them.

The functions are the verbs themselves, with their options; heavy imports stand inside them.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from nd_jax.sweep.cluster import GkeConfig, SlurmConfig

if TYPE_CHECKING:
    from nd_jax.sweep.job import State
    from nd_jax.sweep.study import Job, Plan
    from nd_jax.sweep.times import Times


def sweep(
    study: tyro.conf.Positional[Path],
    out: Path | None = None,
    results: Path | None = None,
    on: Literal["local", "slurm", "gke"] = "local",
    dry_run: bool = False,
    chip: str | None = None,
    chips: int = 1,
    utilisation: float = 0.4,
    slurm: SlurmConfig = SlurmConfig(),
    gke: GkeConfig = GkeConfig(),
    json: Path | None = None,
) -> None:
    """Run a study: show its runs and what they cost, then do those that are not done.

    A run that fails is told about, and the others go on. Called again, whatever stopped it, it skips what is
    done and goes on with the rest. More: nd sweep status --help, nd sweep collect --help

    Examples:
      nd sweep studies/cpu/study.py --dry-run
      nd sweep studies/cpu/study.py
      nd sweep studies/widths.py --on slurm --slurm.partition gpu --slurm.gpus 4 --chip h100 --chips 4
      nd sweep studies/widths.py --on gke --gke.cluster tpus --gke.docker-image IMAGE --dry-run

    Args:
      study: Python file with `study = Study(...)` (nd_jax.sweep.study).
      out: folder of the runs; by default the study's own.
      results: folder of what is kept when all is done (`nd sweep collect`); by default the study's own.
      on: this machine, one run after the other; Slurm, by submitit; or GKE, by XPK.
      dry_run: show the table and the commands, and do nothing.
      chip: what the times are estimated for, by the names of `nd plan --chip`; by default this CPU.
      chips: how many of them a run has.
      utilisation: share of the peak FLOP/s that training reaches; once runs are done, they tell.
      slurm: what a job asks of Slurm.
      gke: what a job asks of XPK.
      json: also write {runs: {name: {state, parameters, tokens, flops, seconds}}} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.sweep import cluster
    from nd_jax.sweep.collect import collect as keep
    from nd_jax.sweep.job import refuse_other
    from nd_jax.sweep.local import run_all
    from nd_jax.sweep.study import load_plan
    from nd_jax.sweep.times import Times, speed

    plan = load_plan(study, out, results)
    for job in plan.jobs:
        refuse_other(job)
    times = Times(plan, speed(chip, chips, utilisation))
    write_json(json, {"runs": _show(plan, times)})
    if on == "slurm":
        cluster.submit_slurm(plan, slurm, dry_run)
    elif on == "gke":
        cluster.submit_gke(plan, gke, dry_run)
    elif dry_run:
        for job in plan.jobs:
            for words in job.commands:
                console.print("nd", *words, soft_wrap=True)
    else:
        states = run_all(plan, times)
        write_json(json, {"runs": _show(plan, times)})
        failed = {name: state for name, state in states.items() if state.kind == "failed"}
        if any(job.result and states[job.name].kind == "done" for job in plan.jobs):
            keep(plan)
        for name, state in failed.items():
            _say_failed(plan.job(name), state)
        if any(state.kind != "done" for state in states.values()):
            console.print(f"the same command does what is left: nd sweep {study}")
            raise SystemExit(1)


def run(
    study: tyro.conf.Positional[Path],
    name: tyro.conf.Positional[str],
    out: Path | None = None,
) -> None:
    """Do one run of a study here: what `nd sweep`, a Slurm job and a container call.

    Its output goes to log.txt in the run's folder. A run that another process is at is waited for.

    Examples:
      nd sweep run studies/cpu/study.py prepare/1
      nd sweep run studies/cpu/study.py 93k-trunk

    Args:
      study: the study file.
      name: of the run, as `nd sweep status` shows it.
      out: folder of the runs; by default the study's own.
    """
    from nd_jax.console import console
    from nd_jax.sweep.job import do
    from nd_jax.sweep.study import load_plan

    state = do(load_plan(study, out).job(name))
    if state.kind != "done":
        console.print(f"{name} failed: {state.reason}")
        raise SystemExit(1)


def status(
    study: tyro.conf.Positional[Path],
    out: Path | None = None,
    chip: str | None = None,
    chips: int = 1,
    utilisation: float = 0.4,
    json: Path | None = None,
) -> None:
    """Show how far a study is, also while it runs, and why runs failed.

    Examples:
      nd sweep status studies/cpu/study.py

    Args:
      study: the study file.
      out: folder of the runs; by default the study's own.
      chip: what the times are estimated for; as in nd sweep.
      chips: how many of them a run has.
      utilisation: share of the peak FLOP/s that training reaches.
      json: also write {runs: {name: {state, progress, loss, parameters, tokens, flops, seconds}}} there.
    """
    from nd_jax.console import console, write_json
    from nd_jax.sweep import job as jobs
    from nd_jax.sweep.local import duration
    from nd_jax.sweep.study import load_plan
    from nd_jax.sweep.times import Times, speed

    plan = load_plan(study, out)
    times = Times(plan, speed(chip, chips, utilisation))
    write_json(json, {"runs": _show(plan, times)})
    for job in plan.jobs:
        if (state := jobs.state(job)).kind == "failed":
            _say_failed(job, state)
    parts = [times.left([job], jobs.state(job).progress or 0.0) or 0.0 for job in plan.jobs]
    console.print(f"about {duration(sum(parts))} left" if sum(parts) else "all runs are done")


def collect(
    study: tyro.conf.Positional[Path],
    out: Path | None = None,
    results: Path | None = None,
    json: Path | None = None,
) -> None:
    """Keep what the finished runs of a study measured, small enough to be committed.

    `nd sweep` does it at its end; this is for runs on a cluster, or for what is done so far.

    Examples:
      nd sweep collect studies/cpu/study.py
      nd scaling fit studies/cpu

    Args:
      study: the study file.
      out: folder of the runs; by default the study's own.
      results: folder of points.jsonl and curves.jsonl; by default the study's own.
      json: also write {points, left_out} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.sweep.collect import collect as keep
    from nd_jax.sweep.study import load_plan

    points, left_out = keep(load_plan(study, out, results))
    for reason in left_out:
        console.print(f"left out: {reason}")
    write_json(json, {"points": len(points), "left_out": left_out})


def _say_failed(job: "Job", state: "State") -> None:
    from nd_jax.console import console
    from nd_jax.sweep.job import LOG

    where = f"{job.name} failed, see {job.folder / LOG}: {state.reason}"
    console.print(where, style="red", soft_wrap=True)


def _show(plan: "Plan", times: "Times") -> dict[str, Any]:
    """Print the table of runs, and give its rows by name."""
    from nd_jax.console import table
    from nd_jax.scaling.ladder import tokens
    from nd_jax.sweep import job as jobs
    from nd_jax.sweep.local import duration

    rows: dict[str, dict[str, Any]] = {}
    for job in plan.jobs:
        state, experiment = jobs.state(job), job.experiment
        rows[job.name] = {
            "state": state.kind,
            "progress": state.progress,
            "loss": state.loss,
            "parameters": experiment and experiment.model.parameters(),
            "tokens": experiment and tokens(experiment),
            "first_step": job.first_step,
            "flops": job.flops or None,
            "seconds": state.seconds if state.kind == "done" else times.left([job]),
        }
    shown = [
        [
            name,
            *(None if row[part] is None else f"{row[part]:,}" for part in ("parameters", "tokens")),
            row["flops"] and f"{row['flops']:.2e}",
            row["seconds"] and duration(row["seconds"]),
            row["state"] + (f" {row['progress']:.0%}" if row["state"] in ("running", "unfinished")
                            and row["progress"] is not None else ""),
            row["loss"],
        ]
        for name, row in rows.items()
    ]  # fmt: skip
    columns = ["run", "parameters", "tokens", "FLOPs", "time", "state", "loss"]
    title = f"{plan.file} in {plan.out}: at {times.flops_per_second / 1e9:,.3g} GFLOP/s"
    total = sum(row["seconds"] or 0.0 for row in rows.values())
    table(f"{title}, {duration(total)} in all", columns, shown)
    return rows
