"""5.1M parameters: what a laptop trains in hours.

`nd plan configs/nd_5m.py --mesh fsdp=8` says what it costs.
Learning rate and length of training are usual values, not tuned.
"""

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment, OptimizerConfig, ScheduleConfig, TrainConfig

config = Experiment(
    model=ModelConfig(
        vocab_size=8192,
        d_model=192,
        n_layers=8,
        n_heads=3,
        n_kv_heads=3,
        head_dim=64,
        d_ff=512,
        rope_theta=1e6,
        qk_norm=True,
    ),
    data=DataConfig(
        traces=("traces",), tokenizer="tokenizer", row_length=512, global_batch=64, place_weight=3.0
    ),
    optimizer=OptimizerConfig(name="muon", learning_rate=0.004),
    schedule=ScheduleConfig(shape="cosine", warmup_steps=500),
    train=TrainConfig(steps=20_000),
)
