/**
 * `npm run make-secrets`: creates the service's signing keys and the first administrator's password in its key vault, after
 * `azd provision` (azure.yaml) and after `terraform apply`. It writes them through Resource Manager, so that it works without
 * network access to the vault. It never changes an existing secret, except the password that a person passes. Values are neither
 * printed nor stored elsewhere.
 */
import { randomBytes } from "node:crypto";
import { commandLine } from "../../build/command-line.ts";
import { cloud, readPassword, required, signedInCredential, VAULT_ID } from "./azure-session.ts";

const HELP = `npm run make-secrets [-- --password-stdin]

Creates the service's signing keys and the first administrator's password in its key vault, unless they exist, and makes the
app load them. Prints no value. Needs a sign-in of the Azure CLI, the Azure Developer CLI or an application that can write
both resources. Exits with 1 if it fails.

Options:
  --password-stdin   reads the first administrator's password, 12 to 256 characters, from standard input instead of making one.
                     Replaces an existing password, which resets the administrator at the next start of the app:
                       read -rs PASSWORD && printf %s "$PASSWORD" | npm run make-secrets -- --password-stdin

Environment variables; the first three are outputs of the deployment:
  SERVICE_KEY_VAULT_ID      resource id of the key vault
  SERVICE_FUNCTION_APP_ID   resource id of the function app
  ALERTS_NOTIFY_NOBODY      if true, the command warns that no operator is notified of problems
  AZURE_CLOUD, AZURE_AUTHORITY_HOST, AZURE_RESOURCE_MANAGER_ENDPOINT   for a cloud other than the public one`;
const { values: options } = commandLine(HELP, { options: { "password-stdin": { type: "boolean" } } });
const chosenPassword = options["password-stdin"] ? await readPassword() : undefined;

/** API version of Microsoft.Web. */
const APP_VERSION = "2024-11-01";
const APP_ID = /^\/subscriptions\/[^/]+\/resourceGroups\/[^/]+\/providers\/Microsoft\.Web\/sites\/[^/]+$/i;

/**
 * Returns a random key in the format `kid:base64`, which the service's configuration reads. The key id (kid) is random as well, so
 * that a new key does not have the id of an earlier one.
 */
const signingKey = (): string => `${randomBytes(4).toString("hex")}:${randomBytes(32).toString("base64")}`;

/** The secrets to create, by the names to which the app's settings refer, with functions that return a new value. */
const SECRETS: Record<string, () => string> = {
  "jwt-signing-keys": signingKey,
  "audit-signing-keys": signingKey,
  "bootstrap-admin-password": () => randomBytes(24).toString("base64url"),
};

const [, subscriptionId, resourceGroup, vault] = required("SERVICE_KEY_VAULT_ID", VAULT_ID);
const [appId] = required("SERVICE_FUNCTION_APP_ID", APP_ID);
const { KeyVaultManagementClient } = await import("@azure/arm-keyvault");
const credential = await signedInCredential();
const { secrets } = new KeyVaultManagementClient(credential, subscriptionId!, { endpoint: cloud.resourceManager });

let createdCount = 0;
for (const [name, createValue] of Object.entries(SECRETS)) {
  const chosen = name === "bootstrap-admin-password" ? chosenPassword : undefined;
  if (chosen === undefined && (await exists(name))) {
    console.log(`${name}: exists, unchanged.`);
    continue;
  }
  await secrets.createOrUpdate(resourceGroup!, vault!, name, {
    properties: { value: chosen ?? createValue(), contentType: "text/plain" },
  });
  createdCount++;
  console.log(`${name}: ${chosen === undefined ? "created" : "set to the given password"}.`);
}
// Necessary even if nothing was created, because an earlier run may have stopped before this step.
await refreshReferences();
console.log(createdCount > 0 ? "The app loads them now." : "Nothing was changed.");
if (chosenPassword === undefined) {
  console.log("Next: choose the first administrator's password with `npm run first-password` (docs/deploy.md).");
}
if (process.env.ALERTS_NOTIFY_NOBODY === "true") {
  console.warn(
    "\nWARNING: nobody is notified when the service has a problem. Set operatorEmailAddresses and deploy again (docs/deploy.md).",
  );
}

async function exists(name: string): Promise<boolean> {
  try {
    await secrets.get(resourceGroup!, vault!, name);
    return true;
  } catch (error) {
    if ((error as { statusCode?: unknown }).statusCode === 404) return false;
    throw error;
  }
}

/**
 * Makes the app read the secrets to which its settings refer again. Otherwise the platform uses the cached result for a day, even
 * if it is that a secret does not exist.
 */
async function refreshReferences(): Promise<void> {
  const { token } = await credential.getToken(`${cloud.resourceManager}/.default`);
  const address = `${cloud.resourceManager}${appId}/config/configreferences/appsettings/refresh?api-version=${APP_VERSION}`;
  const response = await fetch(address, { method: "POST", headers: { authorization: `Bearer ${token}` } });
  if (!response.ok)
    throw new Error(`The app could not be told to reload its secrets: ${response.status} ${await response.text()}`);
}
