"""Vocabulary: names by type and role, and the words that inputs are made of."""

from nd_jax.programs.idioms.values import BOOL, CHAR, DICT, INT, INTS, STR, TUPLE, WORDS

PARAMETERS: dict[str, tuple[str, ...]] = {
    INT: ("n", "k", "x", "num", "limit", "a", "b", "m", "size", "start", "step"),
    CHAR: ("c", "ch", "char", "letter", "sep"),
    STR: ("text", "s", "word", "string", "line", "name", "t"),
    INTS: ("nums", "xs", "values", "numbers", "arr", "items", "lst", "data", "scores"),
    WORDS: ("words", "names", "parts", "tags", "strings", "lines"),
    DICT: ("d", "stock", "ages", "prices", "points", "dct", "marks"),
    BOOL: ("flag", "strict", "rev", "upper", "skip"),
}
LOCALS: dict[str, tuple[str, ...]] = {
    INT: ("result", "res", "value", "y", "z", "num", "amount", "q", "r"),
    CHAR: ("c", "ch", "mark", "last", "char"),
    STR: ("result", "res", "out", "new", "label", "t", "u", "word"),
    INTS: ("result", "res", "out", "ys", "new", "rest", "vals"),
    WORDS: ("parts", "result", "res", "out", "pieces", "keys", "chars"),
    DICT: ("result", "res", "table", "mapping", "new"),
    TUPLE: ("pair", "both"),
    BOOL: ("ok", "found", "valid", "same", "check"),
}
ACCUMULATORS: dict[str, tuple[str, ...]] = {
    INT: ("total", "count", "result", "res", "acc", "score", "s", "ans"),
    STR: ("result", "out", "res", "new", "acc", "built"),
    INTS: ("result", "out", "res", "kept", "ans", "found"),
    WORDS: ("result", "out", "res", "kept", "parts", "found"),
    DICT: ("counts", "freq", "seen", "result", "table", "res"),
}
ITEMS: dict[str, tuple[str, ...]] = {
    INT: ("n", "x", "num", "v", "val", "item", "y"),
    CHAR: ("c", "ch", "char", "letter", "x"),
    STR: ("w", "word", "s", "part", "item", "x"),
}
INDEXES = ("i", "j", "idx", "pos")
KEYS = ("k", "key", "name", "w")

VERBS: dict[str, tuple[str, ...]] = {
    INT: ("count", "score", "measure", "compute", "size_of", "value_of", "rate", "find"),
    CHAR: ("pick", "shift", "choose"),
    STR: ("convert", "encode", "clean", "build", "rewrite", "join", "make", "change"),
    INTS: ("collect", "select", "process", "build", "shift", "update", "trim"),
    WORDS: ("collect", "select", "split", "extract", "gather"),
    DICT: ("tally", "group", "count", "index", "build"),
    BOOL: ("is_valid", "check", "has", "accept", "matches"),
    TUPLE: ("split", "measure", "summarize", "analyze"),
}
SHORT_HELPERS = ("g", "h", "helper")

LETTERS = "aeiostrnlcdmpbghku"
VOWELS = "aeiou"
_WORDS = """
 ant ape art bag bat bear bed bird boat book box bus cake cap car cat city coin cow cup dog door
duck egg fan farm fig fish fox frog game gate goat hat hen ice ink jam jar key kite lake lamp leaf
lion map milk moon mud net nut oak owl pan park pea pear pen pig pin plum pot rain rat ring road
rose sand sea seed ship shoe sky snow sock star sun tea tent tree van wall web wind wolf wood yak
zebra zoo apple lemon mango melon peach level noon radar civic banana pepper letter hello
"""
WORD_LIST = tuple(_WORDS.split())
KEY_SETS = (
    ("a", "b", "c", "d"),
    ("x", "y", "z", "w"),
    ("ann", "bob", "cat", "dan"),
    ("fig", "pear", "plum", "kiwi"),
    ("red", "blue", "pink", "gray"),
)
SEPARATORS = (",", "-", ":", "_", "/")
