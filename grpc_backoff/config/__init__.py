"""Reads configuration: turns options, files, policy strings and service configs into policies.

Internal, except for `service_config`: programs import from `grpc_backoff`.
"""
