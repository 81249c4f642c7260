"""The pure part: messages, errors, policy, outcomes and events. It knows neither Celery nor a database."""
