"""Makes the SVG files that matplotlib writes small enough for a repository, without changing how they look.

It removes metadata, unreferenced ids and groups without attributes. It also rounds coordinates to a tenth of a point,
joins neighbouring paths of the same style, draws marks at the same place only once, and writes each style only once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree as ET

__all__ = ["compact"]

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_HREF = f"{{{_XLINK}}}href"
_GROUP, _PATH, _MARK, _SHEET = (f"{{{_SVG}}}{name}" for name in ("g", "path", "use", "style"))

_LONG_NUMBER = re.compile(r"-?\d+\.\d\d+")
_TO = re.compile(r"([ML])(-?[\d.]+) (-?[\d.]+)")
_CURVED = re.compile(r"[^MLz\d. -]")
_FONTS = re.compile(r"'DejaVu Sans'.*sans-serif")
_REFERENCE = re.compile(r"(?<=^#)[\w-]+|(?<=url\(#)[\w-]+")
_PLACES = {"d", "x", "y", "transform"}


def compact(svg: str) -> str:
    """Return a picture that looks the same in fewer bytes. Compact input is returned unchanged."""
    for prefix, name in (("", _SVG), ("xlink", _XLINK)):
        ET.register_namespace(prefix, name)
    root = ET.fromstring(svg)  # noqa: S314 - our own picture
    used = {name: None for each in root.iter() for value in each.attrib.values() for name in _REFERENCE.findall(value)}
    names = {name: f"i{place}" for place, name in enumerate(used)}
    for each in root.iter():
        _shorten(each, names)
    looks = {each.get("id"): each.get("style") for each in root.iter(_PATH)}
    for mark in root.iter(_MARK):
        if mark.get("style") == looks.get(mark.get(_HREF, "#")[1:]):
            mark.attrib.pop("style", None)  # the path that it refers to has the style
    _tidy(root)
    _name_styles(root)
    return ET.tostring(root, encoding="unicode").replace(" />", "/>") + "\n"


def _name_styles(root: ET.Element) -> None:
    """Replace each style that occurs repeatedly by a class of the style sheet."""
    sheet = next(root.iter(_SHEET), None)
    if sheet is None:
        return
    styles = Counter(each.attrib["style"] for each in root.iter() if "style" in each.attrib)
    # A style that refers to an id stays with its elements, because references are looked up in attributes only.
    repeated = [style for style, times in styles.items() if times > 1 and not _REFERENCE.search(style)]
    classes = {style: f"s{place}" for place, style in enumerate(repeated)}
    for each in root.iter():
        if each.get("style") in classes:
            name = each.attrib.pop("id", None)
            each.set("class", classes[each.attrib.pop("style")])
            if name is not None:  # the id comes last, as in compact input
                each.set("id", name)
    sheet.text = (sheet.text or "") + "".join(f".{name}{{{style}}}" for style, name in classes.items())


def _shorten(element: ET.Element, names: Mapping[str, str]) -> None:
    """Round the numbers of an element, shorten its ids, and remove redundant attributes and whitespace."""
    name = element.attrib.pop("id", "")
    if name in names:
        element.set("id", names[name])
    for key, value in element.items():
        element.set(key, _REFERENCE.sub(lambda found: names[found[0]], value))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if "scale(" not in element.get("transform", ""):
        for key in element.attrib.keys() & _PLACES:
            element.set(key, _rounded(element.get(key, "")))
    if line := element.get("d"):
        element.set("d", _straight(line))
    if style := element.get("style"):
        element.set("style", _FONTS.sub("'DejaVu Sans',sans-serif", style).replace("; ", ";").replace(": ", ":"))
    element.tail = None
    element.text = (element.text or "").strip() or None


def _rounded(text: str) -> str:
    shorter = _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r"(?<=[A-Za-z]) | (?=[A-Za-z])", "", " ".join(shorter.split()))


def _straight(line: str) -> str:
    """Write the horizontal and vertical segments of a path with a single number each."""
    at: list[str] = ["", ""]

    def shorter(found: re.Match[str]) -> str:
        before, at[:] = at.copy(), [found[2], found[3]]
        if found[1] == "M" or (at[0] != before[0] and at[1] != before[1]):
            return found[0]
        return f"V{at[1]}" if at[0] == before[0] else f"H{at[0]}"

    return line if _CURVED.search(line) else _TO.sub(shorter, line)


def _tidy(element: ET.Element) -> None:
    """Remove groups and metadata below an element and join neighbouring elements where possible, depth first."""
    children: list[ET.Element] = []
    for child in element:
        _tidy(child)
        for each in list(child) if child.tag == _GROUP and not child.attrib else [child]:
            if each.tag.endswith("metadata") or (children and _joined(children[-1], each)):
                continue
            children.append(each)
    element[:] = children


def _joined(before: ET.Element, after: ET.Element) -> bool:
    """Merge the second element into the first if the result looks the same; return whether it was merged."""
    if before.tag != after.tag or len(before) or len(after):
        return False
    if before.tag == _PATH and "id" not in before.attrib and _look(before) == _look(after):
        one, other = before.get("d", ""), after.get("d", "")
        before.set("d", one if one.endswith(other) else one + other)
        return True
    return before.tag == _MARK and before.attrib == after.attrib


def _look(path: ET.Element) -> dict[str, str]:
    return {name: value for name, value in path.attrib.items() if name != "d"}
