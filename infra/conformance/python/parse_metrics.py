"""Parses a text in the Prometheus format (JSON string on standard input). Prints its families and duplicate series as JSON."""

import collections
import json
import sys

from prometheus_client.parser import text_string_to_metric_families

families = list(text_string_to_metric_families(json.load(sys.stdin)))
series = collections.Counter(
    (sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples
)
print(
    json.dumps(
        {
            "families": [
                {"name": one.name, "type": one.type, "help": one.documentation, "samples": len(one.samples)}
                for one in families
            ],
            "duplicates": [str(key) for key, count in series.items() if count > 1],
            "secrets": {
                sample.labels["status"]: sample.value
                for family in families
                if family.name == "lifecycle_assets"
                for sample in family.samples
                if sample.labels["type"] == "secret"
            },
        }
    )
)
