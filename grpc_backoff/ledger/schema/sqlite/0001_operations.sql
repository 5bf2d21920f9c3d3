-- Operations and their attempts. Times are seconds since the epoch on this host's clock (LG-12).
-- `next_attempt_at` is set while an operation may be claimed, and only then.
CREATE TABLE ledger_operations (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    method TEXT NOT NULL,
    request BLOB NOT NULL,
    metadata TEXT NOT NULL,
    policy TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    recorded INTEGER NOT NULL,
    step INTEGER NOT NULL,
    previous REAL,
    refreshed INTEGER NOT NULL,
    backoff_request_seconds REAL,
    last_attempted_at REAL,
    next_attempt_at REAL,
    code TEXT,
    details TEXT,
    trace_id TEXT,
    lease_owner TEXT,
    lease_began REAL,
    lease_until REAL,
    lease_seconds REAL,
    lease_token INTEGER NOT NULL,
    claimed_from REAL,
    idempotency_key TEXT,
    created REAL NOT NULL,
    began REAL NOT NULL,
    finished REAL
);

CREATE UNIQUE INDEX ledger_operations_key ON ledger_operations (method, idempotency_key)
WHERE idempotency_key IS NOT NULL;

CREATE INDEX ledger_operations_due ON ledger_operations (target, next_attempt_at, seq)
WHERE next_attempt_at IS NOT NULL;

CREATE INDEX ledger_operations_leased ON ledger_operations (lease_until) WHERE lease_until IS NOT NULL;

CREATE INDEX ledger_operations_failed_at ON ledger_operations (last_attempted_at) WHERE next_attempt_at IS NOT NULL;

CREATE INDEX ledger_operations_state ON ledger_operations (state, created);

CREATE TABLE ledger_attempts (
    operation_id TEXT NOT NULL REFERENCES ledger_operations (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    token INTEGER,
    started REAL,
    ended REAL NOT NULL,
    code TEXT NOT NULL,
    delay REAL,
    source TEXT,
    PRIMARY KEY (operation_id, number)
) WITHOUT ROWID;
