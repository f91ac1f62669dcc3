"""What must hold however the decoder is computed: causality, separate documents, one result for all modes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import DOCUMENTS, LENGTH, PLAIN, packed_row, parameters

from nd_jax.errors import UserError
from nd_jax.model.attention import attention
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


@pytest.mark.parametrize("backend", ["xla", "blocked"])
def test_no_gradient_reaches_other_documents_or_later_tokens(backend):
    row = packed_row()
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, LENGTH, 2, 8))
    at = 12  # in the second document, which begins at 7; in the second query block

    def output(q, k, v):
        return attention(q, k, v, row["segments_BxT"], backend=backend, block=8)[0, at].sum()

    dq, dk, dv = (np.abs(g[0]).sum((1, 2)) for g in jax.grad(output, (0, 1, 2))(q, k, v))
    assert set(np.flatnonzero(dq)) == {at}
    assert set(np.flatnonzero(dk)) == set(np.flatnonzero(dv)) == set(range(7, at + 1))


def test_the_blocked_backend_is_the_reference_also_where_blocks_do_not_divide():
    segments = np.tile(packed_row()["segments_BxT"], (2, 1))
    q = jax.random.normal(jax.random.key(0), (2, LENGTH, 4, 8))
    k, v, mix = jax.random.normal(jax.random.key(1), (3, 2, LENGTH, 2, 8))
    mix = jnp.concatenate([mix, mix], axis=2)

    def run(backend, block):
        def mixed(q, k, v):
            return (attention(q, k, v, segments, backend=backend, block=block) * mix).sum()

        return jax.value_and_grad(mixed, (0, 1, 2))(q, k, v)

    for block in (5, 8, 100):
        close(run("blocked", block), run("xla", 0))


def test_unknown_backends_and_heads_that_do_not_divide_are_refused():
    q = jnp.ones((1, 4, 3, 8))
    with pytest.raises(UserError, match="'splash' is unknown"):
        attention(q, q, q, jnp.ones((1, 4)), backend="splash", block=4)
    with pytest.raises(UserError, match="2 key heads do not divide 3"):
        attention(q, q[:, :, :2], q[:, :, :2], jnp.ones((1, 4)), backend="xla", block=4)


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
    [((8, 1, 1), False), ((1, 8, 1), False), ((1, 4, 2), True), ((2, 2, 2), False)],
    ids=str,
)
def test_sharded_loss_and_gradient_are_those_of_one_device(sizes, scan):
    config = dataclasses.replace(QWEN, scan_layers=scan)
    params, row = parameters(config), packed_row(8)
    expected = loss_and_gradient(config, params, row)
    mesh = make_mesh(MeshConfig(*sizes), config, 8)
    shardings = params_shardings(abstract(config)[1], mesh)
    with jax.set_mesh(mesh):
        placed = jax.device_put(params, shardings), jax.device_put(row, batch_sharding(mesh))
        got = loss_and_gradient(config, *placed)
    if sizes == (2, 2, 2):
        up_LxDxF = placed[0]["blocks"]["feed_forward"]["up_DxF"]
        assert tuple(up_LxDxF.sharding.spec) == (None, "fsdp", "tensor")
    close(got, expected, 1e-4)
