import json
import pickle
import subprocess
import sys

import pytest
from traced_programs import hard_programs, traced

from nd_jax.errors import UserError
from nd_jax.programs.splits import split_of
from nd_jax.tracing import tfds_format
from nd_jax.tracing.dataset import TraceWriter, open_traces
from nd_jax.tracing.schema import from_json

TRACES = [traced(made.source, made.arguments, made.entry, made.id) for made, _ in hard_programs()]
TRACES += [traced(f"def f(x):\n    {'x += 1; ' * i}return x", "'é\u2581'", id=f"é {i}") for i in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "traces"
    with TraceWriter(path, {"limits": {"cpu_s": 2}}) as writer:
        for trace in TRACES:
            writer.add(trace)
        writer.drop("bad", "timeout", "more than\n1 s \ud800")
        writer.drop("worse", "timeout")
        writer.drop("other", "exit")
    return path


def test_reads_what_was_written(folder):
    train, heldout, everything = (open_traces(folder, split) for split in ("train", "heldout", "all"))
    assert list(everything) == list(train) + list(heldout)
    assert sorted(everything) == sorted(TRACES)
    assert [trace.id for trace in train] == [t.id for t in TRACES if split_of(t.source) == "train"]
    assert len(heldout) > 0
    assert train[-1] == train[len(train) - 1]
    assert train[2:5] == [train[2], train[3], train[4]]
    with pytest.raises(IndexError):
        train[len(train)]


def test_metadata(folder):
    dataset = open_traces(folder, "all")
    assert dataset.info["recorded"] == len(TRACES)
    assert dataset.info["dropped"] == {"timeout": 2, "exit": 1}
    assert dataset.info["python"] == {TRACES[0].python: len(TRACES)}
    assert dataset.info["schema"] == 1
    assert dataset.info["events"] == sum(len(trace.events) for trace in TRACES)
    assert dataset.info["settings"] == {"limits": {"cpu_s": 2}}
    assert [drop["id"] for drop in dataset.dropped()] == ["bad", "worse", "other"]


def test_pickles(folder):
    dataset = open_traces(folder)
    first = dataset[0]
    again = pickle.loads(pickle.dumps(dataset))
    assert again[0] == first
    assert again.fingerprint == dataset.fingerprint


def test_the_fingerprint_is_the_content(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("nd_jax.tracing.shards.SHARD_BYTES", 5_000)
    for name, traces in (("same", TRACES), ("other", TRACES[1:])):
        with TraceWriter(tmp_path / name) as writer:
            for trace in traces:
                writer.add(trace)
    same = open_traces(tmp_path / "same", "all")
    assert len(same.info["shards"]["train"]) > 2
    assert sorted(same) == sorted(TRACES)
    assert same.fingerprint == open_traces(folder).fingerprint
    assert open_traces(tmp_path / "other").fingerprint != same.fingerprint


def test_tfds_reads_it_without_tensorflow(folder):
    code = (
        "import sys, json\nimport tensorflow_datasets as tfds\n"
        "builder = tfds.builder_from_directory(sys.argv[1])\n"
        "out = {split: [row['trace'].decode() for row in builder.as_data_source(split)]\n"
        "       for split in ('train', 'heldout')}\n"
        "assert 'tensorflow' not in sys.modules\nprint(json.dumps(out))"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    for split, texts in json.loads(done.stdout.splitlines()[-1]).items():
        assert [from_json(text) for text in texts] == list(open_traces(folder, split))


def test_writes_as_tfds_does(tmp_path):
    """Each reads the other's records; the description files are the same."""
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict({"id": tfds.features.Text(), "trace": tfds.features.Text()})
    values = {"id": "é".encode(), "trace": b"x" * 300}
    theirs = features.serialize_example({name: value.decode() for name, value in values.items()})
    assert tfds_format.decode_example(theirs) == values
    assert features.deserialize_example_np(tfds_format.encode_example(values)) == values

    template = tfds.core.ShardedFileTemplate(
        data_dir=tmp_path, template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        dataset_name=tfds_format.NAME, filetype_suffix="array_record",
    )  # fmt: skip
    split = tfds.core.SplitInfo(name="train", shard_lengths=[3, 1], num_bytes=77, filename_template=template)
    for index in range(2):
        (tmp_path / tfds_format.shard_name("train", index, 2)).touch()
    tfds.folder_dataset.write_metadata(
        data_dir=tmp_path, features=features, split_infos=[split], filename_template=template,
        description="words", check_data=False,
    )  # fmt: skip
    theirs = [json.loads((tmp_path / name).read_text()) for name in ("features.json", "dataset_info.json")]
    tfds_format.write_description(tmp_path, {"train": [3, 1]}, {"train": 77}, "words")
    ours = [json.loads((tmp_path / name).read_text()) for name in ("features.json", "dataset_info.json")]
    assert ours == theirs


def test_a_killed_run_continues(tmp_path):
    """Kill the writer in the middle of a line; what was written is there, and nothing twice."""
    path = tmp_path / "traces"
    code = (
        "import sys, os\nsys.path.insert(0, sys.argv[2])\nfrom test_trace_dataset import *\n"
        "writer = TraceWriter(sys.argv[1], {'a': 1})\nfor trace in TRACES[:30]: writer.add(trace)\n"
        "writer.drop('bad', 'exit')\nwriter._journal.write(b'train\\t\"half')\nos.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, path, __file__.rpartition("/")[0]])
    assert killed.returncode == -9
    with pytest.raises(UserError, match="unfinished"):
        open_traces(path)
    with pytest.raises(UserError, match="other settings"):
        TraceWriter(path, {"a": 2})
    with TraceWriter(path, {"a": 1}) as writer:
        assert set(writer.seen) == {trace.id for trace in TRACES[:30]} | {"bad"}
        for trace in TRACES:
            if trace.id not in writer.seen:
                writer.add(trace)
    assert sorted(open_traces(path, "all")) == sorted(TRACES)
    assert open_traces(path).info["dropped"] == {"exit": 1}


def test_an_exception_leaves_it_unfinished(tmp_path):
    def interrupted():
        with TraceWriter(tmp_path / "t") as writer:
            writer.add(TRACES[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with TraceWriter(tmp_path / "t") as writer:
        assert writer.recorded.total() == 1


def test_an_empty_set_is_a_set(tmp_path):
    with TraceWriter(tmp_path / "t"):
        pass
    assert list(open_traces(tmp_path / "t", "all")) == []


def test_refuses_other_folders(folder, tmp_path):
    with pytest.raises(UserError, match="already holds traces"):
        TraceWriter(folder)
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        TraceWriter(tmp_path)
    with pytest.raises(UserError, match=r"no readable metadata\.json"):
        open_traces(tmp_path)
    with pytest.raises(UserError, match="no folder"):
        open_traces(tmp_path / "missing")
    with pytest.raises(UserError, match="no split"):
        open_traces(folder, "test")
    (tmp_path / "metadata.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match="does not describe traces"):
        open_traces(tmp_path)


def test_names_what_is_damaged(folder, tmp_path):
    with TraceWriter(tmp_path / "t") as writer:
        for trace in TRACES:
            writer.add(trace)
    shard = next((tmp_path / "t").glob("*train*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(UserError, match=f"{len(content) - 1} bytes instead of {len(content)}"):
        open_traces(tmp_path / "t")
    shard.unlink()
    with pytest.raises(UserError, match="is missing"):
        open_traces(tmp_path / "t")
    shard.write_bytes(bytes(len(content)))
    with pytest.raises(UserError, match="cannot be read"):
        open_traces(tmp_path / "t")[0]
    metadata = tmp_path / "t" / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"schema": 1', '"schema": 7'))
    with pytest.raises(UserError, match="schema 7, this version reads 1"):
        open_traces(tmp_path / "t")
