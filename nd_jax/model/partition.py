"""Where arrays live: the device mesh, the table of logical axes, and the shardings that follow from both.

Every parameter names its axes ("embed", "heads", ...) and the model names those of its activations; `RULES`
says which mesh axis shards each. Nothing else in the project mentions mesh axes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import optax
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nd_jax.errors import UserError
from nd_jax.model.config import AXES, MeshConfig, ModelConfig, nearest_divisors, nearest_multiples

RULES: dict[str, str | tuple[str, ...] | None] = {
    # activations
    "batch": ("replica", "fsdp"),
    "length": "sequence",
    "row_parts": ("replica", "fsdp", "sequence"),  # batch and length folded into one dimension
    "keys": None,  # positions as attention reads them: every device of a sequence axis holds all
    "features": None,
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "vocab": "tensor",
    # parameters: replicas hold whole copies, fsdp and sequence split the model's width
    "embed": ("fsdp", "sequence"),
    "norm": None,
    "head_dim": None,
}
"""Logical axis -> the mesh axes that shard it (None: not sharded)."""


def check_fit(
    sizes: Mapping[str, int],
    model: ModelConfig,
    batch_size: int | None = None,
    row_length: int | None = None,
) -> None:
    """Raise UserError where a mesh of these sizes does not divide the model or the rows.

    Args:
      sizes: of each of `AXES`.
      model: its widths must be divided.
      batch_size: rows worked off at once, checked where given.
      row_length: tokens of a row, checked where given.
    """
    needs = [
        (("tensor",), "model.n_kv_heads", model.n_kv_heads),
        (("tensor",), "model.d_ff", model.d_ff),
        (("tensor",), "model.vocab_size", model.vocab_size),
        (("fsdp", "sequence"), "model.d_model", model.d_model),
        (("replica", "fsdp"), "the batch", batch_size),
        (("sequence",), "data.row_length", row_length),
    ]
    for axes, name, number in needs:
        size = math.prod(sizes[axis] for axis in axes)
        if number is not None and number % size:
            shown = " x ".join(axis for axis in axes if sizes[axis] > 1)
            raise UserError(
                f"mesh {shown}={size} does not divide {name}={number}; nearest sizes that do: "
                f"{nearest_divisors(size, number)}; it would divide {name}={nearest_multiples(number, size)}"
            )


def make_mesh(
    config: MeshConfig,
    model: ModelConfig | None = None,
    batch_size: int | None = None,
    devices: Sequence[Any] | None = None,
    row_length: int | None = None,
) -> Mesh:
    """The mesh over all devices (or those given), refused before anything is allocated if it does not fit.

    Args:
      config: the sizes.
      model: checked for divisibility where given.
      batch_size: rows of the global batch, checked where given (with `model`).
      devices: default: every device of every process.
      row_length: tokens of a row, checked where given (with `model`).

    Raises:
      UserError: naming both numbers, and the nearest that fit.
    """
    devices = jax.devices() if devices is None else devices
    sizes = config.sizes(len(devices))
    if model is not None:
        check_fit(dict(zip(AXES, sizes, strict=True)), model, batch_size, row_length)
    # Auto: the compiler places what lies between our constraints (jax 0.10's default is Explicit).
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def spec(axes: Sequence[str | None]) -> PartitionSpec:
    """The partition of an array whose dimensions have these logical names."""
    return PartitionSpec(*(None if axis is None else RULES[axis] for axis in axes))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of `[B, T]` rows: over replica and fsdp."""
    return NamedSharding(mesh, spec(("batch",)))


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of what every device holds whole: scalars, metrics, step counts."""
    return NamedSharding(mesh, PartitionSpec())


def constrain(x: jax.Array, *axes: str | None) -> jax.Array:
    """Pin an activation to its logical axes under the mesh of `jax.set_mesh`; without one, `x` itself."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return x
    return jax.lax.with_sharding_constraint(x, spec(axes))


def shards(axis: str) -> int:
    """Among how many devices the mesh of `jax.set_mesh` splits a logical axis; 1 without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    names = RULES[axis] or ()
    return math.prod(mesh.shape.get(name, 1) for name in ((names,) if isinstance(names, str) else names))


def platform() -> str:
    """What is compiled for: "cpu", "gpu" or "tpu". The mesh tells: its devices may be a topology only."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device is not None and device.platform else jax.default_backend()


def params_shardings(abstract: nnx.State, mesh: Mesh) -> dict[str, Any]:
    """Shardings of the parameters, as a pure dict of the parameters' own structure.

    Args:
      abstract: `transformer.abstract(config)[1]`; every variable carries its logical axes as `axes`. A
        stacked layer axis in front of them is not sharded.
      mesh: from `make_mesh`.
    """

    def sharding(variable: nnx.Variable) -> NamedSharding:
        axes = variable.get_metadata("axes")
        stacked = len(variable.get_value().shape) - len(axes)
        return NamedSharding(mesh, spec((None,) * stacked + axes))

    leaves = jax.tree.map(sharding, abstract, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
    return nnx.to_pure_dict(leaves)


def optimizer_shardings(tx: optax.GradientTransformation, params: Any, shardings: Any, mesh: Mesh) -> Any:
    """Shardings of `tx.init(params)`: moments lie where their parameters lie, all else is replicated.

    Without these as `out_shardings`, a jitted `tx.init` gives replicated moments under an Auto mesh: too much
    memory at the first step, and a second compilation after it.

    Args:
      tx: the optimizer.
      params: parameters, or their shapes (nothing is computed).
      shardings: from `params_shardings`.
      mesh: from `make_mesh`.
    """
    state = jax.eval_shape(tx.init, params)
    whole = replicated(mesh)

    def masked(
        leaf: Any,
    ) -> bool:  # what an optimizer for some of the parameters holds in place of the others
        return isinstance(leaf, optax.MaskedNode)

    return optax.tree_utils.tree_map_params(
        tx, lambda leaf, sharding: leaf if masked(leaf) else sharding, state, shardings,
        transform_non_params=lambda _: whole, is_leaf=masked,
    )  # fmt: skip
