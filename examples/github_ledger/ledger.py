"""The ledger's tables. They are the project's own; the harness neither knows nor needs them.

Nothing in them keeps a delivery from being booked twice. That it is not is the harness's work, and so a second effect
would show.
"""

from datetime import datetime

from sqlalchemy import Engine, ForeignKey, func
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The project's models."""


class Account(Base):
    """A repository that the ledger is kept for, and how often something has happened in it."""

    __tablename__ = "accounts"

    repository: Mapped[str] = mapped_column(primary_key=True)
    activities: Mapped[int] = mapped_column(default=0)


class Entry(Base):
    """One thing that has happened."""

    __tablename__ = "entries"

    id: Mapped[int] = mapped_column(primary_key=True)
    delivery_id: Mapped[str]
    repository: Mapped[str] = mapped_column(ForeignKey(Account.repository))
    event: Mapped[str]
    action: Mapped[str | None]
    actor: Mapped[str]
    booked_at: Mapped[datetime] = mapped_column(server_default=func.now())


def create_tables(engine: Engine) -> None:
    """Create what is missing."""
    Base.metadata.create_all(engine)


def open_account(session: Session, repository: str) -> None:
    """Keep the ledger for `repository`, too. A second time changes nothing."""
    session.merge(Account(repository=repository))
