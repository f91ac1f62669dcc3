"""Which programs others may follow in one process: those whose text shows no way to what they share.

After everything that is not known to be harmless a process ends, which costs milliseconds: reflection,
built-ins that run or reach for anything, and of modules all but a list of names that hand out neither other
modules nor state that outlives the program (no ``copy._deepcopy_dispatch``, no ``Sequence.register``, no
``operator.attrgetter``, no ``typing.get_type_hints``, which evaluates text). `nd_jax.tracing.worker` compares
the interpreter after each run all the same.
"""

import ast
import re
import unicodedata
from collections.abc import Sequence

from nd_jax.programs.syntax import parse

_REACHES_OUT = re.compile(
    r"""\b(?:exec|eval|(?<!\bre\.)compile|open|globals|locals|vars|getattr|setattr|delattr|breakpoint
        |memoryview|register|(?:gi|cr|ag)_\w+|tb_frame|tb_next)\b""",
    re.VERBOSE,
)
_DUNDER = re.compile(r"\w*__\w*")
_OWN_METHODS = frozenset(
    f"__{name}__"
    for name in ("init", "repr", "str", "eq", "ne", "lt", "le", "gt", "ge", "hash", "len", "iter", "next",
                 "getitem", "setitem", "contains", "add", "sub", "mul", "call", "bool", "enter", "exit",
                 "name", "main", "post_init")
)  # fmt: skip
# Of these a program can make objects that pass for a key of the caches which modules keep (re's, typing's):
# classes with such methods, and classes made by a call, whose methods' names may be computed.
_PASSES_FOR_OTHERS = re.compile(r"__(?:eq|hash)__")
_ENUMS = frozenset(
    {"Enum", "Flag", "IntEnum", "IntFlag"}
)  # harmless as a base class only, as is `type` never

# What a module hands out that neither leads elsewhere nor lives on.
_SAFE_NAMES = {
    module: frozenset(names.split())
    for module, names in {
        "abc": "ABC abstractmethod",
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "cmath": "acos asin atan cos cosh e exp inf isinf isnan log log10 nan phase pi polar rect sin sinh "
                 "sqrt tan tanh tau",
        "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque "
                       "namedtuple",
        "collections.abc": "Callable Collection Container Generator Hashable Iterable Iterator Mapping "
                           "MutableMapping MutableSequence MutableSet Sequence Set Sized",
        "copy": "copy deepcopy",
        "dataclasses": "asdict astuple dataclass field fields replace",
        "enum": "Enum Flag IntEnum IntFlag auto unique",
        "fractions": "Fraction",
        "functools": "cache cached_property cmp_to_key lru_cache partial reduce total_ordering",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle "
                     "dropwhile filterfalse groupby islice pairwise permutations product repeat starmap "
                     "takewhile tee zip_longest",
        "math": "acos acosh asin asinh atan atan2 atanh ceil comb copysign cos cosh degrees dist e erf exp "
                "expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf "
                "isnan isqrt lcm ldexp log log10 log1p log2 modf nan perm pi pow prod radians remainder sin "
                "sinh sqrt tan tanh tau trunc",
        "operator": "add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert "
                    "itemgetter le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv "
                    "truth xor",
        "re": "A ASCII DOTALL I IGNORECASE M MULTILINE S VERBOSE X compile escape findall finditer "
              "fullmatch match search split sub subn",
        "string": "ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits "
                  "printable punctuation whitespace",
        "typing": "Any Callable ClassVar DefaultDict Deque Dict Final FrozenSet Generator Generic Hashable "
                  "Iterable Iterator List Literal Mapping NamedTuple NoReturn Optional Protocol Sequence "
                  "Set Sized Tuple Type TypeVar TypedDict Union cast",
    }.items()
}  # fmt: skip


def may_share(texts: Sequence[str]) -> bool:
    """Tell whether others may run after a program in its process.

    Args:
      texts: its module's source, then expressions that run in the module's namespace.
    """
    whole = "\n".join(texts)
    if not unicodedata.is_normalized("NFKC", whole):  # ``ｅｖａｌ`` is a name for eval too
        return False
    if _REACHES_OUT.search(whole):
        return False
    if "__" in whole and not _OWN_METHODS.issuperset(_DUNDER.findall(whole)):
        return False
    return "import" not in whole or _imports_safely(texts)


def _imports_safely(texts: Sequence[str]) -> bool:
    source, *expressions = texts
    trees = [parse(source), *(parse(f"_(\n{text}\n)") for text in expressions)]
    nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
    modules: dict[str, str] = {}
    for node in nodes:
        match node:
            case ast.Import(names=names):
                modules.update({alias.asname or alias.name: alias.name for alias in names})
            case ast.ImportFrom(module=module, names=names, level=level):
                safe = _SAFE_NAMES.get(module or "", frozenset())
                if level or any(
                    alias.name not in safe or (alias.asname and alias.name in _ENUMS) for alias in names
                ):
                    return False
    return (
        None not in trees
        and _SAFE_NAMES.keys() >= set(modules.values())
        and not any("." in name for name in modules)
        and _uses_safely(nodes, modules)
        and not any(map(_PASSES_FOR_OTHERS.search, texts))
    )


def _uses_safely(nodes: Sequence[ast.AST], modules: dict[str, str]) -> bool:
    """Tell whether of modules only safe names are read, and no class is renamed or made of computed names."""
    seen: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name) as module, attr=attribute, ctx=ast.Load()):
                if attribute in _SAFE_NAMES.get(modules.get(name, ""), ()):
                    seen.add(module)
            case ast.Attribute(attr=attribute, ctx=ast.Store() | ast.Del()) if attribute.startswith("__"):
                return False
            case ast.ClassDef(bases=bases):
                seen.update(bases)
    for node in nodes:
        match node:
            case ast.Name(id="type"):
                return False
            case ast.Name(id=name) if (name in modules or name in _ENUMS) and node not in seen:
                return False
            case ast.Attribute(attr=name) if name in _ENUMS and node not in seen:
                return False
    return True
