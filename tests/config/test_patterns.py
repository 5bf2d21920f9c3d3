"""Which of several names is the best match."""

from __future__ import annotations

from itertools import product

import pytest

from grpc_backoff.config.call_policies import nearest_entry
from grpc_backoff.config.patterns import check_methods, first_pattern, unreachable
from grpc_backoff.errors import OptionError
from tests.texts import exactly

PATTERNS = ["shop.example:443", "*.example:443", "shop.*:443", "*:443", "dns:///*", "unix:*", "a*b*c", "*"]


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("localhost:50051", "*"),
        ("localhost:443", "*:443"),
        ("a.example:443", "*.example:443"),
        (".example:443", "*.example:443"),
        ("example:443", "*:443"),
        ("shop.a:443", "shop.*:443"),
        ("shop.example:443", "shop.example:443"),
        ("dns:///shop.example:443", "*.example:443"),
        ("dns:///shop.example", "dns:///*"),
        ("unix:/tmp/a", "unix:*"),
        ("abc", "a*b*c"),
        ("a-b-b-c", "a*b*c"),
        ("acb", "*"),
        ("a\nbc", "a*b*c"),
        ("", "*"),
    ],
)
def test_first_pattern(target, pattern):
    """BP-3: of the patterns that match the whole target, the first one applies."""
    assert first_pattern(PATTERNS, target) == pattern
    assert first_pattern(PATTERNS[::-1], target) == "*"


@pytest.mark.parametrize("target", ["axb", "AxB", "a.", ".", "xa.b"])
def test_no_pattern(target):
    """BP-3: every character except `*` matches only itself, and a pattern must match the whole target."""
    assert first_pattern(["a.b", "a?b", "[a]xb", "a.", "x"], target) == ("a." if target == "a." else None)


def test_many_stars():
    """BP-3: matching a pattern with many `*` takes little time; trying all combinations would never finish."""
    assert first_pattern(["*" + "a*" * 40 + "b"], "a" * 400) is None
    assert first_pattern(["*" + "a*" * 40 + "b"], "a" * 400 + "b") is not None
    assert list(unreachable(["*" + "a*" * 40 + "b", "*" + "a*" * 40 + "c"])) == []


def fits(pattern, target):
    """Return whether a pattern matches, using the simplest algorithm."""
    if not pattern:
        return not target
    if pattern[0] == "*":
        return any(fits(pattern[1:], target[skipped:]) for skipped in range(len(target) + 1))
    return target[:1] == pattern[0] and fits(pattern[1:], target[1:])


every = ["".join(letters) for length in range(5) for letters in product("ab*", repeat=length)]
targets = ["".join(letters) for length in range(9) for letters in product("ab", repeat=length)]


@pytest.mark.parametrize("pattern", every)
def test_fits(pattern):
    """BP-3: a pattern matches the same short targets as with the simplest algorithm."""
    assert [target for target in targets if first_pattern([pattern], target) is not None] == [
        target for target in targets if fits(pattern, target)
    ]


def test_unreachable():
    """BP-3: a pattern is unreachable if one pattern before it matches all its targets. Checks all short patterns."""
    letters = ["".join(letters) for length in range(6) for letters in product("abc", repeat=length)]
    fitting = {pattern: {target for target in letters if fits(pattern, target)} for pattern in every}
    wrong = [
        (one, other)
        for one, other in product(every, repeat=2)
        if one != other and bool(list(unreachable([one, other]))) != (fitting[other] <= fitting[one])
    ]

    assert wrong == []
    assert len(every) == 121


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ([], []),
        (PATTERNS, []),
        (["a*", "*b"], []),
        (["*", "a", "b*"], [("a", "*"), ("b*", "*")]),
        (["*.example", "shop.*", "shop.*ple", "a.example"], [("shop.*ple", "shop.*"), ("a.example", "*.example")]),
    ],
)
def test_which_is_unreachable(patterns, found):
    """BP-4: each unreachable pattern is reported with the first one that covers it."""
    assert list(unreachable(patterns)) == found


@pytest.mark.parametrize(
    ("method", "entry"),
    [
        ("shop.Orders/Place", "shop.Orders/Place"),
        ("/shop.Orders/Place", "shop.Orders/Place"),
        ("shop.Orders/Cancel", "shop.Orders"),
        ("shop.Orders", "shop.Orders"),
        ("shop.Order/Place", "*"),
        ("shop/Place", "*"),
        ("", "*"),
    ],
)
def test_nearest_entry(method, entry):
    """BP-3: a method's own entry applies, else its service's, else the entry for all methods."""
    assert nearest_entry({name: name for name in ("*", "shop.Orders", "shop.Orders/Place")}, method) == entry


def test_no_method():
    """BP-3: a method may have no entry if there is none for all methods."""
    assert nearest_entry({"shop.Orders": 1}, "shop.Carts/Add") is None
    assert nearest_entry({}, "shop.Carts/Add") is None


@pytest.mark.parametrize("entry", ["*", "Echo", "Echo/Unary", "a.b.C", "a.b.C/D", "_a1.B_/_c9"])
def test_method_names(entry):
    """BP-3: an entry may name a method, a service, or all methods."""
    check_methods("methods", [entry])


@pytest.mark.parametrize(
    "entry",
    [
        *("", "/", "/a.B/C", "a.B/", "a.B/C/D", "a.B/*", "a.*", "**", "a b/C", "5a/B", "ä/B", ".a/B"),
        *(5, None, b"a.B/C", ("a.B", "C"), True),
    ],
)
def test_bad_method_names(entry):
    """BP-4, CH-10: an entry that is neither a method, a service nor `*` is rejected, and so is one that is no text."""
    said = f"methods.\"{entry}\"={entry!r}: expected 'package.Service/Method', 'package.Service' or '*'"
    with pytest.raises(OptionError, match=exactly(said)):
        check_methods("methods", ["*", entry])
