"""
Recomputes violations, score, controls, matches, blast radii, credentials of B2C tenants and alert previews from the cloud's own
protocols and the pages in docs/, and compares them with the service's answers. Imports nothing of the service.

Reads JSON from standard input: `cloud` (environment variables), `service` (url, token), `docs` (folder), `registrations` (B2C
tenants: tenantId, clientId, clientSecret) and `rules` (bodies of alert rules by alert type). Writes JSON: for each comparison how
many pairs were compared, and the differences as [key, of the service, recomputed].
"""

import json
import sys
import time
from collections import Counter

from checks import DAY, Checks
from consumers import Consumers
from inventory import application_assets, read_applications, read_federated, read_tenant, read_vaults, seconds, summary
from matches import Matches
from pages import Pages
from radius import Radius
from renewals import is_late
from wire import Cloud, Service

# Order of the members of a dependency that are compared, in both programs' answers.
EDGE_MEMBERS = ("vault", "type", "name", "resource", "strength", "refresh", "pinned", "resolved", "environment")


def compare(of_service, recomputed):
    """Compares two dicts by key."""
    keys = sorted(set(of_service) | set(recomputed), key=str)
    differences = [
        [str(key), of_service.get(key, "missing"), recomputed.get(key, "missing")]
        for key in keys
        if key not in of_service or key not in recomputed or of_service[key] != recomputed[key]
    ]
    return {"compared": len(keys), "differences": differences}


def compare_assets(listed, objects, credentials, b2c):
    """
    Compares the list of assets with the objects of vaults and the credentials of applications and tenants.

    `listed`: the service's assets by ID. Credentials of policies and identity providers have an ID with a hash, which is not
    recomputed: they are compared as a multiset, and get an `id` of the service, by their position among equal ones.
    """
    named = [*objects, *credentials, *[one for one in b2c if "id" in one]]
    unnamed = [one for one in b2c if "id" not in one]
    hashed = {id for id in listed if id.startswith("b2c.") and ".application." not in id}
    state_of = lambda one: (one["type"], one["enabled"], seconds(one["expiresOn"]))
    of_service = Counter()
    ids_by_content = {}
    for id in sorted(hashed):
        one = listed[id]
        credential, expires = one["credential"], seconds(one["expiresOn"])
        name, key_id = credential["applicationName"], credential.get("keyId")
        of_service[one["type"], credential["kind"], name, key_id, expires, one["enabled"]] += 1
        ids_by_content.setdefault((one["type"], name, key_id, expires), []).append(id)
    result = {
        "assets": compare(
            {id: state_of(one) for id, one in listed.items() if id not in hashed},
            {one["id"]: (one["type"], one["enabled"], one["expires"]) for one in named},
        ),
        "b2cPoliciesAndProviders": compare(of_service, summary(unnamed)),
    }
    for one in unnamed:
        name, key_id, _ = one["title"]
        ids = ids_by_content.get((one["type"], name, key_id, one["expires"]), [])
        one["id"] = ids.pop() if ids else f"b2c.unknown.{one['title']}"
    return result


def compare_compliance(service, checks, pairs):
    """Compares violations, score, and the controls of each framework. `pairs`: whether a check passed, by check and resource."""
    violations = {(one["checkId"], one["resourceId"].lower()): True for one in service.all("/compliance/violations")}
    counts = checks.counts(pairs)
    score = service.call("GET", "/compliance/score")
    share, passed, failed, total = checks.score(counts)
    result = {
        "violations": compare(violations, {pair: True for pair, passed_ in pairs.items() if not passed_}),
        "score": compare(
            {**{name: score[name] for name in ("score", "passed", "failed", "total")}, **score["bySeverity"]},
            {"score": share, "passed": passed, "failed": failed, "total": total, **checks.by_severity(pairs)},
        ),
    }
    of_service, recomputed, per_check = {}, {}, {}
    for framework, controls in checks.controls().items():
        answer = service.call("GET", f"/compliance/frameworks/{framework}")
        for control in answer["controls"]:
            ids = sorted(one["id"] for one in control["checks"])
            of_service[framework, control["id"]] = (control["status"], control["passed"], control["failed"], ids)
            for one in control["checks"]:
                per_check[one["id"]] = (one["passed"], one["failed"])
        for control, ids in controls.items():
            good, bad = (sum(counts[id][at] for id in ids) for at in (0, 1))
            status = "manual" if not ids else "fail" if bad else "pass" if good else "notApplicable"
            recomputed[framework, control] = (status, good, bad, sorted(ids))
        used = {id for ids in controls.values() for id in ids}
        of_service[framework, "score"] = answer["score"]
        recomputed[framework, "score"] = checks.score({id: counts[id] for id in used})[0]
    result["controls"] = compare(of_service, recomputed)
    # The number of pairs behind the score, for the test's minimum.
    result["pairs"] = {"compared": total, "differences": []}
    result["checks"] = compare(per_check, {id: tuple(counts[id]) for id in per_check})
    return result


def compare_matches(service, finder, applications):
    """Compares the matches of each application: confidence, evidence and key ID by application and secret."""
    of_service, recomputed = {}, {}
    for app in applications.values():
        for one in service.all(f"/api/automation/rotation/apps/{app['appId']}/matches"):
            match = (one["confidence"], tuple(sorted(one["evidence"])), one["keyId"])
            of_service[app["name"], one["assetId"]] = match
        for id, found in finder.of(app).items():
            recomputed[app["name"], id] = found
    return {
        "matches": compare(of_service, recomputed),
        "matchesByConfidence": {"counts": Counter(confidence for confidence, _, _ in recomputed.values())},
    }


def compare_dependencies(service, consumers):
    """Compares the consumers of each asset, without those that only the service stores: credentials and sync records."""
    of_service = set()
    for one in service.all("/api/assets/dependencies"):
        if one["vaultName"].startswith("entra.") or one["resource"]["kind"] == "syncRecord":
            continue
        edge = {
            **one,
            "vault": one["vaultName"].lower(),
            "name": (one["name"] or "").lower(),
            "resource": one["resource"]["id"].lower(),
            "refresh": one["refresh"]["how"],
            "resolved": None if one["state"] is None else one["state"]["resolved"],
            "environment": one["resource"]["environment"],
        }
        of_service.add(tuple(edge[member] for member in EDGE_MEMBERS))
    recomputed = set()
    for one in consumers.edges:
        edge = {**one, "name": one["name"] or "", "resource": one["resource"].lower()}
        recomputed.add(tuple(edge[member] for member in EDGE_MEMBERS))
    return compare({edge: 1 for edge in of_service}, {edge: 1 for edge in recomputed})


def compare_radii(service, radius, consumers, objects, service_vault):
    """Compares score and weights of the blast radius of each asset that a resource references by name."""
    used = {(edge["vault"], edge["name"]) for edge in consumers.edges if edge["name"] and edge["strength"] == "references"}
    of_service, recomputed, weights = {}, {}, 0
    for asset in objects:
        if (asset["vault"].lower(), asset["name"].lower()) not in used or asset["vault"].lower() == service_vault:
            continue
        answer = service.call("GET", f"/api/assets/dependencies/blast-radius/{asset['id']}")
        by_resource = {one["resource"]["id"].lower(): round(one["weight"], 6) for one in answer["consumers"]}
        of_service[asset["id"]] = (answer["score"], by_resource)
        recomputed[asset["id"]] = radius.of(asset)
        weights += len(recomputed[asset["id"]][1])
    return {
        "blastRadius": compare(of_service, recomputed),
        # The number of weights behind the scores, for the test's minimum.
        "consumerWeights": {"compared": weights, "differences": []},
    }


def compare_preview(service, alert_type, rule, assets, now):
    """Compares the preview of an alert rule: the lowest reached threshold by asset, and the total."""
    preview = service.call("POST", "/alerts/preview", rule)
    expected = {}
    for one in assets:
        left = None if one["expires"] is None else one["expires"] - now
        if left is None or not one["enabled"] or is_late(one, now) is False:
            continue
        # 0 stands for an expired asset, which rules for credentials include.
        thresholds = [0] if alert_type == "expired" else [*rule["thresholds"], *([0] if alert_type == "credentialExpiry" else [])]
        reached = [days for days in thresholds if left <= days * DAY]
        if reached and (alert_type != "expiration" or left >= 0):
            expected[one["id"]] = min(reached)
    of_service = {one["id"]: one["thresholdDays"] for one in preview["items"]}
    # The preview shows the most urgent ones, and the total.
    shown = {id: threshold for id, threshold in expected.items() if id in of_service}
    compared = compare({**of_service, "total": preview["total"]}, {**shown, "total": len(expected)})
    return {**compared, "compared": len(expected)}


def main():
    given = json.load(sys.stdin)
    cloud = Cloud(given["cloud"])
    service = Service(given["service"]["url"], given["service"]["token"])
    pages = Pages(given["docs"])
    now = time.time()
    tenant = given["cloud"]["AZURE_TENANT_ID"].lower()
    service_vault = given["cloud"]["SERVICE_KEY_VAULT_URL"].split("//")[1].split(".")[0].lower()

    vaults = read_vaults(cloud)
    objects = [one for vault in vaults for one in vault["objects"]]
    applications = read_applications(cloud)
    credentials = application_assets(applications, "entra", tenant, read_federated(cloud))
    b2c = [one for registration in given["registrations"] for one in read_tenant(cloud, registration)]
    listed = {one["id"]: one for one in service.all("/api/assets/discovery/assets")}
    result = compare_assets(listed, objects, credentials, b2c)

    consumers = Consumers(pages, cloud, vaults)
    checks = Checks(pages, now)
    pairs = checks.results(vaults, [*credentials, *b2c], consumers.states())
    result |= compare_compliance(service, checks, pairs)
    result |= compare_matches(service, Matches(pages, vaults, service_vault), applications)
    result["dependencies"] = compare_dependencies(service, consumers)
    radius = Radius(pages, consumers, checks.limits["warning threshold"], now)
    result |= compare_radii(service, radius, consumers, objects, service_vault)
    for alert_type, rule in given["rules"].items():
        of_directory = [*credentials, *b2c]
        assets = of_directory if alert_type == "credentialExpiry" else [*objects, *of_directory]
        result[f"alerts.{alert_type}"] = compare_preview(service, alert_type, rule, assets, now)
    json.dump(result, sys.stdout, default=str)


main()
