-- Why the policy gave up.
ALTER TABLE ledger_operations ADD COLUMN reason TEXT;
