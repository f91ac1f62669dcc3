"""344M parameters: one host of accelerators.

`nd plan configs/nd_350m.py --mesh fsdp=8` says what it costs.
Learning rate and length of training are usual values, not tuned.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=8192,
        d_model=1024,
        n_layers=26,
        n_heads=16,
        n_kv_heads=8,
        head_dim=64,
        d_ff=3072,
        tied_embeddings=False,
        rope_theta=1e6,
        qk_norm=True,
        scan_layers=True,
        remat="dots",
    ),
    data=DataConfig(
        traces=("traces",), tokenizer="tokenizer", row_length=2048, global_batch=256, place_weight=3.0
    ),
    optimizer=OptimizerConfig(name="adamw", learning_rate=0.0004),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=2000),
    train=TrainConfig(steps=30_000),
)
