#!/usr/bin/env bash
# TPU slices on GKE by XPK (`pip install xpk`), in a cluster that `xpk cluster create` made.
#
#   PROJECT=me ZONE=us-east5-b CLUSTER=c IMAGE=... launch/gke_xpk.sh [--dry-run] CONFIG [--SETTING VALUE ...]
#
# Without XPK: launch/gke_jobset.sh.
set -euo pipefail
NAME=${NAME:-nd-jax}
PROJECT=${PROJECT:-}
ZONE=${ZONE:-}
CLUSTER=${CLUSTER:-}
IMAGE=${IMAGE:-}                               # from launch/image.sh tpu
TPU_TYPE=${TPU_TYPE:-v6e-64}
SLICES=${SLICES:-1}
RESTARTS=${RESTARTS:-100}                      # how often preemption may start it again
OUT=${OUT:-/bucket/runs/$NAME}                 # /bucket: storage that was attached with `xpk storage attach`
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need PROJECT "Google Cloud project"
need ZONE "of the cluster"
need CLUSTER "name of the cluster"
need IMAGE "container image with nd_jax for TPU"
(($# > 0)) || { echo "usage: $0 [--dry-run] CONFIG [--SETTING VALUE ...]" >&2; exit 2; }

words=$(printf ' %q' "$@" --out "$OUT")
run xpk workload create --workload="$NAME" --cluster="$CLUSTER" --project="$PROJECT" --zone="$ZONE" \
  --tpu-type="$TPU_TYPE" --num-slices="$SLICES" --docker-image="$IMAGE" --max-restarts="$RESTARTS" \
  --command="/opt/nd_jax/launch/worker.sh$words"
