-- The calls that a server has executed, and their responses. A row without a response is visible to other transactions
-- only if the handler committed by itself.
CREATE TABLE grpc_backoff.inbox (
    scope text NOT NULL,
    method text NOT NULL,
    key text NOT NULL,
    digest bytea NOT NULL,
    response bytea,
    recorded timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, method, key)
);

-- For pruning.
CREATE INDEX inbox_recorded ON grpc_backoff.inbox (recorded);
