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
MESHES = {
    "8x1x1": MeshConfig(8, 1, 1), "1x8x1": MeshConfig(1, 8, 1), "1x4x2": MeshConfig(1, 4, 2), "2x2x2": MeshConfig(2, 2, 2)
}  # fmt: skip


class Setup:
    """A mesh with a state and a step on it."""

    def __init__(self, experiment=EXPERIMENT, mesh=SINGLE):
        size = mesh.replica * mesh.fsdp * mesh.tensor
        self.experiment = experiment
        self.mesh = make_mesh(mesh, experiment.model, experiment.data.global_batch, jax.devices()[:size])
        self.optimizer = make_optimizer(experiment.optimizer)
        self.shardings = state_shardings(experiment.model, self.optimizer, self.mesh)
        with jax.set_mesh(self.mesh):
            self.state = new_state(experiment.model, self.optimizer, self.shardings, 0)
            self.step = make_step(experiment, self.optimizer, self.shardings)

    def run(self, steps=3, change=lambda rows: rows, progress=0.0, stop=False):
        metrics = []
        rows_on_mesh = batch_sharding(self.mesh)
        with jax.set_mesh(self.mesh):
            for i in range(steps):
                rows = jax.device_put(change(batch(i, self.experiment.data)), rows_on_mesh)
                local = jax.device_put(signals(self.experiment.data.global_batch, progress, stop), rows_on_mesh)
                self.state, values = self.step(self.state, rows, local)
                metrics.append(read_metrics(values))
        return metrics


@pytest.fixture(scope="module", params=["adamw", "muon"])
def single(request):
    optimizer = replace(EXPERIMENT.optimizer, name=request.param)
    setup = Setup(replace(EXPERIMENT, optimizer=optimizer))
    return setup, setup.run()


def assert_same(one, other, rtol, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol), one, other)


@pytest.mark.parametrize("mesh", MESHES)
def test_sharded_equals_single_device(single, mesh):
    setup, metrics = single
    sharded = Setup(setup.experiment, MESHES[mesh])
    got = sharded.run()
    for a, b in zip(metrics, got, strict=True):
        assert a == pytest.approx(b, rel=2e-5)
    # Adam's normalised step magnifies rounding where a gradient is near 0: compare with the learning rate's size.
    assert_same(setup.state["params"], sharded.state["params"], rtol=1e-5, atol=3e-5)
    assert_same(
        optax.tree.get_all_with_path(setup.state["opt_state"], "mu")[0][1],
        optax.tree.get_all_with_path(sharded.state["opt_state"], "mu")[0][1],
        rtol=1e-3, atol=1e-6,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_moments_lie_where_their_parameters_lie_from_the_first_moment(name):
    setup = Setup(replace(EXPERIMENT, optimizer=replace(EXPERIMENT.optimizer, name=name)), MESHES["2x2x2"])
    specs = jax.tree.map(lambda x: x.sharding.spec, setup.state["params"])
    assert "fsdp" in str(specs["embedding_VxD"])
    assert "tensor" in str(specs["blocks"]["feed_forward"]["down_FxD"])
    for _ in range(2):  # at creation, and after a step
        found = []
        for field in ("mu", "nu"):
            for _, moments in optax.tree.get_all_with_path(setup.state["opt_state"], field):
                for path, moment in jax.tree_util.tree_leaves_with_path(moments):
                    spec = specs
                    for key in path:
                        spec = spec[key.key]
                    assert moment.sharding.spec == spec, (field, path)
                    found.append(path)
        assert len(set(found)) == len(jax.tree.leaves(setup.state["params"]))
        setup.run(1)


@pytest.mark.parametrize("mesh", ["single", "2x2x2"])
def test_accumulation_equals_the_big_batch(mesh):
    mesh = MESHES.get(mesh, SINGLE)
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
    assert metrics["learning_rate"] == pytest.approx(EXPERIMENT.optimizer.learning_rate * 0.55 * 0.5)  # warming up
    assert (metrics["progress"], metrics["stop"]) == (0.5, 1.0)
    assert int(setup.state["step"]) == 1


def test_any_hosts_signal_reaches_all():
    setup = Setup(mesh=MESHES["8x1x1"])
    local = signals(8, 0.25, False)
    local[5] = 0.75, 1.0
    with jax.set_mesh(setup.mesh):
        rows = jax.device_put(batch(0, EXPERIMENT.data), batch_sharding(setup.mesh))
        _, metrics = setup.step(setup.state, rows, jax.device_put(local, batch_sharding(setup.mesh)))
    assert (read_metrics(metrics)["progress"], read_metrics(metrics)["stop"]) == (0.75, 1.0)


def test_the_loss_falls():
    setup = Setup(replace(EXPERIMENT, optimizer=replace(EXPERIMENT.optimizer, learning_rate=0.01)))
    losses = [metrics["loss"] for metrics in setup.run(60)]
    assert losses[-1] < 0.75 * losses[0]
