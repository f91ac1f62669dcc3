"""Train a tokenizer on the text of rendered sessions."""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined] - made at import

from nd_jax.console import track
from nd_jax.debugger.policy import PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.language.render import write
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.spelling import spell
from nd_jax.language.symbols import BOS, END, PAD, UNKNOWN, TokenizerSpec
from nd_jax.language.tokenizer import SPACE_SIGN, Tokenizer
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.schema import Trace

# The trainer lets a space stand only at the beginning of a piece, so that every name gets two pieces, "x" and
# " x". Trained with this character for the space, pieces such as " = " and ", " take the spaces, a name is
# the same piece wherever it stands, and a CRUXEval trace takes 5 % fewer tokens. Encoding has no such rule.
_STAND_IN = "\u2423"

MAX_STATES = 256
"""States of a session whose text a tokenizer is trained on."""


def train(texts: Iterable[str], spec: TokenizerSpec, note: dict[str, Any], threads: int = 1) -> Tokenizer:
    """Train a SentencePiece BPE model.

    Args:
      texts: what to learn pieces from, read once; their order does not matter.
      spec: what the tokenizer shall express.
      note: how the texts were made (data, seed, command); kept with the tokenizer.
      threads: how many threads may work; the pieces do not depend on it.

    Raises:
      UserError: the texts do not give as many pieces as the spec asks for, or it leaves none for text.
    """
    prepared = _Prepared(texts)
    model = io.BytesIO()
    control_symbols = [symbol for symbol in spec.control_symbols if symbol not in (PAD, BOS, END, UNKNOWN)]
    try:
        options: dict[str, Any] = {
            "model_type": "bpe",
            "vocab_size": spec.vocab_size,
            "pad_id": 0,
            "pad_piece": PAD,
            "bos_id": 1,
            "bos_piece": BOS,
            "eos_id": 2,
            "eos_piece": END,
            "unk_id": 3,
            "unk_piece": UNKNOWN,
            "control_symbols": control_symbols,
            "user_defined_symbols": ["\n", "\t"],
            "normalization_rule_name": "identity",
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "split_digits": True,
            "byte_fallback": True,
            "max_sentencepiece_length": spec.max_piece_length,
            "max_sentence_length": 1 << 24,
            "num_threads": threads,
            "minloglevel": 2,
        }
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(prepared), model_writer=model, **options
        )
    except RuntimeError as error:
        raise UserError(_explain(str(error), spec, prepared)) from error
    trained = {
        **note,
        "texts": prepared.texts,
        "characters": prepared.characters,
        "sentencepiece": sentencepiece.__version__,
    }
    return Tokenizer(_restore_spaces(model.getvalue()), spec, trained)


def training_texts(
    traces: Iterable[Trace], spec: TokenizerSpec, policy: PolicyConfig, seed: int, max_states: int
) -> Iterator[str]:
    """Yield the text of one sampled session per trace, in lines; what the language refuses is left out."""
    rng = random.Random(seed)
    for trace in traces:
        tree = StateTree(trace)
        trajectory = sample_trajectory(tree, rng, policy, max_states)
        try:
            words = write(show(tree, trajectory, spec), spec)
        except Unrenderable:
            continue
        lines = (word for word in words if word[-1] == "\n" and word != "\n")
        if spec.values == "letters":
            yield from (part for line in lines for part in spell(line) if part != "\n")
        else:
            yield from (line[:-1] for line in lines)


def train_on_datasets(traces: Sequence[Path], spec: TokenizerSpec, seed: int) -> Tokenizer:
    """Train on sessions of the train splits of trace datasets, one session a trace.

    Args:
      traces: directories of trace datasets.
      spec: what the tokenizer shall express.
      seed: seeds the sessions.

    Raises:
      UserError: a dataset is missing, or what `train` refuses.
    """
    datasets = [open_traces(path, "train") for path in traces]
    items = track(chain.from_iterable(datasets), "reading traces", sum(map(len, datasets)))
    note = {"traces": [dataset.fingerprint for dataset in datasets], "seed": seed}
    return train(training_texts(items, spec, PolicyConfig(), seed, MAX_STATES), spec, note)


class _Prepared:
    """Texts prepared for the trainer, and how many there were."""

    def __init__(self, texts: Iterable[str]):
        self._texts = texts
        self.texts = self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.texts += 1
            self.characters += len(text)
            # The trainer takes single lines; what is cut out has a piece of its own or is spelled in bytes.
            for part in re.split(f"[\n\t\0\r{SPACE_SIGN}{_STAND_IN}\ud800-\udfff]", text):
                if part:
                    yield part.replace(" ", _STAND_IN)


def _restore_spaces(model: bytes) -> bytes:
    proto = ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.piece = piece.piece.replace(_STAND_IN, SPACE_SIGN)
    return proto.SerializeToString(deterministic=True)


def _explain(error: str, spec: TokenizerSpec, prepared: _Prepared) -> str:
    if match := re.search(r"<= *(\d+)", error):
        return (
            f"tokenizer: {prepared.texts} texts give no more than {match[1]} pieces; ask for at most that "
            f"many instead of {spec.vocab_size}, or give more text"
        )
    least = len(spec.control_symbols) + 256
    return (
        f"tokenizer: cannot make {spec.vocab_size} pieces, {least} of them symbols and bytes, from "
        f"{prepared.texts} texts: {error.strip().splitlines()[-1]}"
    )
