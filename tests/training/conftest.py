import os
import tempfile
from dataclasses import replace

import jax
import pytest
from tiny_run import EXPERIMENT, run

# Tests compile much and compute little: LLVM's optimisation and XLA's fusion emitters cost two thirds of
# their time. (Flags of the pinned jax; XLA refuses to start with a flag that it does not know.)
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"


@pytest.fixture(autouse=True, scope="session")
def compile_once():
    """Share compiled programs between the tests and the processes they start."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = directory  # for the processes that tests start
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        yield
        jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The directory of a run of six steps without interruption, with its last two checkpoints."""
    out = tmp_path_factory.mktemp("finished")
    run(out, replace(EXPERIMENT, checkpoint=replace(EXPERIMENT.checkpoint, keep=2)))
    return out
