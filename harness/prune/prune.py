"""Prune: in bounded batches, each its own transaction; what fails is logged and the rest goes on."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from harness.core.errors import ConfigError
from harness.core.events import Events, Pruned
from harness.store.database import Database, DatabaseAway
from harness.store.store import Store

log = logging.getLogger("harness")

DAY = 86_400.0
#: Letters that one transaction deletes at most.
LETTERS = 1000
#: Called after each batch with the name of the table and how many of its rows are gone by now.
Progress = Callable[[str, int], None]


def prune(
    database: Database,
    store: Store,
    service: str,
    processed_ttl: float,
    letters_ttl: float,
    events: Events,
    batch_pages: int = 256,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Delete the service's fences older than `processed_ttl` and letters closed `letters_ttl` ago (in seconds).

    A fence stays while its job has an inbox row or an open letter; a letter stays while it is pending or replayed.
    Returns how many `fences` and `letters` are gone, and how many parts `failed` (logged, left for the next time).
    Any number may run at once. Raises ConfigError for a `processed_ttl` below a day, and DatabaseAway.
    """
    if not processed_ttl >= DAY or not letters_ttl > 0:
        raise ConfigError(
            f"processed_ttl = {processed_ttl:g} s and letters_ttl = {letters_ttl:g} s are refused: a fence is kept for "
            "a day at least, for without it a late copy of its job would run again, and a letter for some time."
        )
    work = _Prune(database, store, service, timedelta(seconds=processed_ttl), timedelta(seconds=letters_ttl), progress)
    work.fences(batch_pages)
    work.letters()
    work.rest()
    for table, count in (("processed_jobs", work.counts["fences"]), ("dead_letters", work.counts["letters"])):
        if count:
            events.emit(Pruned(table, count, service))
    return work.counts


@dataclass
class _Prune:
    database: Database
    store: Store
    service: str
    processed_ttl: timedelta
    letters_ttl: timedelta
    progress: Progress | None

    def __post_init__(self) -> None:
        self.counts = {"fences": 0, "letters": 0, "failed": 0}

    def fences(self, batch_pages: int) -> None:
        """Sweep the table once, a range of pages at a time, for all consumers."""
        with self.database.begin() as session:
            pages = self.store.fence.pages(session)
        for first in range(0, pages, batch_pages):
            span = (first, first + batch_pages)
            if self._fences(span, None) is None:
                self._each_consumer(span)

    def _each_consumer(self, span: tuple[int, int]) -> None:
        """Where a range has failed as a whole, all but the consumers that are the cause can be pruned."""
        try:
            with self.database.begin() as session:
                consumers = self.store.fence.consumers(session, self.service, span)
        except DatabaseAway:
            raise
        except Exception:
            log.exception("prune: pages %d to %d of processed_jobs can't be read", *span)
            self.counts["failed"] += 1
            return
        for consumer in consumers:
            if self._fences(span, consumer) is None:
                self.counts["failed"] += 1

    def _fences(self, span: tuple[int, int], consumer: str | None) -> int | None:
        tables = self.store.inbox.table, self.store.letters.table

        def batch(session: Session) -> int:
            return self.store.fence.prune(session, self.service, self.processed_ttl, span, *tables, consumer=consumer)

        what = f"the fences of {consumer or self.service} in pages {span[0]} to {span[1]}"
        return self._batch("fences", what, batch, quiet=consumer is None)

    def letters(self) -> None:
        """Tenant by tenant, oldest or not."""
        with self.database.begin() as session:
            tenants = self.store.letters.prunable_tenants(session, self.service, self.letters_ttl)
        for tenant in tenants:
            count = LETTERS

            def batch(session: Session, tenant: str | None = tenant) -> int:
                return self.store.letters.prune(session, self.service, tenant, self.letters_ttl, LETTERS)

            while count == LETTERS:
                done = self._batch("letters", f"the letters of tenant {tenant!r}", batch)
                if done is None:
                    self.counts["failed"] += 1
                    break
                count = done

    def rest(self) -> None:
        """Signs of relays and beats that are gone, places of letters that are closed: rows that nobody would miss."""
        try:
            with self.database.begin() as session:
                self.store.presence.prune(session, self.service)
            count = LETTERS
            while count == LETTERS:
                with self.database.begin() as session:
                    count = self.store.order.forget_places(session, self.service, LETTERS)
        except DatabaseAway:
            raise
        except Exception as error:
            log.error("prune: old rows of presence and order_places can't be deleted: %s", error)
            self.counts["failed"] += 1

    def _batch(self, name: str, what: str, batch: Callable[[Session], int], *, quiet: bool = False) -> int | None:
        """One transaction; returns how many rows it deleted, None when it failed."""
        try:
            with self.database.begin() as session:
                # A TRUNCATE or a migration that waits for us, or we for it, must not stop everything.
                self.store.fence.bound_waits(session, 5000)
                count = batch(session)
        except DatabaseAway:
            raise
        except Exception as error:
            log.log(
                logging.INFO if quiet else logging.ERROR,
                "prune: %s can't be deleted, going on with the rest: %s",
                what,
                error,
                exc_info=not quiet,
            )
            return None
        self.counts[name] += count
        if self.progress is not None:
            self.progress(name, self.counts[name])
        return count
