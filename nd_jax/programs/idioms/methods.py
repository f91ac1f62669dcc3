"""Methods of built-in types: a statement for each deterministic one of str, list, dict, set and int."""

from collections.abc import Callable

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import letter, number
from nd_jax.programs.idioms.values import (
    BOOL,
    BUSY,
    DICT,
    INT,
    INTS,
    LONGEST,
    STR,
    WORDS,
    Dice,
    Value,
    Weighted,
)
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS, LOCALS

Form = Callable[[Draft, Value], Value | None]
"""Writes a statement about a variable, leaves something unread; None where the variable does not suit."""


def _same(text: str) -> Form:
    """Give an expression of a string with another of the same length."""
    return lambda d, v: d.let(v._replace(text=text.format(v.text), flavour="any"))


def _test(text: str) -> Form:
    """Give an expression of a string with a truth."""

    def form(d: Draft, v: Value) -> Value:
        part = d.dice.pick((v.text, v.text, f"{v.text}[:2]", f"{v.text}[1:]"))
        return d.let(Value(text.format(part, letter(d, v)), BOOL))

    return form


def _shorter(text: str) -> Form:
    """Give an expression of a string and a letter with a string that may have lost some."""
    return lambda d, v: d.let(
        Value(text.format(v.text, letter(d, v), d.dice.pick(LETTERS)), STR, 0, v.hi, flavour=v.part_flavour)
    )


def _wider(method: str) -> Form:
    def form(d: Draft, v: Value) -> Value:
        width = d.number(5, 8, v.text)
        fill = "" if method == "zfill" else d.dice.pick(("", ", '*'", ", '-'", ", '.'"))
        text = f"{v.text}.{method}({width.text}{fill})"
        return d.let(Value(text, STR, max(v.lo, width.lo), max(v.hi, width.hi), flavour="any"))

    return form


def _position(method: str) -> Form:
    """Find a character that is certainly there."""

    def form(d: Draft, v: Value) -> Value | None:
        at = d.dice.pick((0, -1))
        text = f"{v.text}.{method}({v.text}[{at}])"
        return d.let(number(text, 0, v.hi - 1)) if v.lo >= 1 else None

    return form


def _place(method: str) -> Form:
    def form(d: Draft, v: Value) -> Value:
        return d.let(number(f"{v.text}.{method}({letter(d, v)!r})", 0 if method == "count" else -1, v.hi))

    return form


def _parts(method: str) -> Form:
    """Part a string at a letter; the separator itself is of no use."""

    def form(d: Draft, v: Value) -> Value:
        mark = v.separator or letter(d, v)
        one, two = d.spare(("head", "left", "before", "first")), d.spare(("tail", "right", "after", "rest"))
        d.line(f"{one}, _, {two} = {v.text}.{method}({mark!r})")
        piece = Value("", STR, 0, v.hi, flavour=v.part_flavour)
        d.bind(one, piece)
        return d.bind(two, piece)

    return form


def _split(method: str) -> Form:
    def form(d: Draft, v: Value) -> Value:
        mark = v.separator or letter(d, v)
        limit = ", 1" if method == "rsplit" else d.dice.pick(("", "", ", 1"))
        return d.let(
            Value(f"{v.text}.{method}({mark!r}{limit})", WORDS, 1, max(2, v.hi), 0, v.hi, v.part_flavour)
        )

    return form


def _lines(d: Draft, v: Value) -> Value:
    mark = v.separator or letter(d, v)
    text = f"{v.text}.replace({mark!r}, '\\n').splitlines()"
    return d.let(Value(text, WORDS, 0, max(2, v.hi), 0, v.hi, v.part_flavour))


def _encode(d: Draft, v: Value) -> Value | None:
    if v.lo < 1:
        return d.let(number(f"len({v.text}.encode())", v.lo, v.hi))
    data = d.spare(("data", "raw", "code"))
    d.put(data, Value(f"{v.text}.encode()", BUSY))
    text = d.dice.pick((f"{data}[0] % 10", f"sum({data}) % 10", f"{data}[-1] - {data}[0]"))
    return d.let(number(text, -99 if " - " in text else 0, 99 if " - " in text else 9))


def _format(d: Draft, v: Value) -> Value:
    template = d.dice.pick(("{}!", "<{}>", "{0}-{0}", "{:>6}", "{:<5}|", "{:^7}", "{!r}"))
    hi = 2 * v.hi + 1 if "0" in template else max(8, v.hi + 2)
    return d.let(Value(f"{template!r}.format({v.text})", STR, v.lo, hi, flavour="any"))


def _format_map(d: Draft, v: Value) -> Value:
    key = d.dice.pick(("name", "x", "key", "who"))
    template = d.dice.pick((f"{{{key}}}?", f"({{{key}}})", f"-{{{key}}}-"))
    text = f"{template!r}.format_map({{{key!r}: {v.text}}})"
    return d.let(Value(text, STR, v.lo + 1, v.hi + 2, flavour="any"))


def _translate(d: Draft, v: Value) -> Value:
    one, two = letter(d, v), d.dice.pick(LETTERS)
    olds = one if one == two else one + two
    news = "".join(d.dice.pick("xyz*-01") for _ in olds)
    table = d.spare(("table", "swaps", "trans"))
    d.put(table, Value(f"str.maketrans({olds!r}, {news!r})", BUSY))
    return d.let(v._replace(text=f"{v.text}.translate({table})", flavour="any"))


def _tabs(d: Draft, v: Value) -> Value:
    mark = d.dice.pick(("x", "!", "|"))
    text = f"({v.text} + '\\t{mark}').expandtabs(4)"
    return d.let(Value(text, STR, v.lo + 2, v.hi + 5, flavour="any"))


def _join(d: Draft, v: Value) -> Value | None:
    if v.hi > LONGEST // 2:
        return None
    mark = d.dice.pick("-.+_ ")
    return d.let(Value(f"{mark!r}.join({v.text})", STR, max(0, 2 * v.lo - 1), 2 * v.hi, flavour="any"))


_TESTS = ("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
          "isprintable", "isspace", "istitle", "isupper")  # fmt: skip
_ON_STR: dict[str, Form] = {
    **{name: _same(f"{{}}.{name}()") for name in
       ("capitalize", "casefold", "lower", "swapcase", "title", "upper")},
    **{name: _test(f"{{}}.{name}()") for name in _TESTS},
    **{name: _test(f"{{}}.{name}({{!r}})") for name in ("startswith", "endswith")},
    **{name: _shorter(f"{{}}.{name}({{!r}})") for name in
       ("lstrip", "rstrip", "strip", "removeprefix", "removesuffix")},
    **{name: _wider(name) for name in ("center", "ljust", "rjust", "zfill")},
    **{name: _position(name) for name in ("index", "rindex")},
    **{name: _place(name) for name in ("count", "find", "rfind")},
    **{name: _parts(name) for name in ("partition", "rpartition")},
    **{name: _split(name) for name in ("split", "rsplit")},
    "encode": _encode, "expandtabs": _tabs, "format": _format, "format_map": _format_map, "join": _join,
    "maketrans": _translate, "translate": _translate, "replace": _shorter("{}.replace({!r}, {!r})"),
    "splitlines": _lines,
}  # fmt: skip


def _int(text: str, lo: int | None = None, hi: int | None = None) -> Form:
    """Give an expression of an integer with another, of these bounds or its own."""

    def form(d: Draft, v: Value) -> Value | None:
        if v.lo < 0:
            return None
        return d.let(number(text.format(v.text), v.lo if lo is None else lo, v.hi if hi is None else hi))

    return form


def _ratio(d: Draft, v: Value) -> Value:
    top, bottom = d.spare(("top", "num", "p")), d.spare(("bottom", "den", "q"))
    d.line(f"{top}, {bottom} = {v.text}.as_integer_ratio()")
    d.bind(bottom, number("", 1, 1))
    return d.bind(top, number("", v.lo, v.hi))


def _to_bytes(d: Draft, v: Value) -> Value | None:
    if not 0 <= v.lo <= v.hi <= 99:
        return None
    size, order = d.dice.pick((1, 2, 2)), d.dice.pick(("big", "little"))
    return d.let(Value(f"list({v.text}.to_bytes({size}, {order!r}))", INTS, size, size, 0, v.hi))


def _from_bytes(d: Draft, v: Value) -> Value | None:
    if not 0 <= v.lo <= v.hi <= 99:
        return None
    other, order = d.dice.between(0, 3), d.dice.pick(("big", "little"))
    data = d.spare(("data", "raw"))
    d.put(data, Value(f"bytes([{v.text}, {other}])", BUSY))
    return d.let(number(f"int.from_bytes({data}, {order!r}) % 100", 0, 99))


_ON_INT: dict[str, Form] = {
    "bit_length": _int("{}.bit_length()", 0, 7),
    "bit_count": _int("{}.bit_count()", 0, 7),
    "conjugate": _int("{}.conjugate()"),
    "as_integer_ratio": _ratio,
    "to_bytes": _to_bytes,
    "from_bytes": _from_bytes,
}


def _item(d: Draft, v: Value) -> Value:
    """Choose an item of the kind that a list has."""
    if v.type == INTS:
        return d.number(0, 9, v.text)
    return Value(repr(d.dice.pick((*LETTERS[:8], "-", "end"))), STR, 1, 3)


def _grown(method: str, text: str) -> Form:
    """Give a list one more item."""

    def form(d: Draft, v: Value) -> Value | None:
        if v.hi >= LONGEST // 2:
            return None
        item = _item(d, v)
        after = v._replace(lo=v.lo + 1, hi=v.hi + 1, item_lo=min(v.item_lo, item.lo),
                           item_hi=max(v.item_hi, item.hi), flavour="any")  # fmt: skip
        return d.change(v, f"{v.text}.{method}({text.format(item.text)})", after)

    return form


def _list_pop(d: Draft, v: Value) -> Value | None:
    if v.lo < 2:
        return None
    kind = INT if v.type == INTS else STR
    popped = d.put(
        d.spare(("last", "item", "top")),
        Value(f"{v.text}.pop({d.dice.pick(('', '', '0'))})", kind, v.item_lo, v.item_hi, flavour=v.flavour),
    )
    d.bind(v.text, v._replace(lo=v.lo - 1, hi=v.hi - 1))
    return popped


def _list_remove(d: Draft, v: Value) -> Value | None:
    if v.lo < 1:
        return None
    which = d.dice.pick((f"max({v.text})", f"min({v.text})", f"{v.text}[0]"))
    return d.change(v, f"{v.text}.remove({which})", v._replace(lo=v.lo - 1, hi=v.hi - 1))


def _list_copy(d: Draft, v: Value) -> Value:
    copied = d.let(v._replace(text=f"{v.text}.copy()"))
    changed = d.dice.pick((f"{copied.text}.reverse()", f"{copied.text}.sort()"))
    after = d.change(copied, changed, copied)
    d.bind(v.text, v)  # the original is of use too
    return after


def _clear(d: Draft, v: Value) -> Value:
    with d.block(f"if {condition(d, v)}:"):
        d.line(f"{v.text}.clear()")
    return d.bind(v.text, v._replace(lo=0))


def _list_count(d: Draft, v: Value) -> Value | None:
    item = f"{v.text}[{d.dice.pick((0, -1))}]" if v.lo >= 1 else _item(d, v).text
    return d.let(number(f"{v.text}.count({item})", 0, v.hi))


def _list_index(d: Draft, v: Value) -> Value | None:
    if v.lo < 1:
        return None
    which = d.dice.pick((f"max({v.text})", f"min({v.text})", f"{v.text}[-1]"))
    return d.let(number(f"{v.text}.index({which})", 0, v.hi - 1))


_ON_LIST: dict[str, Form] = {
    "append": _grown("append", "{}"),
    "extend": _grown("extend", "[{}]"),
    "insert": _grown("insert", "0, {}"),
    "reverse": lambda d, v: d.change(v, f"{v.text}.reverse()", v),
    "sort": lambda d, v: d.change(v, f"{v.text}.sort({d.dice.pick(('', '', 'reverse=True'))})", v),
    "pop": _list_pop, "remove": _list_remove, "copy": _list_copy, "clear": _clear, "count": _list_count,
    "index": _list_index,
}  # fmt: skip


def _key(d: Draft, v: Value) -> str:
    return repr(d.dice.pick(KEY_SETS[int(v.flavour)] if v.flavour.isdigit() else ("a", "b", "x")))


def _dict_entry(text: str) -> Form:
    """Write a statement that may add an entry."""

    def form(d: Draft, v: Value) -> Value:
        c = d.number(0, 9, v.text)
        after = v._replace(hi=v.hi + 1, item_lo=min(v.item_lo, c.lo), item_hi=max(v.item_hi, c.hi))
        return d.change(v, text.format(v.text, _key(d, v), c.text), after)

    return form


def _dict_value(text: str) -> Form:
    """Write an expression that looks an entry up, or a default."""
    return lambda d, v: d.let(number(text.format(v.text, _key(d, v)), min(0, v.item_lo), max(0, v.item_hi)))


def _dict_pop(d: Draft, v: Value) -> Value:
    made = _dict_value("{}.pop({}, 0)")(d, v)
    d.bind(v.text, v._replace(lo=max(0, v.lo - 1)))
    assert made is not None
    return made


def _dict_popitem(d: Draft, v: Value) -> Value | None:
    if v.lo < 1:
        return None
    key, value = d.spare(("key", "k", "name")), d.spare(("value", "val", "amount"))
    d.line(f"{key}, {value} = {v.text}.popitem()")
    d.bind(v.text, v._replace(lo=v.lo - 1, hi=v.hi - 1))
    d.bind(key, Value("", STR, 1, 4, flavour="word"))
    return d.bind(value, number("", v.item_lo, v.item_hi))


def _dict_copy(d: Draft, v: Value) -> Value:
    copied = d.let(v._replace(text=f"{v.text}.copy()"))
    c = d.number(0, 9, v.text)
    wider = copied._replace(hi=v.hi + 1, item_lo=min(v.item_lo, c.lo), item_hi=max(v.item_hi, c.hi))
    after = d.change(copied, f"{copied.text}[{_key(d, v)}] = {c.text}", wider)
    d.bind(v.text, v)
    return after


def _fromkeys(d: Draft, v: Value) -> Value:
    start = d.dice.pick((0, 0, 1))
    return d.let(Value(f"dict.fromkeys({v.text}, {start})", DICT, v.lo, v.hi, start, start, "any"))


def _dict_items(d: Draft, v: Value) -> Value:
    key, value = d.spare(("k", "key", "name")), d.spare(("n", "x", "val"))
    limit = d.dice.between(v.item_lo, v.item_hi)
    text = f"[{key} for {key}, {value} in {v.text}.items() if {value} {d.dice.pick('><')} {limit}]"
    return d.let(Value(text, WORDS, 0, v.hi, 1, 4, "word"))


def _dict_keys(d: Draft, v: Value) -> Value:
    return d.let(
        Value(f"{d.dice.pick(('list', 'sorted'))}({v.text}.keys())", WORDS, v.lo, v.hi, 1, 4, "word")
    )


def _dict_values(d: Draft, v: Value) -> Value:
    text = f"{d.dice.pick(('list', 'sorted'))}({v.text}.values())"
    return d.let(Value(text, INTS, v.lo, v.hi, v.item_lo, v.item_hi))


_ON_DICT: dict[str, Form] = {
    "get": _dict_value("{}.get({}, 0)"),
    "pop": _dict_pop, "popitem": _dict_popitem, "copy": _dict_copy, "clear": _clear, "fromkeys": _fromkeys,
    "setdefault": _dict_entry("{}.setdefault({}, {})"),
    "update": _dict_entry("{}.update({{{}: {}}})"),
    "items": _dict_items, "keys": _dict_keys, "values": _dict_values,
}  # fmt: skip

_COMBINE = ("union", "intersection", "difference", "symmetric_difference")
_UPDATE = ("update", "intersection_update", "difference_update", "symmetric_difference_update")
_COMPARE = ("isdisjoint", "issubset", "issuperset")
_ALONE = ("add", "discard", "remove", "pop", "copy", "clear")
_ON_SET = (*_COMBINE, *_UPDATE, *_COMPARE, *_ALONE)


def set_method(d: Draft, v: Value, method: str) -> Value:
    """Make a set of a list of integers or of a string, call its method, leave a list, number or truth."""
    seen = d.put(d.spare(("seen", "unique", "found", "items")), Value(f"set({v.text})", BUSY)).text
    if v.type == INTS:
        item, items = str(d.dice.between(v.item_lo, v.item_hi)), INTS
        few = sorted({d.dice.between(v.item_lo, v.item_hi) for _ in range(3)})
        other = f"{{{', '.join(map(str, few))}}}"
    else:
        item, items = repr(letter(d, v)), WORDS
        other = f"set({''.join(sorted({letter(d, v), *(d.dice.pick(LETTERS[:7]) for _ in range(2))}))!r})"
    if method in (*_COMBINE, *_UPDATE, *_COMPARE) and d.dice.chance(0.7):
        other = d.put(d.spare(("other", "allowed", "wanted", "common")), Value(other, BUSY)).text
    bounds = (0, v.hi + 3, min(0, v.item_lo), max(9, v.item_hi)) if items == INTS else (0, v.hi + 3, 1, 1)
    if method in _COMPARE:
        return d.let(Value(f"{seen}.{method}({other})", BOOL))
    if method in _COMBINE:
        return d.let(Value(f"sorted({seen}.{method}({other}))", items, *bounds, "any"))
    if method in _UPDATE:
        d.line(f"{seen}.{method}({other})")
    elif method == "copy":
        rest = d.put(d.spare(("rest", "more")), Value(f"{seen}.copy()", BUSY)).text
        d.line(f"{rest}.add({item})")
        return d.let(number(f"len({rest}) - len({seen})", 0, 1))
    elif method == "pop":  # of integers or of one item: the only ones whose first does not depend on hashes
        if items == INTS and v.lo >= 1:
            return d.let(number(f"{seen}.pop()", v.item_lo, v.item_hi))
        with d.block(f"if len({seen}) == 1:"):
            d.line(f"{seen}.pop()")
    elif method == "remove":
        with d.block(f"if {item} in {seen}:"):
            d.line(f"{seen}.remove({item})")
    elif method == "clear":
        with d.block(f"if len({seen}) > {max(1, v.hi - 2)}:"):
            d.line(f"{seen}.clear()")
    else:
        d.line(f"{seen}.{method}({item})")
    text = d.dice.pick((f"sorted({seen})", f"len({seen})"))
    if text.startswith("len"):
        return d.let(number(text, 0, v.hi + 3))
    return d.let(Value(text, items, *bounds, "any"))


_ON: dict[str, dict[str, Form]] = {
    "str": _ON_STR,
    "int": _ON_INT,
    "list": _ON_LIST,
    "dict": _ON_DICT,
}
METHODS = (*(f"{kind}.{name}" for kind, forms in _ON.items() for name in forms),
           *(f"set.{name}" for name in _ON_SET))  # fmt: skip
"""Every deterministic method of the five types that Python 3.11 to 3.13 have: ``"str.center"`` ..."""

_RECEIVERS: dict[str, tuple[str, ...]] = {
    "str": (STR,),
    "int": (INT,),
    "list": (INTS, WORDS),
    "dict": (DICT,),
    "set": (INTS, STR),
}


class MethodChoice:
    """Draws methods by weight."""

    def __init__(self, weights: tuple[float, ...]) -> None:
        """Take a weight for each of `METHODS`."""
        pairs = [(name, weight) for name, weight in zip(METHODS, weights, strict=True) if weight > 0]
        self._all = Weighted(*pairs)

    def draw(self, dice: Dice) -> tuple[str, str]:
        """Draw a type and a method of it."""
        kind, _, name = dice.draw(self._all).partition(".")
        return kind, name


def call_methods(d: Draft, choice: MethodChoice, times: int) -> None:
    """Write calls of methods, each on what the last one left where that suits, else on an input."""
    left: Value | None = None
    for _ in range(times):
        kind, method = choice.draw(d.dice)
        suits = _RECEIVERS[kind]
        v = left if left is not None and left.type in suits else None
        v = v if v is not None and v.hi <= LONGEST else d.want(d.dice.pick(suits))
        if v is None:
            continue
        if kind == "set":
            left = set_method(d, v, method)
        else:
            left = _ON[kind][method](d, v) or left
    if left is None and not d.waiting():
        v = d.want(STR)
        assert v is not None
        d.put(d.spare(LOCALS[STR]), v._replace(text=f"{v.text}.strip()", lo=0))
