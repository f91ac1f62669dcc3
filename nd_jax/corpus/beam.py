"""Collection as an Apache Beam pipeline, for more programs than one machine records.

`collect_with_beam` runs the pipeline: pieces of work go to the runner's workers, each records its programs as
`nd_jax.tracing.collect.collect` does, in limited processes of its own machine, and writes what became of them
as JSON lines. `gather` makes a trace dataset of these: the same records, in the same order, as the plain
collector writes. The runner's workers need nd_jax and Linux, nothing else; only `gather` writes ArrayRecord.

Apache Beam moves the pins of the main environment, so it has one of its own: ``make beam``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected
from nd_jax.programs.program import Program
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.pool import WorkerLimits, record

if TYPE_CHECKING:
    from nd_jax.tracing.dataset import TraceDataset

PIECE = 256
"""Programs that a worker records at a time: starting its processes takes as long as some twenty programs."""
_PREFIX, _SETTINGS = "outcomes", "collection.json"


class Piece(NamedTuple):
    """Work for one worker: programs as they are, or numbers of synthetic ones.

    Attributes:
      first: number of the first one in the whole collection.
      programs: what to record or to count.
      synthetic: (start, stop) of the generator's numbers; programs is empty then.
    """

    first: int
    programs: tuple[Program | Rejected, ...] = ()
    synthetic: tuple[int, int] = (0, 0)


def pieces(programs: Iterable[Program | Rejected], synthetic: int, size: int = PIECE) -> Iterator[Piece]:
    """Part a collection: programs that were read, then so many synthetic ones."""
    first, iterator = 0, iter(programs)
    while part := tuple(islice(iterator, size)):
        yield Piece(first, part)
        first += len(part)
    for start in range(0, synthetic, size):
        yield Piece(first + start, synthetic=(start, min(start + size, synthetic)))


def record_piece(
    piece: Piece, limits: WorkerLimits, verify: bool, generator: SyntheticConfig, seed: int
) -> Iterator[str]:
    """Record a piece on the machine that this runs on; gives a JSON line for each of its programs."""
    items = piece.programs or tuple(generate(generator, seed, *piece.synthetic))
    outcomes = record((item for item in items if isinstance(item, Program)), limits, 1, verify)
    for index, item in enumerate(items, piece.first):
        if isinstance(item, Rejected):
            yield json.dumps([index, item.place, None, item.reason, item.detail])
        else:
            outcome = next(outcomes)
            told = (None, outcome.reason, outcome.detail)
            if outcome.trace is not None:
                told = outcome.split, outcome.json
            yield json.dumps([index, outcome.program_id, *told])


def collect_with_beam(
    programs: Iterable[Program | Rejected],
    synthetic: int,
    out: Path | str,
    limits: WorkerLimits,
    verify: bool,
    generator: SyntheticConfig,
    seed: int,
    options: Sequence[str] = (),
) -> int:
    """Run the pipeline to its end, and give the number of programs.

    Args:
      programs: read here and sent to the workers, before ``synthetic`` ones, which the workers generate.
      synthetic: how many.
      out: new folder, of any file system that Beam writes to, for the outcomes.
      limits: what one program may use.
      verify: run every program twice and drop it where its traces differ.
      generator: of the synthetic programs.
      seed: of the synthetic programs.
      options: Beam's pipeline options, ``["--runner=FlinkRunner", ...]``; without any it runs here.

    Raises:
      UserError: Apache Beam is not installed, or `out` is there already.
    """
    try:
        import apache_beam as beam  # pyright: ignore[reportMissingImports]
        from apache_beam.io.filesystems import FileSystems  # pyright: ignore[reportMissingImports]
        from apache_beam.options.pipeline_options import PipelineOptions  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            f"Apache Beam cannot be imported ({error}); `make beam` makes .venv-beam with it, "
            "and .venv-beam/bin/nd runs this verb"
        ) from error
    settings = FileSystems.join(str(out), _SETTINGS)
    if FileSystems.exists(settings):
        raise UserError(f"{out} already holds a collection; give another folder, or remove this one first")
    parts = list(pieces(programs, synthetic))
    total = max((p.first + (len(p.programs) or p.synthetic[1] - p.synthetic[0]) for p in parts), default=0)
    task = functools.partial(record_piece, limits=limits, verify=verify, generator=generator, seed=seed)
    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        _ = (
            pipeline
            | "pieces" >> beam.Create(parts)
            | "spread" >> beam.Reshuffle()
            | "record" >> beam.FlatMap(task)
            | "write" >> beam.io.WriteToText(FileSystems.join(str(out), _PREFIX), ".jsonl")
        )
    described = {"programs": total, "settings": {"limits": asdict(limits), "verify": verify}}
    with FileSystems.create(settings) as file:  # last: a folder with it is whole
        file.write(json.dumps(described).encode())
    return total


class _Outcome(NamedTuple):
    """Where a program's outcome stands."""

    path: Path
    offset: int


def gather(folder: Path, out: Path) -> TraceDataset:
    """Make a trace dataset of a pipeline's outcomes, in the order of its programs; goes on after a kill.

    A line that a runner wrote twice, having tried its piece again, counts once.

    Raises:
      UserError: the folder holds no whole collection, or `out` holds something else.
    """
    from nd_jax.tracing.dataset import TraceWriter, open_traces
    from nd_jax.tracing.schema import from_json

    try:
        described = json.loads((folder / _SETTINGS).read_text())
    except (OSError, ValueError):
        raise UserError(
            f"{folder} holds no whole collection ({_SETTINGS} is missing): `nd corpus beam` writes one"
        ) from None
    places = _places(sorted(folder.glob(f"{_PREFIX}*")))
    missing = [index for index in range(described["programs"]) if index not in places]
    if missing:
        raise UserError(
            f"{folder} lacks the outcomes of {len(missing)} programs, the first number {missing[0]}: "
            "copy all of its files, or collect anew"
        )
    with TraceWriter(out, settings=described["settings"]) as writer:
        for index in range(described["programs"]):
            _, name, split, *told = _read(places[index])
            if writer.has(name):
                continue
            if split is None:
                writer.drop(name, *told)
            else:
                writer.add(from_json(told[0]), split, told[0])
    return open_traces(out, "all")


def _places(paths: Sequence[Path]) -> dict[int, _Outcome]:
    places: dict[int, _Outcome] = {}
    for path in paths:
        with path.open("rb") as file:
            offset = 0
            for line in file:
                index = int(line[1 : line.index(b",")])
                places.setdefault(index, _Outcome(path, offset))
                offset += len(line)
    return places


def _read(place: _Outcome) -> list[Any]:
    with place.path.open("rb") as file:
        file.seek(place.offset)
        return json.loads(file.readline())
