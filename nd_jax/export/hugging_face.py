"""A model's weights and shape as Hugging Face's Llama has them, or Qwen3 with normalised queries and keys.

Only names and layouts change: a Linear of theirs is [out, in], and heads are one axis of it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nd_jax.model.config import ModelConfig


def weights(config: ModelConfig, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """The parameters by their names in `LlamaForCausalLM` or `Qwen3ForCausalLM`, float32.

    Args:
      config: the shape of the model.
      params: as `nd_jax.model.transformer.init` gives them, on any devices of this process.
    """
    D = config.d_model
    blocks = params["blocks"]
    named = {
        "model.embed_tokens.weight": _array(params["embedding_VxD"]),
        "model.norm.weight": _array(params["norm"]) / np.float32(config.width("embed")),  # muP's factors
    }
    if not config.tied_embeddings:
        named["lm_head.weight"] = _array(params["head_VxD"])
    for layer in range(config.n_layers):
        attention = {name: _array(stack[layer]) for name, stack in blocks["attention"].items()}
        attention["q_norm" if config.qk_norm else "query_DxHxDh"] *= np.float32(config.score_factor())
        feed_forward = {name: _array(stack[layer]) for name, stack in blocks["feed_forward"].items()}
        of_layer = {
            "input_layernorm": _array(blocks["attention_norm"][layer]),
            "self_attn.q_proj": attention["query_DxHxDh"].reshape(D, -1).T,
            "self_attn.k_proj": attention["key_DxKxDh"].reshape(D, -1).T,
            "self_attn.v_proj": attention["value_DxKxDh"].reshape(D, -1).T,
            "self_attn.o_proj": attention["out_HxDhxD"].reshape(-1, D).T,
            "post_attention_layernorm": _array(blocks["feed_forward_norm"][layer]),
            "mlp.gate_proj": feed_forward["gate_DxF"].T,
            "mlp.up_proj": feed_forward["up_DxF"].T,
            "mlp.down_proj": feed_forward["down_FxD"].T,
        }
        if config.qk_norm:
            of_layer["self_attn.q_norm"] = attention["q_norm"]
            of_layer["self_attn.k_norm"] = attention["k_norm"]
        for name, array in of_layer.items():
            named[f"model.layers.{layer}.{name}.weight"] = np.ascontiguousarray(array)
    return named


def params(config: ModelConfig, named: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The parameters of `weights`' names: its inverse, bit for bit.

    Raises:
      KeyError: a weight is missing.
      ValueError: a weight has another shape.
    """
    D, H, K, Dh = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim

    def stacked(name: str, turn: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.stack([turn(named[f"model.layers.{n}.{name}.weight"]) for n in range(config.n_layers)])

    def same(array: np.ndarray) -> np.ndarray:
        return array

    def into(heads: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda array: array.T.reshape(D, heads, Dh)

    attention = {
        "query_DxHxDh": stacked("self_attn.q_proj", into(H)),
        "key_DxKxDh": stacked("self_attn.k_proj", into(K)),
        "value_DxKxDh": stacked("self_attn.v_proj", into(K)),
        "out_HxDhxD": stacked("self_attn.o_proj", lambda array: array.T.reshape(H, Dh, D)),
    }
    if config.qk_norm:
        attention["q_norm"] = stacked("self_attn.q_norm", same)
        attention["k_norm"] = stacked("self_attn.k_norm", same)
    feed_forward = {
        "gate_DxF": stacked("mlp.gate_proj", np.transpose),
        "up_DxF": stacked("mlp.up_proj", np.transpose),
        "down_FxD": stacked("mlp.down_proj", np.transpose),
    }
    told: dict[str, Any] = {
        "embedding_VxD": named["model.embed_tokens.weight"],
        "blocks": {
            "attention_norm": stacked("input_layernorm", same),
            "attention": attention,
            "feed_forward_norm": stacked("post_attention_layernorm", same),
            "feed_forward": feed_forward,
        },
        "norm": named["model.norm.weight"],
    }
    if not config.tied_embeddings:
        told["head_VxD"] = named["lm_head.weight"]
    return told


def settings(config: ModelConfig, max_length: int, **tokens: Any) -> dict[str, Any]:
    """The model's ``config.json``.

    Args:
      config: the shape of the model.
      max_length: tokens that the model was trained on at once.
      tokens: further entries: the ids of special tokens.
    """
    return {
        **tokens,
        "architectures": ["Qwen3ForCausalLM" if config.qk_norm else "LlamaForCausalLM"],
        "model_type": "qwen3" if config.qk_norm else "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": max_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tied_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "dtype": "float32",
    }


def _array(x: Any) -> np.ndarray:
    return np.array(x, np.float32)
