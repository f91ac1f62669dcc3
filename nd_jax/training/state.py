"""The training state: a pure dict ``{step, params, opt_state, guard}`` that lies sharded on the mesh from its
first moment.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh

from nd_jax.model import partition, transformer
from nd_jax.model.config import ModelConfig
from nd_jax.training.guard import new_guard

State = dict[str, Any]
"""``step`` (int32: steps done), ``params`` (pure dict of float32 arrays), ``opt_state`` (optax's),
``guard`` (`nd_jax.training.guard`)."""


def abstract_params(model: ModelConfig) -> dict[str, Any]:
    """Shapes and types of the parameters; nothing is allocated."""
    params = nnx.to_pure_dict(transformer.abstract(model)[1])
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)


def state_shardings(model: ModelConfig, optimizer: optax.GradientTransformation, mesh: Mesh) -> State:
    """Where each array of the state lies: the optimizer's moments as their parameters do."""
    params = partition.params_shardings(transformer.abstract(model)[1], mesh)
    opt_state = partition.optimizer_shardings(optimizer, abstract_params(model), params, mesh)
    whole = partition.replicated(mesh)
    guard = jax.tree.map(lambda _: whole, jax.eval_shape(new_guard))
    return {"step": whole, "params": params, "opt_state": opt_state, "guard": guard}


def _new(model: ModelConfig, optimizer: optax.GradientTransformation, key: jax.Array) -> State:
    params = transformer.init(model, key)
    step = jnp.zeros((), jnp.int32)
    return {"step": step, "params": params, "opt_state": optimizer.init(params), "guard": new_guard()}


def new_state(
    model: ModelConfig, optimizer: optax.GradientTransformation, shardings: State, seed: int
) -> State:
    """Make the state of step 0, each device computing its own part. The values depend on the seed alone."""
    # It runs once; on CPU, LLVM would optimise the random generator for longer than everything else takes to
    # start.
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    make = jax.jit(functools.partial(_new, model, optimizer), out_shardings=shardings, compiler_options=quick)
    return make(jax.random.key(seed))


def abstract_state(model: ModelConfig, optimizer: optax.GradientTransformation, shardings: State) -> State:
    """Shapes, types and shardings of the state, for restoring into; nothing is allocated."""
    shapes = jax.eval_shape(lambda: _new(model, optimizer, jax.random.key(0)))
    return jax.tree.map(
        lambda shape, sharding: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding),
        shapes,
        shardings,
    )
