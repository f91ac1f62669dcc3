"""The other side of `benchmarks.train`: a training step of transformers, in `make interop`'s environment.

    python transformers_train.py FOLDER STEPS THREADS

FOLDER holds config.json, weights.npz, tokens.npy and optimizer.json. Every line read from standard input asks
for a turn of STEPS steps (the first one for a single step, to warm up), and is answered by a line of JSON,
{seconds, cpu_seconds, loss}, per step. Nothing imports it: its environment has no jax, ours no torch.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers_model import load


def main(folder: Path, steps: int, threads: int) -> None:
    """Serve until standard input ends."""
    model = load(folder, threads, attn_implementation="sdpa").train()
    tokens_BxT = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    rule = json.loads((folder / "optimizer.json").read_text())
    decay, clip_norm = rule.pop("weight_decay"), rule.pop("clip_norm")
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, fused=True, **rule)

    def step() -> float:
        loss = model(input_ids=tokens_BxT, labels=tokens_BxT, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for number, _ in enumerate(sys.stdin):
        count = steps if number else 1
        loss = 0.0
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(count):
            loss = step()
        answer = {
            "seconds": (time.perf_counter() - start) / count,
            "cpu_seconds": (time.process_time() - cpu_start) / count,
            "loss": loss,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
