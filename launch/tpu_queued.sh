#!/usr/bin/env bash
# A TPU pod by Google Cloud's queued resources: asks for it, waits, installs nd_jax on every host, trains.
#
#   PROJECT=me ZONE=us-east5-b BUCKET=my-bucket launch/tpu_queued.sh [--dry-run] CONFIG [--SETTING VALUE ...]
#
# The same command again goes on from the last checkpoint, on a new pod where the old one was preempted.
# Runs lie in BUCKET, which every host mounts; traces are read from there too (--data.traces /bucket/...).
# Afterwards: gcloud compute tpus queued-resources delete NAME --force --zone ZONE --project PROJECT
set -euo pipefail
NAME=${NAME:-nd-jax}
PROJECT=${PROJECT:-}
ZONE=${ZONE:-}
ACCELERATOR=${ACCELERATOR:-v6e-64}             # as `gcloud compute tpus accelerator-types list` names it
RUNTIME=${RUNTIME:-v2-alpha-tpuv6e}            # software of the VMs; v5e: v2-alpha-tpuv5-lite, v5p: v2-alpha-tpuv5
SLICES=${SLICES:-1}                            # more: pods joined over the network (--mesh.replica SLICES)
SPOT=${SPOT:-true}
BUCKET=${BUCKET:-}
PYTHON=${PYTHON:-python3.11}                   # of the hosts, 3.11 to 3.13
OUT=${OUT:-/bucket/runs/$NAME}
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need PROJECT "Google Cloud project"
need ZONE "where the TPUs are"
need BUCKET "Cloud Storage bucket for data and runs"
(($# > 0)) || { echo "usage: $0 [--dry-run] CONFIG [--SETTING VALUE ...]" >&2; exit 2; }

where=(--project="$PROJECT" --zone="$ZONE")
state() {
  gcloud compute tpus queued-resources describe "$NAME" "${where[@]}" --format="value(state.state)" 2>/dev/null || true
}
everywhere() {
  run gcloud alpha compute tpus queued-resources ssh "$NAME" "${where[@]}" --node=all --worker=all --command="$1"
}

now=
if ! $DRY_RUN; then now=$(state); fi
if [[ $now == SUSPENDED || $now == FAILED ]]; then # preempted, or never granted: such a request is spent
  run gcloud compute tpus queued-resources delete "$NAME" "${where[@]}" --force --quiet
  now=
fi
if [[ -z $now ]]; then
  request=(gcloud compute tpus queued-resources create "$NAME" "${where[@]}"
    --accelerator-type="$ACCELERATOR" --runtime-version="$RUNTIME")
  if ((SLICES > 1)); then request+=(--node-count="$SLICES" --node-prefix="$NAME"); else request+=(--node-id="$NAME"); fi
  if [[ $SPOT == true ]]; then request+=(--spot); fi
  run "${request[@]}"
fi
if $DRY_RUN; then
  echo "# wait until its state is ACTIVE"
else
  until [[ $(state) == ACTIVE ]]; do
    echo "$NAME: $(state)"
    sleep 30
  done
fi

archive=$(mktemp --suffix=.tar.gz)
run tar --create --gzip --file="$archive" --directory="$ROOT" nd_jax configs tokenizer launch pyproject.toml requirements.txt README.md
run gcloud alpha compute tpus queued-resources scp "$archive" "$NAME:nd_jax.tar.gz" "${where[@]}" --node=all --worker=all
rm -f "$archive"
everywhere "mkdir -p nd_jax && tar xzf nd_jax.tar.gz -C nd_jax && cd nd_jax && $PYTHON -m venv .venv \
&& .venv/bin/pip install -q -r requirements.txt 'jax[tpu]' && .venv/bin/pip install -q --no-deps -e ."
everywhere "sudo mkdir -p /bucket && sudo chown \$USER /bucket && (mountpoint -q /bucket || gcsfuse --implicit-dirs $BUCKET /bucket)"
words=$(printf ' %q' "$@" --out "$OUT")
everywhere "cd nd_jax && ND=.venv/bin/nd launch/worker.sh$words"
