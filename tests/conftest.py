"""Every test runs on CPU, with eight devices there, so that sharding is tested without an accelerator."""

import os

# By environment rather than jax.config: tests of packages that never import jax stay free of it, and
# processes that tests start inherit both. They are read when jax is imported.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
