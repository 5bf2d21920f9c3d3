-- The time from which an operation is no longer attempted: it ends as `expired`.
ALTER TABLE ledger_operations ADD COLUMN not_after REAL;

-- How many bytes of a response are kept, if any, and the response.
ALTER TABLE ledger_operations ADD COLUMN keep_response INTEGER;
ALTER TABLE ledger_operations ADD COLUMN response BLOB;

-- An operation that has expired is no longer open, so that it does not hold its order key.
DROP INDEX ledger_operations_due;
DROP INDEX ledger_operations_order;
DROP INDEX ledger_operations_finished;
ALTER TABLE ledger_operations DROP COLUMN open;
ALTER TABLE ledger_operations ADD COLUMN open INTEGER GENERATED ALWAYS AS (
    state NOT IN ('succeeded', 'discarded', 'expired')
) VIRTUAL;
CREATE INDEX ledger_operations_due ON ledger_operations (target, due, seq) WHERE open;
CREATE INDEX ledger_operations_order ON ledger_operations (target, order_key, seq)
WHERE open AND order_key IS NOT NULL;
CREATE INDEX ledger_operations_finished ON ledger_operations (finished) WHERE NOT open;
CREATE INDEX ledger_operations_not_after ON ledger_operations (target, not_after)
WHERE open AND not_after IS NOT NULL;
