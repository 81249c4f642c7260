"""`python -m benchmarks --quick` runs to its end on real servers and workers, and says what it has measured.

Nothing here looks at how fast anything was: that is for `make bench` on a quiet machine.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_quick_run(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--results", str(results)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    assert re.fullmatch(r"bench: vs_unfenced=\d+\.\d\d vs_handwritten=\d+\.\d\d", run.stdout.splitlines()[-1])
    page = results.read_text()
    # What the server counted is no matter of speed: three, four and three messages, each job as planned.
    assert re.search(r"^\| unfenced \| 3 \| 3 \|", page, re.MULTILINE)
    assert re.search(r"^\| handwritten \| 4 \| 4 \|", page, re.MULTILINE)
    assert re.search(r"^\| harness \| 3 \| 4 \|", page, re.MULTILINE)
