import { summaryQuery } from "../../dependencies/logs/query.ts";
import { unlessMissing } from "../../platform/azure/failure.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import { assignCommand, groupCommand, subscriptionCommand } from "../commands.ts";
import type { CheckContext } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { SECRET_WRITES } from "../own-roles.ts";
import { joinActions, notProven, off, type Result } from "../result.ts";

// The calls of optional features (PRO): rotation in Azure, logs, and the search for plaintext copies.

const ROTATION = "permissions-options.md#rotation-in-resource-groups";
const LITERALS = "permissions-options.md#search-for-plaintext-copies";
const ROTATION_TEMPLATE = "infra/azure/rotation/resource-group.bicep";
const LITERAL_TEMPLATE = "infra/azure/literal-scan/subscription.bicep";
const LOG_TEMPLATE = "infra/azure/logs/workspace.bicep";

/** Number of Log Analytics workspaces that are queried, so that a check stays within two minutes. */
const SAMPLED_WORKSPACES = 3;

const NOT_LICENSED = off("Needs a PRO license.");

/** Returns the check of a write of a rotation. A check must not write, so the identity's roles decide. */
const rotationWrite = (
  id: string,
  feature: string,
  call: string,
  actions: readonly [string, ...string[]],
): OutgoingCall => ({
  id,
  feature,
  call,
  permissions: actions,
  page: ROTATION,
  optional: true,
  async check(context) {
    if (!(await context.licensed())) return NOT_LICENSED;
    const command = groupCommand(await context.principal(), ROTATION_TEMPLATE);
    return (await Promise.all(actions.map((action) => context.whereHeld({ action }, {}, command)))).flat();
  },
});

/**
 * Returns the check of a read whose answer has secret values. A check must not receive them, so the identity's roles decide.
 */
const valueRead = (id: string, feature: string, call: string, actions: readonly string[]): OutgoingCall => ({
  id,
  feature,
  call,
  permissions: actions,
  page: LITERALS,
  check: ifLiteralScanIsOn(async (context) => {
    const principal = await context.principal();
    return await context.inSubscriptions(actions, () => subscriptionCommand(principal, LITERAL_TEMPLATE));
  }),
});

/** Makes a call of the search for plaintext copies, which is off by default. */
function ifLiteralScanIsOn(check: OutgoingCall["check"]): OutgoingCall["check"] {
  return async (context) => {
    if (!context.config.DEPENDENCY_LITERAL_SCAN) return off("DEPENDENCY_LITERAL_SCAN is not true.");
    return (await context.licensed()) ? await check(context) : NOT_LICENSED;
  };
}

/** Reads a secret that does not exist in each sampled vault: a 404 needs the same permission as a value. */
async function readMissingSecrets(context: CheckContext): Promise<Result[]> {
  const { checked } = await context.vaults();
  const principal = await context.principal();
  const vaults = checked.filter(({ name }) => !isServiceVault(context.config, name));
  if (vaults.length === 0) return [notProven("the vaults", "No vault can be seen in the sampled subscriptions.")];
  return await Promise.all(
    vaults.map((vault) =>
      context.attempt(
        `key vault ${vault.name}`,
        async () => {
          const secrets = context.clients.vaultSecrets.open(vault);
          await unlessMissing(secrets.read("credential-lifecycle-check", undefined, context.signal));
        },
        () => assignCommand(principal, "Key Vault Secrets User", vault.id),
      ),
    ),
  );
}

export const optionCalls: readonly OutgoingCall[] = [
  rotationWrite(
    "appService.refresh",
    "An app reads its references again",
    "POST {site}/config/configreferences/appsettings/refresh",
    ["Microsoft.Web/sites/config/write", "Microsoft.Web/sites/slots/config/write"],
  ),
  rotationWrite("appService.restart", "An app restarts", "POST {site}/restart?softRestart=true", [
    "Microsoft.Web/sites/restart/action",
    "Microsoft.Web/sites/slots/restart/action",
  ]),
  rotationWrite("apiManagement.refreshSecret", "A named value is refreshed", "POST {namedValue}/refreshSecret", [
    "Microsoft.ApiManagement/service/namedValues/refreshSecret/action",
  ]),
  {
    id: "keyVault.setSecret",
    feature: "Rotation, sync: new versions of secrets",
    call: "PUT /secrets/{name}",
    permissions: ["Key Vault Secrets Officer"],
    page: ROTATION,
    optional: true,
    async check(context) {
      if (!(await context.licensed())) return NOT_LICENSED;
      const command = assignCommand(
        await context.principal(),
        "Key Vault Secrets Officer",
        "<resource id of the vault>",
      );
      // The service's own vault is never the target of a rotation or a sync record.
      const own = context.config.SERVICE_KEY_VAULT_URL;
      const except = own === undefined ? undefined : new URL(own).hostname.split(".")[0]!;
      return await joinActions(SECRET_WRITES.map((action) => context.whereHeld(action, { except }, command)));
    },
  },
  {
    id: "logAnalytics.query",
    feature: "Dependencies from logs; use of the old value in rotations",
    call: "POST /v1/workspaces/{id}/query",
    permissions: ["Microsoft.OperationalInsights/workspaces/query/read"],
    page: "permissions-options.md#read-logs",
    async check(context) {
      const workspaces = context.config.LOG_ANALYTICS_WORKSPACE_IDS;
      if (workspaces.length === 0) return off("LOG_ANALYTICS_WORKSPACE_IDS is not set.");
      if (!(await context.licensed())) return NOT_LICENSED;
      const principal = await context.principal();
      const to = context.deps.clock.now();
      const from = new Date(to.getTime() - MINUTE_MS);
      return await Promise.all(
        workspaces.slice(0, SAMPLED_WORKSPACES).map((id) =>
          context.attempt(
            `Log Analytics workspace ${id}`,
            async () => {
              await context.clients.logAnalytics.query(id, summaryQuery([]), { from, to }, context.signal);
              return { detail: "A table that the identity may not query is left out of the answer." };
            },
            () => groupCommand(principal, LOG_TEMPLATE, ' workspaceName="<workspace>"'),
          ),
        ),
      );
    },
  },
  {
    id: "keyVault.getSecret",
    feature: "Secret values",
    call: "GET /secrets/{name}",
    permissions: ["Microsoft.KeyVault/vaults/secrets/getSecret/action"],
    page: LITERALS,
    check: ifLiteralScanIsOn(readMissingSecrets),
  },
  valueRead("appService.listSettings", "Settings and connection strings", "POST {site}/config/appsettings/list", [
    "Microsoft.Web/sites/config/list/action",
    "Microsoft.Web/sites/slots/config/list/action",
  ]),
  valueRead("containerApps.listSecrets", "Secrets of Container Apps and jobs", "POST {app}/listSecrets", [
    "Microsoft.App/containerApps/listSecrets/action",
    "Microsoft.App/jobs/listSecrets/action",
  ]),
];
