"""What a handler's statement does to what is not its own: to the transaction, or to the session of the next job."""

import re
from enum import Enum, auto

_GAP = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_ROLLBACK = r"ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO\b)"
#: What ends a transaction or begins another one: as the first statement of a text, or (but for BEGIN and END, which
#: PL/pgSQL has too) as a later one.
_ENDS_FIRST = rf"COMMIT|{_ROLLBACK}|BEGIN|START\s+TRANSACTION|END|ABORT|PREPARE\s+TRANSACTION"
_ENDS_LATER = rf"COMMIT|{_ROLLBACK}"
#: What outlives its transaction, in the session. PL/pgSQL has none of these after a semicolon but SET.
_LEAVES = (
    r"SET(?!\s+(?:LOCAL|CONSTRAINTS|TRANSACTION)\b)|RESET|LISTEN|UNLISTEN|LOAD|PREPARE(?!\s+TRANSACTION\b)|DISCARD"
    r"|CREATE\s+(?:OR\s+REPLACE\s+)?(?:LOCAL\s+|GLOBAL\s+)?TEMP(?:ORARY)?|DECLARE\s.*\sWITH\s+HOLD"
)
_FIRST = re.compile(rf"{_GAP}(?:(?P<ends>{_ENDS_FIRST})|(?P<leaves>{_LEAVES}))\b", re.IGNORECASE | re.DOTALL)
_LATER = re.compile(rf"{_GAP}(?:(?P<ends>{_ENDS_LATER})|(?P<leaves>{_LEAVES}))\b", re.IGNORECASE | re.DOTALL)
#: `set_config(name, value, true)` is SET LOCAL.
_LOCAL_CONFIG = re.compile(r"set_config\s*\((?:[^()]|\([^()]*\))*,\s*(?:true|'t(?:rue)?'|'on')\s*\)", re.IGNORECASE)


class Does(Enum):
    """`ends`: the transaction. `leaves`: something in the session, when the transaction is over."""

    neither = auto()
    ends = auto()
    leaves = auto()


def does(sql: str) -> Does:
    """What a text of one or several statements does. A function that the text calls is not looked into."""
    found, at = _FIRST.match(sql), 0
    left = False
    while True:
        if found is not None:
            if found.lastgroup == "ends":
                return Does.ends
            left = True
        # A semicolon in a literal is looked behind as well: better one look too many than a COMMIT.
        at = sql.find(";", at) + 1
        if not at:
            return Does.leaves if left or _calls(sql) else Does.neither
        found = _LATER.match(sql, at)


def _calls(sql: str) -> bool:
    """Does it call a function of PostgreSQL's that outlives the transaction, by its usual name?"""
    if "advisory_lock" in sql:  # those of a transaction are called pg_advisory_xact_lock
        return True
    return "set_config" in sql and "set_config" in _LOCAL_CONFIG.sub("", sql)
