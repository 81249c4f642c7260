"""Run a server until told otherwise: what the tests kill. Usage: parent.py postgres|valkey FOLDER"""

import sys
import time
from pathlib import Path

from harness.dev.postgres import Postgres
from harness.dev.process import ServiceError
from harness.dev.service import Service
from harness.dev.valkey import Valkey


def main(kind: str, folder: str) -> None:
    """Start, print "PID URL", stay."""
    service: Service = Postgres(Path(folder)) if kind == "postgres" else Valkey(Path(folder))
    try:
        service.start()
    except ServiceError as error:
        sys.exit(f"refused: {error}")
    print(service.pid, service.url, flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
