"""What a job costs: the same work as plain Celery, behind a fence written by hand, and on the harness."""
