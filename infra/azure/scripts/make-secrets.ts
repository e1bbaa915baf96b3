/**
 * Creates the service's signing keys and the first administrator's password, after `azd provision` (azure.yaml) and after
 * `terraform apply`. Writes them through Resource Manager, so that it works without public access to the vault, and only if the
 * secret does not exist, so that a further deployment changes none. Values are neither printed nor stored elsewhere.
 */
import { randomBytes } from "node:crypto";
import { cloudEndpoints } from "../../../shared/platform/config/clouds.ts";
import { commandLine } from "../../build/command-line.ts";

const HELP = `npm run make-secrets

Makes the service's signing keys and the first administrator's password in its key vault, each only where there is none, and
lets the app read them. Prints no value. Needs a sign-in of the Azure CLI, the Azure Developer CLI or an application that
may write both resources. Ends with 1 and says what to do when it can't.

  SERVICE_KEY_VAULT_ID      the key vault's resource id, as the deployment's outputs have it
  SERVICE_FUNCTION_APP_ID   the function app's, as well
  ALERTS_NOTIFY_NOBODY      an output of the deployment, too: with true it warns that no operator is notified
  AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT   another cloud than the public one`;
commandLine(HELP, {});

const APP_VERSION = "2024-11-01";
const VAULT_ID =
  /^\/subscriptions\/([^/]+)\/resourceGroups\/([^/]+)\/providers\/Microsoft\.KeyVault\/vaults\/([^/]+)$/i;
const APP_ID = /^\/subscriptions\/[^/]+\/resourceGroups\/[^/]+\/providers\/Microsoft\.Web\/sites\/[^/]+$/i;

/**
 * `kid:base64`, the format that config.ts reads. The name is random, so that a new key is never confused with an earlier one.
 */
const signingKey = (): string => `${randomBytes(4).toString("hex")}:${randomBytes(32).toString("base64")}`;

/** Secrets by their names in the app's settings. */
const SECRETS: Record<string, () => string> = {
  "jwt-signing-keys": signingKey,
  "audit-signing-keys": signingKey,
  "bootstrap-admin-password": () => randomBytes(24).toString("base64url"),
};

const [, subscriptionId, group, vault] = required("SERVICE_KEY_VAULT_ID", VAULT_ID);
const [appId] = required("SERVICE_FUNCTION_APP_ID", APP_ID);
const { AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT } = process.env;
const cloud = cloudEndpoints({
  AZURE_CLOUD: AZURE_CLOUD || "AzureCloud",
  AZURE_AUTHORITY_HOST: AZURE_AUTHORITY_HOST || undefined,
  AZURE_RESOURCE_MANAGER_ENDPOINT: AZURE_RESOURCE_MANAGER_ENDPOINT || undefined,
});
const { DefaultAzureCredential } = await import("@azure/identity");
const { KeyVaultManagementClient } = await import("@azure/arm-keyvault");
const credential = new DefaultAzureCredential({
  authorityHost: cloud.authorityHost,
  // For an authority that was configured by hand, the cloud is not known to be the public one.
  disableInstanceDiscovery: Boolean(AZURE_AUTHORITY_HOST),
});
const { secrets } = new KeyVaultManagementClient(credential, subscriptionId!, { endpoint: cloud.resourceManager });

let made = 0;
for (const [name, value] of Object.entries(SECRETS)) {
  if (await exists(name)) {
    console.log(`${name}: exists, unchanged.`);
    continue;
  }
  await secrets.createOrUpdate(group!, vault!, name, { properties: { value: value(), contentType: "text/plain" } });
  made++;
  console.log(`${name}: made.`);
}
// Even if nothing was created: an earlier run may have stopped in between.
await refreshReferences();
console.log(made > 0 ? "The app reads them now." : "Nothing was changed.");
if (process.env.ALERTS_NOTIFY_NOBODY === "true") {
  console.warn(
    "\nWARNING: nobody is notified when the service has a problem. Set operatorEmailAddresses and deploy again (docs/deploy.md).",
  );
}

async function exists(name: string): Promise<boolean> {
  try {
    await secrets.get(group!, vault!, name);
    return true;
  } catch (error) {
    if ((error as { statusCode?: unknown }).statusCode === 404) return false;
    throw error;
  }
}

/** The platform caches the result of a reference for a day, even a missing secret. */
async function refreshReferences(): Promise<void> {
  const { token } = await credential.getToken(`${cloud.resourceManager}/.default`);
  const address = `${cloud.resourceManager}${appId}/config/configreferences/appsettings/refresh?api-version=${APP_VERSION}`;
  const answer = await fetch(address, { method: "POST", headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) throw new Error(`The app did not read its references again: ${answer.status} ${await answer.text()}`);
}

function required(name: string, pattern: RegExp): RegExpExecArray {
  const found = pattern.exec(process.env[name] ?? "");
  if (!found) {
    console.error(`${name} must be the resource's id, as the deployment's outputs have it.`);
    process.exit(1);
  }
  return found;
}
