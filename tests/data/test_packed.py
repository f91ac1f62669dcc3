"""Packed rows: the same batches as rows made on the fly, and refusals."""

import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from run_verb import nd

from nd_jax.data import packed
from nd_jax.data.config import DataConfig
from nd_jax.data.layout import Rows
from nd_jax.data.pipeline import global_batches, open_rows, pack_rows
from nd_jax.data.rows import fingerprint
from nd_jax.errors import UserError
from nd_jax.tracing.dataset import TraceWriter


@pytest.fixture(scope="module")
def config(traces, tokenizer, tmp_path_factory) -> DataConfig:
    """Two datasets on disk, mixed by weight."""
    directory = tmp_path_factory.mktemp("data")
    for name, some in (("many", traces), ("few", traces[::3])):
        with TraceWriter(directory / name) as writer:
            for trace in some:
                writer.add(trace)
    tokenizer.save(directory / "tokenizer")
    return DataConfig(
        traces=(str(directory / "many"), str(directory / "few")), weights=(0.7, 0.3),
        tokenizer=str(directory / "tokenizer"), row_length=128, global_batch=8,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory) -> Path:
    """Seven steps of packed rows, in several records; the last one is not full."""
    out = tmp_path_factory.mktemp("packed") / "rows"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "ROWS_PER_RECORD", 16)
        pack_rows(config, out, 56, workers=1)
        yield out


def take(config, count, *place):
    return list(islice(global_batches(open_rows(config), config, *place), count))


def same(batches, others):
    return len(batches) == len(others) and all(
        np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype
        for a, b in zip(batches, others, strict=True)
        for name in a
    )


def test_training_on_either_gives_the_same_batches(config, folder):
    made = take(config, 7)
    reading = replace(config, packed=str(folder))
    assert same(take(reading, 7), made)
    assert same(take(replace(reading, traces=("elsewhere",)), 7), made)
    assert not same(take(replace(reading, context_weight=0.5), 7), made)
    for hosts in (1, 2, 4, 8):
        own = [range(8)[host * 8 // hosts : (host + 1) * 8 // hosts] for host in range(hosts)]
        parts = [take(reading, 4, 3, rows) for rows in own]
        for step, whole in enumerate(made[3:]):
            for name, array in whole.items():
                assert np.array_equal(np.concatenate([part[step][name] for part in parts]), array)
    apart = take(reading, 1, 0, [1, 2, 6])  # rows that are no neighbours
    assert all(np.array_equal(apart[0][name], made[0][name][[1, 2, 6]]) for name in made[0])


def test_a_batch_may_lie_in_several_records(config, folder):
    made, reading = open_rows(config).rows, packed.open_packed(folder)
    for numbers in (range(10, 40), range(15, 17), range(16, 32), range(50, 56)):
        expected = Rows.join([made[number] for number in numbers])
        assert all(map(np.array_equal, reading.block(numbers), expected))
    with pytest.raises(UserError, match="row 56"):
        reading.block(range(50, 57))


def test_processes_make_the_same_batches(config):
    made = take(config, 7)
    assert same(take(replace(config, workers=2, threads=1), 5, 2), made[2:])


def test_a_run_may_change_between_the_two(config, folder):
    reading = replace(config, packed=str(folder))
    names = {fingerprint(each, open_rows(each).settings) for each in (config, reading)}
    assert len(names) == 1


def test_a_folder_is_added_to(config, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "RECORDS_PER_FILE", 2)
    for rows in (24, 24, 40, 56):  # within a file, nothing to do, over its end, a whole further one
        pack_rows(config, tmp_path / "rows", rows, workers=1)
    assert len(list((tmp_path / "rows").glob("*.array_record"))) == 2
    read = [replace(config, packed=str(path)) for path in (folder, tmp_path / "rows")]
    assert same(take(read[0], 7), take(read[1], 7))


def test_processes_pack_the_same_rows(config, folder, tmp_path):
    pack_rows(config, tmp_path / "rows", 56, workers=2)
    reading = replace(config, packed=str(tmp_path / "rows"))
    assert same(take(reading, 7), take(replace(config, packed=str(folder)), 7))


def test_other_settings_are_refused_by_name(config, folder):
    reading = replace(config, packed=str(folder))
    for change, named in (
        ({"seed": 5}, "seed: 0 there, 5 here"),
        ({"weights": (0.5, 0.5)}, "weights"),
        ({"policy": replace(config.policy, turning=9.0)}, "policy.turning"),
        ({"traces": config.traces[::-1]}, "traces"),
    ):
        with pytest.raises(UserError, match=named):
            open_rows(replace(reading, **change))
        with pytest.raises(UserError, match="other settings"):
            pack_rows(replace(config, **change), folder, 60, workers=1)


def test_rows_past_the_last_are_refused(config, folder):
    with pytest.raises(UserError, match="holds 56 rows and row 56 is asked for"):
        take(replace(config, packed=str(folder)), 8)


def test_damaged_folders_are_refused(config, folder, tmp_path):
    with pytest.raises(UserError, match="no packed rows"):
        packed.open_packed(tmp_path)
    (tmp_path / packed.DESCRIPTION).write_text("{")
    with pytest.raises(UserError, match="damaged"):
        packed.open_packed(tmp_path)
    (tmp_path / packed.DESCRIPTION).write_text((folder / packed.DESCRIPTION).read_text())
    with pytest.raises(UserError, match="is missing"):
        packed.open_packed(tmp_path)
    (tmp_path / "rows-00000.array_record").write_bytes(b"x")
    with pytest.raises(UserError, match="has 1 bytes"):
        packed.open_packed(tmp_path)


def test_a_dataset_that_changed_gives_other_rows_and_is_refused(config, folder, traces, tmp_path):
    """A resumed run compares the fingerprint with its checkpoint's (`training/checkpoint.py`)."""
    shutil.copytree(config.traces[0], tmp_path / "many")
    moved = replace(config, traces=(str(tmp_path / "many"), config.traces[1]))
    name = fingerprint(config, open_rows(config).settings)
    assert fingerprint(moved, open_rows(moved).settings) == name
    shutil.rmtree(tmp_path / "many")
    with TraceWriter(tmp_path / "many") as writer:
        for trace in traces[1:]:
            writer.add(trace)
    assert fingerprint(moved, open_rows(moved).settings) != name
    with pytest.raises(UserError, match="traces"):
        open_rows(replace(moved, packed=str(folder)))


def test_verbs(config, tmp_path, capsys):
    file = tmp_path / "small.py"
    file.write_text(
        "from nd_jax.data.config import DataConfig\n"
        "from nd_jax.training.config import Experiment\n"
        f"config = Experiment(data=DataConfig(traces={config.traces!r}, weights={config.weights!r}, "
        f"tokenizer={config.tokenizer!r}, row_length=128, global_batch=8))\n"
    )
    nd("pack", file, "--out", tmp_path / "rows", "--rows", 8, "--workers", 1)
    reading = ("--data.packed", tmp_path / "rows")
    for name, words in (("made", ()), ("read", reading)):
        nd("data", "inspect", file, "--row", 5, "--json", tmp_path / name, *words)
    assert "row 5: " in capsys.readouterr().out
    made, read = (json.loads((tmp_path / name).read_text()) for name in ("made", "read"))
    assert made == read
    assert made["tokens"] + made["padding"] == 128
    with pytest.raises(SystemExit):
        nd("data", "inspect", file, "--row", 8, *reading)
    assert "holds 8 rows" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        nd("pack", file, "--rows", 8)
    assert "--out DIR" in capsys.readouterr().err


def test_a_tokenizer_is_looked_into(config, tmp_path, capsys, tokenizer):
    words = ("--tokenizer", config.tokenizer, "--traces", config.traces[0])
    nd("tokenizer", "inspect", *words, "--text", "x = 10 é", "--index", 2, "--json", tmp_path / "seen")
    seen = json.loads((tmp_path / "seen").read_text())
    assert sum(seen["kinds"].values()) == tokenizer.vocab_size
    assert seen["kinds"]["byte"] == 256
    assert seen["kinds"]["line symbol"] == tokenizer.spec.lines
    assert [len(text) for text in seen["longest"]] == sorted(map(len, seen["longest"]), reverse=True)
    assert seen["text"][-2:] == ["\\xc3", "\\xa9"]
    assert seen["trace"][:3] == ["<|begin_of_text|>", "<|trace_context_start|>", "<|line_1|>"]
    nd("tokenizer", "evaluate", *words, "--json", tmp_path / "figures")
    figures = json.loads((tmp_path / "figures").read_text())
    assert set(figures["bytes_per_token"]) == {"source", "name", "value"}
    assert all(value >= 1 for value in figures["bytes_per_token"].values())
