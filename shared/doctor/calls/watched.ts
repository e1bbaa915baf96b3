import * as z from "zod";
import { changesSince } from "../../dependencies/azure/queries.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { VaultResource } from "../../platform/azure/resource-manager.ts";
import { HOUR_MS } from "../../platform/time.ts";
import { remedyFor, type Step } from "../../subscriptions/remedy.ts";
import { watchCommand } from "../commands.ts";
import type { CheckContext } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { type Added, notProven, off, type Result } from "../result.ts";
import { firstPage, undefinedAfterFailure } from "../sample.ts";

// The calls to watched subscriptions: scans, and dependencies (PRO).

const PAGE = "permissions.md#watched-subscriptions";

/**
 * Actions of the Dependency Reader on which Resource Graph's rows depend. It omits rows that the identity may not read, without
 * an error. One for each type of resource in shared/dependencies/azure/finders.ts, its parts, and vaults' connections.
 */
export const RESOURCE_ACTIONS = [
  "Microsoft.Web/sites/read",
  "Microsoft.Web/sites/slots/read",
  "Microsoft.Web/certificates/read",
  "Microsoft.Web/connections/read",
  "Microsoft.Logic/workflows/read",
  "Microsoft.App/containerApps/read",
  "Microsoft.App/jobs/read",
  "Microsoft.App/managedEnvironments/certificates/read",
  "Microsoft.ApiManagement/service/read",
  "Microsoft.Network/applicationGateways/read",
  "Microsoft.Cdn/profiles/read",
  "Microsoft.DataFactory/factories/read",
  "Microsoft.AppConfiguration/configurationStores/read",
  "Microsoft.Storage/storageAccounts/read",
  "Microsoft.Sql/servers/read",
  "Microsoft.Compute/diskEncryptionSets/read",
  "Microsoft.Compute/virtualMachines/read",
  "Microsoft.Compute/virtualMachines/extensions/read",
  "Microsoft.Compute/virtualMachineScaleSets/read",
  "Microsoft.ContainerService/managedClusters/read",
  "Microsoft.MachineLearningServices/workspaces/read",
  "Microsoft.ManagedIdentity/userAssignedIdentities/read",
] as const;

const GRAPH_ACTIONS = ["Microsoft.ResourceGraph/resources/read", ...RESOURCE_ACTIONS];

const NOT_LICENSED = "Needs a PRO license.";

/** Makes a call of dependency discovery, which is off without a license. */
const ifLicensed =
  (check: OutgoingCall["check"]): OutgoingCall["check"] =>
  async (context) =>
    (await context.licensed()) ? await check(context) : off(NOT_LICENSED);

/** Makes a call for each sampled subscription. */
const perSubscription =
  (work: (context: CheckContext, id: string) => Promise<Added>): OutgoingCall["check"] =>
  async (context) => {
    const [{ checked }, principal] = await Promise.all([context.subscriptions(), context.principal()]);
    if (checked.length === 0) return [notProven("the subscriptions", "No subscription can be seen.")];
    return await Promise.all(
      checked.map((id) =>
        context.attempt(
          `subscription ${id}`,
          () => work(context, id),
          () => watchCommand(principal, id),
        ),
      ),
    );
  };

/**
 * Makes a call for each sampled vault.
 *
 * @param step - Step of a subscription's check with the same fix. Undefined: the fix is the roles of the watched subscription.
 */
const perVault =
  (
    step: Step | undefined,
    work: (context: CheckContext, vault: VaultResource) => Promise<Added>,
  ): OutgoingCall["check"] =>
  async (context) => {
    const [{ checked }, principal] = await Promise.all([context.vaults(), context.principal()]);
    if (checked.length === 0) return [notProven("the vaults", "No vault can be seen in the sampled subscriptions.")];
    return await Promise.all(
      checked.map(async (vault) => {
        let failed: CloudFailure | undefined;
        // `attempt` returns a result, but the remedy needs the failure itself.
        const workKeepingFailure = async () => {
          try {
            return await work(context, vault);
          } catch (error) {
            if (error instanceof CloudFailure) failed = error;
            throw error;
          }
        };
        const result = await context.attempt(`key vault ${vault.name}`, workKeepingFailure);
        if (!failed) return result;
        if (!step)
          return result.outcome === "permissionMissing"
            ? { ...result, command: watchCommand(principal, vault.subscriptionId) }
            : result;
        const about = { step, scope: vault.id, vault, principal, outbound: context.config };
        const { text, azCliCommand } = remedyFor(failed, about);
        return { ...result, remedy: text, ...(azCliCommand !== null && { command: azCliCommand }) };
      }),
    );
  };

/** Returns the result for a vault without an object of a kind: there is nothing to read. */
const noneOf = (kind: string): Partial<Result> => ({
  outcome: "notProven",
  detail: `The vault has no ${kind} with which to try it.`,
});

const scans: OutgoingCall[] = [
  {
    id: "arm.listSubscriptions",
    feature: "Scans: subscriptions",
    call: "GET /subscriptions",
    permissions: ["Microsoft.Resources/subscriptions/read"],
    page: PAGE,
    async check(context) {
      const principal = await context.principal();
      return [
        await context.attempt("the resource manager", async () => {
          const { subscriptions } = await context.listed();
          if (subscriptions.length > 0) return undefined;
          return {
            outcome: "permissionMissing",
            detail: "The list is empty: the identity has no role in any subscription.",
            command: watchCommand(principal, "<subscription>"),
          };
        }),
      ];
    },
  },
  {
    id: "arm.getSubscription",
    feature: "Scans: subscriptions",
    call: "GET /subscriptions/{id}",
    permissions: ["Microsoft.Resources/subscriptions/read"],
    page: PAGE,
    check: perSubscription(async ({ clients, signal }, id) => {
      await clients.resourceManager.subscription(id, signal);
    }),
  },
  {
    id: "arm.listVaults",
    feature: "Scans: vaults",
    call: "GET …/Microsoft.KeyVault/vaults",
    permissions: ["Microsoft.KeyVault/vaults/read"],
    page: PAGE,
    check: perSubscription(async ({ vaultsOf }, id) => {
      await vaultsOf(id);
    }),
  },
  {
    id: "arm.getVault",
    feature: "Scans: vaults",
    call: "GET …/Microsoft.KeyVault/vaults/{name}",
    permissions: ["Microsoft.KeyVault/vaults/read"],
    page: PAGE,
    check: perVault(undefined, async ({ clients, signal }, { id }) => {
      await clients.resourceManager.vault(id, signal);
    }),
  },
  {
    id: "arm.diagnosticSettings",
    feature: "Compliance: logging of vaults",
    call: "GET …/Microsoft.Insights/diagnosticSettings",
    permissions: ["Microsoft.Insights/diagnosticSettings/read"],
    page: PAGE,
    check: perVault(undefined, async ({ clients, signal }, { id }) => {
      await clients.resourceManager.diagnosticSettings(id, signal);
    }),
  },
  {
    id: "keyVault.listSecrets",
    feature: "Scans: secrets",
    call: "GET /secrets",
    permissions: ["Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
    page: PAGE,
    check: perVault("secretsListable", async ({ firstOf }, vault) => {
      await firstOf("secrets", vault);
    }),
  },
  {
    id: "keyVault.listSecretVersions",
    feature: "Scans: secrets",
    call: "GET /secrets/{name}/versions",
    permissions: ["Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
    page: PAGE,
    check: perVault("secretsListable", async ({ firstOf, withVault, signal }, vault) => {
      const name = (await firstOf("secrets", vault))?.[0]?.name;
      if (name === undefined) return noneOf("secret");
      await withVault(vault, (client) => firstPage(client.versions("secret", name, signal)));
      return undefined;
    }),
  },
  {
    id: "keyVault.listKeys",
    feature: "Scans: keys",
    call: "GET /keys",
    permissions: ["Microsoft.KeyVault/vaults/keys/read"],
    page: PAGE,
    check: perVault("keysListable", async ({ firstOf }, vault) => {
      await firstOf("keys", vault);
    }),
  },
  {
    id: "keyVault.getKey",
    feature: "Scans: keys",
    call: "GET /keys/{name}",
    permissions: ["Microsoft.KeyVault/vaults/keys/read"],
    page: PAGE,
    check: perVault("keysListable", async ({ firstOf, withVault, signal }, vault) => {
      const name = (await firstOf("keys", vault))?.[0]?.name;
      if (name === undefined) return noneOf("key");
      await withVault(vault, (client) => client.key(name, signal));
      return undefined;
    }),
  },
  {
    id: "keyVault.getRotationPolicy",
    feature: "Scans: keys",
    call: "GET /keys/{name}/rotationpolicy",
    permissions: ["Microsoft.KeyVault/vaults/keyrotationpolicies/read"],
    page: PAGE,
    check: perVault("keysListable", async ({ firstOf, withVault, signal }, vault) => {
      // The key of a certificate has no rotation policy of its own.
      const name = (await firstOf("keys", vault))?.find(({ managed }) => !managed)?.name;
      if (name === undefined) return noneOf("key");
      await withVault(vault, (client) => client.rotationPolicy(name, signal));
      return undefined;
    }),
  },
  {
    id: "keyVault.listCertificates",
    feature: "Scans: certificates",
    call: "GET /certificates",
    permissions: ["Microsoft.KeyVault/vaults/certificates/read"],
    page: PAGE,
    check: perVault("certificatesListable", async ({ firstOf }, vault) => {
      await firstOf("certificates", vault);
    }),
  },
  {
    id: "keyVault.getCertificate",
    feature: "Scans: certificates",
    call: "GET /certificates/{name}",
    permissions: ["Microsoft.KeyVault/vaults/certificates/read"],
    page: PAGE,
    check: perVault("certificatesListable", async ({ firstOf, withVault, signal }, vault) => {
      const name = (await firstOf("certificates", vault))?.[0]?.name;
      if (name === undefined) return noneOf("certificate");
      await withVault(vault, (client) => client.certificate(name, signal));
      return undefined;
    }),
  },
];

/** Returns a call to one resource of a type. Without such a resource, the identity's roles decide. */
const oneResource = (
  { type, actions, ...call }: Pick<OutgoingCall, "id" | "feature" | "call"> & { type: string; actions: string[] },
  work: (context: CheckContext, id: string) => Promise<unknown>,
): OutgoingCall => ({
  ...call,
  permissions: actions,
  page: PAGE,
  check: ifLicensed(async (context) => {
    const principal = await context.principal();
    const command = (subscriptionId: string) => watchCommand(principal, subscriptionId);
    return await context.onResource(type, actions, (id) => work(context, id), command);
  }),
});

const SITES = "Dependencies: web and function apps";
const OTHERS = "Dependencies: API Management, Front Door, Data Factory, SQL servers";
const PRINCIPALS = "Dependencies: who may read a vault";
const RESOURCES = "Dependencies (PRO): resources and changes";

const storeProperties = z.object({ endpoint: z.string() });

const discovery: OutgoingCall[] = [
  {
    id: "resourceGraph.resources",
    feature: RESOURCES,
    call: "POST …/Microsoft.ResourceGraph/resources",
    permissions: GRAPH_ACTIONS,
    page: PAGE,
    check: ifLicensed(async (context) => {
      const principal = await context.principal();
      const command = (id: string) => watchCommand(principal, id);
      const { checked } = await context.subscriptions();
      const asked = await context.attempt(
        "Azure Resource Graph",
        async () => void (await context.resourceOf("microsoft.keyvault/vaults")),
        () => command(checked[0] ?? "<subscription>"),
      );
      // Resource Graph omits rows that the identity may not read, without an error. So the roles decide.
      return asked.outcome === "works" ? await context.inSubscriptions(GRAPH_ACTIONS, command) : [asked];
    }),
  },
  {
    id: "resourceGraph.changes",
    feature: RESOURCES,
    call: "POST …/Microsoft.ResourceGraph/resources",
    permissions: ["Microsoft.Resources/changes/read"],
    page: PAGE,
    check: ifLicensed(async (context) => {
      const { checked } = await context.subscriptions();
      const principal = await context.principal();
      const query = `${changesSince(new Date(context.deps.clock.now().getTime() - HOUR_MS))}\n| limit 1`;
      const asked = await context.attempt(
        "Azure Resource Graph",
        async () => void (await firstPage(context.clients.resourceGraph.query(query, checked, context.signal))),
      );
      if (asked.outcome !== "works") return [asked];
      return await context.inSubscriptions(["Microsoft.Resources/changes/read"], (id) => watchCommand(principal, id));
    }),
  },
  oneResource(
    {
      id: "appService.references",
      feature: SITES,
      call: "GET {site}/config/configreferences/…",
      type: "microsoft.web/sites",
      actions: ["Microsoft.Web/sites/config/read"],
    },
    ({ clients, signal }, id) => clients.appService.references(id, signal),
  ),
  oneResource(
    {
      id: "appService.slotReferences",
      feature: SITES,
      call: "GET {slot}/config/configreferences/…",
      type: "microsoft.web/sites/slots",
      actions: ["Microsoft.Web/sites/slots/config/read"],
    },
    ({ clients, signal }, id) => clients.appService.references(id, signal),
  ),
  oneResource(
    {
      id: "apiManagement.namedValues",
      feature: OTHERS,
      call: "GET {service}/namedValues",
      type: "microsoft.apimanagement/service",
      actions: ["Microsoft.ApiManagement/service/namedValues/read"],
    },
    ({ clients, signal }, id) => clients.apiManagement.namedValues(id, signal),
  ),
  oneResource(
    {
      id: "apiManagement.certificates",
      feature: OTHERS,
      call: "GET {service}/certificates",
      type: "microsoft.apimanagement/service",
      actions: ["Microsoft.ApiManagement/service/certificates/read"],
    },
    ({ clients, signal }, id) => clients.apiManagement.certificates(id, signal),
  ),
  oneResource(
    {
      id: "frontDoor.secrets",
      feature: OTHERS,
      call: "GET {profile}/secrets",
      type: "microsoft.cdn/profiles",
      actions: ["Microsoft.Cdn/profiles/secrets/read"],
    },
    ({ clients, signal }, id) => clients.frontDoor.secrets(id, signal),
  ),
  oneResource(
    {
      id: "dataFactory.linkedServices",
      feature: OTHERS,
      call: "GET {factory}/linkedservices",
      type: "microsoft.datafactory/factories",
      actions: ["Microsoft.DataFactory/factories/linkedservices/read"],
    },
    ({ clients, signal }, id) => clients.dataFactory.linkedServices(id, signal),
  ),
  oneResource(
    {
      id: "sql.encryptionProtector",
      feature: OTHERS,
      call: "GET {server}/encryptionProtector/current",
      type: "microsoft.sql/servers",
      actions: ["Microsoft.Sql/servers/encryptionProtector/read"],
    },
    ({ clients, signal }, id) => clients.sql.encryptionProtector(id, signal),
  ),
  oneResource(
    {
      id: "storage.metrics",
      feature: "Rotation: use of keys of storage accounts",
      call: "GET {account}/providers/Microsoft.Insights/metrics",
      type: "microsoft.storage/storageaccounts",
      actions: ["Microsoft.Insights/metrics/read"],
    },
    ({ clients, deps, signal }, id) => clients.storageMetrics.lastKeyUse(id, deps.clock.now(), 1, signal),
  ),
  oneResource(
    {
      id: "containerApps.revisions",
      feature: "Rotation: replicas of Container Apps",
      call: "GET {app}/revisions, …/replicas",
      type: "microsoft.app/containerapps",
      actions: ["Microsoft.App/containerApps/revisions/read", "Microsoft.App/containerApps/revisions/replicas/read"],
    },
    async ({ clients, signal }, id) => {
      const [revision] = await clients.containerApps.activeRevisions(id, signal);
      if (revision) await clients.containerApps.replicas(id, revision.name, signal);
    },
  ),
  {
    id: "appConfiguration.stores",
    feature: "Dependencies: App Configuration stores",
    call: "GET {store}/kv",
    permissions: ["App Configuration Data Reader"],
    page: PAGE,
    optional: true,
    check: ifLicensed(async (context) => {
      // A failure of Resource Graph is the result of `resourceGraph.resources` above.
      const found = await context
        .resourceOf("microsoft.appconfiguration/configurationstores")
        .catch(undefinedAfterFailure);
      if (!found) return [notProven("App Configuration stores", "There is no store that the identity can see.")];
      const { data } = storeProperties.safeParse(found.properties);
      return [
        await context.attempt(found.id, async () => {
          // Without an endpoint, `list` fails like for an endpoint outside of the cloud (`foreignHost`).
          await context.clients.appConfigurationReferences.list(data?.endpoint ?? "", context.signal);
        }),
      ];
    }),
  },
  {
    id: "authorization.roleAssignments",
    feature: PRINCIPALS,
    call: "GET …/Microsoft.Authorization/roleAssignments",
    permissions: ["Microsoft.Authorization/roleAssignments/read"],
    page: PAGE,
    check: ifLicensed(
      perSubscription(async ({ clients, signal }, id) => {
        await clients.roles.list(id, signal);
      }),
    ),
  },
  {
    id: "authorization.roleDefinitions",
    feature: PRINCIPALS,
    call: "GET …/Microsoft.Authorization/roleDefinitions/{id}",
    permissions: ["Microsoft.Authorization/roleDefinitions/read"],
    page: PAGE,
    check: ifLicensed(
      perSubscription(async ({ clients, signal }, id) => {
        await clients.roles.definition(readerIn(id), signal);
      }),
    ),
  },
];

/** The built-in role Key Vault Reader, which exists in every subscription. */
const readerIn = (subscriptionId: string): string =>
  `/subscriptions/${subscriptionId}/providers/Microsoft.Authorization/roleDefinitions/21090545-7ca7-4776-b22c-e363652d74d2`;

export const watchedCalls: readonly OutgoingCall[] = [...scans, ...discovery];
