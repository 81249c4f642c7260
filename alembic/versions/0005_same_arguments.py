"""The SQL function `enqueue` compares arguments as Python does, also with those of a job that is done or dead.

Locks: none on tables. The function is replaced; calls that have begun go on with the old one.

Releases before this one work with it unchanged.
"""

from pathlib import Path
from runpy import run_path

import sqlalchemy as sa

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ENQUEUE_BEFORE = "0003_enqueue.py"

# What Python reads as a float is written in its shortest form. From 1e15 on PostgreSQL may choose other digits than
# Python does, and writes an exponent where Python does not: NULL.
NUMBER = """
CREATE FUNCTION {schema}.canonical_number(literal text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET extra_float_digits = 1 AS $$
DECLARE
    number double precision;
BEGIN
    IF literal ~ '^-?[0-9]+$' THEN
        RETURN CASE WHEN literal = '-0' THEN '0' WHEN length(literal) < 3000 THEN literal END;
    END IF;
    number := literal;
    IF abs(number) >= 1e15 THEN
        RETURN NULL;
    END IF;
    RETURN number::text || CASE WHEN number::text ~ '[.e]' THEN '' ELSE '.0' END;
END $$
"""

# In ASCII: a character beyond the first 65,536 is a pair of escapes.
TEXT = """
CREATE FUNCTION {schema}.canonical_text(value text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT '"' || coalesce(string_agg(
        CASE
            WHEN c = '"' OR code = 92 THEN chr(92) || c
            WHEN code BETWEEN 32 AND 126 THEN c
            WHEN code BETWEEN 8 AND 13 AND code <> 11 THEN chr(92) || substr('btn_fr', code - 7, 1)
            WHEN code < 65536 THEN chr(92) || 'u' || lpad(to_hex(code), 4, '0')
            ELSE chr(92) || 'u' || to_hex(55296 + (code - 65536) / 1024)
                || chr(92) || 'u' || to_hex(56320 + (code - 65536) % 1024)
        END, '' ORDER BY n), '') || '"'
    FROM (
        SELECT c, n, ascii(c) AS code FROM string_to_table(value, NULL) WITH ORDINALITY AS characters(c, n)
    ) codes
$$
"""

# Without blanks, keys sorted, of a key that is there twice the last value; NULL where any part of it is. OFFSET 0 has
# each part computed once; else each level would double the work.
JSON = """
CREATE FUNCTION {schema}.canonical_json(value json, levels integer) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    blanks CONSTANT text := ' ' || chr(9) || chr(10) || chr(13);
BEGIN
    IF levels = 0 THEN
        RETURN NULL;
    END IF;
    CASE json_typeof(value)
    WHEN 'object' THEN
        RETURN (
            SELECT CASE WHEN count(*) = count(pair) THEN
                '{' || coalesce(string_agg(pair, ',' ORDER BY key COLLATE "C"), '') || '}' END
            FROM (
                SELECT DISTINCT ON (e.key) e.key,
                    {schema}.canonical_text(e.key) || ':' || {schema}.canonical_json(e.value, levels - 1) AS pair
                FROM json_each(value) WITH ORDINALITY AS e(key, value, n) ORDER BY e.key, e.n DESC
            ) pairs);
    WHEN 'array' THEN
        RETURN (
            SELECT CASE WHEN count(*) = count(item) THEN
                '[' || coalesce(string_agg(item, ',' ORDER BY n), '') || ']' END
            FROM (
                SELECT e.n, {schema}.canonical_json(e.value, levels - 1) AS item
                FROM json_array_elements(value) WITH ORDINALITY AS e(value, n) OFFSET 0
            ) items);
    WHEN 'string' THEN
        RETURN {schema}.canonical_text(value #>> '{}');
    WHEN 'number' THEN
        RETURN {schema}.canonical_number(btrim(value::text, blanks));
    ELSE
        RETURN btrim(value::text, blanks);
    END CASE;
END $$
"""

# The digest under which fence and inbox know a job. NULL where it can't be told in SQL: a value that a worker reads as
# something else than JSON's own types, a text with NUL, a number that is too long or too large, or very deep nesting.
DIGEST = """
CREATE FUNCTION {schema}.arguments_digest(args json, kwargs json) RETURNS bytea
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    both_texts CONSTANT text := args::text || kwargs::text;
BEGIN
    IF current_setting('server_encoding') <> 'UTF8'
        OR strpos(both_texts, '__type__') > 0 OR strpos(both_texts, chr(92) || 'u005') > 0
    THEN
        RETURN NULL;
    END IF;
    RETURN sha256(convert_to(
        '[' || {schema}.canonical_json(args, 50) || ',' || {schema}.canonical_json(kwargs, 50) || ']', 'UTF8'));
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END $$
"""

KNOWN_BEFORE = """        IF known.id IS NOT NULL THEN
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
"""
KNOWN = """        IF known.id IS NOT NULL OR fence.state IN ('done', 'dead') THEN
            same := known.body = the_body;
            IF same IS NOT TRUE OR fence.digest IS NOT NULL THEN
                same := {schema}.same_arguments(
                    coalesce(fence.digest, known.digest), known.body, known.content_type, enqueue.args, enqueue.kwargs);
            END IF;
            IF same IS NULL THEN
                RAISE EXCEPTION 'job id % of % was used before, with arguments that SQL cannot compare with these',
                        the_id, the_consumer
                    USING ERRCODE = 'feature_not_supported',
                          HINT = 'Ask harness.enqueue in Python, or use another id.';
            END IF;
            IF NOT same THEN
                RAISE EXCEPTION 'job id % of % was used before with other arguments', the_id, the_consumer
                    USING ERRCODE = 'unique_violation',
                          HINT = 'Enqueue it under another id, or leave it out if the first one stands.';
            END IF;
            RETURN QUERY SELECT the_id, CASE WHEN fence.state IN ('done', 'dead') THEN fence.state ELSE 'waiting' END;
            RETURN;
        END IF;
"""

# `known` is the digest of the job's arguments, `body` its message where the inbox has one. True also where nothing of
# them is kept; NULL where it can't be told.
SAME = """
CREATE FUNCTION {schema}.same_arguments(known bytea, body bytea, content_type text, args json, kwargs json)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    mine bytea := {schema}.arguments_digest(args, kwargs);
    message json;
BEGIN
    IF known IS NOT NULL AND mine IS NOT NULL THEN
        RETURN known = mine;
    END IF;
    IF body IS NULL THEN
        RETURN CASE WHEN known IS NULL THEN true END;
    END IF;
    IF content_type IS DISTINCT FROM 'application/json' THEN
        RETURN false;
    END IF;
    message := convert_from(body, 'UTF8')::json;
    known := coalesce(known, {schema}.arguments_digest(message -> 0, message -> 1));
    RETURN coalesce(known = mine, (message -> 0)::text = args::text AND (message -> 1)::text = kwargs::text);
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$
"""

MINE = {
    "canonical_number(text)": NUMBER,
    "canonical_text(text)": TEXT,
    "canonical_json(json, integer)": JSON,
    "arguments_digest(json, json)": DIGEST,
    "same_arguments(bytea, bytea, text, json, json)": SAME,
}


def _enqueue(schema: str, known: str) -> str:
    before = run_path(str(Path(__file__).with_name(ENQUEUE_BEFORE)))
    made: str = before["ENQUEUE"].format(schema=schema, arguments=before["ARGUMENTS"])
    head, middle, tail = made.partition(KNOWN_BEFORE)
    assert middle, "0003 has changed"
    replaced = head.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
    return replaced + known.replace("{schema}", schema) + tail


def _run(statement: str) -> None:
    op.execute(sa.text(statement.replace(":", r"\:")))


def upgrade() -> None:
    schema = f'"{op.get_context().version_table_schema}"'
    for function in MINE.values():
        _run(function.replace("{schema}", schema))
    _run(_enqueue(schema, KNOWN))


def downgrade() -> None:
    schema = f'"{op.get_context().version_table_schema}"'
    _run(_enqueue(schema, KNOWN_BEFORE))
    for function in reversed(MINE):
        op.execute(f"DROP FUNCTION {schema}.{function}")
