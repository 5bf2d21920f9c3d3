"""Which of several names fits best."""

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
    """BP-3: of the patterns that fit the whole target, the one that says most of it, wherever it stands."""
    assert nearest_pattern(PATTERNS, target) == nearest_pattern(PATTERNS[::-1], target) == pattern


@pytest.mark.parametrize("target", ["axb", "AxB", "a.", ".", "xa.b"])
def test_no_pattern(target):
    """BP-3: all but `*` stands for itself, and the whole target counts."""
    assert nearest_pattern(["a.b", "a?b", "[a]xb", "a.", "x"], target) == ("a." if target == "a." else None)


def test_many_stars():
    """BP-3: however many `*` a pattern has, a target that does not fit is soon known; trying all ways would not end."""
    assert nearest_pattern(["*" + "a*" * 40 + "b"], "a" * 400) is None
    assert nearest_pattern(["*" + "a*" * 40 + "b"], "a" * 400 + "b") is not None
    check_patterns("targets", ["*" + "a*" * 40 + "b", "*" + "a*" * 40 + "c"])


def fits(pattern, target):
    """Say whether a pattern fits, in the plainest way."""
    if not pattern:
        return not target
    if pattern[0] == "*":
        return any(fits(pattern[1:], target[skipped:]) for skipped in range(len(target) + 1))
    return target[:1] == pattern[0] and fits(pattern[1:], target[1:])


every = ["".join(letters) for length in range(5) for letters in product("ab*", repeat=length)]
targets = ["".join(letters) for length in range(9) for letters in product("ab", repeat=length)]


@pytest.mark.parametrize("pattern", every)
def test_fits(pattern):
    """BP-3: which short targets a pattern fits, against the plainest way to find out."""
    assert [target for target in targets if nearest_pattern([pattern], target) is not None] == [
        target for target in targets if fits(pattern, target)
    ]


def test_ties():
    """BP-3: two patterns tie if they say as much and some target fits both: all short ones are tried."""
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
    """BP-3: patterns that no target fits, or of which one says more, may stand beside each other."""
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
    """BP-4: a tie names both patterns; the later one is the wrong value."""
    with pytest.raises(OptionError) as caught:
        check_patterns("targets", patterns)

    assert str(caught.value) == f"{key}={other!r}: expected a pattern more or less specific than {one!r}"


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
    """BP-3: the method's own entry, else its service's, else that of all."""
    assert nearest_method(["*", "shop.Orders", "shop.Orders/Place"], method) == entry


def test_no_method():
    """BP-3: without an entry for all there may be none."""
    assert nearest_method(["shop.Orders"], "shop.Carts/Add") is None
    assert nearest_method([], "shop.Carts/Add") is None


@pytest.mark.parametrize("entry", ["*", "Echo", "Echo/Unary", "a.b.C", "a.b.C/D", "_a1.B_/_c9"])
def test_method_names(entry):
    """BP-3: methods, services, and all of them."""
    check_methods("methods", [entry])


@pytest.mark.parametrize(
    "entry", ["", "/", "/a.B/C", "a.B/", "a.B/C/D", "a.B/*", "a.*", "**", "a b/C", "5a/B", "ä/B", ".a/B"]
)
def test_bad_method_names(entry):
    """BP-4: what is none of these is told."""
    with pytest.raises(OptionError) as caught:
        check_methods("methods", ["*", entry])

    assert str(caught.value) == (
        f"methods.\"{entry}\"={entry!r}: expected 'package.Service/Method', 'package.Service' or '*'"
    )


@pytest.mark.parametrize("entry", [5, None, b"a.B/C", ("a.B", "C"), True])
def test_method_names_are_text(entry):
    """CH-10: what is no text at all, which a program may hand over, is told in the same way."""
    with pytest.raises(OptionError) as caught:
        check_methods("retry", ["*", entry])

    assert str(caught.value) == (
        f"retry.\"{entry}\"={entry!r}: expected 'package.Service/Method', 'package.Service' or '*'"
    )
