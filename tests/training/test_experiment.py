import subprocess
import sys
from dataclasses import replace

import pytest
from tiny_run import EXPERIMENT

from nd_jax.errors import UserError
from nd_jax.training.config import diff, from_dict, load_config, to_dict

FILE = """
from nd_jax.training.config import Experiment, TrainConfig

config = Experiment(train=TrainConfig(steps=7))
"""


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "some.py"
    path.write_text(FILE)
    return path


def test_a_config_file_is_read_and_overridden(config_file):
    assert load_config(config_file).train.steps == 7
    changed = load_config(
        config_file, ["--train.steps", "200", "--schedule.shape", "wsd", "--model.qk_norm", "True"]
    )
    assert (changed.train.steps, changed.schedule.shape, changed.model.qk_norm) == (200, "wsd", True)
    assert load_config(config_file, ["--train.steps", "None", "--train.max-seconds", "3"]).train.steps is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--train.stepz", "3"], "--train.steps {None}|INT"),  # the nearest right name
        (["--train.steps", "many"], "could be instantiated from"),
        (["--schedule.shape", "cosinus"], "cosine"),  # the right values
        (["--optimiser.learning_rate", "3"], "--optimizer.learning_rate FLOAT"),
    ],
)
def test_a_wrong_override_is_refused_with_the_nearest_right_one(config_file, capsys, words, said):
    with pytest.raises(SystemExit) as exit:
        load_config(config_file, words)
    assert exit.value.code == 2
    printed = capsys.readouterr().err
    assert said in " ".join(printed.split())
    assert len(printed.splitlines()) < 60
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nconfig = (", "some.py:2: SyntaxError"),
        ("import math\n\nmath.sqrt(-1)\n", "some.py:3: ValueError"),
        (FILE.replace("steps=7", "stepz=7"), "some.py:4: TypeError: .*stepz"),
        ("configuration = 3\n", "some.py has no top-level `config"),
    ],
)
def test_an_error_in_a_config_file_names_its_line(config_file, text, said):
    config_file.write_text(text)
    with pytest.raises(UserError, match=said):
        load_config(config_file)


def test_a_missing_config_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no config file .*nowhere\.py"):
        load_config(tmp_path / "nowhere.py")


def test_experiments_survive_json_and_differences_are_listed():
    import json

    changed = replace(
        EXPERIMENT,
        data=replace(EXPERIMENT.data, traces=("a", "b"), weights=(0.5, 0.5)),
        train=replace(EXPERIMENT.train, max_seconds=3.5),
    )
    assert from_dict(json.loads(json.dumps(to_dict(changed)))) == changed
    assert diff(EXPERIMENT, EXPERIMENT) == []
    assert diff(EXPERIMENT, changed) == [
        "data.traces: [] -> ['a', 'b']", "data.weights: [] -> [0.5, 0.5]", "train.max_seconds: None -> 3.5",
    ]  # fmt: skip


def test_a_setting_of_another_version_is_refused():
    settings = to_dict(EXPERIMENT)
    settings["train"]["momentum"] = 1
    with pytest.raises(UserError, match=r"unknown setting train\.momentum"):
        from_dict(settings)


def test_reading_a_config_does_not_import_jax(config_file):
    code = (
        f"import sys; from nd_jax.training.config import load_config; load_config({str(config_file)!r}, []); "
    )
    subprocess.run([sys.executable, "-c", code + "assert 'jax' not in sys.modules"], check=True)
