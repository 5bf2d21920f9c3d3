-- Why the policy gave up.
ALTER TABLE ledger_operations ADD COLUMN reason TEXT;

-- An idempotency key is unique for a target and a method.
DROP INDEX ledger_operations_key;
CREATE UNIQUE INDEX ledger_operations_key ON ledger_operations (target, method, idempotency_key)
WHERE idempotency_key IS NOT NULL;

-- The time from which an operation is no longer attempted: it ends as `expired`. How many bytes of a response are kept,
-- if any, and the response.
ALTER TABLE ledger_operations ADD COLUMN not_after REAL;
ALTER TABLE ledger_operations ADD COLUMN keep_response INTEGER;
ALTER TABLE ledger_operations ADD COLUMN response BLOB;

-- Operations with one order key are attempted one after the other, in the order of `seq`. An operation behind another of
-- its order key is set aside: it has neither a next attempt nor a lease.
ALTER TABLE ledger_operations ADD COLUMN order_key TEXT;
ALTER TABLE ledger_operations ADD COLUMN due REAL GENERATED ALWAYS AS (
    coalesce(next_attempt_at, CASE WHEN lease_owner IS NOT NULL THEN claimed_from END)
) VIRTUAL;
ALTER TABLE ledger_operations ADD COLUMN open INTEGER GENERATED ALWAYS AS (
    state NOT IN ('succeeded', 'discarded', 'expired')
) VIRTUAL;

DROP INDEX ledger_operations_due;
DROP INDEX ledger_operations_state;
DROP INDEX ledger_operations_finished;
CREATE INDEX ledger_operations_due ON ledger_operations (target, due, seq) WHERE open;
CREATE INDEX ledger_operations_order ON ledger_operations (target, order_key, seq)
WHERE open AND order_key IS NOT NULL;
CREATE INDEX ledger_operations_finished ON ledger_operations (finished) WHERE NOT open;
CREATE INDEX ledger_operations_not_after ON ledger_operations (target, not_after)
WHERE open AND not_after IS NOT NULL;

-- The targets whose operations are not claimed.
CREATE TABLE ledger_paused (target TEXT PRIMARY KEY) WITHOUT ROWID;
