import json
import shutil
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from tiny_run import EXPERIMENT, MODEL, WordTokenizer, arrays, batches, digest, run

from nd_jax.errors import UserError
from nd_jax.model.partition import MeshConfig
from nd_jax.training.checkpoint import find_checkpoint, load_for_inference, read_record


@pytest.fixture
def trained(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def longer(**changes):
    return replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=8), **changes)


def test_the_newest_are_kept_and_say_all_about_their_run(finished):
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["4", "6"]
    record = read_record(finished / "checkpoints/6")
    assert record.experiment.model == MODEL
    assert (record.step, record.data, record.tokenizer) == (6, "rows of seed 0", WordTokenizer().fingerprint)
    assert 0 < record.elapsed_seconds < 600
    assert (finished / "checkpoints/6/tokenizer/words.txt").read_text() == "abc"


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({"model": replace(MODEL, d_ff=64)}, {}, "another model .model.d_ff: 32 -> 64."),
        (
            {"model": replace(MODEL, rope_theta=5.0)},
            {},
            "model.rope_theta: 10000.0 -> 5.0",
        ),  # of the same shape
        ({}, {"tokenizer": WordTokenizer("xyz")}, f"another tokenizer .{WordTokenizer().fingerprint}, here"),
        ({"optimizer": replace(EXPERIMENT.optimizer, name="muon")}, {}, "optimizer.name: adamw -> muon"),
        ({"data": replace(EXPERIMENT.data, seed=5)}, {}, "other rows .data.seed: 0 -> 5."),
        ({}, {"data_fingerprint": "others"}, "other rows .other traces"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_difference(trained, changes, more, said):
    before = sorted(trained.rglob("*"))
    with pytest.raises(UserError, match=said) as refused:
        run(trained, longer(**changes), **more)
    assert "\n" not in str(refused.value)
    assert sorted(trained.rglob("*")) == before


def test_how_to_compute_may_change_on_resumption(trained):
    run(trained, longer(model=replace(MODEL, attention="xla", scan_layers=True, remat="full")))
    assert find_checkpoint(trained).name == "8"


def test_missing_checkpoints_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no directory .*nowhere"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no checkpoint in"):
        find_checkpoint(tmp_path)
    (tmp_path / "checkpoints/3.orbax-checkpoint-tmp").mkdir(parents=True)
    with pytest.raises(UserError, match=r"never finished: 3\.orbax-checkpoint-tmp"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("form", ["temporary", "incomplete"])
def test_a_half_written_checkpoint_is_named_and_the_one_before_is_used(trained, capsys, form):
    expected = digest(trained / "checkpoints/6")
    folder = trained / "checkpoints"
    if form == "temporary":  # killed while Orbax wrote
        broken = (folder / "6").rename(folder / "6.orbax-checkpoint-tmp")
    else:  # copied halfway
        broken = folder / "6"
        (broken / "run/metadata").unlink()
    assert find_checkpoint(trained).name == "4"
    assert broken.name in "".join(capsys.readouterr().out.split())
    run(trained)
    printed = "".join(capsys.readouterr().out.split())
    assert f"{broken}wasneverfinished;using4" in printed
    assert f"Resumingfrom{folder / '4'}" in printed
    assert digest(folder / "6") == expected


def test_a_damaged_checkpoint_is_refused_by_name(trained):
    for path in (trained / "checkpoints/6/params").rglob("*"):
        if path.is_file() and path.parent.name == "d":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=r"checkpoints/6 cannot be restored .*move it away") as refused:
        run(trained, longer())
    assert "\n" not in str(refused.value)
    (trained / "checkpoints/4/run/metadata").write_text('{"experiment')
    with pytest.raises(UserError, match=r"checkpoints/4 cannot be read"):
        read_record(trained / "checkpoints/4")


def test_a_sharded_checkpoint_is_restored_on_one_device_bit_for_bit(tmp_path):
    sharded = replace(
        EXPERIMENT, mesh=MeshConfig(replica=2, fsdp=2, tensor=2), train=replace(EXPERIMENT.train, steps=2)
    )
    run(tmp_path, sharded, devices=jax.devices())
    expected = digest(tmp_path / "checkpoints/2")
    single = replace(
        EXPERIMENT, mesh=MeshConfig(replica=1, fsdp=1, tensor=1), train=replace(EXPERIMENT.train, steps=3)
    )
    seen = []
    run(tmp_path, single, batches=partial(noted, seen, tmp_path))
    assert seen == [expected]


def noted(seen, out, first, own):
    seen.append(digest(out / "checkpoints" / str(first)))
    return batches(EXPERIMENT.data, first, own)


def test_inference_loads_everything_from_within_the_checkpoint(tmp_path):
    from nd_jax.language.symbols import TokenizerSpec
    from nd_jax.language.training import train as train_tokenizer

    texts = [f"def f(x{i}):\n    return x{i} + {i * 7}\n" for i in range(300)]
    tokenizer = train_tokenizer(texts, TokenizerSpec(vocab_size=320, lines=8, frames=4), note={})
    experiment = replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=2))
    params = []

    def keep(step, values, check):
        params.append(jax.tree.map(np.array, values))

    from nd_jax.training.loop import Hook

    run(tmp_path / "run", experiment, tokenizer=tokenizer, hooks=[Hook(2, keep)])
    moved = shutil.copytree(tmp_path / "run/checkpoints/2", tmp_path / "elsewhere/2")
    shutil.rmtree(tmp_path / "run")
    loaded, restored, own = load_for_inference(moved)
    assert loaded == experiment
    assert own.fingerprint == tokenizer.fingerprint
    jax.tree.map(np.testing.assert_array_equal, restored, params[0])
    assert json.loads((moved / "run/metadata").read_text())["step"] == 2


def test_a_decay_that_branches_off_ends_as_the_whole_run(tmp_path):
    def experiment(shape, steps, **train):
        return replace(
            EXPERIMENT,
            schedule=replace(EXPERIMENT.schedule, shape=shape, decay_share=1 / 3, floor=0.0),
            train=replace(EXPERIMENT.train, steps=steps, **train),
            checkpoint=replace(EXPERIMENT.checkpoint, every_steps=100, keep=1, keep_steps=(4,)),
        )

    run(tmp_path / "whole", experiment("wsd", 6))
    run(tmp_path / "trunk", experiment("constant", 8))
    assert sorted(path.name for path in (tmp_path / "trunk/checkpoints").iterdir()) == ["4", "8"]
    start = str(tmp_path / "trunk/checkpoints/4")
    figures = run(tmp_path / "decay", experiment("wsd", 6, start_from=start))
    assert figures["step"] == 6
    records = (tmp_path / "decay/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in records] == [5, 6]
    # Two schedules are two programs, whose sums XLA may order differently: equal to rounding.
    decay, whole, trunk = (arrays(tmp_path / path) for path in (
        "decay/checkpoints/6", "whole/checkpoints/6", "trunk/checkpoints/8"))  # fmt: skip
    for path, array in decay.items():
        np.testing.assert_allclose(array, whole[path], rtol=1e-4, atol=1e-6, err_msg=path)
    changed = next(path for path in decay if path.startswith("params"))
    assert not np.allclose(decay[changed], trunk[changed], rtol=1e-4, atol=1e-6)


def test_where_a_run_cannot_start_is_named(finished, tmp_path):
    def starting(**train):
        return replace(EXPERIMENT, train=replace(EXPERIMENT.train, **train))

    with pytest.raises(UserError, match=r"no directory .*absent"):
        run(tmp_path / "a", starting(start_from=str(tmp_path / "absent")))
    with pytest.raises(UserError, match=r"has done 6 steps: give more than 6"):
        run(tmp_path / "b", starting(start_from=str(finished)))
    with pytest.raises(UserError, match=r"other rows .other traces"):
        run(tmp_path / "c", starting(start_from=str(finished), steps=9), data_fingerprint="others")
