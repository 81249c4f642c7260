"""The same job in three projects. Each has a Celery app `app` and a task `credit(account_id, points, sent)`.

All three use the recommended `celeryconfig.py`, so acknowledge late, and write the same row with the same statement.
"""
