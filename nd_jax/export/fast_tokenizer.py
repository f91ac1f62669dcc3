"""The tokenizer as ``tokenizer.json``, for the `tokenizers` library: the same ids for the same text.

SentencePiece joins any two neighbours whose text is a piece, the piece learned first before others and the
leftmost place before others; `tokenizers` has a list of pairs in their order. So every way to cut a piece in
two becomes a pair, those of a piece learned earlier first, and of one piece the cut furthest right first:
where two places overlap (as in ``', ', '`` around ``', '``), that is the left one. A space is a space here,
not U+2581, so that a U+2581 of the text is spelled in bytes, as ours.

One thing differs, and cannot be otherwise: in text, the spelling of a marker is the marker.
"""

from typing import Any

from nd_jax.language.spelling import PATTERN
from nd_jax.language.symbols import BOS, END, PAD, UNKNOWN
from nd_jax.language.tokenizer import Tokenizer


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Give what belongs into ``tokenizer.json``: a BPE with byte fallback, markers as special tokens."""
    vocabulary = {_spelling(tokenizer, i): i for i in range(tokenizer.vocab_size)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": symbol,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, symbol in enumerate(tokenizer.spec.control_symbols)
        ],
        "normalizer": None,
        # No piece crosses a line end: cutting there keeps the words that are looked up short.
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": PATTERN} if tokenizer.spec.values == "letters" else {"String": "\n"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": _merges(tokenizer),
        },
    }


def tokenizer_config(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    """Give what belongs into ``tokenizer_config.json``.

    Args:
      tokenizer: the tokenizer.
      max_length: tokens that the model was trained on at once.
    """
    named = (PAD, BOS, END, UNKNOWN)
    others = [symbol for symbol in tokenizer.spec.control_symbols if symbol not in named]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "bos_token": BOS,
        "eos_token": END,
        "unk_token": UNKNOWN,
        "additional_special_tokens": others,
        "add_bos_token": False,  # a rendered session begins with it
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }


def _spelling(tokenizer: Tokenizer, i: int) -> str:
    symbols = tokenizer.spec.control_symbols
    if i < len(symbols):
        return symbols[i]
    piece = tokenizer.piece(i)
    return f"<0x{piece[0]:02X}>" if tokenizer.is_byte(i) else piece.decode()


def _merges(tokenizer: Tokenizer) -> list[list[str]]:
    """All pairs of pieces whose texts together are a piece, best first (ids of pieces are in that order)."""
    first = len(tokenizer.spec.control_symbols)
    texts = [
        tokenizer.piece(i).decode() for i in range(first, tokenizer.vocab_size) if not tokenizer.is_byte(i)
    ]
    known = set(texts)
    return [
        [text[:cut], text[cut:]]
        for text in texts
        for cut in range(len(text) - 1, 0, -1)
        if text[:cut] in known and text[cut:] in known
    ]
