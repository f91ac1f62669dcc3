"""The laptop model: 0.65M parameters, which a 2-core CPU trains in minutes on synthetic programs.

Chosen for what it learns in six minutes (BUILD.md, "The nano model"): a small vocabulary and short rows, as
tokens per second decide; many narrow layers, as following a loop takes several looks at program and state,
one after the other; few heads, faster on CPU; small batches, many updates; Muon, which takes half the tokens
that AdamW takes; sessions that mostly show every step, so that half of their tokens are states; events and
lines, a tenth of the loss, weighed up, so that control flow is learned before values are; full loss on the
program too, the same kind of text as states are.
Give the data: `nd train configs/nano.py --data.traces DIR --data.tokenizer DIR`.
"""

from nd_jax.data.config import DataConfig
from nd_jax.debugger.policy import PolicyConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import CheckpointConfig, Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=1024,
        d_model=96,
        n_layers=6,
        n_heads=2,
        n_kv_heads=2,
        head_dim=48,
        d_ff=192,
        rope_theta=1e6,
        qk_norm=True,
    ),
    data=DataConfig(
        traces=("runs/quickstart/traces",),
        tokenizer="runs/quickstart/tokenizer",
        row_length=256,
        global_batch=4,
        context_weight=1.0,
        place_weight=5.0,
        policy=PolicyConfig(step_only=6.0, forward_from_anywhere=0.5, root_skip=0.5, inverse_root_skip=0.5),
    ),
    optimizer=OptimizerConfig(name="muon", learning_rate=6e-3, muon_iterations=3),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=50, floor=0.05),
    train=TrainConfig(steps=4000),
    checkpoint=CheckpointConfig(every_steps=1000, keep=2),
)
