"""Reads configuration: options, files, policy strings and service configs become policies.

Internal, but for `service_config`: programs import from `grpc_backoff`.
"""
