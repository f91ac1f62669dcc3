#!/usr/bin/env bash
# What every process of a run starts: nd train WORDS, one of several processes.
# Exits with 0 when the run is finished, with 75 ("try again") when a signal stopped it: `nd train` saves and
# ends with 0 either way, and whoever watches the process (Kubernetes, Slurm) must know whether to start again.
set -euo pipefail

ND=${ND:-nd}                                   # the command, where it is not on PATH
figures=$(mktemp)
# The shell hands on the signal: in a container it is the only process that gets it.
"$ND" train "$@" --distributed --json "$figures" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null || true' TERM INT
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do         # a trapped signal ends `wait`, not the child
  status=0
  wait "$child" || status=$?
done
if [[ $status == 0 ]] && ! grep -q '"stopped": "finished"' "$figures"; then
  status=75
fi
rm -f "$figures"
exit "$status"
