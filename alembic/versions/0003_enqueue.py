"""Enqueue: the SQL function for other languages, and the index by which the relay finds what is urgent.

Locks: inbox SHARE, which holds off its writers while CREATE INDEX reads it (two seconds for a million rows, measured).

Releases before this one work with it unchanged.
"""

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ARGUMENTS = """
    service text, task text, queue text,
    args json DEFAULT '[]', kwargs json DEFAULT '{}',
    job_id text DEFAULT NULL, delay interval DEFAULT NULL, eta timestamptz DEFAULT NULL,
    expires timestamptz DEFAULT NULL, priority integer DEFAULT NULL, tenant text DEFAULT NULL,
    ordering_key text DEFAULT NULL, correlation_id text DEFAULT NULL, consumer text DEFAULT NULL
"""
TYPES = "text, text, text, json, json, text, interval, timestamptz, timestamptz, integer, text, text, text, text"

# UUIDv7: 48 bits of milliseconds, the version, the rest random; PostgreSQL has a function for it from 18 on only.
UUID7 = """
CREATE FUNCTION {schema}.new_job_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112), 'hex')::uuid::text
    FROM overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6
    ) AS bytes
$$
"""

# As UTC, in the form that Celery writes.
ISO = """
CREATE FUNCTION {schema}.celery_time(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
$$
"""

ENQUEUE = """
CREATE FUNCTION {schema}.enqueue({arguments}) RETURNS TABLE (id text, state text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    the_id text := coalesce(enqueue.job_id, {schema}.new_job_id());
    the_consumer text := enqueue.service || '/' || coalesce(enqueue.consumer, enqueue.task);
    the_body bytea;
    the_headers jsonb;
    the_properties jsonb;
    fence {schema}.processed_jobs%ROWTYPE;
    known {schema}.inbox%ROWTYPE;
    same boolean;
BEGIN
    IF coalesce(enqueue.service, '') = '' OR coalesce(enqueue.task, '') = '' OR coalesce(enqueue.queue, '') = '' THEN
        RAISE EXCEPTION 'service, task and queue must be given' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF the_id = '' OR length(the_id) > 255 OR the_id ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'job_id must be a printable text of 1 to 255 characters'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF coalesce(json_typeof(enqueue.args), '') <> 'array' OR coalesce(json_typeof(enqueue.kwargs), '') <> 'object' THEN
        RAISE EXCEPTION 'args must be a JSON array and kwargs a JSON object' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.delay IS NOT NULL AND enqueue.eta IS NOT NULL THEN
        RAISE EXCEPTION 'delay and eta were both given, give one' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF enqueue.priority NOT BETWEEN 0 AND 255 THEN
        RAISE EXCEPTION 'priority must be from 0 to 255' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    the_body := convert_to(
        '[' || enqueue.args || ', ' || enqueue.kwargs
        || ', {{"callbacks": null, "errbacks": null, "chain": null, "chord": null}}]', 'UTF8');
    the_headers := jsonb_build_object(
        'lang', 'sql', 'task', enqueue.task, 'id', the_id, 'shadow', NULL, 'eta', NULL,
        'expires', {schema}.celery_time(enqueue.expires), 'group', NULL, 'group_index', NULL, 'retries', 0,
        'timelimit', jsonb_build_array(NULL, NULL), 'root_id', the_id, 'parent_id', NULL,
        'argsrepr', left(enqueue.args::text, 1024), 'kwargsrepr', left(enqueue.kwargs::text, 1024),
        'origin', 'postgresql', 'ignore_result', false, 'replaced_task_nesting', 0, 'stamped_headers', NULL,
        'stamps', jsonb_build_object(), 'harness_sent_at', {schema}.celery_time(clock_timestamp()));
    the_headers := the_headers || jsonb_strip_nulls(jsonb_build_object(
        'harness_tenant', enqueue.tenant, 'harness_ordering_key', enqueue.ordering_key,
        'harness_correlation_id', enqueue.correlation_id));
    the_properties := jsonb_build_object('correlation_id', the_id, 'reply_to', '', 'delivery_mode', 2)
        || jsonb_strip_nulls(jsonb_build_object('priority', enqueue.priority));

    FOR look IN 1..5 LOOP
        -- A row that a handler is at work on is seen here and not waited for.
        SELECT f.* INTO fence FROM {schema}.processed_jobs f WHERE f.job_id = the_id AND f.consumer = the_consumer;
        SELECT i.* INTO known FROM {schema}.inbox i WHERE i.consumer = the_consumer AND i.job_id = the_id;
        IF known.id IS NOT NULL THEN
            BEGIN
                same := known.body = the_body OR (
                    known.content_type = 'application/json'
                    AND convert_from(known.body, 'UTF8')::jsonb -> 0 = enqueue.args::jsonb
                    AND convert_from(known.body, 'UTF8')::jsonb -> 1 = enqueue.kwargs::jsonb);
            EXCEPTION WHEN data_exception THEN
                same := false;
            END;
            IF same IS NOT TRUE THEN
                RAISE EXCEPTION 'job id % of % was used before with other arguments', the_id, the_consumer
                    USING ERRCODE = 'unique_violation',
                          HINT = 'Enqueue it under another id, or leave it out if the first one stands.';
            END IF;
            RETURN QUERY SELECT the_id, 'waiting'::text;
            RETURN;
        END IF;
        IF fence.state IN ('done', 'dead') THEN
            RETURN QUERY SELECT the_id, fence.state;
            RETURN;
        END IF;
        INSERT INTO {schema}.inbox (
            service, consumer, task, job_id, body, content_type, content_encoding, headers, properties, queue,
            ordering_key, sequence, tenant, priority, correlation_id, available_at, expires_at
        ) VALUES (
            enqueue.service, the_consumer, enqueue.task, the_id, the_body, 'application/json', 'utf-8',
            convert_to(the_headers::text, 'UTF8'), convert_to(the_properties::text, 'UTF8'), enqueue.queue,
            enqueue.ordering_key,
            CASE WHEN enqueue.ordering_key IS NOT NULL THEN nextval('{schema}.inbox_generation') END,
            enqueue.tenant, coalesce(enqueue.priority, 0), coalesce(enqueue.correlation_id, the_id),
            coalesce(enqueue.eta, clock_timestamp() + greatest(enqueue.delay, interval '0'), now()), enqueue.expires
        ) ON CONFLICT ON CONSTRAINT inbox_consumer_job_id_key DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT the_id, 'enqueued'::text;
            RETURN;
        END IF;
    END LOOP;
    RETURN QUERY SELECT the_id, 'waiting'::text;
END $$
"""


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_index(
        "inbox_priority_idx",
        "inbox",
        [
            "service",
            sa.text("least(greatest(priority, 0), 9)"),
            sa.text("coalesce(leased_until, available_at)"),
        ],
        schema=schema,
    )
    for statement in (UUID7, ISO, ENQUEUE):
        op.execute(sa.text(statement.format(schema=f'"{schema}"', arguments=ARGUMENTS).replace(":", r"\:")))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for function in (f"enqueue({TYPES})", "celery_time(timestamptz)", "new_job_id()"):
        op.execute(f'DROP FUNCTION "{schema}".{function}')
    op.drop_index("inbox_priority_idx", table_name="inbox", schema=schema)
