"""Stock transformers, in the environment of `make interop`, reads an exported folder as the same model."""

import dataclasses
import json

import pytest

from nd_jax.errors import UserError
from nd_jax.export.check import CheckConfig, cases, check, differences
from nd_jax.export.folder import write_folder


@pytest.fixture(scope="module")
def config(interop):
    return CheckConfig(interop=interop, prompts=12, max_new=12, texts=40)


@pytest.mark.parametrize(("layout", "name"), [("llama", "LlamaForCausalLM"), ("qwen3", "Qwen3ForCausalLM")])
def test_transformers_gives_the_same(layout, name, trained, traces, tmp_path, config):
    model = trained(layout)
    write_folder(model, tmp_path, tmp_path / "out", "mit")
    figures = check(tmp_path / "out", model, traces, config)
    assert figures["class"] == name
    assert differences(figures, config) == []
    assert figures["greedy"]["n"] >= 8
    assert figures["tokenizer"]["n"] == 40


def test_another_model_is_told(trained, traces, tmp_path, config):
    model = trained("llama")
    write_folder(model, tmp_path, tmp_path / "out", "mit")
    path = tmp_path / "out/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rms_norm_eps": 0.1}))
    path = tmp_path / "out/tokenizer.json"
    spoiled = json.loads(path.read_text())
    spoiled["model"]["merges"] = spoiled["model"]["merges"][::-1]
    path.write_text(json.dumps(spoiled))
    told = "; ".join(differences(check(tmp_path / "out", model, traces, config), config))
    assert "logits (single token)" in told
    assert "ids of" in told


def test_odd_inputs_are_among_the_cases(tokenizer):
    made = cases(tokenizer, [[1, 4, 5, 6], [1, 7]], row_length=16, seed=0)
    assert made["single token"].tokens.shape == (8, 1)
    assert made["full length"].mask.sum() == 2 * 16
    assert set(made["all markers"].tokens[made["all markers"].mask == 1]) == set(
        range(len(tokenizer.spec.control_symbols))
    )
    left, right = made["padded left"], made["padded right"]
    assert left.mask.sum() == right.mask.sum() == 1 + 5 + 15 + 16
    assert left.mask[0].tolist() == [0] * 15 + [1]
    assert left.positions[1].tolist() == [0] * 11 + [0, 1, 2, 3, 4]
    assert (left.tokens[left.mask == 1] == right.tokens[right.mask == 1]).all()


def test_a_missing_environment_is_named(trained, traces, tmp_path):
    config = dataclasses.replace(CheckConfig(), interop=tmp_path / "absent")
    with pytest.raises(UserError, match="make interop"):
        check(tmp_path, trained("llama"), traces, config)
