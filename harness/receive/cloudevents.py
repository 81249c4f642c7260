"""CloudEvents 1.0, JSON: structured (the event is the body) and binary (its attributes are headers).

Specification: CloudEvents 1.0.2, its JSON event format, and its protocol bindings for AMQP and HTTP.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.incoming import Delivered, Incoming, Unfit, Unreadable
from harness.core.message import job_key
from harness.receive.fields import ROOTS, check_paths, incoming
from harness.receive.paths import Parts, Where

#: Of an attribute's header, whatever its case: AMQP's (both forms), HTTP's and Kafka's.
PREFIXES = ("cloudevents:", "cloudevents_", "ce-", "ce_")
REQUIRED = ("id", "source", "specversion", "type")
_JSON = re.compile(r"\s*(application|text)/([^;+]*\+)?json\s*(;|$)", re.I)


@dataclass(frozen=True, kw_only=True)
class CloudEvents:
    """Reads CloudEvents: `harness.source(…, read=CloudEvents(arguments={"kind": "attributes.type", "order": "data"}))`.

    The paths are those of `Fields`, and `attributes.<name>` and `data`. By default `data` is the object with all of
    the job's arguments, `attributes.partitionkey` the ordering key and `attributes.correlationid` the correlation id.

    The job's id is `source|id`, for an event's id is unique for its source only. An event without one of the required
    attributes (`id`, `source`, `specversion` 1.0, `type`) is a dead letter, `invalid_payload`; so is a batch.
    """

    arguments: Mapping[str, Where] | Where = "data"
    ordering_key: Where | None = "attributes.partitionkey"
    tenant: Where | None = None
    correlation_id: Where | None = "attributes.correlationid"
    priority: Where | None = None

    def __post_init__(self) -> None:
        check_paths(self, (*ROOTS, "attributes", "data"))

    def __call__(self, message: Delivered) -> Incoming:
        """Read one event. Raises Unreadable, Unfit."""
        kind = (message.content_type or "").partition(";")[0].strip().lower()
        if kind.startswith("application/cloudevents-batch"):
            raise Unfit("a batch of CloudEvents, which is several messages in one: have each event sent alone")
        attributes = _binary(message)
        if kind.startswith("application/cloudevents") or not attributes:
            if kind.startswith("application/cloudevents") and not kind.endswith(("+json", "cloudevents")):
                raise Unreadable(f"CloudEvents in the format {kind}: JSON is what can be read")
            attributes, data = _structured(message)
        else:
            data = _data_of(message, attributes)
        _check(attributes)
        source, event_id = attributes["source"], attributes["id"]
        job_id = job_key(f"{source.replace('|', '%7C')}|{event_id}", b"")
        return incoming(self, Parts(message, {"attributes": attributes, "data": data}), job_id)


def _structured(message: Delivered) -> tuple[dict[str, Any], Any]:
    event = message.json()
    if not isinstance(event, dict) or "specversion" not in event:
        raise Unfit("no CloudEvent: neither attributes in its headers, nor an object with specversion as its body")
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    if "data_base64" not in event:
        return attributes, event.get("data")
    if "data" in event:
        raise Unfit("it has data and data_base64, of which an event may have one")
    try:
        raw = base64.b64decode(event["data_base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise Unfit(f"its data_base64 is no base64: {error}") from error
    return attributes, _typed(raw, attributes.get("datacontenttype"))


def _binary(message: Delivered) -> dict[str, Any]:
    found = {}
    for name, value in message.headers.items():
        lower = name.lower() if isinstance(name, str) else ""
        for prefix in PREFIXES:
            if lower.startswith(prefix):
                found[lower.removeprefix(prefix)] = value
    if found and message.content_type and "datacontenttype" not in found:
        found["datacontenttype"] = message.content_type
    return found


def _data_of(message: Delivered, attributes: Mapping[str, Any]) -> Any:
    kind = attributes.get("datacontenttype")
    if not message.body:
        return None
    if kind is None or _is_json(kind):
        return message.json()
    return message.text() if str(kind).lower().startswith("text/") else message.body


def _typed(raw: bytes, kind: Any) -> Any:
    if not (kind is None or _is_json(kind)):
        return raw
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        if kind is None:
            return raw
        raise Unreadable(f"its data is no JSON: {error}") from error


def _is_json(kind: Any) -> bool:
    return isinstance(kind, str) and _JSON.match(kind) is not None


def _check(attributes: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        value = attributes.get(name)
        if not (isinstance(value, str) and value):
            raise Unfit(f"the CloudEvent has no {name}, or none that is a text")
    if attributes["specversion"] != "1.0":
        raise Unfit(f"it is of CloudEvents {attributes['specversion'][:20]!r}: 1.0 is what can be read")
