"""How loss and next-state accuracy grow with size and data, from 0.1M to 3M parameters, on 2 CPU cores.

    nd sweep studies/cpu/study.py          # about an hour, nothing else running; stop and call it as you like
    nd scaling fit studies/cpu             # the law, from the metrics kept here; notebooks/scaling.ipynb

Five sizes of a ladder on the quickstart's programs. Each is trained for three computes, `growth` times one
another, beginning with one that is `growth` times that of the size below: so neighbouring sizes meet at the
same compute (iso-FLOP), and all sizes see about the same numbers of tokens. One trunk a size, three decays.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nd_jax.quickstart import QuickstartConfig
from nd_jax.scaling.ladder import LadderConfig, rungs
from nd_jax.sweep import combine
from nd_jax.sweep.study import Study
from nd_jax.sweep.trunk import trunk_with_decays
from nd_jax.training.config import load_config

CONFIG = "configs/nano.py"
SIZES = LadderConfig(width_exponent=0.5)  # Muon's updates, where all widths grow alike: BUILD.md, "muP"


def make(
    sizes: LadderConfig = SIZES,
    first_flops: float = 4.4e11,
    programs: int = 20_000,
    vocab_size: int = 1024,
    rows: int = 400,
    sessions: int = 300,
    config: str = CONFIG,
) -> Study:
    """Make the study.

    Args:
      sizes: the ladder.
      first_flops: compute of the shortest run of the smallest size.
      programs: how many to record.
      vocab_size: of the tokenizer.
      rows: held-out rows that the loss is measured on.
      sessions: held-out debugger sessions that next-state accuracy is measured on.
      config: everything that is the same for all sizes.
    """
    base = load_config(config)
    base = dataclasses.replace(base, model=dataclasses.replace(base.model, vocab_size=vocab_size))
    ladder = rungs(sizes, base)
    row = base.data.row_length
    flops = [rung.experiment.model.flops_per_token(row) for rung in ladder]
    growth = (flops[-1] / flops[0]) ** (1 / (len(ladder) - 1))
    runs = []
    for k, rung in enumerate(ladder):
        computes = [first_flops * growth ** (k + j) for j in range(3)]
        budgets = [round(compute / flops[k] / (base.data.global_batch * row)) for compute in computes]
        shape = dataclasses.asdict(rung.experiment.model)
        overrides = {
            "data.traces": ["{out}/traces"],
            "data.tokenizer": "{out}/tokenizer",
            "model.vocab_size": vocab_size,
            **{f"model.{name}": shape[name] for name in SHAPE},
            "optimizer.learning_rate": rung.experiment.optimizer.learning_rate,
            "schedule.floor": 0.0,
            "checkpoint.keep": 1,
        }
        runs.append(trunk_with_decays(rung.name, overrides, budgets))
    return Study(
        config=config,
        runs=combine.chain(*runs),
        prepare=(
            f"trace --synthetic {programs} --out {{out}}/traces {GENERATOR}",
            f"tokenizer train --traces {{out}}/traces --vocab-size {vocab_size} --lines 64 --frames 16 "
            "--values letters --out {out}/tokenizer",
        ),
        evaluate=(
            f"eval loss --checkpoint {{run}} --rows {rows}",
            f"eval states --checkpoint {{run}} --traces {{out}}/traces --sessions {sessions} --executed 0",
        ),
        results="studies/cpu",
    )


SHAPE = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")


def words(settings: Any, prefix: str) -> Iterator[str]:
    """Give settings as options of the command line."""
    for name, value in dataclasses.asdict(settings).items():
        option = f"{prefix}.{name.replace('_', '-')}"
        if dataclasses.is_dataclass(inner := getattr(settings, name)):
            yield from words(inner, option)
        elif isinstance(value, bool):
            yield option if value else f"{prefix}.no-{name.replace('_', '-')}"
        elif not isinstance(value, Mapping):
            yield f"{option} {value}"
        elif value:
            yield " ".join([option, *(f"{key} {part}" for key, part in value.items())])


GENERATOR = " ".join(words(QuickstartConfig().generator, "--generator"))  # the quickstart's programs

study = make()
