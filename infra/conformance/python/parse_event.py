"""Parses a CloudEvent over HTTP ({headers, body} as JSON on standard input). Prints its attributes and data as JSON."""

import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

given = json.load(sys.stdin)
event = from_http_event(HTTPMessage(given["headers"], given["body"].encode()))
attributes = {**event.get_attributes(), "time": event.get_time().isoformat()}
print(json.dumps({**attributes, "data": event.get_data()}))
