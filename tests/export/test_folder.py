"""An exported folder: what safetensors reads from it, and that it comes back bit for bit."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from nd_jax.errors import UserError
from nd_jax.export import folder as exporting
from nd_jax.export.verbs import bring_in, export
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.training.checkpoint import load_for_inference


@pytest.fixture(params=["llama", "qwen3"])
def model(request, trained):
    return trained(request.param)


def test_safetensors_hold_the_native_parameters(model, tmp_path):
    exporting.write_folder(model, tmp_path, tmp_path / "out", "mit")
    named = load_file(tmp_path / "out/model.safetensors")
    config = model.record.experiment.model
    blocks = model.params["blocks"]
    for layer in range(config.n_layers):
        query = named[f"model.layers.{layer}.self_attn.q_proj.weight"]
        heads = query.reshape(config.n_heads, config.head_dim, config.d_model)
        for head in range(config.n_heads):
            np.testing.assert_array_equal(heads[head].T, blocks["attention"]["query_DxHxDh"][layer][:, head])
        out = named[f"model.layers.{layer}.self_attn.o_proj.weight"].T
        np.testing.assert_array_equal(
            out.reshape(config.n_heads, config.head_dim, -1), blocks["attention"]["out_HxDhxD"][layer]
        )
        down = named[f"model.layers.{layer}.mlp.down_proj.weight"]
        np.testing.assert_array_equal(down, np.transpose(blocks["feed_forward"]["down_FxD"][layer]))
        assert (f"model.layers.{layer}.self_attn.q_norm.weight" in named) == config.qk_norm
    np.testing.assert_array_equal(named["model.embed_tokens.weight"], model.params["embedding_VxD"])
    assert sum(array.size for array in named.values()) == config.parameters()
    told = json.loads((tmp_path / "out/config.json").read_text())
    assert told["architectures"] == ["Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"]
    assert told["pad_token_id"] == model.tokenizer.pad
    stops = json.loads((tmp_path / "out/generation_config.json").read_text())["eos_token_id"]
    assert stops == [model.tokenizer.symbol_id("<|frame_sep|>"), model.tokenizer.end]
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("---\nlicense: mit\n")
    assert f"{config.parameters():,}" in card
    assert "Not evaluated" in card


def test_large_weights_are_split_by_size(model, tmp_path):
    largest = 20_000
    exporting.write_folder(model, tmp_path, tmp_path / "whole", "mit")
    exporting.write_folder(model, tmp_path, tmp_path / "split", "mit", max_shard_bytes=largest)
    files = sorted((tmp_path / "split").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((tmp_path / "split/model.safetensors.index.json").read_text())
    whole = load_file(tmp_path / "whole/model.safetensors")
    assert index["weight_map"].keys() == whole.keys()
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in whole.values())
    for file in files:
        part = load_file(file)
        assert len(part) == 1 or sum(array.nbytes for array in part.values()) <= largest
        assert all(index["weight_map"][name] == file.name for name in part)
        for name, array in part.items():
            np.testing.assert_array_equal(array, whole[name])
    same(exporting.read_folder(tmp_path / "split"), model)


def same(found: exporting.Trained, model: exporting.Trained) -> None:
    assert found.record == model.record
    assert found.tokenizer.fingerprint == model.tokenizer.fingerprint
    paths = jax.tree_util.tree_leaves_with_path
    for (path, got), (wanted_path, want) in zip(paths(found.params), paths(model.params), strict=True):
        assert path == wanted_path
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


def test_what_was_imported_is_the_same_checkpoint(model, tmp_path):
    exporting.write_folder(model, tmp_path, tmp_path / "out", "mit")
    bring_in(tmp_path / "out", tmp_path / "run")
    experiment, params, tokenizer = load_for_inference(tmp_path / "run")
    record = dataclasses.replace(model.record, experiment=experiment)
    same(exporting.Trained(record, params, tokenizer), model)
    again, run = exporting.load(tmp_path / "run")
    same(again, model)
    assert run == tmp_path / "run"
    with pytest.raises(UserError, match="already there"):
        bring_in(tmp_path / "out", tmp_path / "run")


def test_an_export_replaces_only_an_export(model, tmp_path):
    out = tmp_path / "out"
    exporting.write_folder(model, tmp_path, out, "mit")
    (out / "stale").write_text("")
    exporting.write_folder(model, tmp_path, out, "mit")
    assert not (out / "stale").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="no exported model"):
        exporting.write_folder(model, tmp_path, other, "mit")
    assert (other / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("broken", ["missing", "cut", "record", "none"])
def test_a_damaged_folder_is_refused(trained, tmp_path, broken):
    out = tmp_path / "out"
    exporting.write_folder(trained("llama"), tmp_path, out, "mit")
    if broken == "missing":
        (out / "model.safetensors").unlink()
    elif broken == "cut":
        data = (out / "model.safetensors").read_bytes()
        (out / "model.safetensors").write_bytes(data[: len(data) // 2])
    elif broken == "record":
        (out / "nd_run.json").write_text("{}")
    else:
        (out / "nd_run.json").unlink()
    with pytest.raises(UserError, match="only a folder" if broken == "none" else "damaged"):
        exporting.read_folder(out)


def test_export_needs_a_checkpoint(tmp_path):
    from nd_jax.export.check import CheckConfig

    with pytest.raises(UserError, match="no checkpoint"):
        export(tmp_path, tmp_path / "out", "mit", False, (), None, CheckConfig())


def test_the_folder_is_a_tokenizer_directory(model, tmp_path):
    exporting.write_folder(model, tmp_path, tmp_path / "out", "mit")
    assert Tokenizer.load(tmp_path / "out").fingerprint == model.tokenizer.fingerprint
