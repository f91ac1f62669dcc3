"""Work with dicts and sets: grouping, inverting, merging, what comes twice."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import BUSY, DICT, INT, INTS, STR, WORDS, Value
from nd_jax.programs.idioms.words import ITEMS


def table_work(d: Draft) -> None:
    """Write one piece of work with a dict or a set."""
    d.dice.pick((_group, _group, _invert, _merge, _twice, _twice, _common, _select))(d)


def _items(d: Draft, *kinds: str) -> tuple[Value, Value]:
    v = d.want(d.dice.pick(kinds))
    assert v is not None
    kind = INT if v.type == INTS else STR
    size = (1, 1) if v.type == STR else (v.item_lo, v.item_hi)
    return v, Value(d.spare(ITEMS[kind]), kind, *size, flavour=v.flavour)


def _group(d: Draft) -> None:
    v, item = _items(d, WORDS, INTS, WORDS)
    groups, x = d.spare(("groups", "table", "by_key", "buckets")), item.text
    keys = (
        (f"len({x})", f"{x}[:1]", f"{x}[-1:]") if item.type == STR else (f"{x} % 2", f"{x} % 3", f"{x} > 3")
    )
    key = d.dice.pick(keys)
    d.put(groups, Value("{}", BUSY))
    with d.block(f"for {x} in {v.text}:"):
        if d.dice.chance(0.5):
            d.line(f"{groups}.setdefault({key}, []).append({x})")
        else:
            k = d.put(d.spare(("key", "k")), Value(key, BUSY)).text
            with d.block(f"if {k} not in {groups}:"):
                d.line(f"{groups}[{k}] = []")
            d.line(f"{groups}[{k}].append({x})")
    k, many = d.spare(("g", "kind", "name")), d.spare(("members", "xs", "group"))
    match d.dice.between(0, 3):
        case 0:
            d.let(number(f"max(len({many}) for {many} in {groups}.values())", 1, v.hi) if v.lo
                  else number(f"len({groups})", 0, v.hi))  # fmt: skip
        case 1:
            d.let(Value(f"sorted(len({many}) for {many} in {groups}.values())", INTS, 0, v.hi, 1, v.hi))
        case 2:
            d.let(Value(f"[str({k}) for {k} in sorted({groups})]", WORDS, 0, v.hi, 1, 5, "any"))
        case _:
            text = f"{{str({k}): len({many}) for {k}, {many} in {groups}.items()}}"
            d.let(Value(text, DICT, 0, v.hi, 1, v.hi, "any"))


def _invert(d: Draft) -> None:
    v = d.want(DICT)
    assert v is not None
    k, n = d.spare(("k", "key", "name")), d.spare(("v", "n", "val"))
    back = d.spare(("inverse", "by_value", "names"))
    if d.dice.chance(0.5):
        d.line(f"{back} = {{{n}: {k} for {k}, {n} in {v.text}.items()}}")
    else:
        d.put(back, Value("{}", BUSY))
        with d.block(f"for {k}, {n} in {v.text}.items():"):
            if d.dice.chance(0.5):
                with d.block(f"if {n} not in {back}:"):
                    d.line(f"{back}[{n}] = {k}")
            else:
                d.line(f"{back}[{n}] = {k}")
    d.let(Value(f"[{back}[{n}] for {n} in sorted({back})]", WORDS, v.lo and 1, v.hi, 1, 4, "word"))


def _merge(d: Draft) -> None:
    v, w = d.want(DICT), None
    assert v is not None
    if d.may_ask:
        w = d.enter(v._replace(text=""))
    if w is None:
        d.let(v._replace(text=f"{{**{v.text}, 'x': {d.dice.between(0, 5)}}}", hi=v.hi + 1, item_lo=0))
        return
    both = v._replace(hi=v.hi + w.hi, item_lo=min(0, v.item_lo), item_hi=v.item_hi + w.item_hi, flavour="any")
    k = d.spare(("k", "key", "name"))
    match d.dice.between(0, 3):
        case 0:
            d.let(both._replace(text=f"{{**{v.text}, **{w.text}}}"))
        case 1:
            value = f"{v.text}[{k}] {d.dice.pick('+-')} {w.text}.get({k}, 0)"
            text = f"{{{k}: {value} for {k} in {v.text}}}"
            d.let(both._replace(text=text, item_lo=v.item_lo - w.item_hi))
        case 2:
            sign = d.dice.pick(("&", "|", "-", "^"))
            text = f"sorted({v.text}.keys() {sign} {w.text}.keys())"
            d.let(Value(text, WORDS, 0, v.hi + w.hi, 1, 4, "word"))
        case _:
            with d.block(f"for {k} in {w.text}:"):
                d.line(f"{v.text}[{k}] = {v.text}.get({k}, {d.dice.between(0, 2)}) + {w.text}[{k}]")
            d.bind(v.text, both)


def _twice(d: Draft) -> None:
    v, item = _items(d, INTS, WORDS, STR)
    seen, out, x = d.spare(("seen", "known", "done")), d.spare(("out", "result", "repeated")), item.text
    d.put(seen, Value("set()", BUSY))
    items = INTS if item.type == INT else WORDS
    d.put(out, Value("[]", BUSY))
    made = expression(d, item, item.type) if d.dice.chance(0.4) else item
    repeated = d.dice.chance(0.5)
    with d.block(f"for {x} in {v.text}:"):
        if repeated:
            with d.block(f"if {x} in {seen}:"):
                d.line(f"{out}.append({made.text})")
            d.line(f"{seen}.add({x})")
        else:
            with d.block(f"if {x} not in {seen}:"):
                d.line(f"{seen}.add({x})")
                d.line(f"{out}.append({made.text})")
    d.bind(out, Value("", items, 0, v.hi, made.lo, made.hi, made.flavour))


def _common(d: Draft) -> None:
    kind = d.dice.pick((INTS, STR))
    v = d.want(kind)
    assert v is not None
    w = d.enter(v._replace(text="")) if d.may_ask else v
    sign = d.dice.pick("&|-^")
    items, size = (INTS, (v.item_lo, v.item_hi)) if kind == INTS else (WORDS, (1, 1))
    common = d.spare(("common", "both", "diff", "shared"))
    d.put(common, Value(f"set({v.text}) {sign} set({w.text})", BUSY))
    match d.dice.between(0, 2):
        case 0:
            d.let(number(f"len({common})", 0, 2 * v.hi))
        case 1 if kind == STR:
            d.let(Value(f"''.join(sorted({common}))", STR, 0, 2 * v.hi, flavour=v.part_flavour))
        case _:
            d.let(Value(f"sorted({common})", items, 0, 2 * v.hi, *size, v.part_flavour))


def _select(d: Draft) -> None:
    v, item = _items(d, INTS, WORDS)
    x = item.text
    made = expression(d, item, INT)
    chosen = d.spare(("chosen", "squares", "values", "marks"))
    if d.dice.chance(0.5):
        d.put(chosen, Value(f"{{{made.text} for {x} in {v.text} if {condition(d, item)}}}", BUSY))
        d.let(Value(f"sorted({chosen})", INTS, 0, v.hi, made.lo, made.hi))
    else:
        key = x if item.type == STR else f"str({x})"
        text = f"{{{key}: {made.text} for {x} in {v.text} if {condition(d, item)}}}"
        d.let(Value(text, DICT, 0, v.hi, made.lo, made.hi, "any"))
