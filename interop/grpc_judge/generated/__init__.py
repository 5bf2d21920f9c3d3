"""Code made by protoc from `protos/`, by `make protos`. Do not edit: `generate.py` says how and why."""
