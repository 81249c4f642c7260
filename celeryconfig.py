"""A recommended configuration: copy it, then change what your project needs. The example app uses it as it is.

    app.config_from_object("celeryconfig")

Where the servers are is best said by the environment, which wins over this file: CELERY_BROKER_URL and
HARNESS_DATABASE_URL. `celery -A yourapp harness dev` brings both servers along where neither names one.
"""

import os

# broker_url = "amqp://user:password@localhost//"  # or redis://localhost:6379/0
# harness_database_url = "postgresql+psycopg2://user:password@localhost/billing"

# A queue of the service's own. Celery's default, "celery", is also the default of every other app on the broker.
task_default_queue = "github_ledger"

# A worker holds no more messages than it works on, so that a slow job keeps no other one waiting behind it.
worker_prefetch_multiplier = 1

# Every job has an end: one that hangs holds its fence, its connection and its process. The soft limit is raised in the
# handler, the hard one kills the process; both count as a failed try (`timed_out` after the last one).
task_soft_time_limit = 240
task_time_limit = 300

# When the connection to the broker breaks, a running job goes on and commits; the copy that the broker delivers again
# is a duplicate.
worker_cancel_long_running_tasks_on_connection_loss = False

# A worker that starts before its broker waits for it.
broker_connection_retry_on_startup = True

_broker = os.environ.get("CELERY_BROKER_URL") or globals().get("broker_url", "")
if str(_broker).startswith(("redis", "valkey", "sentinel")):
    # A Redis-protocol broker delivers a message again when it has not been acknowledged for so long (seconds). So long
    # do the jobs of a worker that was killed wait for another one, and up to a quarter of a minute more: the harness
    # has kombu look that often, and a worker that is killed over it does not keep the others from looking. Let it be
    # longer than the hard time limit: a copy of a job that still runs does no harm, for it meets the fence, but it
    # keeps a process busy.
    broker_transport_options = {"visibility_timeout": 600}

# RabbitMQ: publisher confirms, so that a message which the broker did not take is an error at the producer.
# broker_transport_options = {"confirm_publish": True}

# JSON only: a pickle from a broker is code that somebody else wrote. These are Celery's defaults.
task_serializer = "json"
accept_content = ["json"]

# What Flower and other monitors show.
worker_send_task_events = True
task_send_sent_event = True

# Each worker starts a relay; "off" where `celery -A yourapp harness relay` runs as a service of its own.
harness_relay = os.environ.get("HARNESS_RELAY", "worker")

# The harness. README.md lists all its settings with their defaults; these are the ones that a project may want to set.
#
# harness_service = "billing"            # default: the name of the Celery app
# harness_schema = "core"                # the PostgreSQL schema of its tables
# harness_processed_ttl = 7 * 86_400     # how long a fence is kept: longer than any retry window, a worker checks that
# harness_prune_every = 3_600            # beat runs harness.prune; None switches it off
# harness_replay_every = 60              # beat runs harness.replay for jobs with can_replay; None switches it off
# harness_alert_every = 60               # beat reports dead letters that their own process could not; None: off
#
# A policy for a queue wins over the policies of the jobs in it.
# harness_policies = {
#     "slow-provider": Policy(wait=backoff(base=300, cap=6 * 3600), reason="it answers again after hours"),
# }
