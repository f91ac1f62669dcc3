"""The verbs that copy and vary datasets, from end to end on a few programs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_verb import nd

from nd_jax.corpus.deduplicate import DeduplicationConfig, Duplicates
from nd_jax.corpus.filtering import Removal, filter_traces
from nd_jax.errors import UserError
from nd_jax.tracing.dataset import TraceDataset, open_traces
from nd_jax.tracing.schema import Trace

ROWS = [
    {"id": "a", "code": "def f(x):\n    return x * 2 + 1\n", "input": "1"},
    {"id": "b", "code": "def f(n):\n    return n * 3 + 2\n", "input": "2"},
    {"id": "c", "code": "def f(s):\n    return s.upper()[::-1] + s\n", "input": "'ab'"},
    {"id": "d", "code": "def f(", "input": ""},
]


def lines(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("made")
    nd("trace", "--programs", lines(out / "rows.jsonl", ROWS), "--out", out / "traces", "--workers", 1)
    return out / "traces"


def ids(dataset: TraceDataset) -> list[str]:
    return sorted(trace.id for trace in dataset)


def test_dedup(traces: Path, tmp_path: Path):
    nd("corpus", "dedup", traces, traces, "--out", tmp_path / "out", "--json", tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["recorded"] == 2
    assert figures["dropped"] == {"does not compile": 2, "duplicate program": 2, "duplicate source": 2}
    assert set(ids(open_traces(tmp_path / "out", "all"))) & {"a", "b"}
    nd("corpus", "dedup", traces, traces, "--out", tmp_path / "exact", "--by", "exact")
    assert ids(open_traces(tmp_path / "exact", "all")) == ["a", "b", "c"]


def test_decontaminate_counts_and_lists(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"id": "bench/7", "code": "def f(count):\n  return (count*5) + 0", "input": "1"}]
    benchmark = lines(tmp_path / "bench.jsonl", rows)
    nd("corpus", "decontaminate", traces, "--against", benchmark, "--out", tmp_path / "out",
       "--json", tmp_path / "figures.json")  # fmt: skip
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["recorded"] == 1
    assert figures["dropped"] == {"does not compile": 1, "shares a benchmark's function body": 2}
    removed = {row["id"]: row for row in figures["removed"]}
    assert removed["b"] == {
        "id": "b", "kind": "function body", "benchmark": "bench/7", "text": "return n * 3 + 2"
    }  # fmt: skip
    assert "bench/7" in capsys.readouterr().out
    clean = open_traces(tmp_path / "out", "all")
    assert ids(clean) == ["c"]
    listed = {drop["id"]: drop for drop in clean.dropped()}
    assert listed["a"]["detail"] == "function body of bench/7: return x * 2 + 1"
    assert clean.info["settings"]["sources"][0]["fingerprint"] == open_traces(traces, "all").fingerprint


def test_mutate(traces: Path, tmp_path: Path):
    nd("corpus", "mutate", traces, "--each", 3, "--out", tmp_path / "out", "--workers", 1)
    varied = open_traces(tmp_path / "out", "all")
    assert ids(varied) == [f"{name}~{n}" for name in "abc" for n in (1, 2, 3)]
    assert len({(trace.source, trace.arguments) for trace in varied}) == 9
    nd("corpus", "mutate", traces, "--each", 3, "--out", tmp_path / "again", "--workers", 2)
    assert open_traces(tmp_path / "again", "all").fingerprint == varied.fingerprint


def test_a_killed_filter_goes_on(traces: Path, tmp_path: Path):
    settings = {"by": "test"}
    whole = filter_traces([traces, traces], tmp_path / "whole", Duplicates(DeduplicationConfig()), settings)
    for stop in range(6):

        def dying(left: Iterator[int] = iter(range(stop)), rule=Duplicates(DeduplicationConfig())):
            def ask(trace: Trace) -> Removal | None:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return rule(trace)

            return ask

        out = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            filter_traces([traces, traces], out, dying(), settings)
        again = filter_traces([traces, traces], out, Duplicates(DeduplicationConfig()), settings)
        assert again.fingerprint == whole.fingerprint
        assert list(again.dropped()) == list(whole.dropped())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["dedup", "--out", "x"], "at least one folder"),
        (["dedup", "nowhere", "--out", "x"], "nowhere"),
        (["decontaminate", "nowhere", "--against", "none.jsonl", "--out", "x"], "none.jsonl"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        nd("corpus", *words)
    assert told in capsys.readouterr().err


def test_other_settings_are_refused(traces: Path, tmp_path: Path):
    def dying(_: Trace) -> Removal | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filter_traces([traces], tmp_path / "out", dying, {"most": 1})
    with pytest.raises(UserError, match="other settings"):
        filter_traces([traces], tmp_path / "out", lambda _: None, {"most": 2})
