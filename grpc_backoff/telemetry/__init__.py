"""Reports what channels and their calls do, in logs, metrics and traces.

Internal, except for `otel`: programs import from `grpc_backoff`.
"""
