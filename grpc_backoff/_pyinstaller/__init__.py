"""Tells PyInstaller what the programs that it freezes need besides Python modules.

PyInstaller finds this package by the entry point `pyinstaller40`.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folders with hooks, each named after the module whose import it completes."""
    return [str(Path(__file__).parent)]
