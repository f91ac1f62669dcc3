"""124M parameters: one accelerator.

`nd plan configs/nd_125m.py --mesh fsdp=8` says what it costs.
Learning rate and length of training are usual values, not tuned.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=8192,
        d_model=768,
        n_layers=16,
        n_heads=12,
        n_kv_heads=12,
        head_dim=64,
        d_ff=2176,
        rope_theta=1e6,
        qk_norm=True,
        scan_layers=True,
        remat="dots",
    ),
    data=DataConfig(
        traces=("traces",), tokenizer="tokenizer", row_length=2048, global_batch=128, place_weight=3.0
    ),
    optimizer=OptimizerConfig(name="adamw", learning_rate=0.0006),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=500),
    train=TrainConfig(steps=20_000),
)
