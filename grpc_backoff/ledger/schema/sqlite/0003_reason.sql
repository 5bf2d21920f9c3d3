-- Why the policy gave up.
ALTER TABLE ledger_operations ADD COLUMN reason TEXT;

-- An idempotency key is unique for a target and a method.
DROP INDEX ledger_operations_key;
CREATE UNIQUE INDEX ledger_operations_key ON ledger_operations (target, method, idempotency_key)
WHERE idempotency_key IS NOT NULL;
