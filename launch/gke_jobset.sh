#!/usr/bin/env bash
# TPU slices on GKE by a JobSet (the cluster needs JobSet's controller and the Cloud Storage FUSE driver).
#
#   IMAGE=... BUCKET=my-bucket launch/gke_jobset.sh [--dry-run] CONFIG [--SETTING VALUE ...]
#
# Prints the manifest with --dry-run, else applies it with kubectl to the current context. A preempted run
# starts again by itself and goes on from its last checkpoint; GKE tells jax where the other hosts are.
set -euo pipefail
NAME=${NAME:-nd-jax}
NAMESPACE=${NAMESPACE:-default}
IMAGE=${IMAGE:-}                               # from launch/image.sh tpu
BUCKET=${BUCKET:-}
ACCELERATOR=${ACCELERATOR:-tpu-v6e-slice}      # v5e: tpu-v5-lite-podslice, v5p: tpu-v5p-slice
TOPOLOGY=${TOPOLOGY:-8x8}
HOSTS=${HOSTS:-16}                             # hosts of a slice: chips of the topology / CHIPS_PER_HOST
CHIPS_PER_HOST=${CHIPS_PER_HOST:-4}
SLICES=${SLICES:-1}                            # more: joined over the network (--mesh.replica SLICES)
SPOT=${SPOT:-true}
RESTARTS=${RESTARTS:-100}
GRACE=${GRACE:-300}                            # seconds to save in
SERVICE_ACCOUNT=${SERVICE_ACCOUNT:-default}    # Kubernetes service account that may use the bucket
OUT=${OUT:-/bucket/runs/$NAME}
# shellcheck source=launch/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need IMAGE "container image with nd_jax for TPU"
need BUCKET "Cloud Storage bucket for data and runs"
(($# > 0)) || { echo "usage: $0 [--dry-run] CONFIG [--SETTING VALUE ...]" >&2; exit 2; }

# A word as a YAML string; single quotes are doubled.
quoted() { printf "'%s'" "${1//\'/\'\'}"; }
words=
for word in "$@" --out "$OUT"; do words+=", $(quoted "$word")"; done
spot=
if [[ $SPOT == true ]]; then spot='cloud.google.com/gke-spot: "true"'; fi

manifest=$(cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $NAME
  namespace: $NAMESPACE
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: $RESTARTS
  replicatedJobs:
    - name: slice
      replicas: $SLICES
      template:
        spec:
          completionMode: Indexed
          completions: $HOSTS
          parallelism: $HOSTS
          backoffLimit: 0
          template:
            metadata:
              annotations:
                gke-gcsfuse/volumes: "true"
            spec:
              restartPolicy: Never
              hostNetwork: true
              dnsPolicy: ClusterFirstWithHostNet
              terminationGracePeriodSeconds: $GRACE
              serviceAccountName: $SERVICE_ACCOUNT
              nodeSelector:
                cloud.google.com/gke-tpu-accelerator: $ACCELERATOR
                cloud.google.com/gke-tpu-topology: $TOPOLOGY
                $spot
              containers:
                - name: train
                  image: $(quoted "$IMAGE")
                  command: [/opt/nd_jax/launch/worker.sh]
                  args: [${words#, }]
                  resources:
                    requests:
                      google.com/tpu: $CHIPS_PER_HOST
                    limits:
                      google.com/tpu: $CHIPS_PER_HOST
                  volumeMounts:
                    - name: bucket
                      mountPath: /bucket
              volumes:
                - name: bucket
                  csi:
                    driver: gcsfuse.csi.storage.gke.io
                    volumeAttributes:
                      bucketName: $(quoted "$BUCKET")
YAML
)
if $DRY_RUN; then
  echo "$manifest"
else
  kubectl apply -f - <<<"$manifest"
fi
