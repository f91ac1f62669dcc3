"""Every test runs on CPU, with eight devices there, so that sharding is tested without an accelerator."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# No test fails because other work keeps the machine busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# By environment rather than jax.config: tests of packages that never import jax stay free of it, and
# processes that tests start inherit all of it. They are read when jax is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
# Tests compile much and compute little: LLVM's optimisation and XLA's fusion emitters cost two thirds of
# their time. (Flags of the pinned jax; XLA refuses to start with a flag that it does not know.)
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"
_COMPILED = tempfile.TemporaryDirectory()
os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"


@pytest.fixture(autouse=True, scope="session")
def compile_once():
    """Share compiled programs between the tests and the processes they start, and remove them at the end."""
    yield
    _COMPILED.cleanup()
