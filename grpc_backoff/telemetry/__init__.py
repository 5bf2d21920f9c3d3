"""Reports what channels and their calls do: log lines, metrics, and the trace that a call belongs to.

Internal, but for `otel`: programs import from `grpc_backoff`.
"""
