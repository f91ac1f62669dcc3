"""Every attention backend against the reference; packed documents apart; refusals by name.

Kernels for accelerators run in Pallas's interpreter here.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nd_jax.errors import UserError
from nd_jax.model.attention import BACKENDS, attention, resolve
from nd_jax.model.config import MeshConfig
from nd_jax.model.partition import make_mesh

LENGTH = 256
SEGMENTS = np.repeat([1, 2, 3, 0], [100, 128, 20, 8])[None].astype(np.int32)
SECOND = slice(100, 228)


@functools.cache
def inputs():
    """Queries, keys, values, and what the outputs are mixed by: two key heads for four query heads."""
    rng = np.random.default_rng(0)
    shapes = [(1, LENGTH, heads, 16) for heads in (4, 2, 2, 4)]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


@functools.partial(jax.jit, static_argnames=("backend", "block"))
def run(q, k, v, mix, segments, backend, block=96):
    """Output, and the gradients of queries, keys and values."""

    def mixed(q, k, v):
        out = attention(q, k, v, segments, backend=backend, block=block, interpret=True)
        return (out * mix).sum(), out

    gradients, out = jax.grad(mixed, (0, 1, 2), has_aux=True)(q, k, v)
    return out, *gradients


def close(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "xla"])
def test_a_backend_is_the_reference_forward_and_gradient(backend):
    close(run(*inputs(), SEGMENTS, backend), run(*inputs(), SEGMENTS, "xla"))


@pytest.mark.parametrize("block", [5, 8, 100])
def test_blocks_need_not_divide_the_row(block):
    some = [x[:, :24] for x in inputs()]
    close(run(*some, SEGMENTS[:, 90:114], "blocked", block), run(*some, SEGMENTS[:, 90:114], "xla"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_packed_document_is_the_document_alone(backend):
    packed = [array[:, SECOND] for array in run(*inputs(), SEGMENTS, backend)]
    # Alone, at the beginning of a row of the same length, with nothing after it.
    room = [(0, 0), (0, LENGTH - 128), (0, 0), (0, 0)]
    alone = [jnp.pad(x[:, SECOND], room) for x in inputs()]
    one = (np.arange(LENGTH) < 128).astype(np.int32)[None]
    close(packed, [array[:, :128] for array in run(*alone, one, backend)])
    blind = run(*inputs(), np.minimum(SEGMENTS, 1), backend)[0][:, SECOND]
    assert np.abs(blind - packed[0]).max() > 0.1, "the test sees no difference"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_gradient_reaches_other_documents_or_later_tokens(backend):
    q, k, v, mix = inputs()
    at = 150
    only = mix * (np.arange(LENGTH) == at)[None, :, None, None]
    _, dq, dk, dv = (np.abs(x[0]).sum((1, 2)) for x in run(q, k, v, only, SEGMENTS, backend))
    assert set(np.flatnonzero(dq)) == {at}
    assert set(np.flatnonzero(dk)) == set(np.flatnonzero(dv)) == set(range(SECOND.start, at + 1))


@pytest.mark.parametrize(("backend", "sequence"), [("splash", 2), ("xla", 2), ("triton", 1)])
def test_a_backend_on_a_mesh_is_the_reference(backend, sequence):
    q, k, v, mix = (jnp.concatenate([x, x[:, ::-1]]) for x in inputs())
    segments = np.concatenate([SEGMENTS, SEGMENTS])
    expected = run(q, k, v, mix, segments, "xla")
    mesh = MeshConfig(replica=1, fsdp=2, sequence=sequence, tensor=2)
    with jax.set_mesh(make_mesh(mesh, devices=jax.devices()[: 4 * sequence])):
        close(run(q, k, v, mix, segments, backend), expected)


def test_a_backend_that_cannot_do_what_is_asked_is_refused_by_name():
    q, k, v, _ = inputs()

    def ask(backend, q=q, **more):
        attention(q, k, v, SEGMENTS, backend=backend, block=64, **more)

    with pytest.raises(
        UserError, match="'flash' is unknown; use auto or one of xla, blocked, splash, triton"
    ):
        ask("flash")
    with pytest.raises(UserError, match="'splash' is a kernel for TPU, and this is a CPU; use auto or xla"):
        ask("splash")
    with pytest.raises(UserError, match="'triton' is a kernel for GPU, and this is a CPU"):
        ask("triton")
    with pytest.raises(UserError, match="'splash' needs rows of a multiple of 128 tokens, not 200"):
        resolve("splash", 200, interpret=True)
    with pytest.raises(UserError, match="2 key heads do not divide 3"):
        ask("xla", q[:, :, :3])
    assert resolve("auto", LENGTH) == "blocked"
    with jax.set_mesh(make_mesh(MeshConfig(replica=1, fsdp=4, sequence=2))):
        assert resolve("auto", LENGTH) == "xla"
        with pytest.raises(UserError, match="128 x 2 devices tokens, not 384"):
            resolve("splash", 384, interpret=True)
        for backend in ("blocked", "triton"):
            with pytest.raises(UserError, match=f"'{backend}' cannot split the positions"):
                resolve(backend, LENGTH, interpret=True)


@pytest.mark.parametrize(("platform", "kernel"), [("tpu", "splash"), ("gpu", "triton"), ("cpu", "blocked")])
def test_auto_picks_the_kernel_of_the_platform_where_it_can_work(platform, kernel, monkeypatch):
    monkeypatch.setattr("nd_jax.model.attention.platform", lambda: platform)
    assert resolve("auto", LENGTH) == kernel
    assert resolve("auto", 200) == ("blocked" if platform == "cpu" else "xla")
