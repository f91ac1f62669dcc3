"""768M parameters: a few hosts.

`nd plan configs/nd_760m.py --mesh fsdp=8` says what it costs.
Learning rate and length of training are usual values, not tuned.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=8192,
        d_model=1536,
        n_layers=27,
        n_heads=12,
        n_kv_heads=4,
        head_dim=128,
        d_ff=4608,
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
    train=TrainConfig(steps=30_000),
)
