"""Hooks of the documentation site's build (mkdocs.yml).

- The pages beside the README (`CONTRIBUTING.md` and others) are pages of the site too.
- A link to a file of the repository that is not a page leads to the repository. A link to a file that does not exist is
  left for MkDocs to report, which fails the build.
- Each rule of behaviour.md has an anchor, and each mention of a rule in text (`CB-5`) is a link to it.
- Diagrams with colours of their own for dark mode become part of the page, whose colours can be toggled.
- The verdicts of the matrix get classes, for their colours.
- Code in a table may be broken after its punctuation, so that long names fit and no name is broken elsewhere.
- No page may load anything from another host.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE")
RULES = "behaviour.md"

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
RULE = re.compile(r"\b(?:BP|CB|CH|FK|HG|IB|IO|LG|LV|PO|RO|RT|SB|SH|TH)-\d+\b")
DEFINED = re.compile(r"^\*\*((?:BP|CB|CH|FK|HG|IB|IO|LG|LV|PO|RO|RT|SB|SH|TH)-\d+)\.\*\*", re.MULTILINE)
# Text between tags, as long as it is not inside of one of these.
UNTOUCHED = re.compile(r"<(a|code|pre|h[1-6]|svg|title)\b.*?</\1>|<[^>]*>", re.DOTALL)
DIAGRAM = re.compile(r'<img alt="([^"]*)" src="[./]*images/(states|costs|operations)\.svg" ?/?>')
MATRIX = "conformance/README.md"
VERDICT = re.compile(r"<td>(?=(pass|<strong>fail|n/a))")
CLASSES = {"pass": "pass", "<strong>fail": "fail", "n/a": "none"}
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*(?=</code>)")
BREAK = re.compile(r"(?<=[^\W_][._/=])(?=[^\W_])|(?<=[a-z])(?=[A-Z])")
PAGE = re.compile(r"<code>docs/([\w/-]+\.md)</code>")
STARS = ' data-md-component="source"'  # has the theme's script ask GitHub for the number of stars
LOADED = re.compile(r"""<(?:iframe|img|link|script)\b[^>]*\b(?:src|href)="(?:https?:)?//""")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand beside the README."""
    for name in BESIDE:
        if name.endswith(".md"):
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links where they lead in the repository and give the rules their anchors."""
    name = page.file.src_uri
    home = "" if name in BESIDE else posixpath.dirname(f"docs/{name}")

    def lead(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(home, link[1]))
        anchor = link[2] or ""
        if not (ROOT / path).exists():
            return link[0]
        page_there = path if path in BESIDE else path.removeprefix("docs/")
        if (path.startswith("docs/") or path in BESIDE) and files.get_file_from_path(page_there):
            return posixpath.relpath(page_there, posixpath.dirname(name) or ".") + anchor
        return f"{config.repo_url.rstrip('/')}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}{anchor}"

    markdown = LINK.sub(lead, markdown)
    if name == RULES:
        markdown = DEFINED.sub(lambda rule: f'<a id="{rule[1].lower()}"></a>{rule[0]}', markdown)
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Make each mention of a rule a link to it and take the marks of code out of docstrings."""
    rules = _address(RULES, page, files)
    known = {rule.lower() for rule in DEFINED.findall((ROOT / "docs" / RULES).read_text("utf-8"))}

    def link(text: str) -> str:
        return RULE.sub(lambda rule: _linked(rule[0], rules) if rule[0].lower() in known else rule[0], text)

    def title(path: re.Match[str]) -> str:
        return f'<a href="{_address(path[1], page, files)}">{files.get_file_from_path(path[1]).page.title}</a>'

    html = DIAGRAM.sub(_diagram, html)
    if page.file.src_uri.startswith("reference/api"):
        html = PAGE.sub(title, html)  # docstrings name a page by its path
    html = CELL.sub(lambda cell: CODE.sub(lambda code: BREAK.sub("<wbr>", code[0]), cell[0]), html)
    if page.file.src_uri == MATRIX:
        html = VERDICT.sub(lambda verdict: f'<td class="{CLASSES[verdict[1]]}">', html)
        html = f'<div class="matrix">{html}</div>'
    html = html.replace("<p>::</p>", "").replace("::</p>", ":</p>")  # docstrings mark code as reStructuredText does
    parts, end = [], 0
    for untouched in UNTOUCHED.finditer(html):
        parts += [link(html[end : untouched.start()]), untouched[0]]
        end = untouched.end()
    return "".join([*parts, link(html[end:])])


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the page without what would load something from another host; reject a page that still would."""
    output = output.replace(STARS, "")
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri}: loads something from another host: {found[0]}")
    return output


def _address(name: str, page: Any, files: Any) -> str:
    """Return a page's address, relative to another page."""
    return os.path.relpath(files.get_file_from_path(name).dest_uri, posixpath.dirname(page.file.dest_uri) or ".")


def _linked(rule: str, rules: str) -> str:
    return f'<a href="{rules}#{rule.lower()}">{rule}</a>'


def _diagram(image: re.Match[str]) -> str:
    """Return the picture's text without its own colours, which follow the system and not the page."""
    text = (ROOT / "docs" / "images" / f"{image[2]}.svg").read_text("utf-8")
    text = re.sub(r"<style>.*?</style>\n", "", text, flags=re.DOTALL)
    return text.replace("<svg ", f'<svg class="diagram" aria-label="{image[1]}" ', 1)
