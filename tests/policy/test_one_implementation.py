"""One implementation: no delay is worked out, and no jitter drawn, anywhere but in `policy/`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import grpc_backoff

PACKAGE = Path(grpc_backoff.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
OUTSIDE = sorted(module for module in SOURCES if not module.startswith("policy/"))

EXCEPTIONS = {
    # (module, function or name where it stands, what stands there): why it is no delay formula
    ("cli/demo/script.py", "OPTIONS", "INITIAL_BACKOFF * 1000"): "seconds to milliseconds, for grpc's option",
    (
        "simulation.py",
        "_draw_from",
        "rng.random()",
    ): "the numbers of a whole fleet, which the policy's windows turn into waits",
}

GROWING = {
    "pow",
    "float_power",
    "power",
    "exp",
    "exp2",
    "expm1",
    "ldexp",
    "logspace",
    "geomspace",
    "cumprod",
    "accumulate",
}
"""Functions that raise something to a power, or multiply again and again."""

DRAWING = {
    *("random", "uniform", "triangular", "randint", "randrange", "getrandbits", "randbytes", "choices", "sample"),
    *("gauss", "normalvariate", "lognormvariate", "expovariate", "betavariate", "gammavariate", "paretovariate"),
    *("vonmisesvariate", "weibullvariate", "binomialvariate", "randbelow", "urandom", "token_bytes", "uuid4"),
    *("integers", "normal", "standard_normal", "exponential", "standard_exponential", "lognormal", "beta", "gamma"),
    *("rand", "randn", "random_sample", "shuffle", "permutation"),
}
"""Methods of Python's and numpy's random generators that draw, and the other ways to a number that nobody knows."""

OF_BACKOFF = re.compile(r"backoff|delay|jitter|multiplier|gap|wait|retr(y|ies)|attempt(?!s)", re.IGNORECASE)
"""What numbers are called that have to do with backoff."""


def names_in(node):
    return [
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    ]


def is_formula(node):
    """Return whether a node of a syntax tree is what a delay formula is made of."""
    match node:
        case ast.BinOp(op=ast.Pow() | ast.LShift()):
            return bool(names_in(node))  # of numbers alone it is one more number
        case ast.AugAssign(op=ast.Pow() | ast.LShift()):
            return True
        case ast.BinOp(op=ast.Mult()) | ast.AugAssign(op=ast.Mult()):
            return any(OF_BACKOFF.search(name) for name in names_in(node))
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in GROWING | DRAWING
    return False


def formulas(source):
    """Return (where, what) of everything in a module's code that a delay could be worked out or drawn by.

    Where is the innermost function, or else the class or the name at the module's top.
    """

    def look(node, where):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = node.name
        if is_formula(node):
            yield where, shown(node)
        for child in ast.iter_child_nodes(node):
            yield from look(child, where)

    for statement in ast.parse(source).body:
        name = getattr(statement, "name", None) or ast.unparse(getattr(statement, "targets", [statement])[0])
        yield from look(statement, name.partition(":")[0])


def shown(node):
    return f"{ast.unparse(node.func)}()" if isinstance(node, ast.Call) else ast.unparse(node)


@pytest.mark.parametrize("module", OUTSIDE)
def test_no_second_implementation(module):
    """BP-3: no power, no drawn number and no multiplied backoff outside `policy/`, but for known exceptions."""
    found = {(module, where, what) for where, what in formulas(SOURCES[module])}

    assert found - set(EXCEPTIONS) == set()


def test_exceptions_are_needed():
    """BP-3: an exception goes when what it excuses does."""
    found = {(module, where, what) for module in OUTSIDE for where, what in formulas(SOURCES[module])}

    assert set(EXCEPTIONS) <= found


def test_policy_has_them():
    """BP-3: the search finds the one implementation that there is: growth, and the few places where chance comes in."""
    found = {(module, what) for module in SOURCES for _, what in formulas(SOURCES[module]) if module not in OUTSIDE}

    assert ("policy/strategy.py", "multiplier ** times") in found
    drawing = {"policy/backoff.py", "policy/connect.py", "policy/retry.py"}
    assert {module for module, what in found if what == "rng.random()"} == drawing


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("def f(n): return 1.6 ** n", "f", "1.6 ** n"),
        ("def f(n): return 2 ** (n - 1) * 1000", "f", "2 ** (n - 1)"),
        ("def f(n):\n    def g(): return 1 << n\n    return g", "g", "1 << n"),
        ("def f(b):\n    b **= 2", "f", "b **= 2"),
        ("def f(b):\n    b <<= 1", "f", "b <<= 1"),
        ("async def f(n): return pow(2, n)", "f", "pow()"),
        ("import math\nclass A:\n    def f(self, n): return math.pow(2, n)", "f", "math.pow()"),
        ("f = lambda n: np.exp2(n)", "f", "np.exp2()"),
        ("WAITS = np.geomspace(1, 32, 6)", "WAITS", "np.geomspace()"),
        ("def f(waits): return itertools.accumulate(waits, mul)", "f", "itertools.accumulate()"),
        ("class A:\n    def g(self): return self.rng.uniform(0, 1)", "g", "self.rng.uniform()"),
        ("class A:\n    B = random.random()", "A", "random.random()"),
        ("x: float = rng.gauss(0, 1)", "x", "rng.gauss()"),
        ("def f(r): return r.expovariate(1)", "f", "r.expovariate()"),
        ("def f(r): return r.integers(5)", "f", "r.integers()"),
        ("from random import uniform\ndef f(): return uniform(0, 1)", "f", "uniform()"),
        ("def f(self):\n    self.backoff *= 2", "f", "self.backoff *= 2"),
        ("def f(delay): return min(delay * 2, 30)", "f", "delay * 2"),
        ("def f(p): return 3 * p.policy.Jitter", "f", "3 * p.policy.Jitter"),
        ("def f(a): return a.step * a.retry_number", "f", "a.step * a.retry_number"),
        ("def f(base, attempt): return base * attempt", "f", "base * attempt"),
        ("def f(gap): return (gap + 1) * 2", "f", "(gap + 1) * 2"),
        ("LARGEST = 2**31 - 1", "LARGEST", None),
        ("BLOCK = 1 << 16", "BLOCK", None),
        ("def f(**rest): return g(**rest)", "f", None),
        ("def f(delay): return delay + 1, delay / 1000, max(delay, 20)", "f", None),
        ("def f(): return random.Random(4), text.expand(), click.Choice('a')", "f", None),
        ("def f(width): 'delay * 2 ** n'; return width * 3  # 2 ** n", "f", None),
        ("def f(*delays): return g(*delays)", "f", None),
        ("def f(log): return log.attempts * log.resolution", "f", None),
    ],
)
def test_the_search_finds(source, where, what):
    """BP-3: the search sees growth, chance and multiplied backoffs however they are written, and nothing else."""
    assert list(formulas(source)) == ([] if what is None else [(where, what)])
