"""The clients under test. Each has a directory with a small program and a manifest that says how to run it.

`README.md` in this directory specifies what a program must do, in any language. `peer.py` finds the directories and
reads their manifests, `peer_process.py` runs a program, and `peer_program.py` contains what the Python programs share.
"""
