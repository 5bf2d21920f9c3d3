"""The messages and services of the examples, generated at run time from the .proto files in this directory."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc

__all__ = ["counters", "counters_services", "etcd", "etcd_services"]

sys.path.append(str(Path(__file__).parent))  # protoc looks for the files, and for what they import, from there

counters, counters_services = grpc.protos_and_services("counters/v1/counters.proto")
etcd, etcd_services = grpc.protos_and_services("etcdserverpb/rpc.proto")
