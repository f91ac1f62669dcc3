#!/usr/bin/env bash
# Several processes on this machine, each with its own devices: to try a multi-host run without hosts.
#
#   launch/processes.sh [--dry-run] CONFIG [--SETTING VALUE ...]
#   PROCESSES=2 DEVICES=4 launch/processes.sh configs/nano.py --mesh.fsdp 8
#
# Each goes on where the run in OUT stopped. Ctrl-C or SIGTERM: all save the same step and end.
set -euo pipefail
PROCESSES=${PROCESSES:-2}
DEVICES=${DEVICES:-1}                          # CPU devices of each process
PLATFORM=${PLATFORM:-cpu}                      # or cuda: process i takes GPU i
PORT=${PORT:-$((20000 + $$ % 10000))}          # where process 0 listens for the others
OUT=${OUT:-runs/processes}
export ND=${ND:-nd}
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($# > 0)) || { echo "usage: $0 [--dry-run] CONFIG [--SETTING VALUE ...]" >&2; exit 2; }

children=()
trap 'kill -TERM "${children[@]}" 2>/dev/null || true' TERM INT
for ((i = 0; i < PROCESSES; i++)); do
  process=(env JAX_PLATFORMS="$PLATFORM" JAX_NUM_CPU_DEVICES="$DEVICES"
    "$ROOT/launch/worker.sh" "$@" --out "$OUT" --distributed.cluster flags
    --distributed.coordinator "127.0.0.1:$PORT" --distributed.processes "$PROCESSES" --distributed.process "$i")
  if [[ $PLATFORM == cuda ]]; then process=(env CUDA_VISIBLE_DEVICES="$i" "${process[@]:1}"); fi
  if $DRY_RUN; then
    run "${process[@]}"
  else
    "${process[@]}" &
    children+=($!)
  fi
done

status=0
for child in "${children[@]}"; do
  code=0
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
  done
  ((code == 0)) || status=$code
done
exit "$status"
