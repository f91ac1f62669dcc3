"""A ladder of sizes for scaling studies on a CPU: all of a rung's settings are computed from its size.

`nd scaling ladder configs/ladder.py` lists the rungs; `nd train configs/ladder.py:NAME` trains one. For an
accelerator, raise `smallest`, `largest`, `head_dim` and `aspect` (64 and 64 to 128 are usual), and give the
learning rate and batch that were tuned at one size there.
"""

from nd_jax.data.config import DataConfig
from nd_jax.debugger.policy import PolicyConfig
from nd_jax.model.config import ModelConfig
from nd_jax.scaling.ladder import LadderConfig, rungs
from nd_jax.training.config import CheckpointConfig, Experiment, OptimizerConfig, ScheduleConfig

base = Experiment(
    model=ModelConfig(vocab_size=1024, rope_theta=1e6, qk_norm=True),
    data=DataConfig(
        traces=("runs/quickstart/traces",),
        tokenizer="runs/quickstart/tokenizer",
        row_length=256,
        policy=PolicyConfig(step_only=6.0, forward_from_anywhere=0.5, root_skip=0.5, inverse_root_skip=0.5),
    ),
    optimizer=OptimizerConfig(name="muon", muon_iterations=3),
    schedule=ScheduleConfig(shape="wsd", warmup_steps=50, floor=0.0),
    checkpoint=CheckpointConfig(every_steps=500, keep=2),
)
configs = {rung.name: rung.experiment for rung in rungs(LadderConfig(), base)}
