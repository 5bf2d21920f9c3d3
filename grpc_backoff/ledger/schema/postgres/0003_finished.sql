-- For pruning, which looks for operations in some states that finished long ago.
CREATE INDEX operations_finished ON grpc_backoff.operations (state, finished) WHERE finished IS NOT NULL;
