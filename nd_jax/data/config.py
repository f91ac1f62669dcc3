"""What decides the rows: datasets, row length, loss weights, the sampling policy."""

from dataclasses import dataclass, field

from nd_jax.debugger.policy import PolicyConfig


@dataclass(frozen=True)
class DataConfig:
    """Everything that rows are a function of, besides their index and the files read."""

    traces: tuple[str, ...] = ()
    """Trace dataset directories (made by `nd trace`)."""

    packed: str = ""
    """Directory of rows that `nd pack` made with these settings, to read instead of making them."""

    weights: tuple[float, ...] = ()
    """Share of rows from each dataset; empty: by the number of traces in each."""

    tokenizer: str = ""
    """Tokenizer directory."""

    row_length: int = 256
    """Tokens per row."""

    global_batch: int = 32
    """Rows per training step, over all hosts and microbatches."""

    seed: int = 0
    """Seeds the order of the traces and the trajectories sampled on them."""

    state_weight: float = 1.0
    """Loss weight of the tokens of states that follow an action, and of END."""

    place_weight: float = 1.0
    """Factor on the loss weight of the tokens of such a state that say where the program is: its event, line
    and frame. They are a quarter of a state's tokens and a tenth of its loss: above 1, control flow is
    learned sooner, and values later."""

    action_weight: float = 0.0
    """Loss weight of action tokens: the user chooses actions, the model need not predict them."""

    context_weight: float = 0.1
    """Loss weight of the program's source and of a session's start state, which are given."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """How trajectories are sampled on a state tree."""

    random_line_numbers: bool = False
    """Number a session's lines from a random one, not from 1, so that all line symbols are trained alike.
    Evaluation always numbers from 1."""

    threads: int = 2
    """Threads, per process, that make rows ahead of the training step. The rows do not depend on it."""

    workers: int = 0
    """Processes, per host, that make rows; 0: the training process does. The rows do not depend on it."""

    prefetch: int = 16
    """Batches made ahead per host. The rows do not depend on it."""
