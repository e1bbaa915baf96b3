"""Computes blast radii: how much depends on an asset, by docs/dependencies.md."""

import re
from collections import defaultdict

from pages import number


class Radius:
    """The score of docs/dependencies.md, with the factors of its table."""

    def __init__(self, pages, consumers, warning_days, now):
        self.consumers, self.warning, self.now = consumers, warning_days * 86_400, now
        factors = {row["factor"].replace("`", ""): row["value"] for row in pages.tables("dependencies.md", "The score")[0]}
        self.strength = named_numbers(factors["strength"])
        self.refresh = named_numbers(factors["refresh"])
        env = re.search(r"production (\d+) .*none named (\d+), any other (\d+)", factors["environment"])
        self.environments = {"production": float(env[1]), "unknown": float(env[2]), "other": float(env[3])}
        self.shared = number(factors["others depend on it"])
        self.unresolved = number(factors["reference unresolved"])
        text = re.sub(r"\s+", " ", (pages.folder / "dependencies.md").read_text())
        found = re.search(r"times ([\d.]+) if the asset expired or expires within .*?100 × sum ÷ \(sum \+ (\d+)\)", text)
        self.expiring, self.half = float(found[1]), float(found[2])
        self.owners, self.names = consumers.names()

    # "API Management, gateways, Front Door, clusters, App Configuration, DevOps groups and connections"
    SHARED = {
        "apiManagement",
        "applicationGateway",
        "frontDoor",
        "kubernetesCluster",
        "appConfiguration",
        "devopsVariableGroup",
        "devopsServiceConnection",
    }

    def weight(self, edge):
        """Returns the product of the factors of an edge."""
        env = edge["environment"]
        env = "unknown" if env is None else "production" if re.match(r"(prod|prd|production|live)\b", env, re.I) else "other"
        return (
            self.strength[edge["strength"]]
            * self.refresh["willBreak" if edge["pinned"] else edge["refresh"]]
            * self.environments[env]
            * (self.shared if edge["kind"] in self.SHARED else 1)
            * (self.unresolved if edge["resolved"] is False else 1)
        )

    def of(self, asset):
        """Returns the score, and the weight of each consumer by its resource."""
        kinds = {"certificate": ("certificate", "secret", "key")}.get(asset["type"], (asset["type"],))
        # An edge counts if it names the asset, all assets of its type, or the whole vault.
        edges = [
            edge
            for edge in self.consumers.edges
            if edge["vault"] == asset["vault"].lower()
            and (edge["type"] is None or edge["type"] in kinds)
            and (edge["name"] is None or edge["name"] == asset["name"].lower())
        ]
        resources = {edge["resource"].lower() for edge in edges}
        weights = defaultdict(float)
        for edge in edges:
            id = edge["resource"].lower()
            owner = self.owners.get(id, "").lower()
            # The identity of a resource that is a consumer itself counts as that resource.
            key = owner if owner in resources else id
            weights[key] = max(weights[key], self.weight(edge))
        expires = asset["expires"]
        soon = expires is not None and expires - self.now <= self.warning
        total = sum(weights.values()) * (self.expiring if soon else 1)
        return int(100 * total / (total + self.half) + 0.5), {key: round(value, 6) for key, value in weights.items()}


def named_numbers(text):
    """Returns `{"references": 1, "observed": 1}` for "`references` and `observed` 1"."""
    found = {}
    for part in re.split(r"(?<=\d), ", text):
        value = re.search(r"[\d.]+$", part)[0]
        for name in re.findall(r"`(\w+)`", part):
            found[name] = float(value)
    return found
