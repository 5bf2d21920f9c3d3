"""Reads the manifests of clients and servers: the keys that they share, and each kind of value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

_COMMON = {"name", "command", "needs", "build"}
_NEEDS = {"modules", "programs"}


class ManifestError(ValueError):
    """A manifest is not valid. The message names the file, the key, the value and what is allowed."""


class Table:
    """The content of a manifest. All methods raise ManifestError for a value that is not allowed."""

    def __init__(self, path: Path, keys: AbstractSet[str]) -> None:
        """Read a file, which may have these keys in addition to those that all programs share."""
        self._path = path
        try:
            self._found = tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(f"{path}: {error}") from error
        _check_keys(path, self._found, _COMMON | keys)

    def common(self) -> dict[str, Any]:
        """Return the keyword arguments that all subclasses of Program share."""
        needs: Mapping[str, Any] = self._found.get("needs", {})
        _check_keys(self._path, needs, _NEEDS)
        return {
            "name": self.text("name"),
            "folder": self._path.parent,
            "command": self.texts("command"),
            "modules": _texts(self._path, "needs.modules", needs.get("modules", [])),
            "programs": _texts(self._path, "needs.programs", needs.get("programs", [])),
            "build": tuple(_texts(self._path, "build", command) for command in self._found.get("build", [])),
        }

    def text(self, key: str) -> str:
        """Return the string under this key."""
        value = self._found.get(key)
        if not isinstance(value, str) or not value:
            raise ManifestError(f"{self._path}: {key}={value!r}: expected a string that is not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of strings under this key, as a tuple."""
        return _texts(self._path, key, self._found.get(key))

    def flag(self, key: str) -> bool:
        """Return the boolean under this key, which may be left out if it is false."""
        value = self._found.get(key, False)
        if not isinstance(value, bool):
            raise ManifestError(f"{self._path}: {key}={value!r}: expected true or false")
        return value


def _check_keys(path: Path, table: Mapping[str, Any], known: AbstractSet[str]) -> None:
    for key in sorted(table.keys() - known):
        raise ManifestError(f"{path}: {key}={table[key]!r}: expected a known key, one of: {', '.join(sorted(known))}")


def _texts(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ManifestError(f"{path}: {key}={value!r}: expected a list of strings")
    return tuple(value)
