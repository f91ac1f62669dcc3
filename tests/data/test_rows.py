"""Rows: what they hold, and that they are functions of their index alone."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from nd_jax.data.config import DataConfig
from nd_jax.data.layout import Rows, lay_out
from nd_jax.data.mixture import Mixture
from nd_jax.data.pipeline import RowStream, global_batches
from nd_jax.data.rows import ROWS, RowSource, fingerprint, row_settings
from nd_jax.debugger.policy import PolicyConfig
from nd_jax.errors import UserError
from nd_jax.language.parse import parse
from nd_jax.language.symbols import ACTION_OF, Role, number_of
from nd_jax.tracing.schema import EVENT_KINDS

CONFIG = DataConfig(row_length=256, global_batch=8, seed=3)


@pytest.fixture(scope="module")
def source(traces, tokenizer):
    return RowSource(traces, tokenizer, CONFIG)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def arrays(source, index):
    """A row as a model gets it."""
    laid = lay_out(source[index], CONFIG, source.tokenizer)
    return {name: array[0] for name, array in laid.items()}


def sessions(row):
    for segment in range(1, row["segments"].max() + 1):
        yield row["tokens"][row["segments"] == segment].tolist()


def test_a_row_depends_on_its_index_alone(source, traces, tokenizer):
    again = RowSource(traces, tokenizer, CONFIG)
    for i in (1000, 7, 10**11):
        assert same(source[i], again[i])
    assert same(source[5], pickle.loads(pickle.dumps(source))[5])
    assert not same(source[5], source[6])
    assert not same(source[5], RowSource(traces, tokenizer, replace(CONFIG, seed=4))[5])


def test_every_session_of_a_row_parses(source, tokenizer):
    for i in range(40):
        for ids in sessions(arrays(source, i)):
            parsed = parse(tokenizer.segments(ids))
            assert parsed.error is None
            assert parsed.session.actions


def test_lines_may_be_numbered_from_any(traces, tokenizer):
    """All line symbols come, and those of a session are its program's."""
    source = RowSource(traces, tokenizer, replace(CONFIG, random_line_numbers=True))
    found: set[int] = set()
    for i in range(200):
        for ids in sessions(arrays(source, i)):
            lines: dict[Role, set[int]] = {role: set() for role in Role}
            for kind, text, role in tokenizer.segments(ids):
                if kind == "pointer":
                    lines[role].add(number_of(text, "line"))
            assert lines[Role.STATE] <= lines[Role.CONTEXT]
            first, last = min(lines[Role.CONTEXT]), max(lines[Role.CONTEXT])
            assert lines[Role.CONTEXT] == set(range(first, last + 1))
            found |= lines[Role.CONTEXT]
    assert found == set(range(1, tokenizer.spec.lines + 1))


def test_targets_weights_and_positions(source, tokenizer):
    actions = {tokenizer.symbol_id(symbol) for symbol in ACTION_OF}
    for i in range(20):
        row = arrays(source, i)
        for segment in range(1, row["segments"].max() + 1):
            at = np.flatnonzero(row["segments"] == segment)
            assert np.array_equal(at, np.arange(at[0], at[-1] + 1))
            assert np.array_equal(row["positions"][at], np.arange(len(at)))
            assert np.array_equal(row["targets"][at[:-1]], row["tokens"][at[1:]])
            assert row["weights"][at[-1]] == 0
            ids = row["tokens"][at].tolist()
            _, roles = tokenizer.encode(tokenizer.segments(ids))
            first_action = roles.index(Role.ACTION)
            for t, target in enumerate(at[:-1], 1):
                given = t < first_action
                expected = CONFIG.context_weight if given else float(roles[t] == Role.STATE)
                assert row["weights"][target] == np.float32(expected)
                if ids[t] in actions:
                    assert row["weights"][target] == CONFIG.action_weight
        pads = row["segments"] == 0
        assert not row["weights"][pads].any()
        assert (row["tokens"][pads] == tokenizer.pad).all()


def test_rows_are_well_filled(source):
    filled = np.mean([(arrays(source, i)["segments"] > 0).mean() for i in range(200)])
    assert filled > 0.94


def test_rows_laid_out_together_are_those_laid_out_alone(source, tokenizer):
    alone = [arrays(source, i) for i in range(5)]
    together = lay_out(Rows.join([source[i] for i in range(5)]), CONFIG, tokenizer)
    for name, array in together.items():
        assert array.dtype == alone[0][name].dtype
        assert np.array_equal(array, np.stack([row[name] for row in alone]))


def test_every_trace_of_an_epoch_is_owned_once(traces, tokenizer, monkeypatch):
    source = RowSource(traces, tokenizer, CONFIG)
    asked = []
    monkeypatch.setattr(source, "_program", asked.append)
    k = source.traces_per_row
    owned = []
    for i in range(len(traces) // k):
        asked.clear()
        source[i]
        owned += asked[:k]
    assert len(set(owned)) == len(owned) > len(traces) - k


def rows_of(batch):
    both = np.concatenate([batch["tokens"], batch["segments"]], axis=1)
    return {tuple(row) for row in both.tolist()}


@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
def test_hosts_share_the_same_global_batches_and_resume_anywhere(traces, tokenizer, hosts):
    sources = [RowSource(traces, tokenizer, CONFIG), RowSource(traces[::3], tokenizer, CONFIG)]
    stream = RowStream(Mixture(sources, (0.7, 0.3)), ROWS, {}, tokenizer)
    whole = global_batches(stream, CONFIG)
    expected = [next(whole) for _ in range(5)]
    for start in (0, 3):
        own = [range(8)[host * 8 // hosts : (host + 1) * 8 // hosts] for host in range(hosts)]
        parts = [global_batches(stream, CONFIG, start, rows) for rows in own]
        for step in range(start, 5):
            batches = [next(part) for part in parts]
            assert all(batch["tokens"].shape == (8 // hosts, 256) for batch in batches)
            assert set().union(*map(rows_of, batches)) == rows_of(expected[step])


def test_refusals(source, traces, tokenizer):
    with pytest.raises(UserError, match="no traces"):
        RowSource([], tokenizer, CONFIG)
    with pytest.raises(UserError, match="no trace fits"):
        RowSource(traces, tokenizer, replace(CONFIG, row_length=20))
    with pytest.raises(UserError, match="weights"):
        Mixture([source] * 2, (1.0,))
    with pytest.raises(UserError, match="weights -1"):
        Mixture([source] * 2, (1.0, -1.0))


@pytest.mark.parametrize("weights", [(0.7, 0.3), (1, 1, 1), (5000, 1), (3, 1e-9, 2, 0.5), (18947, 957)])
def test_a_mixture_spreads_its_sources_by_weight(weights):
    sources = [[(d, k) for k in range(2500)] for d in range(len(weights))]
    drawn = [Mixture(sources, weights)[i] for i in range(2500)]  # type: ignore[arg-type]  # numbers for rows
    for d, weight in enumerate(weights):
        numbers = [k for source, k in drawn if source == d]
        assert numbers == list(range(len(numbers)))  # none is left out, none comes twice
        share = max(weight / sum(weights), 0.001)
        for i in range(100, 2500, 100):
            assert abs(sum(source == d for source, _ in drawn[:i]) - i * share) < 3


def test_fingerprint_names_what_decides_the_batches(tokenizer):
    def name(config, dataset="a"):
        return fingerprint(config, row_settings(config, [dataset], tokenizer))

    assert name(CONFIG) == name(replace(CONFIG, threads=7, workers=2, traces=("moved",), packed="there"))
    changes = [
        {"context_weight": 0.2},
        {"seed": 4},
        {"policy": PolicyConfig(turning=9.0)},
        {"row_length": 128},
        {"random_line_numbers": True},
    ]
    names = {name(CONFIG), name(CONFIG, "b"), *(name(replace(CONFIG, **change)) for change in changes)}
    assert len(names) == 7


def test_the_place_weight_counts_where_a_learned_state_says_where_it_is(source, tokenizer):
    weighted = replace(CONFIG, place_weight=3.0)
    for i in range(20):
        plain, more = (lay_out(source[i], config, tokenizer) for config in (CONFIG, weighted))
        segments = [tokenizer.segments([int(target)])[0] for target in plain["targets"][0]]
        factors = more["weights"][0] / np.where(plain["weights"][0] > 0, plain["weights"][0], 1)
        for segment, weight, factor in zip(segments, plain["weights"][0], factors, strict=True):
            event = segment.text.endswith("_sep|>") and segment.text[2:-6] in EVENT_KINDS
            frame = segment.text.startswith("<|frame_") and segment.text[8].isdigit()
            place = segment.kind == "pointer" or event or frame
            assert factor == (0 if weight == 0 else 3 if place and weight == CONFIG.state_weight else 1)
