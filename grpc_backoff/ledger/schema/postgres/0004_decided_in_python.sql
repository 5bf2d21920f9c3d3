-- Why the policy gave up.
ALTER TABLE grpc_backoff.operations ADD COLUMN reason text;

-- An idempotency key is unique for a target and a method.
DROP INDEX grpc_backoff.operations_key;
CREATE UNIQUE INDEX operations_key ON grpc_backoff.operations (target, method, idempotency_key)
WHERE idempotency_key IS NOT NULL;

-- The library no longer calls these. They stay for deliverers of the previous version, for one release.
COMMENT ON FUNCTION grpc_backoff.record_failure(uuid, bigint, text, text, jsonb, jsonb, double precision)
IS 'Deprecated: the library decides in Python. It will be removed in the next release.';
COMMENT ON FUNCTION grpc_backoff.record_success(uuid, bigint)
IS 'Deprecated: the library decides in Python. It will be removed in the next release.';
COMMENT ON FUNCTION grpc_backoff.set_backoff(uuid, double precision)
IS 'Deprecated: it does not know the cap of the policy. It will be removed in the next release.';

-- The wait after the n-th failure before cap and jitter; infinite if a float cannot hold it.
CREATE OR REPLACE FUNCTION grpc_backoff.growth(policy jsonb, n integer) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    base double precision := (policy ->> 'base')::double precision;
    multiplier double precision := (policy ->> 'multiplier')::double precision;
    reach double precision := (policy ->> 'reach')::double precision;
    beyond integer;
BEGIN
    CASE policy ->> 'strategy'
        WHEN 'fixed' THEN
            RETURN base;
        WHEN 'linear' THEN
            RETURN n * base;
        WHEN 'exponential' THEN
            RETURN base * power(multiplier, least(n - 1, (policy ->> 'max_exponent')::integer)::double precision);
        WHEN 'steps' THEN
            beyond := n - jsonb_array_length(policy -> 'waits');
            IF beyond <= 0 THEN
                RETURN (policy -> 'waits' ->> (n - 1))::double precision;
            END IF;
            RETURN (policy -> 'waits' ->> -1)::double precision * power(multiplier, beyond::double precision);
        WHEN 'decorrelated' THEN -- the mean of what it draws
            RETURN 2 * base * power(reach / 2, n::double precision) - base;
        ELSE
            RAISE EXCEPTION 'strategy=%: expected a strategy that this schema knows', policy ->> 'strategy'
                USING ERRCODE = 'feature_not_supported';
    END CASE;
EXCEPTION
    WHEN numeric_value_out_of_range THEN
        RETURN 'Infinity';
END $$;

-- The wait after the n-th failure. `previous` is the previous wait, from which decorrelated backoff continues.
CREATE OR REPLACE FUNCTION grpc_backoff.delay(
    policy jsonb, n integer, previous double precision, draw double precision
) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    largest double precision := (policy ->> 'largest')::double precision;
    cap double precision := least((policy ->> 'cap')::double precision, largest);
    value double precision := least(grpc_backoff.growth(policy, n), largest);
    capped double precision := least(value, cap);
    bound double precision := cap;
    low double precision;
    width double precision;
BEGIN
    IF policy ->> 'strategy' = 'decorrelated' THEN
        low := least((policy ->> 'base')::double precision, cap);
        width := (policy ->> 'reach')::double precision
            * greatest(coalesce(previous, least(grpc_backoff.largest_before(policy, n), cap)), low) - low;
        RETURN least(low + width * draw, cap);
    END IF;
    CASE policy ->> 'jitter'
        WHEN 'none' THEN
            low := capped;
            width := 0;
        WHEN 'proportional' THEN
            width := (policy ->> 'part')::double precision * capped;
            low := capped - width;
            width := 2 * width;
            IF NOT (policy ->> 'then_cap')::boolean THEN
                bound := 'Infinity';
            END IF;
        WHEN 'scaled' THEN
            low := value * (policy ->> 'low')::double precision;
            width := value * ((policy ->> 'high')::double precision - (policy ->> 'low')::double precision);
        WHEN 'additive' THEN
            low := value;
            width := value * (policy ->> 'part')::double precision;
        WHEN 'full' THEN
            low := 0;
            width := capped;
        WHEN 'equal' THEN
            low := capped / 2;
            width := low;
        ELSE
            RAISE EXCEPTION 'jitter=%: expected a jitter that this schema knows', policy ->> 'jitter'
                USING ERRCODE = 'feature_not_supported';
    END CASE;
    IF low >= bound THEN
        RETURN bound;
    END IF;
    RETURN least(low + width * draw, bound);
END $$;

-- The time from which an operation is no longer attempted: it ends as `expired`. How many bytes of a response are kept,
-- if any, and the response.
ALTER TABLE grpc_backoff.operations
ADD COLUMN not_after timestamptz,
ADD COLUMN keep_response integer,
ADD COLUMN response bytea;

-- Operations with one order key are attempted one after the other, in the order of `seq`. `due` and `open` do not change
-- when an operation is claimed or its lease is extended, and no index contains what does, so that both are HOT updates.
-- An operation behind another of its order key is set aside: it has neither a next attempt nor a lease.
ALTER TABLE grpc_backoff.operations
ADD COLUMN order_key text,
ADD COLUMN due timestamptz GENERATED ALWAYS AS (
    coalesce(next_attempt_at, CASE WHEN lease_owner IS NOT NULL THEN claimed_from END)
) STORED,
ADD COLUMN open boolean GENERATED ALWAYS AS (state NOT IN ('succeeded', 'discarded', 'expired')) STORED,
SET (fillfactor = 70);

DROP INDEX grpc_backoff.operations_due, grpc_backoff.operations_leased, grpc_backoff.operations_state,
grpc_backoff.operations_finished;
CREATE INDEX operations_due ON grpc_backoff.operations (target, due, seq) WHERE open;
CREATE INDEX operations_order ON grpc_backoff.operations (target, order_key, seq) WHERE open AND order_key IS NOT NULL;
CREATE INDEX operations_finished ON grpc_backoff.operations (finished) WHERE NOT open;
CREATE INDEX operations_not_after ON grpc_backoff.operations (target, not_after) WHERE open AND not_after IS NOT NULL;

-- The targets whose operations are not claimed.
CREATE TABLE grpc_backoff.paused (target text PRIMARY KEY);

-- By which a connection to another ledger is recognized.
CREATE TABLE grpc_backoff.identity (id uuid NOT NULL);
INSERT INTO grpc_backoff.identity VALUES (gen_random_uuid());

-- Why a waiting operation is not attempted although its time has come; NULL if nothing holds it.
CREATE FUNCTION grpc_backoff.held(o grpc_backoff.operations) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN o.state NOT IN ('pending', 'waiting_for_retry') THEN NULL
        WHEN EXISTS (SELECT FROM grpc_backoff.paused p WHERE p.target = o.target) THEN 'paused'
        WHEN EXISTS (
            SELECT FROM grpc_backoff.operations p
            WHERE p.target = o.target AND p.order_key = o.order_key AND p.seq < o.seq AND p.open
        ) OR o.attempts = 0 AND o.began <> o.created AND EXISTS (
            SELECT FROM grpc_backoff.operations p
            WHERE p.target = o.target AND p.order_key = o.order_key AND p.seq > o.seq AND p.open
            AND p.state = 'in_progress'
        ) THEN 'blocked'
    END
$$;

-- Whether operations are ready, when they became or will become ready, and why. `policies` maps the policies that
-- operations store as text to parameters. Only operations whose owner is gone need them.
CREATE OR REPLACE FUNCTION grpc_backoff.ready(ids uuid[], policies jsonb, draw double precision)
RETURNS TABLE (id uuid, ready boolean, at timestamptz, why text)
LANGUAGE sql STABLE AS $$
    SELECT o.id,
        coalesce(t.at <= now() AND (o.next_attempt_at IS NOT NULL OR o.lease_until <= now()), false),
        t.at,
        CASE
            WHEN t.held IS NOT NULL THEN t.held
            WHEN o.next_attempt_at IS NOT NULL THEN CASE WHEN t.at <= now() THEN 'due' ELSE 'backoff' END
            WHEN o.lease_until <= now() THEN 'its owner is gone'
            WHEN o.state = 'in_progress' THEN 'in progress'
            ELSE o.state
        END
    FROM grpc_backoff.operations o
    CROSS JOIN LATERAL (
        SELECT grpc_backoff.held(o) AS held, CASE
            WHEN grpc_backoff.held(o) IS NOT NULL THEN NULL
            WHEN o.state = 'waiting_for_retry' THEN grpc_backoff.next_attempt_at(
                o.backoff_request_seconds, o.last_attempted_at, o.next_attempt_at, o.step, policies -> o.policy, draw
            )
            WHEN o.next_attempt_at IS NOT NULL THEN o.next_attempt_at
            WHEN o.lease_until <= now() THEN grpc_backoff.next_attempt_at(
                NULL, NULL, o.lease_until, o.step + 1, policies -> o.policy, draw
            )
            ELSE o.lease_until
        END AS at
    ) t
    WHERE o.id = ANY (ids)
    ORDER BY o.seq
$$;

-- Whether operations are ready, when, and why (LG-5), for those who read with SQL and have no policies at hand. When an
-- operation whose owner is gone becomes ready depends on its policy; `ready` computes that from the parameters.
CREATE VIEW grpc_backoff.readiness AS
SELECT
    o.id, o.target, o.method, o.state,
    coalesce(o.next_attempt_at <= now() AND h.held IS NULL, false) AS ready,
    CASE
        WHEN h.held IS NULL THEN coalesce(o.next_attempt_at, CASE WHEN o.lease_until > now() THEN o.lease_until END)
    END AS at,
    CASE
        WHEN h.held IS NOT NULL THEN h.held
        WHEN o.next_attempt_at <= now() THEN 'due'
        WHEN o.next_attempt_at IS NOT NULL THEN 'backoff'
        WHEN o.lease_until <= now() THEN 'its owner is gone'
        WHEN o.state = 'in_progress' THEN 'in progress'
        ELSE o.state
    END AS why
FROM grpc_backoff.operations o CROSS JOIN LATERAL (SELECT grpc_backoff.held(o) AS held) h;
