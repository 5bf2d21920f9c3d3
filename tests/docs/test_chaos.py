"""The page about the chaos kit: its code is that of tests/clients/test_chaos.py, which `make test-clients` runs."""

from __future__ import annotations

import ast

from tests.docs.pages import DOCS, blocks

TESTED = (DOCS.parent / "tests" / "clients" / "test_chaos.py").read_text("utf-8")


def statements(code):
    """Return the statements of a module, as text, without the docstrings of its tests, which name rules."""
    tree = ast.parse(code)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and ast.get_docstring(node):
            del node.body[0]
    return [ast.unparse(node) for node in tree.body]


def test_its_code_is_tested():
    """IO-3: the page's code is all that the tests consist of, in their order, and so runs with the libraries."""
    shown = [each for code in blocks("howto/chaos.md") for each in statements(code)]
    left_out = ("from __future__", "pytest_plugins = ", '"The chaos kit, ')  # a plugin need not be named

    assert shown == [each for each in statements(TESTED) if not each.startswith(left_out)]
    assert len(shown) > 10
