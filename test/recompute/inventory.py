"""Reads the inventory anew: vaults with their objects, applications and tenants with their credentials."""

import base64
import hashlib
import re
from collections import Counter
from datetime import datetime

from wire import Denied

API = "api-version=7.4"


def seconds(text):
    """Returns the Unix seconds of a time of Microsoft Graph, without fractions."""
    if not text:
        return None
    return int(datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00")).timestamp())


# Key vaults


def read_vaults(cloud):
    """Returns the vaults of all subscriptions that the identity may list, with their objects."""
    vaults = []
    for subscription in cloud.arm_list("/subscriptions", "2022-12-01"):
        path = f"/subscriptions/{subscription['subscriptionId']}/providers/Microsoft.KeyVault/vaults"
        try:
            listed = cloud.arm_list(path, "2023-07-01")
        except Denied:
            continue
        for vault in listed:
            settings = cloud.arm_list(f"{vault['id']}/providers/Microsoft.Insights/diagnosticSettings", "2021-05-01-preview")
            vaults.append({**vault, "diagnostics": settings, "objects": read_objects(cloud, vault)})
    return vaults


def read_objects(cloud, vault):
    """Returns the secrets, keys and certificates of a vault as assets."""
    objects = []
    url = vault["properties"]["vaultUri"]
    for kind in ("secret", "key", "certificate"):
        try:
            entries = cloud.vault_list(url, f"/{kind}s?{API}&maxresults=25")
        except Denied:
            continue
        for entry in entries:
            # The secret and the key of a certificate belong to it and are no assets.
            if entry.get("managed"):
                continue
            name = (entry.get("id") or entry.get("kid")).rstrip("/").split("/")[-1]
            attributes = entry["attributes"]
            details = {} if kind == "secret" else read_details(cloud, url, kind, name)
            objects.append(
                {
                    "source": "keyVault",
                    "type": kind,
                    "name": name,
                    "vault": vault["name"],
                    "id": f"{vault['name']}.{kind}.{name}".lower(),
                    "enabled": attributes["enabled"],
                    "created": attributes.get("created"),
                    "notBefore": attributes.get("nbf"),
                    "expires": attributes.get("exp"),
                    "contentType": entry.get("contentType"),
                    "tags": entry.get("tags") or {},
                    **details,
                }
            )
    return objects


def read_details(cloud, url, kind, name):
    """Returns the members of a key or certificate that lists do not have."""
    try:
        answer = cloud.vault(url, f"/{kind}s/{name}?{API}")
    except Denied:
        return {}
    if kind == "key":
        key = answer["key"]
        size = len(decode(key["n"]).lstrip(b"\0")) * 8 if key.get("n") else None
        try:
            policy = cloud.vault(url, f"/keys/{name}/rotationpolicy?{API}")
        except Denied:
            policy = None
        return {"keyType": key["kty"], "keySize": size, "curve": key.get("crv"), "rotation": policy}
    policy = answer["policy"]
    properties = policy["key_props"]
    actions = [action["action"]["action_type"] for action in policy.get("lifetime_actions") or []]
    return {
        "keyType": properties["kty"],
        "keySize": properties.get("key_size"),
        "curve": properties.get("crv"),
        "validityMonths": policy["x509_props"].get("validity_months"),
        "autoRenew": "AutoRenew" in actions,
        "issuerName": policy["issuer"]["name"],
        "trigger": next(
            (
                action["trigger"]
                for action in policy.get("lifetime_actions") or []
                if action["action"]["action_type"] == "AutoRenew"
            ),
            None,
        ),
        "issuer": issuer_of(base64.b64decode(answer["cer"])),
        # The extension of embedded certificate timestamps: 1.3.6.1.4.1.11129.2.4.2.
        "timestamps": bytes.fromhex("060a2b06010401d679020402") in base64.b64decode(answer["cer"]),
    }


def decode(text):
    """Decodes base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def der(data, at):
    """Returns tag, start and end of the content of the DER element at a position."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count], "big"), start + count
    return tag, start, start + length


def issuer_of(certificate):
    """Returns the texts of a certificate's issuer, joined: RFC 5280, TBSCertificate."""
    _, at, _ = der(certificate, 0)
    _, at, _ = der(certificate, at)
    tag, _, end = der(certificate, at)
    if tag == 0xA0:  # version
        at = end
    for _ in range(2):  # serial number, signature algorithm
        at = der(certificate, at)[2]
    _, at, end = der(certificate, at)
    texts = []
    while at < end:
        _, start, at = der(certificate, at)
        _, start, _ = der(certificate, start)
        _, _, start = der(certificate, start)  # type
        _, start, stop = der(certificate, start)
        texts.append(certificate[start:stop].decode())
    return ", ".join(texts)


# Applications

CREDENTIALS = "passwordCredentials,keyCredentials"


def thumbprint(identifier):
    """Returns the SHA-1 thumbprint of a certificate, which Microsoft Graph has as hexadecimal text or in base64."""
    if not identifier:
        return None
    if re.fullmatch(r"[0-9a-fA-F]{40}", identifier):
        return identifier.upper()
    raw = base64.b64decode(identifier + "=" * (-len(identifier) % 4))
    return raw.hex().upper() if len(raw) == 20 else None


def credentials_of(found, owner):
    """
    Returns credentials by key ID. `owner`: `application` or `servicePrincipal`, the object that has them. A password with the key ID
    of a certificate is the password of its private key.
    """
    by_id = {}
    for password in found.get("passwordCredentials") or []:
        by_id[password["keyId"].lower()] = {"kind": "secret", "of": owner, **dates(password)}
    for key in found.get("keyCredentials") or []:
        by_id[key["keyId"].lower()] = {
            "kind": "certificate",
            "of": owner,
            "usage": key.get("usage"),
            "thumbprint": thumbprint(key.get("customKeyIdentifier")),
            **dates(key),
        }
    return by_id


def dates(credential):
    """Returns start and end in Unix seconds."""
    return {"starts": seconds(credential.get("startDateTime")), "expires": seconds(credential.get("endDateTime"))}


def join_certificates(credentials):
    """One asset for the two entries of a token-signing certificate: the entry to verify stays."""
    joined = dict(credentials)
    for key, one in credentials.items():
        if one["kind"] != "certificate" or one.get("usage") != "Sign" or not one["thumbprint"]:
            continue
        if any(
            other["kind"] == "certificate"
            and other.get("usage") == "Verify"
            and all(other[part] == one[part] for part in ("of", "thumbprint", "starts", "expires"))
            for other in credentials.values()
        ):
            del joined[key]
    return joined


def read_applications(cloud, token=None, owners=True):
    """Returns the applications of a tenant by client ID, with the credentials of their service principals."""
    select = f"$select=id,appId,displayName,{CREDENTIALS}"
    expand = "&$expand=owners($select=id,userPrincipalName)" if owners else ""
    applications = {}
    for found in cloud.graph_list(f"/v1.0/applications?{select}{expand}&$top=100", token):
        applications[found["appId"].lower()] = {
            "id": found["id"].lower(),
            "appId": found["appId"].lower(),
            "name": found["displayName"],
            "owners": sorted(one["userPrincipalName"] for one in found.get("owners", []) if one.get("userPrincipalName")),
            "credentials": credentials_of(found, "application"),
        }
    for found in cloud.graph_list(f"/v1.0/servicePrincipals?{select}&$top=100", token):
        own = credentials_of(found, "servicePrincipal")
        app = applications.get(found["appId"].lower())
        if app is None and own:
            app = {
                "id": found["id"].lower(),
                "appId": found["appId"].lower(),
                "name": found["displayName"],
                "owners": None,
                "credentials": {},
            }
            applications[app["appId"]] = app
        if app is not None:
            app["credentials"] = {**own, **app["credentials"]}
    for app in applications.values():
        app["credentials"] = join_certificates(app["credentials"])
    return applications


def read_federated(cloud):
    """Returns the object IDs of the applications with federated credentials."""
    query = "/v1.0/applications?$filter=federatedIdentityCredentials/$count ne 0&$count=true&$select=id&$top=100"
    return {one["id"].lower() for one in cloud.graph_list(query, headers={"ConsistencyLevel": "eventual"}.items())}


def application_assets(applications, source, tenant, federated=None):
    """
    Returns the credentials of applications as assets.

    federated: object IDs of the applications with federated credentials. None if they are not read.
    """
    assets = []
    for app in applications.values():
        for key, one in app["credentials"].items():
            prefix = f"entra.{tenant}" if source == "entra" else f"b2c.{tenant}.application"
            assets.append(
                {
                    "source": source,
                    "type": one["kind"],
                    "id": f"{prefix}.{app['appId']}.{key}".lower(),
                    "app": app,
                    "enabled": True,
                    "of": one["of"],
                    "usage": one.get("usage"),
                    "starts": one["starts"],
                    "expires": one["expires"],
                    "federated": None if federated is None or not owners_known(app) else app["id"] in federated,
                }
            )
    return assets


def owners_known(app):
    """Returns whether the tenant has the application itself. Of a foreign one it has only the service principal."""
    return app["owners"] is not None


def read_tenant(cloud, registration):
    """Returns the credentials of a B2C tenant: of applications, of custom policies, and of identity providers."""
    tenant = registration["tenantId"].lower()
    token = cloud.registration_token(tenant, registration["clientId"], registration["clientSecret"])
    assets = application_assets(read_applications(cloud, token, owners=False), "b2c", tenant)
    # Lists that a registration may lack the permission for.
    optional = lambda path: safe(lambda: cloud.graph_list(path, token))
    for key_set in optional("/beta/trustFramework/keySets"):
        for index, key in enumerate(key_set.get("keys") or []):
            kind = "certificate" if key.get("x5c") else "secret" if key.get("kty") == "oct" else "key"
            assets.append(
                {
                    "source": "b2c",
                    "type": kind,
                    "of": "policyKey",
                    # Name, key ID and position: the ID of the asset contains a hash, which is not recomputed.
                    "title": (key_set["id"], key.get("kid"), index),
                    "enabled": (key.get("status") or "").lower() != "disabled",
                    "starts": key.get("nbf"),
                    "expires": key.get("exp"),
                }
            )
    for provider in optional("/v1.0/identity/identityProviders"):
        if provider.get("@odata.type", "").endswith("builtInIdentityProvider"):
            continue
        assets.append(
            {
                "source": "b2c",
                "type": "secret",
                "of": "identityProvider",
                "title": (provider["displayName"], None, 0),
                "enabled": True,
                "starts": None,
                "expires": None,
            }
        )
    return assets


def safe(read):
    """Returns the result of `read`, or no entries if the tenant denies it."""
    try:
        return read()
    except Denied:
        return []


def summary(assets):
    """Returns counts by kind, date and state, for assets whose IDs contain a hash."""
    return Counter((one["type"], one["of"], one["title"][0], one["title"][1], one["expires"], one["enabled"]) for one in assets)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()
