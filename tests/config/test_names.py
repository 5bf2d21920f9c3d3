"""Which of several names is the best match."""

from __future__ import annotations

from itertools import product

import pytest

from grpc_backoff.config.names import check_methods, check_patterns, nearest_method, nearest_pattern
from grpc_backoff.errors import OptionError

PATTERNS = ["*", "*:443", "*.example:443", "shop.*:443", "shop.example:443", "dns:///*", "unix:*", "a*b*c"]


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
def test_nearest_pattern(target, pattern):
    """BP-3: of the patterns that match the whole target, the one with the most characters other than `*` applies."""
    assert nearest_pattern(PATTERNS, target) == nearest_pattern(PATTERNS[::-1], target) == pattern


@pytest.mark.parametrize("target", ["axb", "AxB", "a.", ".", "xa.b"])
def test_no_pattern(target):
    """BP-3: every character except `*` matches only itself, and a pattern must match the whole target."""
    assert nearest_pattern(["a.b", "a?b", "[a]xb", "a.", "x"], target) == ("a." if target == "a." else None)


def test_many_stars():
    """BP-3: matching a pattern with many `*` takes little time; trying all combinations would never finish."""
    assert nearest_pattern(["*" + "a*" * 40 + "b"], "a" * 400) is None
    assert nearest_pattern(["*" + "a*" * 40 + "b"], "a" * 400 + "b") is not None
    check_patterns("targets", ["*" + "a*" * 40 + "b", "*" + "a*" * 40 + "c"])


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
    assert [target for target in targets if nearest_pattern([pattern], target) is not None] == [
        target for target in targets if fits(pattern, target)
    ]


def test_ties():
    """BP-3: two patterns tie if they are equally specific and can match the same target. Checks all short patterns."""
    fitting = {pattern: {target for target in targets if fits(pattern, target)} for pattern in every}
    said = {pattern: len(pattern.replace("*", "")) for pattern in every}
    wrong = []
    for one, other in product(every, repeat=2):
        if one != other:
            tie = said[one] == said[other] and not fitting[one].isdisjoint(fitting[other])
            try:
                check_patterns("targets", [one, other])
            except OptionError:
                told = True
            else:
                told = False
            if told != tie:
                wrong.append((one, other))

    assert wrong == []
    assert len(every) == 121


@pytest.mark.parametrize(
    "patterns", [[], ["*"], ["a", "b"], ["*a", "b*"[::-1]], ["a*b", "*"], ["a*:443", "*:80", "b*:443"], ["*.a", "*.b"]]
)
def test_no_tie(patterns):
    """BP-3: two patterns may coexist if they never match the same target, or if one is more specific than the other."""
    check_patterns("targets", patterns)


@pytest.mark.parametrize(
    ("patterns", "key", "other", "one"),
    [
        (["a*", "*b"], 'targets."*b"', "*b", "a*"),
        (["*b", "a*"], 'targets."a*"', "a*", "*b"),
        (["*", "**"], 'targets."**"', "**", "*"),
        (["x", "*.example", "shop.*", "shop.*ple"], 'targets."shop.*ple"', "shop.*ple", "*.example"),
    ],
)
def test_tie(patterns, key, other, one):
    """BP-4: the error for a tie names both patterns, and reports the later one as the invalid key."""
    with pytest.raises(OptionError) as caught:
        check_patterns("targets", patterns)

    assert str(caught.value) == f"{key}={other!r}: expected a pattern that is either more or less specific than {one!r}"


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
def test_nearest_method(method, entry):
    """BP-3: a method's own entry applies, else its service's, else the entry for all methods."""
    assert nearest_method(["*", "shop.Orders", "shop.Orders/Place"], method) == entry


def test_no_method():
    """BP-3: a method may have no entry if there is none for all methods."""
    assert nearest_method(["shop.Orders"], "shop.Carts/Add") is None
    assert nearest_method([], "shop.Carts/Add") is None


@pytest.mark.parametrize("entry", ["*", "Echo", "Echo/Unary", "a.b.C", "a.b.C/D", "_a1.B_/_c9"])
def test_method_names(entry):
    """BP-3: an entry may name a method, a service, or all methods."""
    check_methods("methods", [entry])


@pytest.mark.parametrize(
    "entry", ["", "/", "/a.B/C", "a.B/", "a.B/C/D", "a.B/*", "a.*", "**", "a b/C", "5a/B", "ä/B", ".a/B"]
)
def test_bad_method_names(entry):
    """BP-4: an entry that is neither a method, a service nor `*` is rejected."""
    with pytest.raises(OptionError) as caught:
        check_methods("methods", ["*", entry])

    assert str(caught.value) == (
        f"methods.\"{entry}\"={entry!r}: expected 'package.Service/Method', 'package.Service' or '*'"
    )


@pytest.mark.parametrize("entry", [5, None, b"a.B/C", ("a.B", "C"), True])
def test_method_names_are_text(entry):
    """CH-10: an entry that is not a string is rejected with the same message."""
    with pytest.raises(OptionError) as caught:
        check_methods("retry", ["*", entry])

    assert str(caught.value) == (
        f"retry.\"{entry}\"={entry!r}: expected 'package.Service/Method', 'package.Service' or '*'"
    )
