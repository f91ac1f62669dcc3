"""The study of studies/cpu on a tiny scale, from programs to the fit of what it left."""

import json
import runpy
from pathlib import Path

import pytest
from standin import ROOT, nd

from nd_jax.model.config import ModelConfig
from nd_jax.scaling.points import read_points
from nd_jax.sweep import job, local
from nd_jax.sweep.study import load_plan

SHAPE = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")
CONFIG = f"""
import dataclasses
from nd_jax.data.config import DataConfig
from nd_jax.model.config import MeshConfig
from nd_jax.training.config import MetricsConfig, ScheduleConfig, load_config

config = load_config({str(ROOT / "configs/nano.py")!r})
config = dataclasses.replace(
    config,
    data=dataclasses.replace(config.data, row_length=128, global_batch=8),
    schedule=ScheduleConfig(shape="wsd", warmup_steps=2),
    metrics=MetricsConfig(every_steps=1, tensorboard=False, peak_flops=1e12),
    mesh=MeshConfig(fsdp=8),
)
"""
STUDY = f"""
import dataclasses
import runpy
from nd_jax.scaling.ladder import LadderConfig

make = runpy.run_path({str(ROOT / "studies/cpu/study.py")!r})["make"]
sizes = LadderConfig(smallest=1e4, largest=5e4, rungs=3, head_dim=8, aspect=16)
study = make(sizes, 8e8, programs=300, vocab_size=512, rows=16, sessions=10, config="{{config}}")
study = dataclasses.replace(study, evaluate=study.evaluate[:1])
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The plan of a tiny study that was run."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "config.py").write_text(CONFIG)
    (folder / "study.py").write_text(STUDY.replace("{config}", str(folder / "config.py")))
    with pytest.MonkeyPatch.context() as patch:
        for module in (job, local):  # in this process: starting jax takes longer than training
            patch.setattr(module, "call", lambda words, *more, **options: nd(*words))
        where = ("--out", folder / "runs", "--results", folder / "results")
        assert nd("sweep", folder / "study.py", *where, "--json", folder / "sweep.json") == 0
    return load_plan(folder / "study.py", folder / "runs", folder / "results")


def test_every_run_is_done_and_kept(swept):
    told = json.loads((swept.file.parent / "sweep.json").read_text())["runs"]
    assert len(told) == 2 + 3 * 4
    assert {row["state"] for row in told.values()} == {"done"}
    points, _ = read_points([swept.results])
    assert [point.name for point in points] == [job.name for job in swept.jobs if job.result]
    assert len({point.parameters for point in points}) == 3
    assert len({point.loss for point in points}) == 9
    assert all(0 < point.loss < 7 for point in points)
    for name, point in {point.name: point for point in points}.items():
        assert point.tokens == told[name]["tokens"]
        measured = json.loads((swept.out / name / "eval/loss.json").read_text())
        assert (point.loss, measured["rows"]) == (measured["loss"], 16)
    curves = [json.loads(line) for line in (swept.results / "curves.jsonl").read_text().splitlines()]
    assert [curve["name"] for curve in curves] == [name for name in told if "prepare" not in name]


def test_the_runs_give_the_points_that_were_kept(swept):
    points, left_out = read_points([swept.out])
    assert sorted(points, key=str) == sorted(read_points([swept.results])[0], key=str)
    assert len(left_out) == 3
    assert all("another run goes on from it" in reason for reason in left_out)


def test_the_law_is_fitted_to_what_was_kept(swept, tmp_path):
    words = ("--out", tmp_path, "--resamples", 2, "--json", tmp_path / "fit.json")
    assert nd("scaling", "fit", swept.results, *words) == 0
    figures = json.loads((tmp_path / "fit.json").read_text())
    assert figures["points"] == 9
    assert len(figures["iso_flop"]["groups"]) == 1
    assert figures["iso_flop"]["groups"][0]["sizes"] == 3


def test_the_shipped_study_meets_at_equal_compute():
    study = runpy.run_path(str(ROOT / "studies/cpu/study.py"))["study"]
    decays = [one for one in study.runs if "train.start_from" in one.overrides]
    assert len(study.runs) - len(decays) == 5
    assert len(decays) == 15
    assert Path(study.results) == Path("studies/cpu")
    computes = []
    for one in decays:
        shape = {name: one.overrides[f"model.{name}"] for name in ("vocab_size", *SHAPE)}
        model = ModelConfig(**shape, qk_norm=True)
        computes.append(one.overrides["train.steps"] * 2048 * model.flops_per_token(256))
    for size in range(
        3
    ):  # the third compute of a size is the second of the next, and the first of the one after
        assert computes[3 * size + 2] == pytest.approx(computes[3 * size + 4], rel=0.01)
        assert computes[3 * size + 2] == pytest.approx(computes[3 * size + 6], rel=0.01)
