from dataclasses import replace

import pytest
from tiny_run import EXPERIMENT, run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The directory of a run of six steps without interruption, with its last two checkpoints."""
    out = tmp_path_factory.mktemp("finished")
    run(out, replace(EXPERIMENT, checkpoint=replace(EXPERIMENT.checkpoint, keep=2)))
    return out
