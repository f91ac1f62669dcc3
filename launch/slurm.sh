#!/usr/bin/env bash
# A GPU cluster with Slurm, with or without containers.
#
#   launch/slurm.sh [--dry-run] CONFIG [--SETTING VALUE ...]
#   NODES=4 IMAGE=registry/nd_jax:cuda launch/slurm.sh configs/nd_1p8b.py --mesh.fsdp 32
#
# One process per GPU; jax finds the others by Slurm's variables. The job submits itself: outside of a job this
# file calls sbatch on itself. Before the time limit, or when the job is preempted, every process saves and
# ends, and the job queues up again until the run is finished. OUT must lie where all nodes see it.
set -euo pipefail
NODES=${NODES:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}              # 0: CPUs, one process a node
CPUS_PER_TASK=${CPUS_PER_TASK:-8}
PARTITION=${PARTITION:-}                       # empty: the cluster's default
ACCOUNT=${ACCOUNT:-}
TIME=${TIME:-24:00:00}
GRACE=${GRACE:-300}                            # seconds before the time limit at which to save
OUT=${OUT:-runs/slurm}
IMAGE=${IMAGE:-}                               # empty: no container, ND as it is on PATH or named
RUNTIME=${RUNTIME:-pyxis}                      # what runs the image: pyxis (srun --container-image) or apptainer
MOUNTS=${MOUNTS:-$PWD}                         # folder that the container sees, under the same name
export ND=${ND:-nd} ND_JAX_ROOT=${ND_JAX_ROOT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
# Slurm runs a copy of this file; the rest is where it was submitted.
# shellcheck source=launch/common.sh
source "$ND_JAX_ROOT/launch/common.sh"
(($# > 0)) || { echo "usage: $0 [--dry-run] CONFIG [--SETTING VALUE ...]" >&2; exit 2; }

tasks=$((GPUS_PER_NODE > 0 ? GPUS_PER_NODE : 1))
step=(srun --nodes="$NODES" --ntasks-per-node="$tasks" --kill-on-bad-exit=1)
# Every process sees all GPUs of its node: jax takes the one of its number there.
if ((GPUS_PER_NODE > 0)); then step+=(--gpus-per-node="$GPUS_PER_NODE"); fi
worker=("$ND_JAX_ROOT/launch/worker.sh")
if [[ -n $IMAGE ]]; then
  worker=(/opt/nd_jax/launch/worker.sh)        # the image's own (launch/Dockerfile)
  case $RUNTIME in
    pyxis) step+=(--container-image="$IMAGE" --container-mounts="$MOUNTS:$MOUNTS" --container-workdir="$PWD") ;;
    apptainer) step+=(apptainer exec --nv --bind "$MOUNTS" --pwd "$PWD" "$IMAGE") ;;
    *) echo "slurm.sh: RUNTIME is $RUNTIME; use pyxis or apptainer" >&2; exit 2 ;;
  esac
fi
step+=("${worker[@]}" "$@" --out "$OUT")

if [[ -z ${SLURM_JOB_ID:-} ]]; then
  job=(sbatch --job-name="nd-$(basename "$OUT")" --nodes="$NODES" --ntasks-per-node="$tasks"
    --cpus-per-task="$CPUS_PER_TASK" --time="$TIME" --signal="TERM@$GRACE" --requeue --open-mode=append)
  if ((GPUS_PER_NODE > 0)); then job+=(--gpus-per-node="$GPUS_PER_NODE"); fi
  if [[ -n $PARTITION ]]; then job+=(--partition="$PARTITION"); fi
  if [[ -n $ACCOUNT ]]; then job+=(--account="$ACCOUNT"); fi
  run "${job[@]}" "$ND_JAX_ROOT/launch/slurm.sh" "$@"
  if $DRY_RUN; then echo "# and in the job:"; run "${step[@]}"; fi
  exit
fi

trap : TERM                                    # preemption: the step's processes save, this shell waits
status=0
run "${step[@]}" || status=$?
if [[ $status == 75 ]]; then                   # stopped by a signal (launch/worker.sh)
  run scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
