"""The clients that are judged: one directory each, with a small program and a manifest that says how to run it.

The `README.md` beside this file documents what a program must do, in any language. `peer.py` finds the directories and
reads their manifests, `peer_process.py` runs a program, and `peer_program.py` is shared by the programs in Python.
"""
