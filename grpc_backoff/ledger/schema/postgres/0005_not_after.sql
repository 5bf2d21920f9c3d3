-- The time from which an operation is no longer attempted: it ends as `expired`.
ALTER TABLE grpc_backoff.operations ADD COLUMN not_after timestamptz;

-- How many bytes of a response are kept, if any, and the response.
ALTER TABLE grpc_backoff.operations ADD COLUMN keep_response integer, ADD COLUMN response bytea;

-- An operation that has expired is no longer open, so that it does not hold its order key.
DROP INDEX grpc_backoff.operations_due, grpc_backoff.operations_order, grpc_backoff.operations_finished;
ALTER TABLE grpc_backoff.operations DROP COLUMN open;
ALTER TABLE grpc_backoff.operations
ADD COLUMN open boolean GENERATED ALWAYS AS (state NOT IN ('succeeded', 'discarded', 'expired')) STORED;
CREATE INDEX operations_due ON grpc_backoff.operations (target, due, seq) WHERE open;
CREATE INDEX operations_order ON grpc_backoff.operations (target, order_key, seq) WHERE open AND order_key IS NOT NULL;
CREATE INDEX operations_finished ON grpc_backoff.operations (finished) WHERE NOT open;
CREATE INDEX operations_not_after ON grpc_backoff.operations (target, not_after) WHERE open AND not_after IS NOT NULL;
