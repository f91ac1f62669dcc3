"""The tokenizer: segments to ids and back, exactly.

Text is encoded by a SentencePiece BPE model with identity normalisation and byte fallback; control symbols
are inserted by id. A line end is a piece of its own that no other piece crosses, so a line's ids do not
depend on its neighbours: they are kept for the next time it comes, and new lines are encoded in one call and
cut apart at line ends. Where values are spelled (`TokenizerSpec.values`), text is cut into parts first, each
encoded by itself.
"""

import hashlib
import json
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from itertools import chain, groupby
from pathlib import Path
from sys import maxsize
from typing import Any

import numpy as np
import sentencepiece

from nd_jax.errors import UserError
from nd_jax.language.encoded import ID_BYTES, EncodedSession, pack_ids
from nd_jax.language.render import write_context, write_steps
from nd_jax.language.segmenting import SegmentReader
from nd_jax.language.session import Session, Unrenderable
from nd_jax.language.spelling import spell
from nd_jax.language.symbols import BOS, END, PAD, SYMBOL_KINDS, UNKNOWN, Segment, TokenizerSpec, pointer

MODEL_FILE, SPEC_FILE = "tokenizer.model", "spec.json"
SPACE_SIGN = "\u2581"  # SentencePiece's own sign for a space: as text, it has to be spelled in bytes
_MAX_LINES = 1 << 16  # encoded lines kept: some 10 MB, more than the lines that come often
_MAX_LINE = 256  # longest line kept, in characters: longer ones rarely come again


class Tokenizer:
    """Encodes and decodes documents of the trace language.

    Attributes:
      spec: what the tokenizer can express.
      trained: how it was trained, as `nd_jax.language.training.train` noted it.
      fingerprint: changes whenever the ids of any document could.
      pad, bos, end: ids of the padding, first and last symbol of a document.
      tells_place: of each id, whether it is an event, a line or a frame, ``[vocab_size]`` bool.
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
        self.tells_place = np.zeros(spec.vocab_size, bool)
        self.tells_place[[self._ids[symbol] for symbol in spec.place_symbols]] = True
        self._packed = {symbol: pack_ids([i]) for i, symbol in enumerate(symbols)}
        self._words = dict(self._packed)  # the ids of symbols and of lines encoded before
        self._encode_part = lru_cache(maxsize=1 << 14)(self._encode_whole)

    def __reduce__(self):
        return Tokenizer, (self._model, self.spec, self.trained)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self.spec.vocab_size

    def symbol_id(self, symbol: str) -> int:
        """Id of a control symbol, by its spelling in `nd_jax.language.symbols`."""
        return self._ids[symbol]

    def piece(self, i: int) -> bytes:
        """The bytes of text that an id stands for; none for a control symbol."""
        return self._bytes[i]

    def is_byte(self, i: int) -> bool:
        """Whether an id is one of the 256 that spell what no piece does, byte by byte."""
        return self._first_byte <= i < self._first_byte + 256

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
        if self.spec.values == "letters":
            return list(chain.from_iterable(map(self._encode_part, spell(text))))
        return self._encode_whole(text)

    def _encode_whole(self, text: str) -> list[int]:
        if SPACE_SIGN in text:
            ids: list[int] = []
            for k, part in enumerate(text.split(SPACE_SIGN)):
                if k:
                    ids += [self._first_byte + byte for byte in SPACE_SIGN.encode()]
                ids += self._encode_whole(part)
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
        ids: list[int] = []
        roles: list[int] = []
        for (role, is_symbol), group in groupby(segments, key=lambda s: (s.role, s.kind in SYMBOL_KINDS)):
            texts = [segment.text for segment in group]
            ids += map(self._symbol_id, texts) if is_symbol else self.encode_text("".join(texts))
            roles += [int(role)] * (len(ids) - len(roles))
        return ids, roles

    def encode_context(self, context: Iterable[str]) -> bytes:
        """Encode a program's lines; gives the first part of every session on it.

        Raises:
          Unrenderable: as `encode`, or a line is none.
        """
        return self._encode([write_context(context)])[0]

    def encode_session(
        self, session: Session, context: bytes | None = None, room: int | None = None
    ) -> EncodedSession:
        """Encode a session: the ids of ``encode(render(session, spec))``.

        Args:
          session: the session.
          context: what `encode_context` gave for its program, where it is at hand.
          room: cut it to so many tokens (`EncodedSession.cut`): what comes after them is not
            even written, and so not refused.

        Raises:
          Unrenderable: something in the session has no place in the language, or as `encode`.
        """
        if context is None:
            context = self.encode_context(session.context)
        most = maxsize if room is None else room * ID_BYTES - len(context)
        parts = self._encode(write_steps(session, self.spec), most)
        encoded = EncodedSession([context, *parts], self._packed[END] if session.ended else b"")
        return encoded if room is None else encoded.cut(room)

    def renumber(self, session: EncodedSession, offset: int) -> EncodedSession:
        """Name every line of a session by the symbol of a line `offset` further down."""
        first = self._ids[pointer(1)]  # the symbols of lines have consecutive ids

        def moved(part: bytes) -> bytes:
            ids = np.frombuffer(part, np.int32)
            is_line = (ids >= first) & (ids < first + self.spec.lines)
            return (ids + np.int32(offset) * is_line).tobytes()

        return session._replace(parts=[moved(part) for part in session.parts])

    def segments(self, ids: Iterable[int]) -> list[Segment]:
        """Turn ids back into segments: the inverse of `encode`. Never raises.

        Ids that no document holds (padding, unknown, bytes that are not UTF-8, numbers beyond the vocabulary)
        give segments of kind ``invalid``.
        """
        reader = SegmentReader(self.spec)
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

    def _symbol_id(self, symbol: str) -> int:
        try:
            return self._ids[symbol]
        except KeyError:
            raise Unrenderable("no such symbol", f"{symbol} is not in the tokenizer's spec") from None

    def _encode(self, parts: Iterable[list[str]], most: int = maxsize) -> list[bytes]:
        """Encode each part, a list of words (`nd_jax.language.render`), and pack the ids.

        Parts that lie behind `most` bytes are left out, as far as the words known before tell.
        """
        known = self._words
        encoded: list[bytes] = []
        new: list[tuple[int, list[str]]] = []  # parts that hold new words
        size = 0
        for part in parts:
            try:
                ids = b"".join(map(known.__getitem__, part))
                size += len(ids)
            except KeyError:
                ids = b""
                size += len(part) * ID_BYTES  # a word takes an id at least
                new.append((len(encoded), part))
            encoded.append(ids)
            if size > most:
                break
        if new:
            words = dict.fromkeys(word for _, part in new for word in part if word not in known)
            known = self._learn(list(words), known)
            for k, part in new:
                encoded[k] = b"".join(map(known.__getitem__, part))
        return encoded

    def _learn(self, new: list[str], known: dict[str, bytes]) -> Mapping[str, bytes]:
        """Encode words that are not known, and keep them; gives the ids of these and of all known ones."""
        for word in new:
            if word[-1] != "\n":
                self._symbol_id(word)  # it is none, and refused
        ids_of = dict(zip(new, self._encode_lines(new), strict=True))
        short = ids_of
        if max(map(len, new), default=0) > _MAX_LINE:
            short = {word: ids for word, ids in ids_of.items() if len(word) <= _MAX_LINE}
        kept = known if len(known) + len(new) <= _MAX_LINES else dict(self._packed)
        kept.update(short)
        self._words = kept
        return kept if kept is known and short is ids_of else ChainMap(ids_of, known)

    def _encode_lines(self, lines: list[str]) -> list[bytes]:
        """Encode each line, ended, as `encode_text` does, all in one call, and pack the ids."""
        ids = self.encode_text("".join(lines))
        packed, encoded, begin, newline = pack_ids(ids), [], 0, self._newline
        for _ in lines:
            end = ids.index(newline, begin) + 1
            encoded.append(packed[begin * ID_BYTES : end * ID_BYTES])
            begin = end
        return encoded


def _fingerprint(processor: Any, spec: TokenizerSpec) -> str:
    # Forms that are off are left out: tokenizers made before there were any keep their fingerprint.
    settings = {name: value for name, value in asdict(spec).items() if value is not False}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
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
