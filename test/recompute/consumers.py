"""Finds the resources that use or may read assets of key vaults, by docs/consumers.md."""

import re
from collections import defaultdict

from pages import plain, spans
from wire import Denied

TYPES = {"secrets": "secret", "keys": "key", "certificates": "certificate"}
# States that mean "resolved", by kind of consumer: docs/consumers.md, State.
RESOLVED = {
    "webApp": {"Resolved", "Initialized"},
    "functionApp": {"Resolved", "Initialized"},
    "apiManagement": {"Success"},
    "appServiceCertificate": {"Initialized", "Succeeded", "WaitingOnCertificateOrder"},
}


class Consumers:
    """
    The edges from resources to what they use or may read in key vaults. An edge has

    resource, kind, environment   the consumer: its ID, its kind of docs/consumers.md, and the value of its tag
    vault, type, name             the object, in lower case. Without a name all objects of the type, without a type the whole vault
    strength                      `references` if the configuration names the object, `entitled` if the resource may read it
    refresh, pinned               how it gets a new version, and the version that it names
    resolved                      True or False if the resource reports whether it resolves the reference, else None
    """

    def __init__(self, pages, cloud, vaults):
        self.cloud = cloud
        self.suffix = re.escape(cloud.environment["AZURE_KEY_VAULT_SUFFIX"])
        self.vaults = vaults
        self.refresh = {}
        for row in pages.table("consumers.md", "References"):
            for kind in spans(row["`kind`"]):
                self.refresh[kind, row["read from"]] = plain(row["`refresh`"])
        self.edges = []
        for subscription in cloud.arm_list("/subscriptions", "2022-12-01"):
            self.read(subscription["subscriptionId"])
        self.entitle()

    # References

    def add(self, resource, kind, place, text_or_asset, follows=False, state=None):
        """
        Adds the edge of a reference, if it names an object of a key vault.

        place: text that the column "read from" of docs/consumers.md has in exactly one row of this kind
        text_or_asset: the address of an object, or a dict with vault, type, name and version
        follows: whether a setting makes the resource follow new versions, so that a version is not pinned
        state: the state that the resource reports
        """
        asset = text_or_asset if isinstance(text_or_asset, dict) else self.address(text_or_asset)
        if asset is None:
            return
        pinned = bool(asset.get("version")) and not follows
        matching = [refresh for (k, p), refresh in self.refresh.items() if k == kind and place in p]
        if len(matching) != 1:
            raise KeyError(f"docs/consumers.md has {len(matching)} rows for {kind}: {place}")
        self.edges.append(
            {
                "resource": resource["id"],
                "kind": kind,
                "environment": environment(resource.get("tags") or {}),
                "vault": asset["vault"].lower(),
                "type": asset.get("type"),
                "name": asset["name"].lower() if asset.get("name") else None,
                "strength": "references",
                "refresh": "willBreak" if pinned else matching[0],
                "pinned": asset["version"] if pinned else None,
                "resolved": None if state is None else state in RESOLVED[kind],
            }
        )

    def address(self, text):
        """Returns the object of `https://<vault>.<domain>/secrets|keys|certificates/<name>[/<version>]`."""
        found = re.fullmatch(
            rf"https://([A-Za-z][0-9A-Za-z-]*)\.{self.suffix}(?::\d+)?/(secrets|keys|certificates)/([0-9A-Za-z-]+)(?:/([0-9a-fA-F]{{32}}))?/?",
            (text or "").strip(),
        )
        return found and {"vault": found[1], "type": TYPES[found[2]], "name": found[3], "version": found[4]}

    def vault_address(self, text):
        """Returns the vault of `https://<vault>.<domain>`."""
        found = re.fullmatch(rf"https://([A-Za-z][0-9A-Za-z-]*)\.{self.suffix}(?::\d+)?/?", (text or "").strip())
        return found and {"vault": found[1]}

    def reference(self, text):
        """Returns the object of a Key Vault reference of App Service."""
        found = re.fullmatch(r"\s*@Microsoft\.KeyVault\((.*)\)\s*", text or "", re.I | re.S)
        if found is None:
            return None
        members = dict(part.strip().split("=", 1) for part in found[1].split(";") if part.strip())
        members = {name.strip().lower(): value.strip() for name, value in members.items()}
        if "secreturi" in members:
            asset = self.address(members["secreturi"])
            return asset if asset and asset["type"] == "secret" else None
        return {
            "vault": members["vaultname"],
            "type": "secret",
            "name": members["secretname"],
            "version": members.get("secretversion") or None,
        }

    def read(self, subscription):
        """Reads the references of all resources of a subscription. `READERS` has a method for each type of resource."""
        query = "resources | project id, type, kind, tags, sku = tostring(sku.name), identity, properties | order by id asc"
        rows = self.cloud.resource_graph(query, [subscription])
        connections = {
            row["id"].lower(): vault for row in rows if row["type"].lower() == "microsoft.web/connections" for vault in [connection_vault(row)] if vault
        }
        for row in rows:
            read = READERS.get(row["type"].lower())
            if read:
                try:
                    read(self, row, row.get("properties") or {}, connections)
                except Denied:
                    continue

    def site(self, row, _properties, _connections):
        kind = "functionApp" if "functionapp" in (row.get("kind") or "").lower() else "webApp"
        for listed, place in (("appsettings", "app settings"), ("connectionstrings", "connection strings")):
            try:
                path = f"{row['id']}/config/configreferences/{listed}"
                answer = self.cloud.arm(path, "2024-04-01")
            except Denied:
                continue
            for entry in (answer or {}).get("value") or []:
                properties = entry["properties"]
                asset = self.reference(properties["reference"])
                if asset:
                    self.add(row, kind, place, asset, state=properties["status"])

    def site_certificate(self, row, p, _connections):
        vault = vault_of_id(p.get("keyVaultId"))
        if vault and p.get("keyVaultSecretName"):
            asset = {**vault, "type": "secret", "name": p["keyVaultSecretName"]}
            self.add(row, "appServiceCertificate", "keyVaultSecretName", asset, state=p.get("keyVaultSecretStatus"))

    def container(self, row, p, _connections):
        kind = "containerApp" if row["type"].lower().endswith("containerapps") else "containerAppJob"
        for secret in (p.get("configuration") or {}).get("secrets") or []:
            self.add(row, kind, "its secrets", secret.get("keyVaultUrl"))

    def container_certificate(self, row, p, _connections):
        source = p.get("certificateKeyVaultProperties") or {}
        self.add(row, "containerAppsCertificate", "environment", source.get("keyVaultUrl"))

    def api_management(self, row, p, _connections):
        for host in p.get("hostnameConfigurations") or []:
            self.add(row, "apiManagement", "certificates", host.get("keyVaultId"))
        for part, place in (("namedValues", "named values"), ("certificates", "certificates")):
            for entry in self.cloud.arm_list(f"{row['id']}/{part}", "2024-05-01"):
                key_vault = entry["properties"].get("keyVault") or {}
                state = (key_vault.get("lastStatus") or {}).get("code")
                self.add(row, "apiManagement", place, key_vault.get("secretIdentifier"), state=state)

    def gateway(self, row, p, _connections):
        for part in ("sslCertificates", "trustedRootCertificates"):
            for one in p.get(part) or []:
                self.add(row, "applicationGateway", "sslCertificates", (one.get("properties") or {}).get("keyVaultSecretId"))

    def front_door(self, row, _properties, _connections):
        if row.get("sku") and not row["sku"].lower().endswith("azurefrontdoor"):
            return
        for one in self.cloud.arm_list(f"{row['id']}/secrets", "2024-02-01"):
            p = one["properties"].get("parameters") or {}
            source = (p.get("secretSource") or {}).get("id")
            found = re.fullmatch(r"(.*/secrets/[^/]+)(?:/([0-9a-f]{32}))?", source or "", re.I)
            asset = found and vault_of_id(found[1])
            if asset and asset.get("name"):
                version = p.get("secretVersion") or found[2]
                self.add(row, "frontDoor", "profile", {**asset, "version": version}, follows=p.get("useLatestVersion"))

    def data_factory(self, row, _properties, _connections):
        services = self.cloud.arm_list(f"{row['id']}/linkedservices", "2018-06-01")
        vaults = {}
        for one in services:
            if one["properties"]["type"] == "AzureKeyVault":
                vaults[one["name"]] = self.vault_address(one["properties"]["typeProperties"].get("baseUrl"))
        for one in services:
            for field in secret_fields(one["properties"].get("typeProperties") or {}):
                vault, name = vaults.get((field.get("store") or {}).get("referenceName")), field.get("secretName")
                if vault is None:
                    continue
                if isinstance(name, dict) or name.startswith("@"):
                    self.add(row, "dataFactory", "linked services", dict(vault))
                    continue
                version = field.get("secretVersion")
                version = version if isinstance(version, str) and re.fullmatch(r"[0-9a-fA-F]{32}", version) else None
                self.add(row, "dataFactory", "linked services", {**vault, "type": "secret", "name": name, "version": version})

    def logic_app(self, row, p, connections):
        named = ((p.get("parameters") or {}).get("$connections") or {}).get("value") or {}
        vaults = {name: connections.get((one.get("connectionId") or "").lower()) for name, one in named.items()}
        for inputs in operations(p.get("definition")):
            connection = ((inputs.get("host") or {}).get("connection") or {}).get("name") or ""
            key = re.search(r"\['([^']+)'\]\['connectionId'\]", connection)
            vault, path = vaults.get(key[1]) if key else None, inputs.get("path")
            if not vault or not isinstance(path, str) or not path.lower().startswith("/secrets/"):
                continue
            parts = [literal(part) for part in path.split("/")[2:]]
            if re.fullmatch(r"[0-9A-Za-z-]+", parts[0]) is None:
                asset = {"vault": vault} if parts[0].startswith("@") else None
            else:
                version = parts[2] if len(parts) > 2 and parts[1] == "versions" else None
                asset = {"vault": vault, "type": "secret", "name": parts[0], "version": version}
            if asset:
                self.add(row, "logicApp", "Key Vault connection", asset)

    def api_connection(self, row, _properties, connections):
        vault = connections.get(row["id"].lower())
        if vault:
            self.add(row, "apiConnection", "the whole vault", {"vault": vault})

    def configuration(self, row, p, _connections):
        endpoint = p["endpoint"].rstrip("/")
        url = f"{endpoint}/kv?api-version=2023-11-01&key=*&label=*"
        token = self.cloud.token(f"https://{self.cloud.environment['AZURE_APP_CONFIGURATION_SUFFIX']}")
        while url:
            page = self.cloud.request("GET", url, token)
            for one in page["items"]:
                if (one.get("content_type") or "").startswith("application/vnd.microsoft.appconfig.keyvaultref"):
                    found = re.search(r'"uri"\s*:\s*"([^"]+)"', one["value"])
                    self.add(row, "appConfiguration", "key-values", found[1] if found else None)
            link = page.get("@nextLink")
            url = link and (link if link.startswith("http") else endpoint + link)

    def storage(self, row, p, _connections):
        encryption = p.get("encryption") or {}
        key = encryption.get("keyvaultproperties") or {}
        vault = self.vault_address(key.get("keyvaulturi"))
        if vault and (encryption.get("keySource") or "").lower() == "microsoft.keyvault" and key.get("keyname"):
            asset = {**vault, "type": "key", "name": key["keyname"], "version": key.get("keyversion")}
            self.add(row, "storageAccount", "encrypts it", asset)

    def sql(self, row, _properties, _connections):
        p = self.cloud.arm(f"{row['id']}/encryptionProtector/current", "2021-11-01")["properties"]
        if p.get("serverKeyType") == "AzureKeyVault":
            self.add(row, "sqlServer", "protector", p.get("uri"), follows=p.get("autoRotationEnabled"))

    def disks(self, row, p, _connections):
        url = (p.get("activeKey") or {}).get("keyUrl")
        self.add(row, "diskEncryptionSet", "active key", url, follows=p.get("rotationToLatestKeyVersionEnabled"))

    def cluster(self, row, p, _connections):
        kms = (p.get("securityProfile") or {}).get("azureKeyVaultKms") or {}
        if kms.get("enabled"):
            self.add(row, "kubernetesCluster", "KMS", kms.get("keyId"))
        provider = (p.get("addonProfiles") or {}).get("azureKeyvaultSecretsProvider") or {}
        if provider.get("enabled"):
            self.mounting[(provider.get("identity") or {}).get("objectId", "").lower()].append(row)

    def machine(self, row, p, _connections):
        for secret in (p.get("osProfile") or {}).get("secrets") or []:
            for one in secret.get("vaultCertificates") or []:
                self.add(row, "virtualMachine", "scale set's profile", one.get("certificateUrl"))

    def scale_set(self, row, p, connections):
        profile = p.get("virtualMachineProfile") or {}
        self.machine(row, profile, connections)
        for one in (profile.get("extensionProfile") or {}).get("extensions") or []:
            self.extension(row, one.get("properties") or {}, connections)

    def extension(self, row, p, _connections):
        if (p.get("type") or "").lower() not in ("keyvaultforlinux", "keyvaultforwindows"):
            return
        settings = (p.get("settings") or {}).get("secretsManagementSettings") or {}
        for one in settings.get("observedCertificates") or []:
            self.add(row, "virtualMachine", "extension", one if isinstance(one, str) else one.get("url"))

    def workspace(self, row, p, _connections):
        self.add(row, "machineLearning", "workspace", vault_of_id(p.get("keyVault")) or "")

    # Access

    # Clusters that mount secrets, by the object ID of the identity that reads the secrets.
    mounting = defaultdict(list)

    def entitle(self):
        """Adds what principals may read, by role or access policy, and by the identities of clusters that mount secrets."""
        # Objects by principal, as tuples of vault, type and name: see the edges.
        own = self.cloud.environment["SERVICE_KEY_VAULT_URL"].split("//")[1].split(".")[0].lower()
        homes = {vault["name"].lower(): vault["id"].split("/")[2].lower() for vault in self.vaults}
        grants = defaultdict(set)
        # Vaults with role-based access control. The others have access policies.
        roles = [v for v in self.vaults if v["properties"].get("enableRbacAuthorization")]
        for vault in self.vaults:
            if vault in roles:
                continue
            for policy in vault["properties"].get("accessPolicies") or []:
                allowed = {part: {one.lower() for one in values or []} for part, values in policy["permissions"].items()}
                secrets = allowed.get("secrets", set()) & {"get", "all"}
                keys = allowed.get("keys", set()) & {"decrypt", "encrypt", "sign", "unwrapkey", "wrapkey", "all"}
                grants[policy["objectId"].lower()] |= parts(vault["name"], secrets, keys)
        definitions = {}
        for subscription in {vault["id"].split("/")[2] for vault in roles}:
            path = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleAssignments"
            for assignment in self.cloud.arm_list(path, "2022-04-01"):
                p = assignment["properties"]
                role = p["roleDefinitionId"]
                if role not in definitions:
                    definitions[role] = self.cloud.arm(role, "2022-04-01")["properties"]["permissions"]
                secrets = allows(definitions[role], "microsoft.keyvault/vaults/secrets/getsecret/action")
                uses = ("decrypt", "encrypt", "sign", "unwrap", "wrap")
                keys = any(allows(definitions[role], f"microsoft.keyvault/vaults/keys/{use}/action") for use in uses)
                scope = p["scope"].lower().rstrip("/")
                for vault in roles:
                    if vault["id"].split("/")[2] != subscription:
                        continue
                    id = vault["id"].lower()
                    # A management group, or the vault or a scope above it. Else a single object in the vault.
                    if not scope.startswith("/subscriptions/") or id == scope or id.startswith(f"{scope}/"):
                        grants[p["principalId"].lower()] |= parts(vault["name"], secrets, keys)
                    elif scope.startswith(f"{id}/"):
                        collection, name = scope[len(id) + 1 :].split("/")[:2]
                        for kind in kinds(secrets, keys):
                            if f"{kind}s" == collection:
                                grants[p["principalId"].lower()].add((vault["name"].lower(), kind, name))
        for principal, found in grants.items():
            for vault, kind, name in found:
                if vault == own:
                    continue
                self.entitled(f"entra/{principal}", "principal", None, vault, kind, name)
                for row in self.mounting.get(principal, ()):
                    same_subscription = row["id"].split("/")[2].lower() == homes[vault]
                    if kind in (None, "secret") and same_subscription:
                        self.entitled(row["id"], "kubernetesCluster", environment(row.get("tags") or {}), vault, kind, name)

    def entitled(self, resource, kind, env, vault, type, name):
        self.edges.append(
            {
                "resource": resource,
                "kind": kind,
                "environment": env,
                "vault": vault,
                "type": type,
                "name": name,
                "strength": "entitled",
                "refresh": "blind",
                "pinned": None,
                "resolved": None,
            }
        )

    def names(self):
        """Returns the resource of each system-assigned identity, and the names of user-assigned ones, by principal."""
        owners, names = {}, {}
        for row in self.cloud.resource_graph("resources | where isnotnull(identity) | project id, identity | order by id asc"):
            identity = row["identity"] or {}
            if identity.get("principalId"):
                owners[f"entra/{identity['principalId'].lower()}"] = row["id"]
            for id, one in (identity.get("userAssignedIdentities") or {}).items():
                names[f"entra/{one['principalId'].lower()}"] = id.split("/")[-1]
        return owners, names

    def states(self):
        """Returns whether references resolve, by vault, type and name of what they name."""
        states = defaultdict(list)
        for edge in self.edges:
            if edge["resolved"] is not None:
                states[edge["vault"], edge["type"] if edge["name"] else None, edge["name"]].append(edge["resolved"])
        return states


def environment(tags):
    """Returns the environment of a resource by its tags: docs/consumers.md, Environment."""
    by_name = {name.lower(): value.strip() for name, value in tags.items()}
    return next((by_name[name] for name in ("environment", "env", "stage") if by_name.get(name)), None)


def vault_of_id(text):
    """Returns the vault, or the secret, of an Azure resource ID."""
    found = re.fullmatch(
        r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.KeyVault/vaults/([^/]+)(?:/secrets/([^/]+))?/?", text or "", re.I
    )
    return found and ({"vault": found[1], "type": "secret", "name": found[2]} if found[2] else {"vault": found[1]})


def connection_vault(row):
    """Returns the vault of a connection of the Key Vault connector. None for other connections."""
    p = row.get("properties") or {}
    api = (p.get("api") or {}).get("name") or (p.get("api") or {}).get("id") or ""
    if not re.search(r"(^|/)keyvault$", api, re.I):
        return None
    return (p.get("parameterValues") or {}).get("vaultName") or (p.get("alternativeParameterValues") or {}).get("vaultName")


def secret_fields(value):
    """Yields the fields of a linked service that are secrets of a vault."""
    if isinstance(value, dict):
        if value.get("type") == "AzureKeyVaultSecret":
            yield value
        else:
            for inner in value.values():
                yield from secret_fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secret_fields(inner)


def operations(definition):
    """Yields the inputs of all actions and triggers of a workflow, also of nested ones."""
    if isinstance(definition, dict):
        for inner in definition.values():
            if isinstance(inner, dict) and isinstance(inner.get("inputs"), dict):
                yield inner["inputs"]
            yield from operations(inner)
    elif isinstance(definition, list):
        for inner in definition:
            yield from operations(inner)


def literal(segment):
    """Returns the text of a path segment such as `@{encodeURIComponent('name')}`."""
    found = re.fullmatch(r"@\{(?:encodeURIComponent\()*'([^']*)'\)*\}", segment)
    return found[1] if found else segment


def kinds(secrets, keys):
    """Returns the types that a permission for secrets, and one for keys, entitle to. A certificate has a secret."""
    return [kind for kind in ("certificate", "key", "secret") if (keys if kind == "key" else secrets)]


def parts(vault, secrets, keys):
    """Returns what the permissions entitle to in a vault, as tuples of vault, type and name. All types: the whole vault."""
    found = kinds(secrets, keys)
    return {(vault.lower(), None, None)} if len(found) == 3 else {(vault.lower(), kind, None) for kind in found}


def allows(permissions, action):
    """Returns whether the permissions of a role definition include a data action, in lower case."""
    matches = lambda patterns: any(re.fullmatch(re.escape(one.lower()).replace(r"\*", ".*"), action) for one in patterns or [])
    return any(matches(one.get("dataActions")) and not matches(one.get("notDataActions")) for one in permissions)


# The method that reads the references of a resource, by its type.
READERS = {
    "microsoft.web/sites": Consumers.site,
    "microsoft.web/sites/slots": Consumers.site,
    "microsoft.web/certificates": Consumers.site_certificate,
    "microsoft.app/containerapps": Consumers.container,
    "microsoft.app/jobs": Consumers.container,
    "microsoft.app/managedenvironments/certificates": Consumers.container_certificate,
    "microsoft.apimanagement/service": Consumers.api_management,
    "microsoft.network/applicationgateways": Consumers.gateway,
    "microsoft.cdn/profiles": Consumers.front_door,
    "microsoft.datafactory/factories": Consumers.data_factory,
    "microsoft.logic/workflows": Consumers.logic_app,
    "microsoft.web/connections": Consumers.api_connection,
    "microsoft.appconfiguration/configurationstores": Consumers.configuration,
    "microsoft.storage/storageaccounts": Consumers.storage,
    "microsoft.sql/servers": Consumers.sql,
    "microsoft.compute/diskencryptionsets": Consumers.disks,
    "microsoft.containerservice/managedclusters": Consumers.cluster,
    "microsoft.compute/virtualmachines": Consumers.machine,
    "microsoft.compute/virtualmachines/extensions": Consumers.extension,
    "microsoft.compute/virtualmachinescalesets": Consumers.scale_set,
    "microsoft.machinelearningservices/workspaces": Consumers.workspace,
}
