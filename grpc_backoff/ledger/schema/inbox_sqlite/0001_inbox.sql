-- The calls that a server has executed, and their responses. Times are seconds since the epoch.
CREATE TABLE ledger_inbox (
    scope TEXT NOT NULL,
    method TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    response BLOB,
    recorded REAL NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    PRIMARY KEY (scope, method, key)
);

-- For pruning.
CREATE INDEX ledger_inbox_recorded ON ledger_inbox (recorded);
