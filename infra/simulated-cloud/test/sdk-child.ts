import dns from "node:dns";
import { promisify } from "node:util";
import { AppConfigurationClient } from "@azure/app-configuration";
import { KeyVaultManagementClient } from "@azure/arm-keyvault";
import { SubscriptionClient } from "@azure/arm-resources-subscriptions";
import { EmailClient } from "@azure/communication-email";
import type { TokenCredential } from "@azure/core-auth";
import { ClientSecretCredential, ManagedIdentityCredential } from "@azure/identity";
import { CertificateClient } from "@azure/keyvault-certificates";
import { KeyClient } from "@azure/keyvault-keys";
import { SecretClient } from "@azure/keyvault-secrets";

/**
 * The child process of `sdk-client.ts`: runs Azure's SDK clients in a process that knows the simulated cloud only through its
 * environment variables, like the service.
 */

/** Reads an environment variable that must be set. */
const environmentVariable = (name: string): string => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};
const resourceManagerUrl = environmentVariable("AZURE_RESOURCE_MANAGER_ENDPOINT");
const port = new URL(resourceManagerUrl).port;
const vaultUrl = (vault: string) => `https://${vault}.${environmentVariable("AZURE_KEY_VAULT_SUFFIX")}:${port}`;

const identity = new ManagedIdentityCredential();
const armOptions = {
  endpoint: resourceManagerUrl,
  credentials: { scopes: [`${resourceManagerUrl}/.default`] },
  retryOptions: { maxRetries: 1 },
};
/** Short retries, so that tests of errors are fast. */
const quickRetries = { retryOptions: { maxRetries: 1, retryDelayInMs: 1 } };
const secrets = (vault: string) => new SecretClient(vaultUrl(vault), identity, quickRetries);
const keys = (vault: string) => new KeyClient(vaultUrl(vault), identity, quickRetries);
const certificates = (vault: string) => new CertificateClient(vaultUrl(vault), identity, quickRetries);
const configuration = () =>
  new AppConfigurationClient(environmentVariable("APP_CONFIGURATION_CONNECTION_STRING"), quickRetries);

/** Collects all items of a paged list. */
async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}

const claimsOf = (token: string) => JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString("utf8"));

const appCredential = ({
  tenantId,
  clientId,
  clientSecret,
}: Record<"tenantId" | "clientId" | "clientSecret", string>) =>
  new ClientSecretCredential(tenantId, clientId, clientSecret, {
    authorityHost: environmentVariable("AZURE_AUTHORITY_HOST"),
    disableInstanceDiscovery: true,
  });

/** The actions that tests can call by name through `SdkClient`. */
const actions = {
  identityToken: async (scope: string) => claimsOf((await identity.getToken(scope)).token),
  appToken: async (app: Parameters<typeof appCredential>[0], scope: string) =>
    claimsOf((await appCredential(app).getToken(scope)).token),

  subscriptions: async () => await collect(new SubscriptionClient(identity, armOptions).subscriptions.list()),
  subscription: async (id: string) => await new SubscriptionClient(identity, armOptions).subscriptions.get(id),
  vaults: async (subscription: string, top?: number) =>
    await collect(
      new KeyVaultManagementClient(identity, subscription, armOptions).vaults.listBySubscription(
        top === undefined ? {} : { top },
      ),
    ),
  vault: async (subscription: string, group: string, name: string) =>
    await new KeyVaultManagementClient(identity, subscription, armOptions).vaults.get(group, name),
  tenants: async () => await collect(new SubscriptionClient(identity, armOptions).tenants.list()),
  locations: async (id: string) =>
    await collect(new SubscriptionClient(identity, armOptions).subscriptions.listLocations(id)),
  managedKeys: async (subscription: string, group: string, vault: string) =>
    await collect(new KeyVaultManagementClient(identity, subscription, armOptions).keys.list(group, vault)),
  managedSecrets: async (subscription: string, group: string, vault: string) =>
    await collect(new KeyVaultManagementClient(identity, subscription, armOptions).secrets.list(group, vault)),
  // Sends a token for another scope than the SDK's own, to see that the service rejects it.
  vaultsWithTokenFor: async (subscription: string, scope: string) => {
    const credential: TokenCredential = { getToken: () => identity.getToken(scope) };
    return await collect(
      new KeyVaultManagementClient(credential, subscription, armOptions).vaults.listBySubscription(),
    );
  },
  secretWithTokenFor: async (vault: string, name: string, scope: string) => {
    const credential: TokenCredential = { getToken: () => identity.getToken(scope) };
    return await new SecretClient(vaultUrl(vault), credential, quickRetries).getSecret(name);
  },

  listSecrets: async (vault: string) => await collect(secrets(vault).listPropertiesOfSecrets()),
  listSecretPages: async (vault: string, maxPageSize: number) =>
    (await collect(secrets(vault).listPropertiesOfSecrets().byPage({ maxPageSize }))).map((page) => page.length),
  listSecretVersions: async (vault: string, name: string) =>
    await collect(secrets(vault).listPropertiesOfSecretVersions(name)),
  getSecret: async (vault: string, name: string, version?: string) =>
    await secrets(vault).getSecret(name, version === undefined ? {} : { version }),
  setSecret: async (vault: string, name: string, value: string, tags: Record<string, string>) =>
    await secrets(vault).setSecret(name, value, { tags, contentType: "text/plain", expiresOn: new Date("2030-01-01") }),
  disableSecret: async (vault: string, name: string) => {
    const { properties } = await secrets(vault).getSecret(name);
    return await secrets(vault).updateSecretProperties(name, properties.version!, { enabled: false });
  },
  deleteSecret: async (vault: string, name: string) => {
    const poller = await secrets(vault).beginDeleteSecret(name, { intervalInMs: 1 });
    return (await poller.pollUntilDone()).recoveryId;
  },
  recoverSecret: async (vault: string, name: string) => {
    const poller = await secrets(vault).beginRecoverDeletedSecret(name, { intervalInMs: 1 });
    return (await poller.pollUntilDone()).name;
  },
  listKeys: async (vault: string) => await collect(keys(vault).listPropertiesOfKeys()),
  getKey: async (vault: string, name: string) => {
    const { key, properties } = await keys(vault).getKey(name);
    const bytes = (part: Uint8Array | undefined) =>
      part === undefined ? undefined : Buffer.from(part).toString("hex");
    return { ...key, n: bytes(key?.n), e: bytes(key?.e), x: bytes(key?.x), y: bytes(key?.y), properties };
  },
  getRotationPolicy: async (vault: string, name: string) => await keys(vault).getKeyRotationPolicy(name),
  listCertificates: async (vault: string) => await collect(certificates(vault).listPropertiesOfCertificates()),
  getCertificate: async (vault: string, name: string) => {
    const { cer, policy, properties } = await certificates(vault).getCertificate(name);
    const { x509Thumbprint } = properties;
    return {
      cer: Buffer.from(cer!).toString("base64"),
      policy,
      thumbprint: Buffer.from(x509Thumbprint!).toString("hex"),
      properties,
    };
  },

  sendMail: async (to: string[], operationId?: string) => {
    const client = new EmailClient(environmentVariable("COMMUNICATION_CONNECTION_STRING"), quickRetries);
    const poller = await client.beginSend(
      {
        senderAddress: environmentVariable("ALERT_SENDER_ADDRESS"),
        content: { subject: "Two secrets expire", plainText: "Soon.", html: "<p>Soon.</p>" },
        recipients: { to: to.map((address) => ({ address })) },
      },
      { updateIntervalInMs: 1, ...(operationId !== undefined && { operationId }) },
    );
    return await poller.pollUntilDone();
  },

  sendMailWith: async (connectionString: string) =>
    await new EmailClient(connectionString, quickRetries).beginSend({
      senderAddress: environmentVariable("ALERT_SENDER_ADDRESS"),
      content: { subject: "Nobody reads this", plainText: "Nothing." },
      recipients: { to: [{ address: "ann@acme.example" }] },
    }),

  setSetting: async (key: string, value: string) => await configuration().setConfigurationSetting({ key, value }),
  getSetting: async (key: string, etag?: string) => {
    const setting = await configuration().getConfigurationSetting(
      { key, ...(etag !== undefined && { etag }) },
      { onlyIfChanged: etag !== undefined },
    );
    return { value: setting.value, etag: setting.etag, statusCode: setting.statusCode };
  },
  changeSetting: async (key: string, value: string, etag: string) =>
    await configuration().setConfigurationSetting({ key, value, etag }, { onlyIfUnchanged: true }),
  deleteSetting: async (key: string) => (await configuration().deleteConfigurationSetting({ key })).statusCode,
  listSettings: async (keyFilter: string) =>
    (await collect(configuration().listConfigurationSettings({ keyFilter }))).map(({ key, value }) => [key, value]),

  lookups: async (name: string) => ({
    promise: await dns.promises.lookup(name),
    promiseAll: await dns.promises.lookup(name, { all: true }),
    callback: await promisify(dns.lookup)(name),
    callbackAll: await new Promise((resolve) => dns.lookup(name, { all: true }, (_, found) => resolve(found))),
  }),
};

export type Actions = typeof actions;

/** Copies the members of an SDK error that tests check, because an Error loses them when it is sent to the parent process. */
function toPlainError(error: unknown): object {
  const { name, message, code, statusCode, details, response } = error as Record<string, unknown> & {
    response?: { headers?: { toJSON?(): object } };
  };
  return { name, message, code, statusCode, details, headers: response?.headers?.toJSON?.() };
}

process.on("message", ({ id, action, parameters }: { id: number; action: keyof Actions; parameters: unknown[] }) => {
  (actions[action] as (...all: unknown[]) => Promise<unknown>)(...parameters).then(
    (result) => process.send?.({ id, result }),
    (error) => process.send?.({ id, error: toPlainError(error) }),
  );
});
// Tells the parent that the process is ready.
process.send?.({ id: 0 });
