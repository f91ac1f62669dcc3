"""Exported weights, run by a Llama written here in numpy as Hugging Face defines it, give the same logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nd_jax.export.hugging_face import settings, weights
from nd_jax.model.config import BaseWidths, ModelConfig
from nd_jax.model.transformer import bind, init

SHAPE = {
    "vocab_size": 31,
    "d_model": 12,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "head_dim": 6,
    "d_ff": 20,
}
MODELS = {
    "Llama": ModelConfig(**SHAPE),
    "Llama by muP": ModelConfig(**SHAPE, mup=BaseWidths(d_model=4, head_dim=2)),
    "Qwen3, untied": ModelConfig(**SHAPE, qk_norm=True, tied_embeddings=False, rope_theta=500.0),
}


def norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def llama(named: dict[str, np.ndarray], config: dict, tokens: list[int]) -> np.ndarray:
    """Logits `[T, V]`, step by step as in transformers' modeling_llama.py and modeling_qwen3.py."""
    T, Dh, eps = len(tokens), config["head_dim"], config["rms_norm_eps"]
    inverse = 1 / config["rope_theta"] ** (np.arange(0, Dh, 2) / Dh)
    angles = np.outer(np.arange(T), np.concatenate([inverse, inverse]))

    def rotated(x: np.ndarray) -> np.ndarray:
        half = np.concatenate([-x[..., Dh // 2 :], x[..., : Dh // 2]], -1)
        return x * np.cos(angles) + half * np.sin(angles)

    x = named["model.embed_tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        own = {
            name.removeprefix(f"model.layers.{layer}."): array
            for name, array in named.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        h = norm(x, own["input_layernorm.weight"], eps)
        q, k, v = (
            (h @ own[f"self_attn.{name}_proj.weight"].T).reshape(T, -1, Dh).transpose(1, 0, 2)
            for name in "qkv"
        )
        if config["model_type"] == "qwen3":
            q, k = norm(q, own["self_attn.q_norm.weight"], eps), norm(k, own["self_attn.k_norm.weight"], eps)
        groups = config["num_attention_heads"] // config["num_key_value_heads"]
        k, v = np.repeat(rotated(k), groups, 0), np.repeat(v, groups, 0)
        scores = rotated(q) @ k.transpose(0, 2, 1) / np.sqrt(Dh)
        scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (shares / shares.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(1, 0, 2).reshape(T, -1) @ own["self_attn.o_proj.weight"].T
        h = norm(x, own["post_attention_layernorm.weight"], eps)
        gate, up = h @ own["mlp.gate_proj.weight"].T, h @ own["mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ own["mlp.down_proj.weight"].T
    head = named["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return norm(x, named["model.norm.weight"], eps) @ head.T


@pytest.mark.parametrize("name", MODELS)
def test_exported_weights_give_the_same_logits(name):
    model = MODELS[name]
    params = init(model, jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), params)
    tokens_1xT = np.array([[1, 30, 4, 4, 17, 2, 9]])
    one_1xT, places_1xT = jnp.ones_like(tokens_1xT), jnp.arange(7)[None]
    want_TxV = jax.jit(lambda: bind(model, params)(tokens_1xT, one_1xT, places_1xT))()[0]
    named = weights(model, params)
    got_TxV = llama(named, settings(model, 7), tokens_1xT[0].tolist())
    np.testing.assert_allclose(got_TxV, want_TxV, rtol=2e-4, atol=2e-4)
    assert sum(array.size for array in named.values()) == model.parameters()
    assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in named.values())
