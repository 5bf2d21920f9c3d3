-- For pruning, which looks for operations in some states that finished long ago.
CREATE INDEX ledger_operations_finished ON ledger_operations (state, finished) WHERE finished IS NOT NULL;

-- For a clock that was set back, after which operations appear to have begun, or begun again, in the future.
CREATE INDEX ledger_operations_pending ON ledger_operations (began) WHERE state = 'pending';
