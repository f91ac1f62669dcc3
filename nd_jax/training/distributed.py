"""The processes of a run on several hosts: how they find each other, what each reads, what all decide.

A run is one program that every process executes alike; so what one of them knows alone (that it was asked to
stop) must reach all before any of them acts on it.
"""

import bisect
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src.distributed import global_state  # its key-value store has no public name
from jax.sharding import NamedSharding

from nd_jax.errors import UserError
from nd_jax.training.config import DistributedConfig
from nd_jax.training.stopping import StopSignal

T = TypeVar("T")

METHODS = {"slurm": "slurm", "gke": "gketpu", "tpu": "gcetpu", "flags": "deactivate"}
"""What jax calls the ways of `DistributedConfig.cluster`."""

POLL_SECONDS = 0.1
"""Between two looks at what other processes have said."""

STOP = "stop"
_compilations = itertools.count()


def initialize(config: DistributedConfig) -> None:
    """Join the other processes of the run, before anything asks jax for devices; nothing to do for "none".

    Raises:
      UserError: a flag is missing or out of range, the cluster does not tell, or the others do not answer.
    """
    if config.cluster == "none" or global_state.client is not None:
        return
    if config.cluster == "flags":
        _check_flags(config)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # read on CPU alone
    try:
        jax.distributed.initialize(
            coordinator_address=config.coordinator or None,
            num_processes=config.processes,
            process_id=config.process,
            cluster_detection_method=METHODS.get(config.cluster),
            initialization_timeout=config.timeout_seconds,
            heartbeat_timeout_seconds=config.heartbeat_seconds,
        )
    except (ValueError, TypeError, KeyError, OSError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"--distributed.cluster {config.cluster}: the processes do not find each other ({first}); start "
            "this within the cluster's job, or give --distributed.cluster flags with "
            "--distributed.coordinator HOST:PORT, --distributed.processes and --distributed.process"
        ) from error


def _check_flags(config: DistributedConfig) -> None:
    given = {name: getattr(config, name) for name in ("coordinator", "processes", "process")}
    if missing := [f"--distributed.{name}" for name, value in given.items() if value in ("", None)]:
        raise UserError(f"--distributed.cluster flags also needs {', '.join(missing)}")
    processes, process = config.processes or 0, config.process or 0
    if not 0 <= process < processes:
        raise UserError(
            f"--distributed.process {process} of --distributed.processes {processes}: they count from 0 to "
            f"{max(0, processes - 1)}"
        )
    if ":" not in config.coordinator:
        raise UserError(f"--distributed.coordinator {config.coordinator}: give HOST:PORT, of process 0")


def own_rows(sharding: NamedSharding, rows: int) -> list[int]:
    """Tell which rows of the global batch lie on this process's devices, in order.

    Rows belong to the mesh's batch shards, not to hosts: where a sequence or tensor axis spans hosts, these
    share rows, and each of them makes them all.
    """
    parts = sharding.addressable_devices_indices_map((rows,)).values()
    return sorted({row for part in parts if part for row in range(*part[0].indices(rows))})


def place(arrays: Mapping[str, np.ndarray], sharding: NamedSharding, own: Sequence[int], rows: int) -> Any:
    """Put this process's rows on its devices, as global arrays of `rows` rows.

    Args:
      arrays: each ``[len(own), ...]``.
      sharding: of the global batch.
      own: from `own_rows`.
      rows: of the global batch.
    """
    if len(own) == rows and jax.process_count() == 1:
        return jax.device_put(dict(arrays), sharding)

    def put(array: np.ndarray) -> jax.Array:
        def part(index: Any) -> np.ndarray:  # a device's rows follow one another
            first, last, _ = index[0].indices(rows)
            return array[bisect.bisect_left(own, first) : bisect.bisect_left(own, last)]

        return jax.make_array_from_callback((rows, *array.shape[1:]), sharding, part)

    return {name: put(array) for name, array in arrays.items()}


def compile_together(make: Callable[[], T], stop: StopSignal) -> T | None:
    """Compile while signals are heard; None as soon as any process was asked to stop.

    Compiling takes minutes at scale, more than the grace that a preemption gives, and jax hears no signal
    meanwhile. So a thread compiles, which is left behind (`end_process`). Each process says once whether it
    is ready or was asked to stop, and goes by what all say: none begins a step that another will not take.

    Every process calls this alike, as often as the others.
    """
    made: list[T] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            made.append(make())
        except BaseException as error:
            failed.append(error)

    name = f"nd_jax/compiled/{next(_compilations)}"
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive() and not stop.received and STOP not in _said(name):
        thread.join(POLL_SECONDS)
    if failed:
        raise failed[0]
    said = _say(name, STOP if stop.received or not made else "ready")
    while len(said) < jax.process_count() and STOP not in said:
        time.sleep(POLL_SECONDS)
        said = _said(name)
    return None if STOP in said else made[0]


def _say(name: str, word: str) -> list[str]:
    """Tell all processes a word, and give what was said so far."""
    if global_state.client is None:
        return [word]
    global_state.client.key_value_set(f"{name}/{jax.process_index()}", word)
    return _said(name)


def _said(name: str) -> list[str]:
    client = global_state.client
    return [] if client is None else [word for _, word in client.key_value_dir_get(name)]


def end_process() -> None:
    """End this process with status 0 after a run that was stopped; everything is saved by then.

    Nobody waits for a compilation or an input worker any more that may still be at it, and the interpreter's
    own end would wait for them or tear down what they use.
    """
    if global_state.client is not None:
        jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
