-- For pruning: what finished long ago in one of some states.
CREATE INDEX operations_finished ON grpc_backoff.operations (state, finished) WHERE finished IS NOT NULL;
