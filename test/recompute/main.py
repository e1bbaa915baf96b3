"""
Recomputes violations, score, controls, matches, blast radii, credentials of B2C tenants and alert previews from the cloud's own
protocols and the pages in docs/, and compares them with the service's answers. Imports nothing of the service.

Reads JSON from standard input: `cloud` (environment variables), `service` (url, token), `docs`, `registrations`. Writes JSON: for
each comparison how many pairs were compared, and the differences as [what, of the service, recomputed].
"""

import json
import sys
import time
from collections import Counter

from checks import DAY, Checks
from consumers import Consumers, Radius
from inventory import application_assets, read_applications, read_federated, read_tenant, read_vaults, seconds, summary
from matches import Matches
from pages import Pages
from wire import Cloud, Service


def compare(ofService, recomputed):
    """Compares two dicts by key."""
    keys = sorted(set(ofService) | set(recomputed), key=str)
    differences = [
        [str(key), ofService.get(key, "missing"), recomputed.get(key, "missing")]
        for key in keys
        if key not in ofService or key not in recomputed or ofService[key] != recomputed[key]
    ]
    return {"compared": len(keys), "differences": differences}


def main():
    given = json.load(sys.stdin)
    cloud = Cloud(given["cloud"])
    service = Service(given["service"]["url"], given["service"]["token"])
    pages = Pages(given["docs"])
    now = time.time()
    tenant = given["cloud"]["AZURE_TENANT_ID"].lower()
    service_vault = given["cloud"]["SERVICE_KEY_VAULT_URL"].split("//")[1].split(".")[0].lower()
    result = {}

    vaults = read_vaults(cloud)
    objects = [one for vault in vaults for one in vault["objects"]]
    applications = read_applications(cloud)
    credentials = application_assets(applications, "entra", tenant, read_federated(cloud))
    b2c = [one for registration in given["registrations"] for one in read_tenant(cloud, registration)]
    # Credentials of policies and providers have IDs with a hash: they are compared as a multiset, and judged with the IDs of the
    # service, by their position among equal ones.
    listed = {one["id"]: one for one in service.all("/api/assets/discovery/assets")}
    assets = {one["id"]: (one["type"], one["enabled"], seconds(one["expiresOn"])) for one in listed.values()}
    named = [*objects, *credentials, *[one for one in b2c if "id" in one]]
    mine = {one["id"]: (one["type"], one["enabled"], one["expires"]) for one in named}
    hashed = {id for id in assets if id.startswith("b2c.") and ".application." not in id}
    result["assets"] = compare({id: one for id, one in assets.items() if id not in hashed}, mine)
    unnamed = [one for one in b2c if "id" not in one]
    theirs = Counter(
        (one["type"], one["credential"]["kind"], one["credential"]["applicationName"], one["credential"].get("keyId"), seconds(one["expiresOn"]), one["enabled"])
        for id, one in listed.items()
        if id in hashed
    )
    result["b2cPoliciesAndProviders"] = compare(theirs, summary(unnamed))
    by_content = {}
    for id in sorted(hashed):
        one = listed[id]
        content = (one["type"], one["credential"]["applicationName"], one["credential"].get("keyId"), seconds(one["expiresOn"]))
        by_content.setdefault(content, []).append(id)
    for one in unnamed:
        ids = by_content.get((one["type"], one["title"][0], one["title"][1], one["expires"]), [])
        one["id"] = ids.pop() if ids else f"b2c.unknown.{one['title']}"

    consumers = Consumers(pages, cloud, vaults)
    checks = Checks(pages, now)
    pairs = checks.results(vaults, [*credentials, *b2c], consumers.states())
    violations = {(one["checkId"], one["resourceId"].lower()): True for one in service.all("/compliance/violations")}
    result["violations"] = compare(violations, {pair: True for pair, passed in pairs.items() if not passed})
    score = service.call("GET", "/compliance/score")
    counts = checks.counts(pairs)
    share, passed, failed, total = checks.score(counts)
    result["score"] = compare(
        {**{name: score[name] for name in ("score", "passed", "failed", "total")}, **score["bySeverity"]},
        {"score": share, "passed": passed, "failed": failed, "total": total, **checks.by_severity(pairs)},
    )
    theirs, recomputed, per_check = {}, {}, {}
    for framework, controls in checks.controls().items():
        answer = service.call("GET", f"/compliance/frameworks/{framework}")
        for control in answer["controls"]:
            key = (framework, control["id"])
            theirs[key] = (control["status"], control["passed"], control["failed"], sorted(one["id"] for one in control["checks"]))
            for one in control["checks"]:
                per_check[one["id"]] = (one["passed"], one["failed"])
        for control, ids in controls.items():
            good, bad = (sum(counts[id][at] for id in ids) for at in (0, 1))
            state = "manual" if not ids else "fail" if bad else "pass" if good else "notApplicable"
            recomputed[framework, control] = (state, good, bad, sorted(ids))
        used = {id for ids in controls.values() for id in ids}
        theirs[framework, "score"] = answer["score"]
        recomputed[framework, "score"] = checks.score({id: counts[id] for id in used})[0]
    result["controls"] = compare(theirs, recomputed)
    result["pairs"] = {"compared": total, "differences": []}
    result["checks"] = compare(per_check, {id: tuple(counts[id]) for id in per_check})

    finder = Matches(pages, vaults, service_vault)
    theirs, recomputed = {}, {}
    for app in applications.values():
        base = f"/api/automation/rotation/apps/{app['appId']}"
        for one in service.all(f"{base}/matches"):
            theirs[app["name"], one["assetId"]] = (one["confidence"], tuple(sorted(one["evidence"])), one["keyId"])
        for id, found in finder.of(app).items():
            recomputed[app["name"], id] = found
    result["matches"] = compare(theirs, recomputed)
    result["matchesByConfidence"] = {"counts": Counter(confidence for confidence, _, _ in recomputed.values())}

    edges = Counter(
        (one["vaultName"].lower(), one["type"] if one["name"] or one["strength"] == "entitled" else one["type"], (one["name"] or "").lower(), one["resource"]["id"].lower(), one["strength"], one["refresh"]["how"], one["pinned"], None if one["state"] is None else one["state"]["resolved"], one["resource"]["environment"])
        for one in service.all("/api/assets/dependencies")
        if not one["vaultName"].startswith("entra.") and one["resource"]["kind"] != "syncRecord"
    )
    own = Counter(
        (one["vault"], one["type"], one["name"] or "", one["resource"].lower(), one["strength"], one["refresh"], one["pinned"], one["resolved"], one["environment"])
        for one in consumers.edges
    )
    result["dependencies"] = compare({key: 1 for key in edges}, {key: 1 for key in own})

    radius = Radius(pages, consumers, checks.limits["warning threshold"], now)
    used = {(edge["vault"], edge["name"]) for edge in consumers.edges if edge["name"] and edge["strength"] == "references"}
    theirs, recomputed, weights = {}, {}, 0
    for asset in objects:
        if (asset["vault"].lower(), asset["name"].lower()) not in used or asset["vault"].lower() == service_vault:
            continue
        answer = service.call("GET", f"/api/assets/dependencies/blast-radius/{asset['id']}")
        theirs[asset["id"]] = (answer["score"], {one["resource"]["id"].lower(): round(one["weight"], 6) for one in answer["consumers"]})
        recomputed[asset["id"]] = radius.of(asset)
        weights += len(recomputed[asset["id"]][1])
    result["blastRadius"] = compare(theirs, recomputed)
    result["consumerWeights"] = {"compared": weights, "differences": []}

    for name, rule in given["rules"].items():
        preview = service.call("POST", "/alerts/preview", rule)
        everything = [*objects, *credentials, *b2c] if name != "credentialExpiry" else [*credentials, *b2c]
        expected = {}
        for one in everything:
            left = None if one["expires"] is None else one["expires"] - now
            if left is None or not one["enabled"]:
                continue
            thresholds = [0] if name == "expired" else [*rule["thresholds"], *([0] if name == "credentialExpiry" else [])]
            reached = [days for days in thresholds if left <= days * DAY]
            if reached and (name != "expiration" or left >= 0):
                expected[one["id"]] = min(reached)
        theirs = {one["id"]: one["thresholdDays"] for one in preview["items"]}
        # The preview shows the most urgent ones, and the total.
        shown = {id: threshold for id, threshold in expected.items() if id in theirs}
        compared = compare({**theirs, "total": preview["total"]}, {**shown, "total": len(expected)})
        result[f"alerts.{name}"] = {**compared, "compared": len(expected)}
    json.dump(result, sys.stdout, default=str)


main()
