"""What the channels of one process share, in both APIs: the schedules of targets, by key.

Internal: programs import from `grpc_backoff`.
"""
