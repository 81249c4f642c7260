"""No password of a URL is shown."""

import pytest

from harness.core.masked import masked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at amqp://ann:s3cret@h//: refused", "at amqp://ann:***@h//: refused"),
        ("redis://:s3cret@h:6379/0", "redis://:***@h:6379/0"),
        ("postgresql://ann:s3@cr/et@h/d", "postgresql://ann:***@h/d"),
        (
            "postgresql://h/d?user=ann&password=s3cret&sslmode=require",
            "postgresql://h/d?user=ann&password=***&sslmode=require",
        ),
        ("postgresql://h/d?sslpassword=s3cret", "postgresql://h/d?sslpassword=***"),
        ("like postgresql://user:password@host:5432/database", "like postgresql://user:password@host:5432/database"),
        ("redis://h:6379/0 has no password, nor has ann@h", "redis://h:6379/0 has no password, nor has ann@h"),
    ],
)
def test_masked(text: str, shown: str) -> None:
    assert masked(text) == shown
