"""The only code that knows Celery.

harness.py   the object that a project makes; settings.py what it reads from `celeryconfig.py`
task.py      JobTask, the base class; eager.py what `apply()` does
trace.py     in the pool's child: a message becomes a delivery, its outcome becomes Celery's state
strategy.py, request.py, consumer.py   in the parent: hand over, acknowledge on proof, name the dead
wire.py      a Celery message as a Copy; exact.py its bytes; envelope.py what is none
publisher.py a row of the inbox as a Celery message; quiet.py Celery's log lines without payload
steps.py     every bootstep and signal; beat.py the scheduled tasks
"""
