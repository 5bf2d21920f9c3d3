-- For pruning: what finished long ago in one of some states.
CREATE INDEX ledger_operations_finished ON ledger_operations (state, finished) WHERE finished IS NOT NULL;

-- For a clock that was set back: what began, or was begun anew, in what is now the future.
CREATE INDEX ledger_operations_pending ON ledger_operations (began) WHERE state = 'pending';
