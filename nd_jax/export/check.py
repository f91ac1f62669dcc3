"""Whether an exported folder is the same model in transformers: logits, greedy continuations, tokenizer.

Transformers runs in the environment of ``make interop``, in a process of its own (`transformers_side`).
"""

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from nd_jax.debugger.policy import PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.errors import UserError
from nd_jax.evaluation.prompts import Unanswered, output_question
from nd_jax.export.folder import Trained
from nd_jax.language.render import render, render_prompt
from nd_jax.language.session import Session, Unrenderable, show
from nd_jax.language.symbols import STATE_END, SYMBOL_KINDS, TokenizerSpec
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.model.transformer import bind
from nd_jax.tracing.schema import Trace


@dataclass(frozen=True)
class CheckConfig:
    """How much is compared, and where transformers is."""

    interop: Path = Path(".venv-interop/bin/python")
    """Python of an environment with transformers and PyTorch; `make interop` makes it."""

    tolerance: float = 1e-4
    """Most that a logit may differ by, in float32."""

    prompts: int = 100
    """Prompts that are continued greedily."""

    max_new: int = 64
    """Tokens of a continuation."""

    texts: int = 300
    """Rendered sessions that both tokenizers encode."""

    seed: int = 0
    """Seeds sessions and random ids."""


class Case(NamedTuple):
    """Tokens whose logits are compared where the mask is 1; each array is `[B, T]` int32."""

    tokens: np.ndarray
    mask: np.ndarray
    positions: np.ndarray


def check(
    folder: Path,
    model: Trained,
    traces: Iterable[Trace],
    config: CheckConfig = CheckConfig(),
    questions: Sequence[list[int]] | None = None,
) -> dict[str, Any]:
    """Compare an exported folder, loaded by stock transformers, with the model it was made of.

    Args:
      folder: from `nd_jax.export.folder.write_folder`.
      model: the model.
      traces: held-out ones; sessions on them are encoded, cut for prompts, and run through both models.
      config: how much.
      questions: prompts instead of those.

    Returns:
      ``{transformers, class, loading, logits: {case: largest difference}, greedy: {n, equal}, tokenizer: {n,
      equal, decoded, with_marker_text}}``.

    Raises:
      UserError: there is no environment with transformers, or nothing to compare on.
    """
    if not config.interop.exists():
        raise UserError(
            f"no {config.interop}: run `make interop`, or say which Python has transformers (--interop)"
        )
    experiment = replace(
        model.record.experiment, model=replace(model.record.experiment.model, dtype="float32")
    )
    model = model._replace(record=replace(model.record, experiment=experiment))
    rng = random.Random(config.seed)
    sessions = list(_sessions(traces, model.tokenizer, experiment.data.policy, rng, config.texts))
    if not sessions:
        raise UserError(
            "no held-out session to compare on: name traces that the tokenizer can write (--traces)"
        )
    texts = [
        (text, ids)
        for session in sessions
        if (text := _plain_text(session, model.tokenizer.spec)) is not None
        for ids in [model.tokenizer.encode_session(session).ids]
    ]
    length = min(experiment.data.row_length, DecodeConfig().buckets[-1])
    prompts = list(questions or _prompts(sessions, model.tokenizer, length, rng))[: config.prompts]
    prompts = [prompt for prompt in prompts if len(prompt) <= length]
    all_cases = cases(model.tokenizer, [ids for _, ids in texts], experiment.data.row_length, config.seed)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        parts = {
            f"{name}/{part}": array
            for name, case in all_cases.items()
            for part, array in case._asdict().items()
        }
        np.savez(work / "cases.npz", **parts)  # pyright: ignore[reportArgumentType]
        _write(work / "texts.json", [text for text, _ in texts])
        _write(work / "prompts.json", {"prompts": prompts, "new": config.max_new})
        _run(config.interop, folder, work)
        answer = json.loads((work / "answer.json").read_text(encoding="utf-8"))
        with np.load(work / "logits.npz") as theirs:
            logits = {name: _difference(model, case, theirs[name]) for name, case in all_cases.items()}
    decode = DecodeConfig(max_new_tokens=config.max_new)
    stops = (model.tokenizer.symbol_id(STATE_END), model.tokenizer.end)
    with jax.default_matmul_precision("highest"):
        continued = Decoder(experiment.model, model.params, decode).greedy(prompts, stops)
    return {
        **{name: answer[name] for name in ("transformers", "class", "loading")},
        "logits": logits,
        "greedy": {"n": len(prompts), "equal": _equal(continued, answer["continued"])},
        "tokenizer": {
            "n": len(texts),
            "equal": _equal([ids for _, ids in texts], answer["encoded"]),
            "decoded": _equal([text for text, _ in texts], answer["decoded"]),
            "with_marker_text": len(sessions) - len(texts),
        },
    }


def differences(figures: dict[str, Any], config: CheckConfig) -> list[str]:
    """Say what differs by the figures of `check`; nothing where the two are the same."""
    told = [
        f"logits ({name}) by {value:.2g}, at most {config.tolerance:g} allowed"
        for name, value in figures["logits"].items()
        if not value <= config.tolerance
    ]
    greedy, tokenizer = figures["greedy"], figures["tokenizer"]
    if greedy["equal"] < greedy["n"]:
        told.append(f"greedy continuations of {greedy['n'] - greedy['equal']} of {greedy['n']} prompts")
    for name, what in (("equal", "ids"), ("decoded", "decoded text")):
        if tokenizer[name] < tokenizer["n"]:
            told.append(f"{what} of {tokenizer['n'] - tokenizer[name]} of {tokenizer['n']} sessions")
    for name, keys in figures["loading"].items():
        if keys:
            told.append(f"{name.replace('_', ' ')}: {', '.join(keys)}")
    return told


def cases(tokenizer: Tokenizer, sessions: Sequence[list[int]], row_length: int, seed: int) -> dict[str, Case]:
    """Inputs to compare logits on: ordinary and odd ones.

    Args:
      tokenizer: the model's.
      sessions: ids of some sessions.
      row_length: tokens that the model was trained on at once.
      seed: seeds the random ids.
    """
    rng = np.random.default_rng(seed)
    size, T = tokenizer.vocab_size, row_length
    stream = [i for ids in sessions for i in ids]
    stream *= -(-2 * T // len(stream))
    lengths = [1, max(1, T // 3), max(1, T - 1), T]
    markers = list(range(len(tokenizer.spec.control_symbols)))
    return {
        "single token": _case([[tokenizer.bos], *rng.integers(0, size, (7, 1)).tolist()]),
        "full length": _case([stream[:T], stream[T : 2 * T]]),
        "padded right": _case([stream[:n] for n in lengths]),
        "padded left": _case([stream[:n] for n in lengths], left=True),
        "only pads": _case([[tokenizer.pad] * T]),
        "all markers": _case([markers[start : start + T] for start in range(0, len(markers), T)]),
        "random ids": _case(rng.integers(0, size, (2, T)).tolist()),
    }


def cruxeval_questions(path: Path, model: Trained, count: int) -> list[list[int]]:
    """Give the prompts of CRUXEval's output task for the first programs that the model can read.

    Raises:
      UserError: as `nd_jax.evaluation.cruxeval.load`.
    """
    from nd_jax.evaluation.cruxeval import CruxevalConfig, load, run_all

    programs = load(path)[: 2 * count]
    found: list[list[int]] = []
    for program, outcome in zip(programs, run_all(programs, CruxevalConfig()), strict=True):
        if outcome.trace is not None:
            try:
                ids = output_question(program.source, outcome.trace.events[0], model.tokenizer).ids
            except Unanswered:
                continue
            if len(ids) <= model.record.experiment.data.row_length:
                found.append(ids)
    return found[:count]


def _case(rows: list[list[int]], left: bool = False) -> Case:
    """Rows of different lengths, filled up with zeros (the id of the padding) on one side."""
    T = max(map(len, rows))
    filled = [[[i, 1, place] for place, i in enumerate(row)] for row in rows]
    padding = [[[0, 0, 0]] * (T - len(row)) for row in rows]
    both = zip(padding, filled, strict=True) if left else zip(filled, padding, strict=True)
    array_BxTx3 = np.array([first + second for first, second in both], np.int32)
    return Case(*np.moveaxis(array_BxTx3, -1, 0))


def _sessions(
    traces: Iterable[Trace], tokenizer: Tokenizer, policy: PolicyConfig, rng: random.Random, count: int
) -> Iterable[Session]:
    """Sample a session on each trace that the tokenizer can write."""
    for trace in traces:
        if count == 0:
            return
        tree = StateTree(trace)
        try:
            session = show(tree, sample_trajectory(tree, rng, policy, 64), tokenizer.spec)
            tokenizer.encode_session(session)
        except Unrenderable:
            continue
        count -= 1
        yield session


def _prompts(
    sessions: Iterable[Session], tokenizer: Tokenizer, length: int, rng: random.Random
) -> Iterable[list[int]]:
    """Cut every session behind an action, so that what is left fits."""
    for session in sessions:
        for k in rng.sample(range(1, len(session.states)), len(session.states) - 1):
            begun = Session(session.context, session.states[:k], session.actions[: k - 1], ended=False)
            ids, _ = tokenizer.encode(render_prompt(begun, session.actions[k - 1], tokenizer.spec))
            if len(ids) <= length:
                yield ids
                break


def _plain_text(session: Session, spec: TokenizerSpec) -> str | None:
    """A session as text; None where some of its own text reads like a marker."""
    segments = render(session, spec)
    if any("<|" in segment.text for segment in segments if segment.kind not in SYMBOL_KINDS):
        return None
    return "".join(segment.text for segment in segments)


def _difference(model: Trained, case: Case, theirs_BxTxV: np.ndarray) -> float:
    """The largest difference of a logit where the mask is 1."""
    config = model.record.experiment.model
    with jax.default_matmul_precision("highest"):
        ours_BxTxV = jax.jit(lambda params, case: bind(config, params)(*case))(model.params, case)
    return float(np.abs(np.asarray(ours_BxTxV) - theirs_BxTxV)[case.mask == 1].max())


def _equal(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def _run(python: Path, folder: Path, work: Path) -> None:
    script = Path(__file__).with_name("transformers_side.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [python, "-I", script, folder.resolve(), work], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"transformers cannot run {folder}: {last} (in {python})")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
