"""What does not fit is refused before anything is allocated or written; what may change goes on."""

from dataclasses import replace
from functools import partial

import jax
import pytest
from test_loop import Stop, interrupted, losses, records
from tiny_run import EXPERIMENT, batches, run

from nd_jax.errors import UserError
from nd_jax.model.config import MeshConfig


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mesh": MeshConfig(fsdp=4, tensor=4)}, r"needs 16 devices, but there are 8; .* fits: fsdp=2"),
        ({"mesh": MeshConfig(fsdp=2)}, r"needs 2 devices, but there are 8; .* fits: fsdp=8"),
        ({"mesh": MeshConfig(fsdp=2, tensor=4)}, r"tensor=4 does not divide model.n_kv_heads=2; .*: 2"),
        ({"data": replace(EXPERIMENT.data, global_batch=12)}, r"fsdp=8 .* batch=12; .* the batch=8 or 16"),
        (
            {"mesh": MeshConfig(fsdp=1, sequence=8), "data": replace(EXPERIMENT.data, row_length=20)},
            r"sequence=8 does not divide data.row_length=20; nearest sizes that do: 5 or 10",
        ),
    ],
)  # fmt: skip
def test_nothing_is_allocated_for_what_does_not_fit(tmp_path, changes, said):
    before = len(jax.live_arrays())
    with pytest.raises(UserError, match=said):
        run(tmp_path, replace(EXPERIMENT, **changes), devices=jax.devices())
    assert len(jax.live_arrays()) == before
    assert not list(tmp_path.iterdir())


def test_nothing_is_allocated_for_another_config_than_the_checkpoint(finished):
    before = len(jax.live_arrays())
    with pytest.raises(UserError, match="another model"):
        run(finished, replace(EXPERIMENT, model=replace(EXPERIMENT.model, d_ff=64)))
    assert len(jax.live_arrays()) == before


def test_another_mesh_and_dtype_go_on_with_the_same_batches(tmp_path, finished):
    with pytest.raises(Stop):
        run(tmp_path, batches=partial(interrupted, EXPERIMENT.data, at=5))
    asked = []

    def noted(first, own):
        asked.append((first, list(own)))
        return batches(EXPERIMENT.data, first, own)

    other = replace(
        EXPERIMENT, model=replace(EXPERIMENT.model, dtype="bfloat16"), mesh=MeshConfig(2, 2, 1, 2)
    )
    run(tmp_path, other, batches=noted, devices=jax.devices())
    assert asked == [(4, list(range(8)))]
    got, expected = losses(records(tmp_path)), losses(records(finished))
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one[:2] == pytest.approx(other[:2], rel=0.01)
