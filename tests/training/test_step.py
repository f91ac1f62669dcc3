import functools
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
from tiny_run import EXPERIMENT, batch

from nd_jax.model.partition import MeshConfig, batch_sharding, make_mesh
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.state import new_state, state_shardings
from nd_jax.training.step import make_step, read_metrics, signals

SINGLE = MeshConfig(replica=1, fsdp=1, tensor=1)
NAMES = ("8x1x1x1", "1x8x1x1", "1x4x1x2", "2x2x1x2", "1x2x2x2", "2x1x4x1")  # replica, fsdp, sequence, tensor
MESHES = {name: MeshConfig(*map(int, name.split("x"))) for name in NAMES}


MUON = replace(EXPERIMENT, optimizer=replace(EXPERIMENT.optimizer, name="muon", muon_iterations=2))


@functools.cache
def programs(experiment, mesh):
    """Mesh, optimizer, shardings and step; made once, since compiling is what takes time here."""
    size = mesh.replica * mesh.fsdp * mesh.sequence * mesh.tensor
    devices = make_mesh(mesh, experiment.model, experiment.data.global_batch, jax.devices()[:size])
    optimizer = make_optimizer(experiment.optimizer, experiment.model)
    shardings = state_shardings(experiment.model, optimizer, devices)
    return devices, optimizer, shardings, make_step(experiment, optimizer, shardings)


@functools.cache
def first_state(experiment, mesh=SINGLE):
    """The state of step 0 as the host's arrays, and where each of them lay."""
    devices, optimizer, shardings, _ = programs(experiment, mesh)
    with jax.set_mesh(devices):
        state = new_state(experiment.model, optimizer, shardings, 0)
    return jax.tree.map(np.asarray, state), jax.tree.map(lambda x: x.sharding, state)


class Setup:
    """A mesh with a state and a step on it."""

    def __init__(self, experiment=EXPERIMENT, mesh=SINGLE):
        self.data = experiment.data
        self.mesh, _, shardings, self.step = programs(experiment, mesh)
        self.state = jax.device_put(first_state(replace(experiment, train=EXPERIMENT.train))[0], shardings)

    def run(self, steps=3, change=lambda rows: rows, progress=0.0, stop=False):
        metrics = []
        rows_on_mesh = batch_sharding(self.mesh)
        with jax.set_mesh(self.mesh):
            for i in range(steps):
                rows = jax.device_put(change(batch(i, self.data)), rows_on_mesh)
                local = jax.device_put(signals(self.data.global_batch, progress, stop), rows_on_mesh)
                self.state, values = self.step(self.state, rows, local)
                metrics.append(read_metrics(values))
        return metrics


def assert_same(one, other, rtol, atol):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol),
        one,
        other,
    )


@pytest.mark.parametrize(
    ("experiment", "mesh"), [(EXPERIMENT, mesh) for mesh in MESHES] + [(MUON, "2x2x1x2"), (MUON, "1x2x2x2")]
)
def test_sharded_equals_single_device(experiment, mesh):
    single, sharded = Setup(experiment), Setup(experiment, MESHES[mesh])
    for a, b in zip(single.run(), sharded.run(), strict=True):
        assert a == pytest.approx(b, rel=2e-5)
    # Adam's normalised step magnifies rounding where a gradient is near 0: compare with the learning rate's
    # size.
    assert_same(single.state["params"], sharded.state["params"], rtol=1e-5, atol=3e-5)
    # The mean of gradients so far tells whether the gradients agree.
    moments = [optax.tree.get_all_with_path(setup.state["opt_state"], "mu") for setup in (single, sharded)]
    for (_, one), (_, other) in zip(*moments, strict=True):
        assert_same(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("experiment", [EXPERIMENT, MUON], ids=["adamw", "muon"])
def test_the_state_lies_sharded_from_the_first_moment(experiment):
    values, places = first_state(experiment, MESHES["2x2x1x2"])
    assert_same(
        values, first_state(experiment)[0], rtol=1e-6, atol=1e-7
    )  # the seed alone decides the parameters
    after = Setup(experiment, MESHES["2x2x1x2"])
    after.run(1)
    for state in (places, jax.tree.map(lambda x: x.sharding, after.state)):
        specs = {path: place.spec for path, place in jax.tree_util.tree_leaves_with_path(state["params"])}
        assert "fsdp" in str(state["params"]["embedding_VxD"].spec)
        assert "tensor" in str(state["params"]["blocks"]["feed_forward"]["down_FxD"].spec)
        for field in ("mu", "nu"):
            found = {}
            for _, moments in optax.tree.get_all_with_path(state["opt_state"], field):
                found |= {path: place.spec for path, place in jax.tree_util.tree_leaves_with_path(moments)}
            assert found == {path: spec for path, spec in specs.items() if path in found}
            assert len(found) == len(specs) or (field == "nu" and experiment is MUON)


@pytest.mark.parametrize("mesh", ["2x2x1x2", "1x2x2x2"])
@pytest.mark.parametrize("experiment", [EXPERIMENT, MUON], ids=["adamw", "muon"])
def test_no_matrix_of_the_state_is_held_twice(experiment, mesh):
    values, places = first_state(experiment, MESHES[mesh])
    seen = 0
    for (path, value), place in zip(
        jax.tree_util.tree_leaves_with_path(values), jax.tree.leaves(places), strict=True
    ):
        if value.ndim < 2 or "norm" in str(path):  # counts and norm scales are held by every device
            continue
        seen += 1
        held = 8 * np.prod(place.shard_shape(value.shape))
        assert held == value.size * MESHES[mesh].replica, (path, place.spec)
    matrices = 1 + 4 + 3  # the embedding, attention, feed-forward: parameter and moments of each
    assert seen == (3 * matrices if experiment is EXPERIMENT else 2 * matrices + 1)


def test_accumulation_equals_the_big_batch():
    mesh = MESHES["2x2x1x2"]
    whole = Setup(mesh=mesh)
    parts = Setup(replace(EXPERIMENT, train=replace(EXPERIMENT.train, accumulation=2)), mesh)

    def uneven(rows):  # microbatches of very different weight: a mean of their means would show
        rows["weights"][::2] *= 5.0
        return rows

    for a, b in zip(whole.run(change=uneven), parts.run(change=uneven), strict=True):
        assert a == pytest.approx(b, rel=2e-5)
    assert_same(whole.state["params"], parts.state["params"], rtol=1e-5, atol=3e-5)


def test_rows_that_are_all_padding_do_no_harm():
    setup = Setup()

    def empty(rows):
        return {name: np.zeros_like(values) for name, values in rows.items()}

    first, second = setup.run(2, change=empty)
    assert first["loss"] == first["grad_norm"] == first["weight"] == 0.0
    assert all(np.isfinite(value) for value in second.values())


def test_the_step_reports_what_it_did():
    setup = Setup()
    rows = batch(0, EXPERIMENT.data)
    (metrics,) = setup.run(1, progress=0.5, stop=True)
    assert metrics["weight"] == pytest.approx(rows["weights"].sum())
    assert metrics["tokens"] == (rows["segments"] > 0).sum()
    assert metrics["loss"] == pytest.approx(np.log(EXPERIMENT.model.vocab_size), rel=0.1)
    assert metrics["learning_rate"] == pytest.approx(
        EXPERIMENT.optimizer.learning_rate * 0.55 * 0.5
    )  # warming up
    assert (metrics["progress"], metrics["stop"]) == (0.5, 1.0)
    assert int(setup.state["step"]) == 1


def test_any_hosts_signal_reaches_all():
    setup = Setup(mesh=MESHES["8x1x1x1"])
    local = signals(8, 0.25, False)
    local[5] = 0.75, 1.0
    with jax.set_mesh(setup.mesh):
        rows = jax.device_put(batch(0, EXPERIMENT.data), batch_sharding(setup.mesh))
        _, metrics = setup.step(setup.state, rows, jax.device_put(local, batch_sharding(setup.mesh)))
    assert (read_metrics(metrics)["progress"], read_metrics(metrics)["stop"]) == (0.75, 1.0)


def test_the_loss_falls():
    losses = [metrics["loss"] for metrics in Setup().run(100)]
    assert losses[-1] < 0.75 * losses[0]
