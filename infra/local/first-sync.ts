import { asAdministrator, Refused } from "./api.ts";

interface Asset {
  name: string;
  vaultName: string;
  enabled: boolean;
}

/** The copy to create in each of the other providers of the simulated cloud, named after the secret. */
const TARGETS: Record<string, { targetService: string; name: (secret: Asset) => string; more?: object }> = {
  aws: { targetService: "secretsmanager", name: ({ vaultName, name }) => `${vaultName}/${name}` },
  hashicorp: { targetService: "kv", name: ({ vaultName, name }) => `${vaultName}/${name}` },
  google: { targetService: "secretmanager", name: ({ vaultName, name }) => `${vaultName}-${name}` },
  github: { targetService: "actions", name: ({ name }) => `acme/shop/${name.replaceAll("-", "_").toUpperCase()}` },
  kubernetes: { targetService: "secret", name: ({ name }) => `${name}/value`, more: { onDrift: "report" } },
};

/**
 * Configures the sync providers of the simulated cloud and copies a secret to each of them, through the REST API. Keeps
 * existing configurations and copies.
 *
 * @returns Lines that tell the user where to find the copies.
 */
export async function configureCopies(
  base: string,
  administrator: { username: string; password: string },
  cloud: { controlUrl: string },
): Promise<string[]> {
  const api = await asAdministrator(base, administrator);
  const { items } = await api<{ items: Asset[] }>(
    "GET",
    "/api/assets/discovery/assets?type=secret&status=healthy&source=keyVault",
  );
  const secrets = items.filter(({ enabled }) => enabled);
  if (secrets.length === 0) return [];
  const configurations = (await (await fetch(`${cloud.controlUrl}/providers`)).json()) as Record<string, object>;
  for (const [index, [provider, { targetService, name, more }]] of Object.entries(TARGETS).entries()) {
    const secret = secrets[index % secrets.length]!;
    await api("POST", `/api/automation/sync/providers/${provider}`, configurations[provider]);
    const ends = { sourceVault: secret.vaultName, sourceSecret: secret.name, targetProvider: provider, targetService };
    try {
      await api("POST", "/api/automation/sync/records", {
        ...ends,
        targetName: name(secret),
        scheduleHours: 1,
        ...more,
      });
    } catch (error) {
      if (!(error instanceof Refused) || error.problem.code !== "alreadyExists") throw error;
    }
  }
  return [`Copies         ${base}/api/automation/sync/records  (of secrets, at ${Object.keys(TARGETS).join(", ")})`];
}
