# Sourced by the scripts beside it: --dry-run, and where the project is.
# shellcheck shell=bash
set -euo pipefail

# shellcheck disable=SC2034  # the scripts that source this use it
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
DRY_RUN=false
if [[ ${1:-} == --dry-run ]]; then
  DRY_RUN=true
  shift
fi

# Run a command; with --dry-run only print it, quoted so that a shell reads it back.
run() {
  if $DRY_RUN; then
    local words
    words=$(printf ' %q' "$@")
    echo "${words# }"
  else
    "$@"
  fi
}

# Stop with a message where a variable is empty: need NAME "what it is".
need() {
  if [[ -z ${!1:-} ]]; then
    echo "$(basename "$0"): set $1 ($2), at the top of the file or in the environment" >&2
    exit 2
  fi
}
