-- Operations and their attempts. All times are this database's (LG-12).
-- `next_attempt_at` is set while an operation may be claimed, and only then.
CREATE TABLE grpc_backoff.operations (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    target text NOT NULL,
    method text NOT NULL,
    request bytea NOT NULL,
    metadata text NOT NULL,
    policy text NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    recorded integer NOT NULL,
    step integer NOT NULL,
    previous double precision,
    refreshed boolean NOT NULL,
    backoff_request_seconds double precision,
    last_attempted_at timestamptz,
    next_attempt_at timestamptz,
    code text,
    details text,
    trace_id text,
    lease_owner text,
    lease_began timestamptz,
    lease_until timestamptz,
    lease_token bigint NOT NULL,
    claimed_from timestamptz,
    idempotency_key text,
    created timestamptz NOT NULL,
    began timestamptz NOT NULL,
    finished timestamptz
);

CREATE UNIQUE INDEX operations_key ON grpc_backoff.operations (method, idempotency_key)
WHERE idempotency_key IS NOT NULL;

CREATE INDEX operations_due ON grpc_backoff.operations (target, next_attempt_at, seq)
WHERE next_attempt_at IS NOT NULL;

CREATE INDEX operations_leased ON grpc_backoff.operations (lease_until) WHERE lease_until IS NOT NULL;

CREATE INDEX operations_state ON grpc_backoff.operations (state, created);

CREATE TABLE grpc_backoff.attempts (
    operation_id uuid NOT NULL REFERENCES grpc_backoff.operations (id) ON DELETE CASCADE,
    number integer NOT NULL,
    token bigint,
    started timestamptz,
    ended timestamptz NOT NULL,
    code text NOT NULL,
    delay double precision,
    source text,
    PRIMARY KEY (operation_id, number)
);
