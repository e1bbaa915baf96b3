import { ApiError, signInAsAdministrator } from "./api.ts";

// A step of `npm start -- --pro`: copies secrets to the other clouds that the simulated cloud contains.

interface Asset {
  name: string;
  vaultName: string;
  enabled: boolean;
}

/** The copy to create, by provider. `name` returns the name of the copy. `options` are further fields of the sync record. */
const COPIES: Record<string, { targetService: string; name: (secret: Asset) => string; options?: object }> = {
  aws: { targetService: "secretsmanager", name: ({ vaultName, name }) => `${vaultName}/${name}` },
  hashicorp: { targetService: "kv", name: ({ vaultName, name }) => `${vaultName}/${name}` },
  google: { targetService: "secretmanager", name: ({ vaultName, name }) => `${vaultName}-${name}` },
  github: { targetService: "actions", name: ({ name }) => `acme/shop/${name.replaceAll("-", "_").toUpperCase()}` },
  kubernetes: { targetService: "secret", name: ({ name }) => `${name}/value`, options: { onDrift: "report" } },
};

/**
 * Configures the sync providers of the simulated cloud and creates a sync record for each, which copies one secret, through the
 * REST API. Existing records are not changed.
 *
 * @returns Lines that tell the user where to find the copies.
 */
export async function configureCopies(
  serviceUrl: string,
  administrator: { username: string; password: string },
  cloud: { controlUrl: string },
): Promise<string[]> {
  const api = await signInAsAdministrator(serviceUrl, administrator);
  const { items } = await api<{ items: Asset[] }>(
    "GET",
    "/api/assets/discovery/assets?type=secret&status=healthy&source=keyVault",
  );
  const secrets = items.filter(({ enabled }) => enabled);
  if (secrets.length === 0) return [];
  const configurations = (await (await fetch(`${cloud.controlUrl}/providers`)).json()) as Record<string, object>;
  for (const [index, [provider, { targetService, name, options }]] of Object.entries(COPIES).entries()) {
    const secret = secrets[index % secrets.length]!;
    await api("POST", `/api/automation/sync/providers/${provider}`, configurations[provider]);
    const sourceAndTarget = {
      sourceVault: secret.vaultName,
      sourceSecret: secret.name,
      targetProvider: provider,
      targetService,
    };
    try {
      await api("POST", "/api/automation/sync/records", {
        ...sourceAndTarget,
        targetName: name(secret),
        scheduleHours: 1,
        ...options,
      });
    } catch (error) {
      if (!(error instanceof ApiError) || error.problem.code !== "alreadyExists") throw error;
    }
  }
  // The secret that the loop above copies to HashiCorp Vault.
  const copied = secrets[Object.keys(COPIES).indexOf("hashicorp") % secrets.length]!;
  return [
    `Copies         ${serviceUrl}/#/sync  (of secrets, at ${Object.keys(COPIES).join(", ")})`,
    // The body is in quotes, because a shell interprets braces.
    `Change a copy  curl -X PUT -d '{"value":"changed"}' ${cloud.controlUrl}/providers/hashicorp/${COPIES.hashicorp!.name(copied)}  (then Sync now finds and repairs it)`,
  ];
}
