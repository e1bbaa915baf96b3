"""Clients of the cloud's own protocols: Azure Resource Manager, Key Vault and Microsoft Graph, with the standard library."""

import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request


class Denied(Exception):
    """The cloud denies the request, or what it names does not exist."""


class LoopbackConnection(http.client.HTTPSConnection):
    """Connects to this machine whatever the host's name is, because names below `.localhost` don't resolve everywhere."""

    def connect(self):
        self.sock = socket.create_connection(("127.0.0.1", self.port), self.timeout)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)


class Cloud:
    def __init__(self, environment):
        self.environment = environment
        self.context = ssl.create_default_context(cafile=environment["NODE_EXTRA_CA_CERTS"])
        # Python 3.13 checks certificates strictly by default. Those of the simulated cloud need not pass.
        self.context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        self.tokens = {}
        self.connections = {}

    def request(self, method, url, token=None, body=None, form=None, headers=()):
        """Returns the parsed body. Raises Denied if access is denied or the resource does not exist."""
        parts = urllib.parse.urlsplit(url)
        key = parts.netloc
        data = json.dumps(body) if body is not None else urllib.parse.urlencode(form) if form is not None else None
        sent = {"Accept": "application/json", **dict(headers)}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if form is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        # A server can close an idle connection, so a failed request is sent again on a new one.
        for attempt in (1, 2, 3):
            connection = self.connections.get(key) or self._open(parts)
            self.connections[key] = connection
            try:
                connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), data, sent)
                answer = connection.getresponse()
                text = answer.read()
                break
            except (http.client.HTTPException, OSError):
                self.connections.pop(key, None)
                if attempt == 3:
                    raise
        # App Service has 400 for an app without references.
        if answer.status in (401, 403, 404) or (answer.status == 400 and b"no Key Vault references" in text):
            raise Denied(f"{answer.status} {url} {text[:200]}")
        if answer.status >= 300:
            raise RuntimeError(f"{answer.status} {url} {text[:400]}")
        return json.loads(text) if text else None

    def _open(self, parts):
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        return LoopbackConnection(parts.hostname, parts.port, timeout=60, context=self.context)

    def token(self, resource):
        """Returns a token of the service's managed identity, as the platform gives it to a function app."""
        if resource not in self.tokens:
            query = urllib.parse.urlencode({"api-version": "2019-08-01", "resource": resource})
            url = f"{self.environment['IDENTITY_ENDPOINT']}?{query}"
            request = urllib.request.Request(url, headers={"X-IDENTITY-HEADER": self.environment["IDENTITY_HEADER"]})
            with urllib.request.urlopen(request) as answer:
                self.tokens[resource] = json.load(answer)["access_token"]
        return self.tokens[resource]

    def registration_token(self, tenant, client_id, secret):
        """Returns a token of an application in another tenant."""
        return self.request(
            "POST",
            f"{self.environment['AZURE_AUTHORITY_HOST'].rstrip('/')}/{tenant}/oauth2/v2.0/token",
            form={
                "grant_type": "client_credentials",
                "client_id": client_id,
                "client_secret": secret,
                "scope": f"{self.environment['AZURE_GRAPH_ENDPOINT']}/.default",
            },
        )["access_token"]

    def pages(self, url, token, link="nextLink", headers=()):
        """Returns the entries of all pages of a list."""
        entries = []
        while url:
            page = self.request("GET", url, token, headers=headers)
            entries.extend(page["value"])
            url = page.get(link)
        return entries

    def arm(self, path, version, method="GET", body=None):
        base = self.environment["AZURE_RESOURCE_MANAGER_ENDPOINT"].rstrip("/")
        separator = "&" if "?" in path else "?"
        quoted = urllib.parse.quote(path, safe="/?&=$'(),:@")
        return self.request(method, f"{base}{quoted}{separator}api-version={version}", self._arm_token(), body)

    def arm_list(self, path, version):
        base = self.environment["AZURE_RESOURCE_MANAGER_ENDPOINT"].rstrip("/")
        quoted = urllib.parse.quote(path, safe="/?&=$'(),:@")
        return self.pages(f"{base}{quoted}?api-version={version}", self._arm_token())

    def _arm_token(self):
        return self.token(self.environment["AZURE_RESOURCE_MANAGER_ENDPOINT"].rstrip("/"))

    def resource_graph(self, query, subscriptions=None):
        """Returns all rows of a query of Azure Resource Graph."""
        rows, token = [], None
        while True:
            options = {"resultFormat": "objectArray", "$top": 1000, **({"$skipToken": token} if token else {})}
            body = {"query": query, "options": options, **({"subscriptions": subscriptions} if subscriptions else {})}
            page = self.arm("/providers/Microsoft.ResourceGraph/resources", "2022-10-01", "POST", body)
            rows.extend(page["data"])
            token = page.get("$skipToken")
            if not token:
                return rows

    def vault(self, url, path):
        return self.request("GET", f"{url.rstrip('/')}{path}", self._vault_token())

    def vault_list(self, url, path):
        return self.pages(f"{url.rstrip('/')}{path}", self._vault_token())

    def _vault_token(self):
        return self.token(f"https://{self.environment['AZURE_KEY_VAULT_SUFFIX']}")

    def graph_list(self, path, token=None, headers=()):
        url = f"{self.environment['AZURE_GRAPH_ENDPOINT'].rstrip('/')}{urllib.parse.quote(path, safe='/?&=$(),')}"
        return self.pages(url, token or self.graph_token(), "@odata.nextLink", headers)

    def graph_token(self):
        return self.token(self.environment["AZURE_GRAPH_ENDPOINT"].rstrip("/"))


class Service:
    """The service's own API: only its answers, which are compared."""

    def __init__(self, url, token):
        self.url = url.rstrip("/")
        self.token = token

    def call(self, method, path, body=None):
        """Returns the answer. Waits and repeats the request if the service limits its rate."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", **({"Content-Type": "application/json"} if data else {})}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 429:
                time.sleep(int(error.headers["Retry-After"]))
                return self.call(method, path, body)
            raise RuntimeError(f"{error.code} {path} {error.read()[:400]}") from error

    def all(self, path):
        """Returns the items of all pages of a list."""
        items, cursor = [], None
        while True:
            query = f"limit=1000{'' if cursor is None else f'&cursor={urllib.parse.quote(cursor)}'}"
            page = self.call("GET", f"{path}{'&' if '?' in path else '?'}{query}")
            items.extend(page["items"])
            cursor = page["nextCursor"]
            if cursor is None:
                return items
