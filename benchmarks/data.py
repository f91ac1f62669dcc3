"""How fast rows are made and read, and how full they are, on one core.

    python -m benchmarks.data [--traces DIR ...] [--tokenizer DIR] [--row-length 256] [--json FILE]

Rows made on the fly, and packed ones read back, as training gets them: through `global_batches`, in one
thread. Beside them the plain way in the same run: each trace as `json.dumps` writes it, encoded whole by
SentencePiece, nothing else (it takes ten times the tokens). Rates are tokens, padding not counted, per second
of CPU time, so other load on the machine matters less; of several rounds the fastest counts. Without
--traces, synthetic programs are recorded first.
"""

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece

from nd_jax.console import console, table, write_json
from nd_jax.data.config import DataConfig
from nd_jax.data.pipeline import global_batches, open_rows, pack_rows
from nd_jax.language.tokenizer import MODEL_FILE
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.schema import to_json

STAGES = {
    "read": [("records.py", "__getitem__"), ("tfds_format.py", "decode_example")],
    "parse": [("schema.py", "from_json")],
    "tree": [("tree.py", "__init__"), ("source.py", "source_lines")],
    "sample": [("policy.py", "sample_trajectory"), ("rows.py", "_find_trace")],
    "show": [("session.py", "show")],
    "render": [
        ("render.py", "write_context"),
        ("render.py", "write_state"),
        ("render.py", "write_action"),
    ],
    "encode": [("tokenizer.py", "encode_context"), ("tokenizer.py", "encode_session")],
    "pack": [("layout.py", "of"), ("layout.py", "join"), ("layout.py", "lay_out"), ("encoded.py", "cut")],
}
"""Stage -> the functions whose time it is, by file and name; the time of stages within is taken out."""


def rate(tokens_of: Callable[[], int], rounds: int) -> float:
    """Tokens per second of CPU time, in the fastest of some rounds, after one that warms up."""
    tokens_of()
    best = 0.0
    for _ in range(rounds):
        start = time.process_time()
        tokens = tokens_of()
        best = max(best, tokens / (time.process_time() - start))
    return best


def batches_rate(config: DataConfig, batches: int, rounds: int) -> float:
    """The rate of further and further global batches of one iterator."""
    iterator = global_batches(open_rows(config), config)
    return rate(lambda: sum(int((b["segments"] > 0).sum()) for b in islice(iterator, batches)), rounds)


def naive_rate(config: DataConfig, documents: int, rounds: int) -> float:
    """The rate of `json.dumps` and one encoding call for each trace, a fresh one every time."""
    processor: Any = sentencepiece.SentencePieceProcessor(
        model_proto=(Path(config.tokenizer) / MODEL_FILE).read_bytes()
    )
    dataset = open_traces(Path(config.traces[0]), "train")
    records: Iterator[Any] = (json.loads(to_json(dataset[i % len(dataset)])) for i in range(10**9))

    def tokens_of(some: list[Any]) -> int:
        return sum(len(processor.encode_as_ids(json.dumps(record))) for record in some)

    best = 0.0
    for _ in range(rounds + 1):
        some = list(islice(records, documents))
        start = time.process_time()
        tokens = tokens_of(some)
        best = max(best, tokens / (time.process_time() - start))
    return best


def profile(config: DataConfig, rows: int) -> dict[str, float]:
    """Share of the time of making rows by stage; a profiler's, so calls weigh more than they cost."""
    stream = open_rows(config)
    for i in range(rows):
        stream.rows[i]
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    iterator = global_batches(stream, config, rows // config.global_batch)
    for _ in islice(iterator, rows // config.global_batch):
        pass
    profiler.disable()
    calls: Any = pstats.Stats(profiler)
    stage_of = {place: stage for stage, places in STAGES.items() for place in places}
    shares = dict.fromkeys([*STAGES, "rest"], 0.0)

    def own(function: tuple[str, int, str]) -> str | None:
        return stage_of.get((Path(function[0]).name, function[2]))

    for function, (_, _, seconds, _, _) in calls.stats.items():
        shares[_stage(function, calls.stats, own, set()) or "rest"] += seconds
    total = sum(shares.values())
    return {stage: seconds / total for stage, seconds in shares.items()}


def _stage(function: Any, stats: Any, own: Callable[[Any], str | None], seen: set[Any]) -> str | None:
    """The stage a function works for: its own, or that of the caller that takes most of its time."""
    if (stage := own(function)) is not None or function in seen:
        return stage
    seen.add(function)
    callers = stats[function][4]
    if not callers:
        return None
    most = max(callers, key=lambda caller: callers[caller][2])
    return _stage(most, stats, own, seen)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--traces", nargs="*", default=[], help="trace datasets; none: record synthetic programs"
    )
    parser.add_argument("--tokenizer", default="tokenizer", help="directory of the tokenizer")
    parser.add_argument("--row-length", type=int, default=256, help="tokens per row")
    parser.add_argument("--rows", type=int, default=1024, help="rows of one round")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        traces = options.traces or [_record(Path(directory) / "traces")]
        config = DataConfig(
            traces=tuple(map(str, traces)),
            tokenizer=options.tokenizer,
            row_length=options.row_length,
            threads=0,
        )
        batches, rounds = options.rows // config.global_batch, options.rounds
        packed = Path(directory) / "packed"
        pack_rows(config, packed, options.rows * (rounds + 2), 1)
        reading = replace(config, packed=str(packed))
        stream = open_rows(reading)
        filled = sum(int(stream.rows[i].runs[:-1].sum()) for i in range(options.rows))
        figures: dict[str, Any] = {
            "rows_tokens_per_s_per_core": batches_rate(config, batches, rounds),
            "packed_tokens_per_s_per_core": batches_rate(reading, batches, rounds),
            "naive_tokens_per_s_per_core": naive_rate(config, options.rows // 8, rounds),
            "fill": filled / (options.rows * config.row_length),
        }
        figures["ratio_naive"] = (
            figures["rows_tokens_per_s_per_core"] / figures["naive_tokens_per_s_per_core"]
        )
        stages = profile(config, options.rows)
    shown = [(name, f"{value:,.3f}" if value < 100 else f"{value:,.0f}") for name, value in figures.items()]
    table(f"rows of {config.row_length} tokens, {config.tokenizer}", ["figure", "value"], shown)
    table("making rows, by stage (profiled)", ["stage", "share"], stages.items())
    write_json(options.json, {**figures, "row_length": config.row_length, "stages": stages})


def _record(out: Path) -> Path:
    """Record synthetic programs into a new trace dataset."""
    from nd_jax.programs.synthetic import SyntheticConfig, generate
    from nd_jax.tracing.collect import collect
    from nd_jax.tracing.pool import WorkerLimits

    console.print("recording synthetic programs")
    collect(generate(SyntheticConfig(), 0, 0, 5000), out, WorkerLimits(), 1, False, 5000)
    return out


if __name__ == "__main__":
    main()
