"""What the tables and their columns mean, for the reference."""

TABLES = {
    "processed_jobs": "The fence: one row for each job that has been decided or waits. It is written first in every "
    "transaction, so that one copy of a job decides. Pruned after `harness_processed_ttl`.",
    "inbox": "Jobs that wait: for the next try, a replay, an `eta`; jobs that were enqueued in a transaction. The "
    "relay sends what is due. A row goes when its job is done or dead, so a healthy service has few.",
    "dead_letters": "The evidence of each job that did not succeed, and what was done about it.",
    "audit_log": "Who did what to which letter. Append-only: triggers refuse UPDATE, DELETE and TRUNCATE.",
    "audit_seals": "Hashes over ranges of the audit log, each over the one before. The table is there; nothing writes "
    "it yet.",
    "order_places": "Where dead jobs stand in the order of their keys: a replay takes its old place, and a letter may "
    "block its key.",
    "presence": "When relays, receivers and beat of a service were last at work, for `harness check`.",
}

_MESSAGE = {
    "body": "The message's body, byte for byte.",
    "content_type": "What the body is, as the message says.",
    "content_encoding": "How the text of the body is encoded, as the message says.",
    "headers": "The message's headers, in the harness's own exact form.",
    "properties": "The message's properties, in the same form.",
    "queue": "The queue that it came from, and that it is sent to again.",
    "ordering_key": "Jobs with the same key run one after another.",
    "sequence": "The place of the job among those that its transaction has put in. NULL: it has no place.",
    "tenant": "Whose job it is, where a service has several customers.",
    "priority": "The message's priority.",
    "correlation_id": "What ties the job to the request that it came from; passed on to what its handler sends.",
}

_JOB = {
    "service": "Whose row it is: `harness_service`.",
    "consumer": "`service/task`: the second half of the fence's key.",
    "task": "Celery's name of the task.",
    "job_id": "The job's id, which is Celery's task id.",
    "digest": "A hash of the arguments: the same id with others is evidence, not a duplicate.",
}

_OF_TABLE = {
    "processed_jobs": {
        "job_id": _JOB["job_id"],
        "consumer": _JOB["consumer"],
        "state": "`done`: it took effect. `waiting`: the inbox has it. `dead`: a letter has it. `claimed`: its "
        "handler is at work outside of the database.",
        "processed_at": "When the fence was taken; its age is counted from here.",
        "digest": _JOB["digest"],
        "result": "What the handler returned, where someone may still ask for it.",
    },
    "inbox": {
        "id": "Number of the row.",
        **_JOB,
        **_MESSAGE,
        "xid": "The transaction that wrote the row, for the order of rows with a key.",
        "available_at": "When the job is due.",
        "expires_at": "When the job is not worth running any more.",
        "attempts": "Tries that have failed.",
        "deliveries": "Deliveries since the last outcome; at `harness_max_deliveries` the job is dead (`crashed`).",
        "dispatches": "How often the relay has sent the row since it became due.",
        "generation": "Tells the copies of this wait from those of an earlier one: see "
        "[decision 1](../decisions/0001-generation-numbers.md).",
        "leased_until": "The relay does not send the row before: it has sent it, or there is a `relay_error`.",
        "failures": "Every failure so far: kind, error, traceback, time, try, worker.",
        "letter_id": "The dead letter that this is a replay of.",
        "relay_error": "What the relay met when it tried to send the row, or why it did not: `waits for its turn`.",
        "created_at": "When the job began to wait.",
    },
    "dead_letters": {
        "id": "Number of the letter: what the commands take.",
        **_JOB,
        **_MESSAGE,
        "payload": "The arguments as JSON, as well as they can be read. For people and queries; a replay sends `body`.",
        "reason": "Why the job is dead: see [reasons](reasons.md).",
        "attempts": "Tries in the life of the job that ended here.",
        "deliveries": "Deliveries since the last outcome.",
        "error_type": "Type of the last error.",
        "error_message": "Its message, at most 4 KiB.",
        "traceback": "Its traceback, at most 16 KiB.",
        "fingerprint": "The same for the same error type at the same place in the code.",
        "failures": "Every failure, over all replays.",
        "status": "`pending_review`: waits for a person or a gate. `replayed`: being tried again, or resolved. "
        "`discarded`: closed for good.",
        "reviewer": "Who replayed or discarded it last.",
        "reviewed_at": "When.",
        "discard_reason": "Why it was discarded.",
        "replays": "How often it was replayed.",
        "lineage": "The replays and what came of each.",
        "surfaced": "Why no machine replays it any more: too old, or replayed too often.",
        "alerted_at": "When log, Sentry and alerts were told of it; NULL: `harness.alert` will.",
        "resolved_at": "When it was closed: its job succeeded, or it was discarded. NULL: it is open.",
        "created_at": "When it was written.",
        "updated_at": "When it changed last.",
    },
    "audit_log": {
        "id": "Number of the act.",
        "at": "When, by the database's clock.",
        "service": _JOB["service"],
        "actor": "Who: a worker, a person (`--actor`, by default the OS user), a beat task.",
        "action": "`dead_lettered`, `replayed`, `resolved`, `discarded` or `surfaced`.",
        "letter_id": "Which letter.",
        "consumer": _JOB["consumer"],
        "job_id": _JOB["job_id"],
        "reason": "Why: the note, the discard's reason, the reason of the death.",
        "details": "More about it, as JSON.",
    },
    "order_places": {
        "letter_id": "The dead letter.",
        "service": _JOB["service"],
        "ordering_key": "Its key.",
        "xid": "The transaction that put the job in.",
        "sequence": "The job's number there.",
        "blocks": "The jobs behind it wait until the letter is closed.",
    },
    "presence": {
        "service": _JOB["service"],
        "role": "`relay`, `receiver` or `beat`.",
        "name": "Which one: host of a relay, source and host of a receiver, the task that a beat has sent.",
        "seen_at": "When it was last at work.",
    },
    "audit_seals": {
        "id": "Number of the seal.",
        "first_id": "First row of the audit log that it covers.",
        "last_id": "Last one.",
        "previous": "The hash of the seal before.",
        "hash": "The hash over both.",
        "sealed_at": "When.",
    },
}

MEANINGS = {f"{table}.{column}": text for table, columns in _OF_TABLE.items() for column, text in columns.items()}
