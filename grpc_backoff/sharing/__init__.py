"""The schedules that the channels of one process share, by key, for both APIs.

Internal: programs import from `grpc_backoff`.
"""
