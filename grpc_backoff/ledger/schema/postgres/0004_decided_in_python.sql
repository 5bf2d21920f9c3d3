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
            * coalesce(previous, least(grpc_backoff.largest_before(policy, n), cap)) - low;
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

-- Whether operations are ready, when, and why (LG-5), for those who read with SQL and have no policies at hand. When an
-- operation whose owner is gone becomes ready depends on its policy; `ready` computes that from the parameters.
CREATE VIEW grpc_backoff.readiness AS
SELECT
    o.id, o.target, o.method, o.state,
    coalesce(o.next_attempt_at <= now(), false) AS ready,
    coalesce(o.next_attempt_at, CASE WHEN o.lease_until > now() THEN o.lease_until END) AS at,
    CASE
        WHEN o.next_attempt_at <= now() THEN 'due'
        WHEN o.next_attempt_at IS NOT NULL THEN 'backoff'
        WHEN o.lease_until <= now() THEN 'its owner is gone'
        WHEN o.state = 'in_progress' THEN 'in progress'
        ELSE o.state
    END AS why
FROM grpc_backoff.operations o;
