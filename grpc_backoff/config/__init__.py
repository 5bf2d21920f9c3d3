"""Reads configuration: turns options, files, policy strings and service configs into policies.

Internal, but for `service_config`: programs import from `grpc_backoff`.
"""
