"""Submit a study's jobs to a cluster: Slurm (submitit) or GKE (XPK). Each does `nd sweep run STUDY JOB`.

The study's folder must be one that all machines see; `nd sweep status` reads it.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.sweep import job as jobs
from nd_jax.sweep.study import Job, Plan

SUBMITTED = "submitted.txt"
"""In a job's folder: the id that Slurm gave it."""


@dataclass(frozen=True)
class SlurmConfig:
    """What a job asks of Slurm."""

    partition: str = ""
    """Partition; empty: the cluster's default."""

    account: str = ""
    """Account that pays; empty: the user's default."""

    hours: float = 24.0
    """Time limit. A job that meets it is queued again, and goes on from its last checkpoint."""

    gpus: int = 1
    """GPUs of a job."""

    cpus: int = 8
    """CPU cores of a job."""

    memory_gb: int = 64
    """Memory of a job."""

    setup: tuple[str, ...] = ()
    """Lines of shell before the job: modules to load and the like."""


@dataclass(frozen=True)
class GkeConfig:
    """What a job asks of XPK, by the names of its options."""

    cluster: str = ""
    """Name of the cluster."""

    project: str = ""
    """Google Cloud project; empty: gcloud's default."""

    zone: str = ""
    """Zone of the cluster; empty: gcloud's default."""

    tpu_type: str = "v5litepod-8"
    """Type and size of a slice."""

    num_slices: int = 1
    """Slices of a job."""

    docker_image: str = ""
    """Container image with nd_jax, the study file and its configs in the working directory."""


def submit_slurm(plan: Plan, config: SlurmConfig, dry_run: bool) -> None:
    """Submit what is left of a study to Slurm; a job waits there for those that it needs.

    Raises:
      UserError: submitit is not installed, or there is no Slurm here.
    """
    if dry_run:
        for job in _left(plan):
            needs = f"   after {', '.join(job.after)}" if job.after else ""
            console.print(shlex.join(["nd", *_words(plan, job)]) + needs, soft_wrap=True)
        return
    try:
        import submitit  # pyright: ignore[reportMissingImports]  (an extra)
    except ImportError as error:
        raise UserError("Slurm needs submitit: `pip install 'nd_jax[slurm]'`") from error
    if shutil.which("sbatch") is None:
        raise UserError("no sbatch here: start `nd sweep` where Slurm's commands are, or add --dry-run")
    ids: dict[str, str] = {}
    for job in _left(plan):
        job.folder.mkdir(parents=True, exist_ok=True)
        note = job.folder / SUBMITTED
        if note.exists() and not submitit.SlurmJob(plan.out / "slurm", note.read_text()).done():
            ids[job.name] = note.read_text()
            console.print(f"{job.name}: {ids[job.name]} is queued or running")
            continue
        executor = submitit.AutoExecutor(plan.out / "slurm", cluster="slurm")
        executor.update_parameters(**slurm_parameters(config, job, [ids[n] for n in job.after if n in ids]))
        submitted = executor.submit(Submitted((sys.executable, "-m", "nd_jax", *_words(plan, job))))
        note.write_text(ids.setdefault(job.name, submitted.job_id))
        console.print(f"{job.name}: submitted as {submitted.job_id}")


def slurm_parameters(config: SlurmConfig, job: Job, after: Sequence[str]) -> dict[str, Any]:
    """What submitit is told of a job that waits for these ids."""
    more: dict[str, Any] = {"dependency": f"afterok:{':'.join(after)}"} if after else {}
    more |= {"account": config.account} if config.account else {}
    parameters: dict[str, Any] = {
        "name": f"nd-{job.name.replace('/', '-')}",
        "timeout_min": round(60 * config.hours),
        "gpus_per_node": config.gpus,
        "cpus_per_task": config.cpus,
        "mem_gb": config.memory_gb,
        "slurm_additional_parameters": more,
        "slurm_setup": list(config.setup),
    }
    return parameters | ({"slurm_partition": config.partition} if config.partition else {})


class Submitted:
    """The function that submitit calls on the cluster: a command in a process of its own."""

    def __init__(self, command: Sequence[str]):
        self.command = list(command)

    def __call__(self) -> None:
        """Run it; raises CalledProcessError where it fails, and so fails the job."""
        subprocess.run(self.command, check=True)

    def checkpoint(self) -> Any:
        """Be queued again when the time limit comes: the job goes on from its folder."""
        import submitit  # pyright: ignore[reportMissingImports]  (an extra)

        return submitit.helpers.DelayedSubmission(self)


def submit_gke(plan: Plan, config: GkeConfig, dry_run: bool) -> None:
    """Start those of a study's jobs on GKE that need nothing unfinished, or print the commands of all.

    XPK knows no order of jobs: call again when they are done.

    Raises:
      UserError: cluster or image is not named, XPK is missing, or it refuses a job.
    """
    if not config.cluster or not config.docker_image:
        raise UserError("name them: --gke.cluster NAME --gke.docker-image IMAGE")
    if not dry_run and shutil.which("xpk") is None:
        raise UserError("no xpk here: `pip install xpk`, or add --dry-run to see its commands")
    left = _left(plan)
    for job in left:
        needed = [name for name in job.after if any(other.name == name for other in left)]
        command = xpk_command(plan, job, config)
        if dry_run:
            needs = f"   # when {', '.join(needed)} are done" if needed else ""
            console.print(shlex.join(command) + needs, soft_wrap=True)
        elif needed:
            console.print(f"{job.name}: not yet, it needs {', '.join(needed)}; call again when that is done")
        elif returned := subprocess.run(command).returncode:
            raise UserError(f"xpk returned {returned} for {job.name}: {shlex.join(command)}")


def xpk_command(plan: Plan, job: Job, config: GkeConfig) -> list[str]:
    """The command that starts a job on GKE."""
    named = {"cluster": config.cluster, "project": config.project, "zone": config.zone,
             "workload": workload(plan, job), "tpu-type": config.tpu_type,
             "num-slices": str(config.num_slices), "docker-image": config.docker_image,
             "command": shlex.join(["nd", *_words(plan, job)])}  # fmt: skip
    return ["xpk", "workload", "create", *(f"--{name}={value}" for name, value in named.items() if value)]


def workload(plan: Plan, job: Job) -> str:
    """A name that Kubernetes takes: at most 39 lower-case letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", f"{plan.out.name}-{job.name}".lower()).strip("-")
    return plain if len(plain) < 40 and plain[0].isalpha() else f"nd-{plain[-35:].strip('-')}"


def _words(plan: Plan, job: Job) -> list[str]:
    return ["sweep", "run", str(plan.file), job.name, "--out", str(plan.out)]


def _left(plan: Plan) -> list[Job]:
    """What is not done and not worked on."""
    return [job for job in plan.jobs if jobs.state(job).kind not in ("done", "running")]
