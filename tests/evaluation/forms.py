"""The forms in which a state may be written, for tests on one tokenizer's pieces."""

from dataclasses import replace

from nd_jax.language.tokenizer import Tokenizer

FORMS = [
    {},
    {"line_last": True},
    {"echo_line": True},
    {"all_names": True},
    {"all_frames": True},
    {"line_last": True, "echo_line": True, "all_names": True, "all_frames": True},
]
"""Settings of a `TokenizerSpec`."""


def in_form(tokenizer: Tokenizer, form: dict[str, bool]) -> Tokenizer:
    """The same pieces and symbols, for sessions in another form."""
    rebuild, (model, spec, trained) = tokenizer.__reduce__()
    return rebuild(model, replace(spec, **form), trained)
