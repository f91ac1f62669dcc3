"""Copy trace datasets into a new one, leaving out what a rule names, which is counted and listed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nd_jax.console import track
from nd_jax.errors import UserError
from nd_jax.tracing.dataset import TraceDataset, TraceWriter, open_traces
from nd_jax.tracing.schema import Trace


class Removal(NamedTuple):
    """Why a trace is left out: a short reason to count by, and what exactly is the matter."""

    reason: str
    detail: str


Rule = Callable[[Trace], Removal | None]


def filter_traces(
    datasets: Sequence[Path], out: Path, rule: Rule, settings: Mapping[str, Any]
) -> TraceDataset:
    """Write the traces that a rule lets pass to a new dataset, in their order; goes on after a kill.

    What has no trace in the sources has none here, for the same reason.

    Args:
      datasets: folders of traces.
      out: the new folder.
      rule: asked once for each trace, in order, of a continued call too: it may remember what it saw.
      settings: how the rule was made; kept in the new folder's metadata beside its sources'.

    Raises:
      UserError: a dataset cannot be read, or `out` holds something else.
    """
    if not datasets:
        raise UserError("name at least one folder of traces")
    sources = [open_traces(path, "all") for path in datasets]
    made_of = [{"fingerprint": source.fingerprint, "settings": source.info["settings"]} for source in sources]
    with TraceWriter(out, settings={**settings, "sources": made_of}) as writer:
        for source in sources:
            for drop in source.dropped():
                if not writer.has(drop["id"]):
                    writer.drop(drop["id"], drop["reason"], drop["detail"])
            for trace in track(source, f"reading {source.directory.name}", len(source)):
                removal = rule(trace)
                if writer.has(trace.id):
                    continue
                if removal is None:
                    writer.add(trace)
                else:
                    writer.drop(trace.id, *removal)
    return open_traces(out, "all")
