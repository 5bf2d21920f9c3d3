"""Reports what channels and their calls do, in logs, metrics and traces.

Internal, but for `otel`: programs import from `grpc_backoff`.
"""
