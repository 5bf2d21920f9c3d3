"""The clients that are judged: one directory each, with a small program and a manifest that says how to run it.

The `README.md` beside this file says what a program must do, in whatever language it is written. `manifest.py` finds
and reads the directories. `program.py` is what the programs in Python share.
"""
