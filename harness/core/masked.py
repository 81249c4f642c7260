"""Text without the passwords that are in its URLs: for errors, logs and terminals."""

import re

#: Greedy, for a password that nobody has escaped may hold a `/` or an `@`. The example of our own texts keeps its own.
_BEFORE_HOST = re.compile(r"(?<=://)(?!user:password@host\b)([^/\s:@]*):[^\s]*@")
_IN_QUERY = re.compile(r"([?&](?:ssl)?password=)[^&\s]*", re.IGNORECASE)


def masked(text: str) -> str:
    """`text`, with `***` for each password: before the host of a URL, or in its query, as libpq takes it."""
    return _IN_QUERY.sub(r"\1***", _BEFORE_HOST.sub(r"\1:***@", text))
