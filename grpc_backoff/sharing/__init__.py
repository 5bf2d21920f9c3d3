"""What the channels of one process share: the schedules of targets, by key. No face of the library stands in here.

Internal: programs import from `grpc_backoff`.
"""
