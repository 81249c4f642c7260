"""A producer that dies: `python -m tests.enqueue.killed <database url> <job id> <before|after>` the commit."""

import os
import signal
import sys

from sqlalchemy.orm import Session

from tests.enqueue.conftest import Shop


def main(url: str, job_id: str, when: str) -> None:
    shop = Shop(url)
    session = Session(shop.engine)
    shop.harness.enqueue(session, shop.credit.s(points=5), job_id=job_id)
    if when == "after":
        session.commit()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
