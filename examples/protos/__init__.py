"""The messages and services of the examples, generated at import time from the .proto files in this directory."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc

__all__ = ["counters", "counters_services", "etcd", "etcd_services"]

sys.path.append(str(Path(__file__).parent))  # protoc finds the files and their imports here

counters, counters_services = grpc.protos_and_services("counters/v1/counters.proto")
etcd, etcd_services = grpc.protos_and_services("etcdserverpb/rpc.proto")
