"""What must hold however the decoder is computed: causality, separate documents, one result for all modes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import DOCUMENTS, LENGTH, PLAIN, packed_row, parameters

from nd_jax.model.loss import cross_entropy, next_token_losses
from nd_jax.model.partition import MeshConfig, batch_sharding, make_mesh, params_shardings
from nd_jax.model.transformer import abstract, bind

QWEN = dataclasses.replace(PLAIN, qk_norm=True, tied_embeddings=False)


def close(tree, other, tolerance: float = 2e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), tree, other)


@functools.partial(jax.jit, static_argnums=0)
def loss_and_gradient(config, params, row):
    """Of a batch of packed rows."""
    return jax.value_and_grad(lambda params: next_token_losses(bind(config, params), **row).loss_sum)(params)


def documents(row):
    """Every document of a packed row as a row of its own, filled up with pads."""
    starts = np.cumsum((0, *DOCUMENTS))
    rows = {name: np.zeros((len(DOCUMENTS), LENGTH), array.dtype) for name, array in row.items()}
    for index, length in enumerate(DOCUMENTS):
        for name, array in row.items():
            rows[name][index, :length] = array[0, starts[index] : starts[index] + length]
        rows["segments_BxT"][index, :length] = 1
    return rows


@pytest.mark.parametrize("backend", ["xla", "blocked"])
@pytest.mark.parametrize("config", [PLAIN, QWEN], ids=["llama", "qwen"])
def test_a_packed_row_is_its_documents_alone(config, backend):
    config = dataclasses.replace(config, attention=backend)
    params = parameters(config)
    # Two more rows of pads, so that both batches have one shape and compile once.
    row = {name: np.pad(array, ((0, 2), (0, 0))) for name, array in packed_row().items()}
    packed = loss_and_gradient(config, params, row)
    close(packed, loss_and_gradient(config, params, documents(row)))
    blind = row | {"segments_BxT": np.minimum(row["segments_BxT"], 1)}
    assert abs(loss_and_gradient(config, params, blind)[0] - packed[0]) > 0.01, "the test sees no difference"


def test_logits_depend_on_earlier_tokens_only():
    params = parameters(PLAIN)
    one_T = jnp.ones((1, LENGTH), jnp.int32)
    places = jnp.arange(LENGTH)[None]
    embedding = params["embedding_VxD"]
    tokens = jnp.arange(LENGTH)[None]  # all different, so the embedding's gradient tells which were read

    def score(embedding):
        # The head is another parameter here: only reading tokens counts.
        model = bind(PLAIN, params | {"embedding_VxD": embedding})
        return model.features(tokens, one_T, places)[0, 9].sum()

    read = np.flatnonzero(np.abs(jax.grad(score)(embedding)).sum(1))
    assert read.tolist() == list(range(10))


@pytest.mark.parametrize("change", [{"scan_layers": True}, {"remat": "dots"}, {"remat": "full"},
                                    {"scan_layers": True, "remat": "full"}], ids=str)  # fmt: skip
def test_modes_of_computing_do_not_change_the_result(change):
    params, row = parameters(QWEN), packed_row(2)
    close(
        loss_and_gradient(dataclasses.replace(QWEN, **change), params, row),
        loss_and_gradient(QWEN, params, row),
    )


def test_bfloat16_is_near_float32():
    params, row = parameters(PLAIN), packed_row(2)
    loss, gradient = loss_and_gradient(dataclasses.replace(PLAIN, dtype="bfloat16"), params, row)
    exact_loss, exact = loss_and_gradient(PLAIN, params, row)
    assert loss.dtype == jnp.float32
    assert 0 < abs(float(loss - exact_loss)) < 0.02 * float(exact_loss)
    for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(exact), strict=True):
        assert got.dtype == jnp.float32
        assert float(jnp.linalg.norm(got - want)) < 0.05 * float(jnp.linalg.norm(want))


@pytest.mark.parametrize("chunk", [5, 8, 100])
def test_chunked_cross_entropy_is_the_plain_one_with_its_gradient(chunk):
    keys = jax.random.split(jax.random.key(0), 4)
    x, output = jax.random.normal(keys[0], (2, 12, 16)), jax.random.normal(keys[1], (33, 16))
    targets, weights = jax.random.randint(keys[2], (2, 12), 0, 33), jax.random.uniform(keys[3], (2, 12))

    def plain(x, output):
        nll = -jnp.take_along_axis(jax.nn.log_softmax(x @ output.T), targets[..., None], -1)[..., 0]
        return 3 * (weights * nll).sum(), nll

    def chunked(x, output):
        losses = cross_entropy(x, output, targets, weights, chunk)
        return 3 * losses.loss_sum, losses.nll_BxT

    close(*(jax.value_and_grad(f, (0, 1), has_aux=True)(x, output) for f in (plain, chunked)))
    losses = cross_entropy(x, output, targets, weights, chunk)
    close(losses.weight_sum, weights.sum())
    assert (losses.correct_BxT == ((x @ output.T).argmax(-1) == targets)).all()


def test_a_batch_of_pads_has_finite_losses_and_no_gradient():
    row = {name: np.zeros_like(array) for name, array in packed_row(2).items()}
    loss, gradient = loss_and_gradient(PLAIN, parameters(PLAIN), row)
    assert loss == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("sizes", "scan"),
    [((1, 1, 1, 1), False), ((8, 1, 1, 1), False), ((1, 8, 1, 1), False), ((1, 4, 1, 2), True),
     ((2, 2, 1, 2), False), ((1, 2, 4, 1), True), ((2, 1, 2, 2), False)],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else str(value),
)  # fmt: skip
def test_sharded_loss_and_gradient_are_those_of_one_device(sizes, scan):
    config = dataclasses.replace(QWEN, scan_layers=scan)
    params, row = parameters(config), packed_row(8)
    expected = loss_and_gradient(config, params, row)
    devices = jax.devices()[: int(np.prod(sizes))]
    mesh = make_mesh(MeshConfig(*sizes), config, 8, devices, LENGTH)
    shardings = params_shardings(abstract(config)[1], mesh)
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, shardings), jax.device_put(row, batch_sharding(mesh))
        got = loss_and_gradient(config, *placed)
    up_LxDxF = placed[0]["blocks"]["feed_forward"]["up_DxF"]
    assert tuple(up_LxDxF.sharding.spec) == (None, ("fsdp", "sequence"), "tensor")
    close(got, expected, 1e-4)
