"""The tokenizer: segments to ids and back, exactly.

Text is encoded by a SentencePiece BPE model with identity normalisation and byte fallback; control symbols
are inserted by id. A line end is a piece of its own that no other piece crosses, so all text of a document is
encoded in one call and cut apart at line ends.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sentencepiece

from nd_jax.errors import UserError
from nd_jax.language.render import render_context, render_states
from nd_jax.language.segmenting import SegmentReader
from nd_jax.language.session import Session, Unrenderable
from nd_jax.language.symbols import BOS, END, PAD, SYMBOL_KINDS, UNKNOWN, Role, Segment, TokenizerSpec

MODEL_FILE, SPEC_FILE = "tokenizer.model", "spec.json"
SPACE_SIGN = "\u2581"  # SentencePiece's own sign for a space: as text, it has to be spelled in bytes
_ROLES = tuple(bytes([role]) for role in Role)
_MAX_CONTEXTS = 256  # encoded contexts kept for the next session of the same program


class Tokenizer:
    """Encodes and decodes documents of the trace language.

    Attributes:
      spec: what the tokenizer can express.
      trained: how it was trained, as `nd_jax.language.training.train` noted it.
      fingerprint: changes whenever the ids of any document could.
      pad, bos, end: ids of the padding, first and last symbol of a document.
    """

    def __init__(self, model: bytes, spec: TokenizerSpec, trained: dict[str, Any]):
        """Wrap a serialized SentencePiece model.

        Raises:
          UserError: the model does not hold the pieces that the spec asks for.
        """
        self.spec = spec
        self.trained = trained
        self._model = model
        self._processor = processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        symbols = spec.control_symbols
        pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        if pieces[: len(symbols)] != symbols or len(pieces) != spec.vocab_size:
            raise UserError(
                f"tokenizer: the model's {len(pieces)} pieces do not fit its spec ({spec.vocab_size} pieces, "
                f"{spec.lines} lines, {spec.frames} frames); restore the pair of files"
            )
        self._symbols = symbols
        self._ids = {symbol: i for i, symbol in enumerate(symbols)}
        self._first_byte = processor.piece_to_id("<0x00>")
        self._newline = processor.piece_to_id("\n")
        self._bytes = [
            bytes([i - self._first_byte])
            if processor.is_byte(i)
            else b""
            if processor.is_control(i) or processor.is_unknown(i)
            else piece.replace(SPACE_SIGN, " ").encode()
            for i, piece in enumerate(pieces)
        ]
        self.fingerprint = _fingerprint(processor, spec)
        self.pad, self.bos, self.end = (self._ids[symbol] for symbol in (PAD, BOS, END))
        self._contexts: dict[tuple[str, ...], list[int]] = {}

    def __reduce__(self):
        return Tokenizer, (self._model, self.spec, self.trained)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self.spec.vocab_size

    def symbol_id(self, symbol: str) -> int:
        """Id of a control symbol, by its spelling in `nd_jax.language.symbols`."""
        return self._ids[symbol]

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Read a tokenizer that `save` wrote.

        Raises:
          UserError: a file is missing or damaged, or the two do not belong together.
        """
        directory = Path(directory)
        try:
            record = json.loads((directory / SPEC_FILE).read_text(encoding="utf-8"))
            model = (directory / MODEL_FILE).read_bytes()
            spec = TokenizerSpec(**record["spec"])
            fingerprint, trained = record["fingerprint"], record["trained"]
        except OSError as error:
            raise UserError(
                f"tokenizer {directory}: cannot read {error.filename} ({error.strerror})"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"tokenizer {directory}: {SPEC_FILE} is damaged ({error!r})") from error
        try:
            tokenizer = cls(model, spec, trained)
        except RuntimeError as error:
            raise UserError(f"tokenizer {directory}: {MODEL_FILE} is no SentencePiece model") from error
        if tokenizer.fingerprint != fingerprint:
            raise UserError(
                f"tokenizer {directory}: {MODEL_FILE} has fingerprint {tokenizer.fingerprint}, {SPEC_FILE} "
                f"names {fingerprint}; restore the pair of files"
            )
        return tokenizer

    def save(self, directory: str | Path) -> None:
        """Write the model and its spec into a directory, which is made if need be."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        record = {"spec": asdict(self.spec), "fingerprint": self.fingerprint, "trained": self.trained}
        (directory / MODEL_FILE).write_bytes(self._model)
        (directory / SPEC_FILE).write_text(
            json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    def encode_text(self, text: str) -> list[int]:
        """Encode text; it never gives a control symbol, and `decode_text` gives it back exactly.

        Raises:
          Unrenderable: the text holds a lone surrogate, which UTF-8 cannot.
        """
        if SPACE_SIGN in text:
            ids: list[int] = []
            for k, part in enumerate(text.split(SPACE_SIGN)):
                if k:
                    ids += [self._first_byte + byte for byte in SPACE_SIGN.encode()]
                ids += self.encode_text(part)
            return ids
        try:
            return self._processor.encode_as_ids(text)
        except RuntimeError as error:
            raise _refusal(text) or error from None

    def decode_text(self, ids: Iterable[int]) -> str:
        """Decode ids of text; control symbols are left out.

        Raises:
          UnicodeDecodeError: the byte pieces do not spell UTF-8.
        """
        return b"".join([self._bytes[i] for i in ids]).decode()

    def encode(self, segments: Iterable[Segment]) -> tuple[list[int], list[int]]:
        """Encode segments.

        Returns:
          ids, and for each id its `Role`.

        Raises:
          Unrenderable: a text holds a lone surrogate, or a symbol is not in the tokenizer's spec.
        """
        runs: list[str] = []  # text between two symbols
        layout: list[tuple[int, int]] = []  # (id of a symbol, or -1 for the next run; role)
        for kind, text, role in segments:
            if kind in SYMBOL_KINDS:
                layout.append((self._symbol(text), role))
            elif layout and layout[-1] == (-1, role):
                runs[-1] += text
            else:
                layout.append((-1, role))
                runs.append(text)
        encoded = iter(self._encode_runs(runs))
        ids: list[int] = []
        roles = bytearray()
        for symbol, role in layout:
            if symbol >= 0:
                ids.append(symbol)
                roles.append(role)
            else:
                run = next(encoded)
                ids += run
                roles += _ROLES[role] * len(run)
        return ids, list(roles)

    def encode_session(self, session: Session) -> tuple[list[int], list[int]]:
        """Same as ``encode(render(session))``, but keeps the encoded program for the next session on it."""
        context = self._contexts.get(session.context)
        if context is None:
            context, _ = self.encode(render_context(session.context))
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[session.context] = context
        ids, roles = self.encode(render_states(session))
        return context + ids, [int(Role.CONTEXT)] * len(context) + roles

    def segments(self, ids: Iterable[int]) -> list[Segment]:
        """Turn ids back into segments: the inverse of `encode`. Never raises.

        Ids that no document holds (padding, unknown, bytes that are not UTF-8, numbers beyond the vocabulary)
        give segments of kind ``invalid``.
        """
        reader = SegmentReader()
        run: list[int] = []
        for i in ids:
            if len(self._symbols) <= i < self.vocab_size:
                run.append(i)
                continue
            self._read_text(reader, run)
            run = []
            symbol = self._symbols[i] if 0 <= i < len(self._symbols) else None
            if symbol is None or symbol in (PAD, UNKNOWN):
                reader.invalid(f"id {i} ({symbol or 'beyond the vocabulary'})")
            else:
                reader.symbol(symbol)
        self._read_text(reader, run)
        return reader.segments

    def _read_text(self, reader: SegmentReader, run: list[int]) -> None:
        if run:
            try:
                reader.text(self.decode_text(run))
            except UnicodeDecodeError as error:
                reader.invalid(f"bytes that are not UTF-8 ({error.reason})")

    def _symbol(self, text: str) -> int:
        try:
            return self._ids[text]
        except KeyError:
            raise Unrenderable("no such symbol", f"{text} is not in the tokenizer's spec") from None

    def _encode_runs(self, runs: list[str]) -> list[list[int]]:
        """Encode each run as `encode_text` does, all in one call."""
        if not runs:
            return []
        ids = self.encode_text("\n".join(runs))
        encoded, begin, newline = [], 0, self._newline
        for run in runs[:-1]:
            end = begin - 1
            for _ in range(run.count("\n") + 1):
                end = ids.index(newline, end + 1)
            encoded.append(ids[begin:end])
            begin = end + 1
        encoded.append(ids[begin:])
        return encoded


def _fingerprint(processor: Any, spec: TokenizerSpec) -> str:
    digest = hashlib.sha256(json.dumps(asdict(spec), sort_keys=True).encode())
    for i in range(processor.vocab_size()):
        digest.update(f"\0{processor.id_to_piece(i)}\0{processor.get_score(i)!r}".encode())
    return digest.hexdigest()[:16]


def _refusal(text: str) -> Unrenderable | None:
    """Why UTF-8 cannot hold the text, if it cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.rfind("\n", 0, error.start) + 1
        found, shown = f"U+{ord(text[error.start]):04X}", ascii(text[line : error.start + 1])
        return Unrenderable("lone surrogate", f"{found} at character {error.start - line} of {shown}")
    return None
