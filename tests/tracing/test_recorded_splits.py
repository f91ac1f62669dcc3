"""Workers tell which side of the split a program is on; that must be what anybody else says."""

from nd_jax.programs.splits import split_of
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.collect import collect
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.pool import WorkerLimits


def test_workers_tell_the_same_split(tmp_path):
    programs = list(generate(SyntheticConfig(), 5, 0, 120))
    collect(programs, tmp_path / "traces", WorkerLimits(batch=50), 2, verify=True)
    for split in ("train", "heldout"):
        traces = open_traces(tmp_path / "traces", split)
        assert len(traces) > 0
        assert {split_of(trace.source) for trace in traces} == {split}
