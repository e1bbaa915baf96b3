"""Judges every asset and vault by docs/compliance.md, and computes score, controls and violations."""

import re
from collections import Counter, defaultdict
from datetime import datetime

from pages import plain, spans
from renewals import is_acmebots, is_late, window_end

DAY = 86_400


class Checks:
    """The checks, with the limits and weights of docs/compliance.md."""

    def __init__(self, pages, now):
        self.now = now
        self.pages = pages
        self.checks = {plain(row["check"]): row for row in pages.table("compliance.md", "Checks")}
        self.limits = pages.numbers("compliance.md", "Limits", "limit", "value")
        self.weights = pages.numbers("compliance.md", "How the score is computed", "severity", "weight")
        words = self.limits["words in the issuer of an integrated authority"].split(", ")
        self.authorities = re.compile(rf"\b(?:{'|'.join(words)})\b", re.I)
        self.key_types = set(self.limits["key types"].split(", "))
        self.curves = set(self.limits["curves"].split(", "))

    def results(self, vaults, credentials, references):
        """
        Returns pairs of check and resource with True (passed) or False.

        references: whether references resolve, by vault, type and name of what they name (`Consumers.states`)
        """
        pairs = {}
        for vault in vaults:
            for check, passed in self.judge_vault(vault, references):
                pairs[check, vault["name"].lower()] = passed
            for asset in vault["objects"]:
                for check, passed in self.judge_object(asset, vault, references):
                    pairs[check, asset["id"]] = passed
        for asset in credentials:
            for check, passed in self.judge_credential(asset):
                pairs[check, asset["id"]] = passed
        unknown = {check for check, _ in pairs} - set(self.checks)
        if unknown:
            raise KeyError(f"docs/compliance.md has no {unknown}")
        return pairs

    def judge_vault(self, vault, references):
        """Yields the checks that apply to a vault, and whether they pass."""
        p = vault["properties"]
        closed = p.get("publicNetworkAccess", "Enabled").lower() == "disabled"
        soft = p.get("enableSoftDelete", True)
        yield "vault-soft-delete", soft
        yield "vault-purge-protection", bool(soft and p.get("enablePurgeProtection"))
        yield "vault-rbac", bool(p.get("enableRbacAuthorization"))
        yield "vault-public-access", closed
        yield "vault-firewall", closed or (p.get("networkAcls") or {}).get("defaultAction", "Allow").lower() == "deny"
        yield "vault-private-endpoint", any(
            approved(one)
            for one in p.get("privateEndpointConnections") or []
        )
        yield "vault-audit-logging", any(
            log["enabled"] and ((log.get("category") or "").lower() == "auditevent" or (log.get("categoryGroup") or "").lower() in ("audit", "alllogs"))
            for setting in vault["diagnostics"]
            for log in setting["properties"].get("logs") or []
        )
        # References to an object that does not exist, or to the whole vault, count for the vault.
        known = {(one["type"], one["name"].lower()) for one in vault["objects"]}
        names = {name for kind, name in known if kind == "certificate"}
        states = [
            resolved
            for (name, kind, item), found in references.items()
            if name == vault["name"].lower() and (item is None or ((kind, item) not in known and item not in names))
            for resolved in found
        ]
        if states:
            yield "vault-reference-resolved", all(states)

    def judge_object(self, asset, vault, references):
        """Yields the checks that apply to a secret, key or certificate, and whether they pass."""
        if not asset["enabled"]:
            return
        kind, expires = asset["type"], asset["expires"]
        start = asset["notBefore"] if asset["notBefore"] is not None else asset["created"]
        if kind != "certificate":
            model = "rbac" if vault["properties"].get("enableRbacAuthorization") else "access-policy"
            yield f"{kind}-expiry-set-{model}", expires is not None
            if expires is not None and start is not None:
                limit = self.limits["longest validity of a vault's secret or key"]
                yield f"{kind}-validity-period", expires - start <= limit * DAY
            if start is not None:
                yield f"{kind}-active-period", self.now <= start + self.limits["longest use of a vault's secret or key"] * DAY
        late = is_late(asset, self.now)
        if late is None:
            yield from self.expiry(kind, expires)
        else:
            yield from self.expiry_by_renewal(kind, expires, window_end(asset), late)
        if kind == "secret":
            yield "secret-content-type", bool((asset["contentType"] or "").strip())
        else:
            key_type = (asset.get("keyType") or "").upper()
            if key_type.startswith("RSA") and asset.get("keySize") is not None:
                yield f"{kind}-rsa-size", asset["keySize"] >= self.limits["smallest RSA key"]
            if key_type.startswith("EC") and asset.get("curve"):
                yield f"{kind}-curve", asset["curve"].upper() in self.curves
        if kind == "key" and asset.get("keyType"):
            yield "key-type", asset["keyType"].upper() in self.key_types
            actions = (asset["rotation"] or {}).get("lifetimeActions") or []
            yield "key-rotation-policy", any(one["action"]["type"].lower() == "rotate" for one in actions)
        if kind == "certificate":
            integrated = bool(self.authorities.search(asset.get("issuer") or ""))
            if integrated or asset.get("timestamps"):
                if start is not None and expires is not None:
                    yield "certificate-validity-period", expires - start + 1 <= self.public_limit(start) * DAY
            elif asset.get("validityMonths") is not None:
                limit = self.limits["longest validity of a vault's private certificate"]
                yield "certificate-validity-period", asset["validityMonths"] <= limit
            if asset.get("issuer"):
                # The policy's own renewal needs an integrated authority.
                renewed_elsewhere = late is not None and is_acmebots(asset)
                yield "certificate-issuer", renewed_elsewhere or integrated
            if late is not None:
                yield "certificate-auto-renewal", not late
            elif "autoRenew" in asset:
                yield "certificate-auto-renewal", asset["autoRenew"] and asset["issuerName"].lower() != "unknown"
        if kind != "key":
            kinds = ("certificate", "secret", "key") if kind == "certificate" else (kind,)
            states = [one for k in kinds for one in references.get((asset["vault"].lower(), k, asset["name"].lower()), [])]
            if states:
                yield f"{kind}-reference-resolved", all(states)

    def judge_credential(self, asset):
        """Yields the checks that apply to a credential of an application or tenant, and whether they pass."""
        if not asset["enabled"]:
            return
        source, kind, expires = asset["source"], asset["type"], asset["expires"]
        prefix = f"b2c-{kind}" if source == "b2c" else "client-secret" if kind == "secret" else "application-certificate"
        yield from self.expiry(prefix, expires)
        of_application = asset["of"] in ("application", "servicePrincipal")
        if of_application:
            limit = self.limits["longest validity of a client secret" if kind == "secret" else "longest validity of an application's certificate"]
            name = "client-secret-validity-period" if kind == "secret" else "application-certificate-validity-period"
            name += "-b2c" if source == "b2c" else ""
            if expires is None:
                yield name, False
            elif asset["starts"] is not None:
                yield name, expires - asset["starts"] <= limit * DAY
        if source != "entra":
            return
        app = asset["app"]
        if app["owners"] is not None:
            yield f"{prefix}-owner", len(app["owners"]) > 0
        if kind != "secret":
            return
        if asset["federated"] is not None:
            yield "client-secret-beside-federation", not asset["federated"]
        if expires is not None and expires < self.now:
            return
        others = [one for key, one in app["credentials"].items() if one["kind"] == "secret" and not asset["id"].endswith(key)]
        as_long = [one for one in others if one["expires"] is None or (expires is not None and one["expires"] >= expires)]
        yield "client-secret-alone", not as_long
        certificates = [
            one
            for one in app["credentials"].values()
            if one["kind"] == "certificate" and one["of"] == "application" and one["usage"] != "Sign"
        ]
        valid = [one for one in certificates if one["expires"] is None or one["expires"] >= self.now]
        yield "client-secret-beside-certificate", not valid

    def expiry(self, prefix, expires):
        """Yields the checks of an expiry date: expired, critical and warning. A worse one excludes the next."""
        if expires is None:
            return
        yield f"{prefix}-expired", expires >= self.now
        left = expires - self.now
        if left < 0:
            return
        critical, warning = self.limits["critical threshold"] * DAY, self.limits["warning threshold"] * DAY
        yield f"{prefix}-near-expiry-critical", left > critical
        if left > critical:
            yield f"{prefix}-near-expiry-warning", left > warning

    def public_limit(self, start):
        """Returns the longest validity in days of a publicly trusted certificate that is valid from this second."""
        name = "longest validity of a vault's publicly trusted certificate, by its first day"
        text = next(row["value"] for row in self.pages.table("compliance.md", "Limits") if plain(row["limit"]) == name)
        limits = [
            (datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp(), int(days))
            for days, day in re.findall(r"(\d+) days from (\d{4}-\d\d-\d\d)", text)
        ]
        return next((days for first, days in reversed(limits) if first <= start), limits[0][1])

    def expiry_by_renewal(self, prefix, expires, end, late):
        """Yields the same checks for a certificate with a renewer: it passes them until its renewal is late."""
        yield f"{prefix}-expired", expires >= self.now
        left = expires - self.now
        if left < 0:
            return
        half_over = self.now - (end + 1) >= left
        critical = late and (half_over or left <= self.limits["critical threshold"] * DAY)
        yield f"{prefix}-near-expiry-critical", not critical
        if not critical:
            yield f"{prefix}-near-expiry-warning", not late

    # Score and controls

    def score(self, counts):
        """Returns score, passed, failed and total. `counts`: passed and failed by check."""
        passed = failed = passed_weight = weight = 0
        for check, (good, bad) in counts.items():
            w = self.weights[self.checks[check]["severity"]]
            passed, failed = passed + good, failed + bad
            passed_weight, weight = passed_weight + good * w, weight + (good + bad) * w
        share = 100.0 if weight == 0 else int(1000 * passed_weight / weight + 0.5) / 10
        return share, passed, failed, passed + failed

    def counts(self, pairs):
        """Returns how many resources passed and failed each check."""
        counts = defaultdict(lambda: [0, 0])
        for (check, _), passed in pairs.items():
            counts[check][0 if passed else 1] += 1
        return counts

    def by_severity(self, pairs):
        """Returns the number of failed pairs by severity."""
        failed = Counter(self.checks[check]["severity"] for (check, _), passed in pairs.items() if not passed)
        return {severity: failed[severity] for severity in self.weights}

    def controls(self):
        """Returns the checks of each control of each framework, from the mappings of the page."""
        controls = defaultdict(lambda: defaultdict(set))
        versions = [name for name in self.pages.table("compliance.md", "CIS Azure Foundations")[0] if re.match(r"\d", name)]
        for row in self.pages.table("compliance.md", "CIS Azure Foundations"):
            for version in versions:
                if row[version] != "-":
                    controls[f"cis-azure-{version}"][row[version]] |= set(spans(row["checks"]))
        policies = self.pages.table("compliance.md", "Microsoft's policy sets")
        names = [name for name in policies[0] if name not in ("Azure policy", "checks")]
        for row in policies:
            for framework in names:
                for control in expand(row[framework]):
                    controls[framework][control] |= set(spans(row["checks"]))
        ids = {plain(row["name"]): plain(row["framework"]) for row in self.pages.table("compliance.md", "Sources")}
        for title, framework in ids.items():
            if framework.startswith("cis-"):
                continue
            try:
                rows = self.pages.table("compliance.md", title)
            except KeyError:
                continue
            for row in rows:
                # A control can name those of other frameworks after its own: `5.9; nist-800-53-r5: AC-2`.
                first, *more = row["control"].split("; ")
                for target, text in [(framework, first), *[one.split(": ") for one in more]]:
                    for control in expand(text):
                        controls[target][control] |= set(spans(row["checks"]))
        # A control that no check can decide has no checks.
        for row in self.pages.table("compliance.md", "Not assessed"):
            controls[ids[row["framework"]]][row["control"]] |= set()
        return controls


def approved(connection):
    """Returns whether a private endpoint connection is approved. Its members are at the top or in `properties`."""
    state = (connection.get("properties") or connection).get("privateLinkServiceConnectionState") or {}
    return state.get("status") == "Approved"


def expand(text):
    """Expands `3.7.5-3.7.8, 4.1` to five IDs."""
    if text in ("–", "-", ""):
        return
    for part in text.split(", "):
        found = re.fullmatch(r"((?:\d+\.)+)(\d+)-\1(\d+)", part)
        if not found:
            yield part
        else:
            for last in range(int(found[2]), int(found[3]) + 1):
                yield f"{found[1]}{last}"
