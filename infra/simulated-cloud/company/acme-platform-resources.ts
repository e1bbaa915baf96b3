// Resources of the platform team of the sample company acme. arm/placeholders.ts replaces texts such as `{uri:kv-dmz}` by the
// address of that vault, `{version:kv-dmz/secrets/NAME}` by a version, and `{id:…}`, `{resource:…}` and `{principal:…}` by IDs.
// `pick(vault, position, kind)` returns the name of an item of a vault, by default of its first secret. The identity of a
// resource can read the vaults that its texts name, or those in `mayRead`.

import { type NamePicker, referenceByName, referenceByUri, webApp } from "./acme-web-apps.ts";
import type { CompanyResource } from "./resources.ts";

const SYSTEM = { system: true };
const PLATFORM = { resourceGroup: "rg-platform", tags: { env: "prod" } };

/**
 * Returns the resources of acme's platform team: for each resource type one that uses a vault and one that does not. The latter
 * often has "vault" in a name or address, which discovery must not take for a reference.
 */
export function platformResources(pick: NamePicker): CompanyResource[] {
  return [
    ...networkResources(pick),
    ...dataResources(pick),
    ...encryptedResources(pick),
    ...computeResources(pick),
    ...workflowResources(pick),
    ...otherResources(pick),
  ];
}

/**
 * Returns gateways, Front Door and CDN profiles, and certificates of web apps and container apps. Some reference the newest
 * version of a certificate, others a fixed version (pinned).
 */
function networkResources(pick: NamePicker): CompanyResource[] {
  const vault = "kv-platform-edge";
  const [unpinnedCertificate, pinnedCertificate] = [pick(vault, 0, "certificates"), pick(vault, 1, "certificates")];
  const secretUri = `{uri:${vault}}/secrets/${unpinnedCertificate}`;
  return [
    {
      ...PLATFORM,
      type: "Microsoft.Network/applicationGateways",
      name: "agw-edge",
      identity: { user: ["id-edge"] },
      properties: {
        sslCertificates: [
          { name: "followed", properties: { keyVaultSecretId: secretUri } },
          {
            name: "bound",
            properties: {
              keyVaultSecretId: `{uri:${vault}}/secrets/${pinnedCertificate}/{version:${vault}/certificates/${pinnedCertificate}}`,
            },
          },
        ],
        trustedRootCertificates: [],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Network/applicationGateways",
      name: "agw-uploaded",
      properties: { sslCertificates: [{ name: "vault-of-last-year", properties: { publicCertData: "MIIB" } }] },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Cdn/profiles",
      name: "afd-acme",
      location: "global",
      sku: { name: "Premium_AzureFrontDoor" },
      identity: SYSTEM,
      children: {
        secrets: [
          {
            name: "shop",
            properties: {
              parameters: {
                type: "CustomerCertificate",
                secretSource: { id: `{id:${vault}}/secrets/${unpinnedCertificate}` },
                useLatestVersion: true,
                subject: "CN=shop.acme.example",
              },
            },
          },
          {
            name: "partners",
            properties: {
              parameters: {
                type: "CustomerCertificate",
                secretSource: { id: `{id:${vault}}/secrets/${pinnedCertificate}` },
                secretVersion: `{version:${vault}/certificates/${pinnedCertificate}}`,
                useLatestVersion: false,
                subject: "CN=partners.acme.example",
              },
            },
          },
          {
            name: "managed",
            properties: { parameters: { type: "ManagedCertificate", subject: "CN=www.acme.example" } },
          },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Cdn/profiles",
      name: "cdn-classic",
      location: "global",
      sku: { name: "Standard_Microsoft" },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Web/certificates",
      name: "cert-www",
      properties: {
        keyVaultId: `{id:${vault}}`,
        keyVaultSecretName: unpinnedCertificate,
        keyVaultSecretStatus: "Initialized",
        hostNames: ["www.acme.example"],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Web/certificates",
      name: "cert-uploaded",
      properties: { hostNames: ["old.acme.example"], keyVaultSecretStatus: "Unknown" },
    },
    {
      ...PLATFORM,
      type: "Microsoft.App/managedEnvironments",
      name: "cae-prod",
      identity: SYSTEM,
      children: {
        certificates: [
          {
            name: "shop",
            properties: { certificateKeyVaultProperties: { keyVaultUrl: secretUri, identity: "system" } },
          },
          { name: "uploaded", properties: { subjectName: "CN=vault.acme.example" } },
        ],
      },
    },
  ];
}

/** Returns data factories and App Configuration stores. */
function dataResources(pick: NamePicker): CompanyResource[] {
  const vault = "kv-platform-telemetry";
  const store = { type: "LinkedServiceReference", referenceName: "telemetry-vault" };
  const secret = { type: "AzureKeyVaultSecret", store, secretName: pick(vault) };
  const [pinnedSecret, thirdSecret] = [pick(vault, 1), pick(vault, 2)];
  const reference = (uri: string) => ({
    contentType: "application/vnd.microsoft.appconfig.keyvaultref+json;charset=utf-8",
    value: JSON.stringify({ uri }),
  });
  return [
    {
      ...PLATFORM,
      type: "Microsoft.DataFactory/factories",
      name: "adf-acme",
      identity: SYSTEM,
      children: {
        linkedservices: [
          {
            name: "telemetry-vault",
            properties: { type: "AzureKeyVault", typeProperties: { baseUrl: `{uri:${vault}}/` } },
          },
          {
            name: "warehouse",
            properties: {
              type: "AzureSqlDatabase",
              typeProperties: { connectionString: "Server=tcp:sql.acme.example;User ID=loader;", password: secret },
            },
          },
          {
            name: "archive",
            properties: {
              type: "AzureBlobStorage",
              typeProperties: {
                connectionString: {
                  ...secret,
                  secretName: pinnedSecret,
                  secretVersion: `{version:${vault}/secrets/${pinnedSecret}}`,
                },
              },
            },
          },
          {
            name: "of-each-run",
            properties: {
              type: "Sftp",
              typeProperties: {
                password: { ...secret, secretName: { type: "Expression", value: "@pipeline().parameters.secret" } },
              },
            },
          },
          {
            name: "written-out",
            properties: {
              type: "Ftp",
              typeProperties: { host: "vault.acme.example", password: { type: "SecureString", value: "**********" } },
            },
          },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.DataFactory/factories",
      name: "adf-empty",
      identity: SYSTEM,
      children: { linkedservices: [{ name: "public-data", properties: { type: "HttpServer", typeProperties: {} } }] },
    },
    // The resource is readable, but its child resources are not.
    {
      ...PLATFORM,
      type: "Microsoft.DataFactory/factories",
      name: "adf-sealed",
      denied: true,
      children: {
        linkedservices: [
          { name: "telemetry", properties: { type: "AzureKeyVault", typeProperties: { baseUrl: `{uri:${vault}}/` } } },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.AppConfiguration/configurationStores",
      name: "appcs-acme",
      sku: { name: "standard" },
      keyValues: [
        { key: "shop:theme", value: "dark" },
        { key: "shop:mail-key", ...reference(`{uri:${vault}}/secrets/${thirdSecret}`) },
        {
          key: "shop:bound-key",
          label: "prod",
          ...reference(`{uri:${vault}}/secrets/${pinnedSecret}/{version:${vault}/secrets/${pinnedSecret}}`),
        },
        {
          key: "shop:flag",
          contentType: "application/vnd.microsoft.appconfig.ff+json;charset=utf-8",
          value: '{"id":"vault"}',
        },
      ],
    },
    {
      ...PLATFORM,
      type: "Microsoft.AppConfiguration/configurationStores",
      name: "appcs-plain",
      sku: { name: "free" },
      keyValues: [{ key: "docs", value: "https://vault.acme.example/secrets/how-to" }],
    },
  ];
}

/** Returns resources that encrypt their data with a key of a vault. */
function encryptedResources(pick: NamePicker): CompanyResource[] {
  const vault = "kv-platform-backup";
  const [first, second] = [pick(vault, 0, "keys"), pick(vault, 1, "keys")];
  const keyUrl = (name: string) => `{uri:${vault}}/keys/${name}/{version:${vault}/keys/${name}}`;
  return [
    {
      ...PLATFORM,
      type: "Microsoft.Storage/storageAccounts",
      name: "stacmebackup",
      kind: "StorageV2",
      identity: SYSTEM,
      properties: {
        encryption: {
          keySource: "Microsoft.Keyvault",
          keyvaultproperties: {
            keyname: first,
            keyvaulturi: `{uri:${vault}}`,
            currentVersionedKeyIdentifier: keyUrl(first),
          },
        },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Storage/storageAccounts",
      name: "stacmetapes",
      kind: "StorageV2",
      identity: SYSTEM,
      properties: {
        encryption: {
          keySource: "Microsoft.Keyvault",
          keyvaultproperties: {
            keyname: second,
            keyversion: `{version:${vault}/keys/${second}}`,
            keyvaulturi: `{uri:${vault}}`,
          },
        },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Storage/storageAccounts",
      name: "stacmevault",
      kind: "StorageV2",
      properties: {
        encryption: { keySource: "Microsoft.Storage" },
        primaryEndpoints: { blob: "https://stacmevault.blob.core.windows.net/" },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Sql/servers",
      name: "sql-acme",
      identity: SYSTEM,
      properties: { keyId: keyUrl(first), fullyQualifiedDomainName: "sql-acme.database.windows.net" },
      children: {
        encryptionProtector: [
          {
            name: "current",
            properties: {
              serverKeyType: "AzureKeyVault",
              serverKeyName: `${vault}_${first}`,
              uri: keyUrl(first),
              autoRotationEnabled: true,
            },
          },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Sql/servers",
      name: "sql-reports",
      properties: { fullyQualifiedDomainName: "sql-reports.database.windows.net" },
      children: {
        encryptionProtector: [
          { name: "current", properties: { serverKeyType: "ServiceManaged", serverKeyName: "ServiceManaged" } },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Compute/diskEncryptionSets",
      name: "des-backup",
      identity: SYSTEM,
      properties: {
        activeKey: { sourceVault: { id: `{id:${vault}}` }, keyUrl: keyUrl(second) },
        encryptionType: "EncryptionAtRestWithCustomerKey",
        rotationToLatestKeyVersionEnabled: true,
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Compute/diskEncryptionSets",
      name: "des-managed-hsm",
      identity: SYSTEM,
      properties: {
        activeKey: { keyUrl: "https://hsm-acme.managedhsm.azure.net/keys/vault/0123456789abcdef0123456789abcdef" },
        encryptionType: "EncryptionAtRestWithCustomerKey",
      },
    },
  ];
}

/** Returns Kubernetes clusters and virtual machines. */
function computeResources(pick: NamePicker): CompanyResource[] {
  const [aks, edge] = ["kv-platform-aks", "kv-platform-network"];
  const [key, certificate] = [pick(aks, 0, "keys"), pick(edge, 0, "certificates")];
  const certificateUri = `{uri:${edge}}/secrets/${certificate}`;
  return [
    {
      ...PLATFORM,
      type: "Microsoft.ContainerService/managedClusters",
      name: "aks-main",
      identity: { user: ["id-aks"] },
      properties: {
        securityProfile: {
          azureKeyVaultKms: {
            enabled: true,
            keyId: `{uri:${aks}}/keys/${key}/{version:${aks}/keys/${key}}`,
            keyVaultNetworkAccess: "Public",
          },
        },
        addonProfiles: {
          azureKeyvaultSecretsProvider: {
            enabled: true,
            config: { enableSecretRotation: "true", rotationPollInterval: "2m" },
            identity: { objectId: "{principal:secrets provider of aks-main}" },
          },
        },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.ContainerService/managedClusters",
      name: "aks-lab",
      identity: SYSTEM,
      properties: { addonProfiles: { azureKeyvaultSecretsProvider: { enabled: false } } },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Compute/virtualMachines",
      name: "vm-gateway",
      identity: SYSTEM,
      properties: {
        osProfile: {
          computerName: "vm-gateway",
          secrets: [
            {
              sourceVault: { id: `{id:${edge}}` },
              vaultCertificates: [
                {
                  certificateUrl: `${certificateUri}/{version:${edge}/certificates/${certificate}}`,
                  certificateStore: "My",
                },
              ],
            },
          ],
        },
      },
      children: {
        extensions: [
          {
            name: "KeyVaultForLinux",
            properties: {
              publisher: "Microsoft.Azure.KeyVault",
              type: "KeyVaultForLinux",
              settings: {
                secretsManagementSettings: { pollingIntervalInS: "3600", observedCertificates: [certificateUri] },
              },
            },
          },
          {
            name: "OMSAgent",
            properties: {
              publisher: "Microsoft.EnterpriseCloud.Monitoring",
              type: "OmsAgentForLinux",
              settings: { note: "no vault" },
            },
          },
        ],
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Compute/virtualMachines",
      name: "vm-build",
      properties: { osProfile: { computerName: "vault-build", secrets: [] } },
    },
  ];
}

/** Returns connections and workflows of Logic Apps. */
function workflowResources(pick: NamePicker): CompanyResource[] {
  const vault = "kv-platform-ci";
  const connection = "{resource:Microsoft.Web/connections/keyvault-ci}";
  const get = (path: string, name: string) => ({
    type: "ApiConnection",
    inputs: {
      host: { connection: { name: `@parameters('$connections')['${name}']['connectionId']` } },
      method: "get",
      path,
    },
  });
  return [
    {
      ...PLATFORM,
      type: "Microsoft.Web/connections",
      name: "keyvault-ci",
      properties: {
        displayName: "keyvault-ci",
        api: {
          name: "keyvault",
          id: "/subscriptions/0/providers/Microsoft.Web/locations/westeurope/managedApis/keyvault",
        },
        parameterValueType: "Alternative",
        parameterValues: { vaultName: vault },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Web/connections",
      name: "servicebus-vault",
      properties: { displayName: "vault-events", api: { name: "servicebus" }, parameterValues: {} },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Logic/workflows",
      name: "logic-release",
      identity: SYSTEM,
      mayRead: [vault],
      properties: {
        state: "Enabled",
        definition: {
          actions: {
            Get_secret: get(`/secrets/@{encodeURIComponent('${pick(vault)}')}/value`, "keyvault"),
            Get_any: get("/secrets/@{encodeURIComponent(triggerBody()?['name'])}/value", "keyvault"),
          },
        },
        parameters: {
          $connections: { value: { keyvault: { connectionId: connection, connectionName: "keyvault-ci" } } },
        },
      },
    },
    {
      ...PLATFORM,
      type: "Microsoft.Logic/workflows",
      name: "logic-newsletter",
      properties: {
        state: "Enabled",
        definition: {
          actions: {
            Call: {
              type: "Http",
              inputs: {
                method: "GET",
                uri: "https://vault.acme.example",
                path: "/secrets/@{encodeURIComponent('mail')}/value",
              },
            },
          },
        },
        parameters: {},
      },
    },
  ];
}

/** Returns machine learning workspaces, and two apps whose vaults are special cases of discovery. */
function otherResources(pick: NamePicker): CompanyResource[] {
  return [
    {
      ...PLATFORM,
      type: "Microsoft.MachineLearningServices/workspaces",
      name: "mlw-forecast",
      identity: SYSTEM,
      // Only the vault's ID in the properties shows that the workspace uses the vault: no role lets the workspace read it.
      mayRead: [],
      properties: { keyVault: "{id:kv-platform-telemetry}", friendlyName: "Forecast" },
    },
    {
      ...PLATFORM,
      type: "Microsoft.MachineLearningServices/workspaces",
      name: "mlw-vaultless",
      properties: { friendlyName: "No vault" },
    },
    // The firewall of the vault blocks this resource.
    { ...webApp("app-dmz-status", { TOKEN: referenceByName("kv-dmz", pick("kv-dmz")) }), ...PLATFORM },
    // Readers of the service's own vault are excluded.
    {
      ...webApp("func-lifecycle", { JWT_KEYS: referenceByUri("kv-lifecycle-service", "jwt-signing-keys") }),
      ...PLATFORM,
      kind: "functionapp",
    },
  ];
}
