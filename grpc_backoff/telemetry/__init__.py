"""What channels and their calls do, told to the outside: log lines, metrics, the trace that a call belongs to.

Internal, but for `otel`: programs import from `grpc_backoff`.
"""
