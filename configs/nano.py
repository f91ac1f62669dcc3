"""The laptop model: 0.7M parameters, which a 2-core CPU trains in minutes on synthetic programs.

A small vocabulary and short rows, because tokens per second decide what it learns; few wide heads, because
they are faster on CPU. Give the data: `nd train configs/nano.py --data.traces DIR --data.tokenizer DIR`.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import CheckpointConfig, Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=1024, d_model=128, n_layers=3, n_heads=2, n_kv_heads=2, head_dim=64, d_ff=352
    ),
    data=DataConfig(row_length=256, global_batch=16, context_weight=0.1),
    optimizer=OptimizerConfig(learning_rate=3e-3),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=50, floor=0.05),
    train=TrainConfig(steps=2000),
    checkpoint=CheckpointConfig(every_steps=500, keep=2),
)
