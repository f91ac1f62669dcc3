"""Calls `nd` as the command line does, in the test's own process."""

import sys

from nd_jax import cli


def nd(*words: object) -> None:
    """Run a verb; exits as it does."""
    old, sys.argv = sys.argv, ["nd", *map(str, words)]
    try:
        cli.main()
    finally:
        sys.argv = old
