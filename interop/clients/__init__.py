"""The clients that are judged: one folder for each, with a small program and the manifest that says how to run it.

`README.md` beside this file tells what a program has to do, whatever language it is written in. `manifest.py` finds and
reads the folders. `program.py` is what the programs in Python share.
"""
