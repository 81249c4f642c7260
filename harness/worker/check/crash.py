"""A check that fails itself: whether the promise holds is not known, and that must be seen."""

import traceback
from pathlib import Path

from harness.worker.check.finding import Check, Finding, Verdict


def crashed(check: Check, error: Exception) -> Finding:
    """What is said of it: the error, where it was raised, what to do."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    said = " ".join("".join(traceback.format_exception_only(error)).split())
    return Finding(
        check.name,
        Verdict.unknown,
        f"The check itself failed: {said}{place}",
        "Whether a promise is broken here is not known.",
        f"Look at what it is about ({check.about}): most often a value is of a kind that nobody expects. If all is "
        "right there, it is a fault of the harness: report it with this line, or accept the check by its name "
        f"(--accept {check.name}).",
        check.about,
        crashed=True,
    )
