#!/usr/bin/env bash
# Builds an image of nd_jax, and pushes it where it has a registry in its name.
#
#   launch/image.sh [--dry-run] cpu|cuda|tpu
#   REPOSITORY=registry/project/nd_jax launch/image.sh tpu
set -euo pipefail
REPOSITORY=${REPOSITORY:-nd_jax}               # the image is REPOSITORY:cpu, :cuda or :tpu
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
target=${1:-}
case $target in
  cpu | cuda | tpu) ;;
  *) echo "usage: $0 [--dry-run] cpu|cuda|tpu" >&2; exit 2 ;;
esac

run docker build --file="$ROOT/launch/Dockerfile" --target="$target" --tag="$REPOSITORY:$target" "$ROOT"
if [[ $REPOSITORY == */* ]]; then
  run docker push "$REPOSITORY:$target"
fi
