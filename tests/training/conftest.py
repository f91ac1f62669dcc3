import os
import tempfile

import jax
import pytest

# Tests compile much and compute little. Programs are compiled without LLVM's optimisation, and once for all tests.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"


@pytest.fixture(autouse=True, scope="session")
def compile_once():
    with tempfile.TemporaryDirectory() as directory:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = directory  # for the processes that tests start
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        yield
        jax.config.update("jax_compilation_cache_dir", None)
