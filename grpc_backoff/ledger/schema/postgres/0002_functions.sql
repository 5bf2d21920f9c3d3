-- The policies of Python in SQL. The numbers of a policy are passed in as `policy`, which is the result of
-- `grpc_backoff.ledger.parameters.parameters`, and so is a random number from [0, 1) (LG-3).

-- The wait after the n-th failure before cap and jitter; infinite if a float cannot hold it.
CREATE FUNCTION grpc_backoff.growth(policy jsonb, n integer) RETURNS double precision
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
    END CASE;
EXCEPTION
    WHEN numeric_value_out_of_range THEN
        RETURN 'Infinity';
END $$;

-- The largest possible wait of decorrelated backoff before the n-th.
CREATE FUNCTION grpc_backoff.largest_before(policy jsonb, n integer) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (policy ->> 'base')::double precision
        * power((policy ->> 'reach')::double precision, (n - 1)::double precision);
EXCEPTION
    WHEN numeric_value_out_of_range THEN
        RETURN 'Infinity';
END $$;

-- The wait after the n-th failure. `previous` is the previous wait, from which decorrelated backoff continues.
CREATE FUNCTION grpc_backoff.delay(
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
    END CASE;
    IF low >= bound THEN
        RETURN bound;
    END IF;
    RETURN least(low + width * draw, bound);
END $$;

-- When an operation may be attempted again: the recorded time plus the recorded backoff, which are written together. If
-- the owner died before that, it is the failure's time plus min(growth, cap), or plus the drawn wait if that is longer.
-- NULL if there is neither.
CREATE FUNCTION grpc_backoff.next_attempt_at(
    backoff_request_seconds double precision,
    last_attempted_at timestamptz,
    failure_time timestamptz,
    attempts integer,
    policy jsonb,
    draw double precision
) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN backoff_request_seconds IS NOT NULL AND last_attempted_at IS NOT NULL THEN
            last_attempted_at + make_interval(secs => backoff_request_seconds)
        WHEN failure_time IS NOT NULL THEN
            failure_time + make_interval(secs => greatest(
                least(
                    grpc_backoff.growth(policy, greatest(attempts, 1)),
                    (policy ->> 'cap')::double precision,
                    (policy ->> 'largest')::double precision
                ),
                grpc_backoff.delay(policy, greatest(attempts, 1), NULL, draw)
            ))
    END
$$;

-- Whether operations are ready, when they became or will become ready, and why. `policies` maps the policies that
-- operations store as text to parameters. Only operations whose owner is gone need them.
CREATE FUNCTION grpc_backoff.ready(ids uuid[], policies jsonb, draw double precision)
RETURNS TABLE (id uuid, ready boolean, at timestamptz, why text)
LANGUAGE sql STABLE AS $$
    SELECT o.id,
        CASE
            WHEN o.next_attempt_at IS NOT NULL THEN t.at <= now()
            WHEN o.lease_until <= now() THEN t.at <= now()
            ELSE false
        END,
        t.at,
        CASE
            WHEN o.next_attempt_at IS NOT NULL THEN CASE WHEN t.at <= now() THEN 'due' ELSE 'backoff' END
            WHEN o.lease_until <= now() THEN 'its owner is gone'
            WHEN o.state = 'in_progress' THEN 'in progress'
            ELSE o.state
        END
    FROM grpc_backoff.operations o
    CROSS JOIN LATERAL (
        SELECT CASE
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

-- Write a backoff and its timestamp together. Return true if there was such an operation and it was waiting.
CREATE FUNCTION grpc_backoff.set_backoff(operation uuid, seconds double precision) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM grpc_backoff.operations o WHERE o.id = operation FOR UPDATE;
    UPDATE grpc_backoff.operations o
    SET state = 'waiting_for_retry', backoff_request_seconds = seconds, last_attempted_at = clock_timestamp(),
        next_attempt_at = clock_timestamp() + make_interval(secs => seconds)
    WHERE o.id = operation AND o.next_attempt_at IS NOT NULL;
    RETURN FOUND;
END $$;

-- Add the row of an attempt, or complete it if the attempt was recorded as lost. Return true if a row was added.
CREATE FUNCTION grpc_backoff.add_attempt(
    operation uuid, row_number integer, its_token bigint, began_at timestamptz, ended_at timestamptz, its_code text,
    its_delay double precision, its_source text
) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF its_token IS NOT NULL THEN
        UPDATE grpc_backoff.attempts a SET code = its_code, ended = ended_at
        WHERE a.operation_id = operation AND a.token = its_token;
        IF FOUND THEN
            RETURN false;
        END IF;
    END IF;
    INSERT INTO grpc_backoff.attempts (operation_id, number, token, started, ended, code, delay, source)
    VALUES (operation, row_number, its_token, began_at, ended_at, its_code, its_delay, its_source);
    RETURN true;
END $$;

-- Record one success under the row's lock (LG-2). A late success counts (LG-6).
CREATE FUNCTION grpc_backoff.record_success(operation uuid, its_token bigint)
RETURNS TABLE (new_state text, new_attempts integer, was_live boolean)
LANGUAGE plpgsql AS $$
DECLARE
    o grpc_backoff.operations%ROWTYPE;
    at timestamptz;
    added integer;
BEGIN
    SELECT * INTO o FROM grpc_backoff.operations WHERE id = operation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := clock_timestamp();
    was_live := CASE
        WHEN its_token IS NULL THEN o.next_attempt_at IS NOT NULL
        ELSE o.state = 'in_progress' AND o.lease_token = its_token
    END;
    added := grpc_backoff.add_attempt(
        operation, o.recorded + 1, its_token,
        CASE WHEN was_live AND its_token IS NOT NULL THEN o.lease_began END, at, 'OK', NULL, NULL
    )::integer;
    new_attempts := o.attempts + added;
    IF NOT was_live AND o.state IN ('succeeded', 'discarded') THEN
        new_state := o.state;
        UPDATE grpc_backoff.operations SET attempts = new_attempts, recorded = o.recorded + added WHERE seq = o.seq;
    ELSE
        new_state := 'succeeded';
        UPDATE grpc_backoff.operations
        SET state = new_state, attempts = new_attempts, recorded = o.recorded + added, backoff_request_seconds = NULL,
            last_attempted_at = at, next_attempt_at = NULL, code = 'OK', details = NULL, finished = at,
            lease_owner = NULL, lease_began = NULL, lease_until = NULL, claimed_from = NULL
        WHERE seq = o.seq;
    END IF;
    RETURN NEXT;
END $$;

-- Record one failure under the row's lock (LG-2), by the checks of `transitions.after_failure` in their order.
-- `kind` has the properties of the failure that do not depend on the row, and the names used in the result.
CREATE FUNCTION grpc_backoff.record_failure(
    operation uuid, its_token bigint, its_code text, its_details text, kind jsonb, policy jsonb, draw double precision
) RETURNS TABLE (
    new_state text, new_attempts integer, new_delay double precision, its_source text, its_reason text, was_live boolean
)
LANGUAGE plpgsql AS $$
DECLARE
    o grpc_backoff.operations%ROWTYPE;
    at timestamptz;
    added integer;
    renews boolean := (kind ->> 'renews')::boolean;
    asked double precision := (kind ->> 'asked')::double precision;
    most double precision := (policy ->> 'max_server_delay')::double precision;
    max_attempts integer := (policy ->> 'max_attempts')::integer;
    remaining double precision;
    given_up boolean := false;
    next_step integer;
    next_previous double precision;
    next_refreshed boolean;
BEGIN
    SELECT * INTO o FROM grpc_backoff.operations WHERE id = operation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    at := clock_timestamp();
    was_live := CASE
        WHEN its_token IS NULL THEN o.next_attempt_at IS NOT NULL
        ELSE o.state = 'in_progress' AND o.lease_token = its_token
    END;
    new_state := o.state;
    IF was_live THEN
        remaining := (policy ->> 'deadline')::double precision - extract(epoch FROM at - o.began);
        IF max_attempts = 1 OR NOT (renews OR (kind ->> 'retryable')::boolean) THEN
            given_up := true;
            IF its_code = 'DEADLINE_EXCEEDED' AND o.attempts > 0 AND remaining <= 0 THEN
                its_reason := kind ->> 'deadline';
            END IF;
        ELSIF o.attempts + 1 >= max_attempts THEN
            given_up := true;
            its_reason := kind ->> 'attempts';
        ELSIF (kind ->> 'stopped')::boolean THEN
            given_up := true;
            its_reason := kind ->> 'stop';
        ELSE
            next_step := o.step;
            next_previous := o.previous;
            next_refreshed := o.refreshed;
            IF renews AND NOT o.refreshed THEN -- RT-4
                next_refreshed := true;
                its_source := kind ->> 'refresh';
                new_delay := 0;
            ELSIF asked IS NULL THEN
                next_step := o.step + 1;
                its_source := kind ->> 'schedule';
                new_delay := grpc_backoff.delay(policy, next_step, o.previous, draw);
                next_previous := new_delay;
            ELSE -- RT-3, LG-4
                next_step := o.step + 1;
                IF (kind ->> 'exactly')::boolean THEN
                    next_step := 0;
                    next_previous := NULL;
                END IF;
                its_source := kind ->> 'asked_by';
                new_delay := least(asked, most);
            END IF;
            IF new_delay >= remaining THEN
                given_up := true;
                its_reason := kind ->> 'deadline';
            ELSIF its_source = kind ->> 'asked_by' AND NOT (kind ->> 'exactly')::boolean THEN
                new_delay := least(
                    new_delay
                    + draw * least((policy ->> 'server_delay_jitter')::double precision, remaining - new_delay),
                    most
                );
            END IF;
        END IF;
        new_state := 'waiting_for_retry';
        IF given_up THEN
            new_state := CASE WHEN (kind ->> 'conflict')::boolean THEN 'conflict' ELSE 'failed' END;
            new_delay := NULL;
            its_source := NULL;
        ELSE
            o.step := next_step;
            o.previous := next_previous;
            o.refreshed := next_refreshed;
        END IF;
    END IF;
    added := grpc_backoff.add_attempt(
        operation, o.recorded + 1, its_token,
        CASE WHEN was_live AND its_token IS NOT NULL THEN o.lease_began END, at, its_code, new_delay, its_source
    )::integer;
    new_attempts := o.attempts + added;
    IF was_live THEN
        UPDATE grpc_backoff.operations
        SET state = new_state, attempts = new_attempts, recorded = o.recorded + added, step = o.step,
            previous = o.previous, refreshed = o.refreshed, backoff_request_seconds = new_delay, last_attempted_at = at,
            next_attempt_at = at + make_interval(secs => new_delay), code = its_code, details = its_details,
            finished = CASE WHEN given_up THEN at END,
            lease_owner = NULL, lease_began = NULL, lease_until = NULL, claimed_from = NULL
        WHERE seq = o.seq;
    ELSE
        UPDATE grpc_backoff.operations SET attempts = new_attempts, recorded = o.recorded + added WHERE seq = o.seq;
    END IF;
    RETURN NEXT;
END $$;
