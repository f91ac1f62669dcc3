"""1.8B parameters, the size that arXiv 2603.09951 trains from scratch (its shape is ours): a pod slice.

`nd plan configs/nd_1p8b.py --mesh fsdp=64` says what it costs.
Learning rate and length of training are usual values, not tuned.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=8192,
        d_model=2048,
        n_layers=32,
        n_heads=16,
        n_kv_heads=8,
        head_dim=128,
        d_ff=6912,
        tied_embeddings=False,
        rope_theta=1e6,
        qk_norm=True,
        scan_layers=True,
        remat="full",
    ),
    data=DataConfig(
        traces=("traces",), tokenizer="tokenizer", row_length=2048, global_batch=512, place_weight=3.0
    ),
    optimizer=OptimizerConfig(name="adamw", learning_rate=0.0003),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=2000),
    train=TrainConfig(steps=60_000),
)
