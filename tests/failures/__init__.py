"""`python -m tests.failures`, what `make failures` runs: what becomes of a job in each of the ways that lose one.

case.py   what a case is: what is sent, what goes wrong, what is expected
ways/     the cases, a file for each group of ways
app.py    the worker's app, in two forms: jobs on the harness, and the same tasks on plain Celery
place.py  a broker, a database and a worker, for one case after the other
count.py  what a case has left behind, counted
lanes.py  all cases on all brokers, several at a time
kept.py   rows that a later run need not make again
report.py the table
"""
