"""Verifies a webhook with the library of Standard Webhooks: {secret, headers, body} as JSON on standard input."""

import json
import sys

from standardwebhooks import Webhook

given = json.load(sys.stdin)
Webhook(given["secret"]).verify(given["body"], given["headers"])
print("verified")
