import { setTimeout as delay } from "node:timers/promises";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { createRotationClient } from "../rotation/http-client.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { Service } from "../support/service.ts";

/** The company of these tests: a vault with keys, and resources of each kind that encrypt their data with a key. */

export const VAULT = "kv-data";
const keyUrl = (name: string) => `{uri:${VAULT}}/keys/${name}/{version:${VAULT}/keys/${name}}`;
const SYSTEM = { system: true };

export const storage = (name: string, keyName: string, pinned = false): CompanyResource => ({
  type: "Microsoft.Storage/storageAccounts",
  name,
  kind: "StorageV2",
  identity: SYSTEM,
  properties: {
    encryption: {
      keySource: "Microsoft.Keyvault",
      keyvaultproperties: {
        keyname: keyName,
        keyvaulturi: `{uri:${VAULT}}/`,
        currentVersionedKeyIdentifier: keyUrl(keyName),
        ...(pinned && { keyversion: `{version:${VAULT}/keys/${keyName}}` }),
      },
    },
  },
});

export const sqlServer = (name: string, keyName: string): CompanyResource => ({
  type: "Microsoft.Sql/servers",
  name,
  identity: SYSTEM,
  properties: { keyId: keyUrl(keyName), fullyQualifiedDomainName: `${name}.database.windows.net` },
  children: {
    encryptionProtector: [
      {
        name: "current",
        properties: {
          serverKeyType: "AzureKeyVault",
          serverKeyName: `${VAULT}_${keyName}`,
          uri: keyUrl(keyName),
          autoRotationEnabled: true,
        },
      },
    ],
  },
});

export const diskEncryptionSet = (name: string, keyName: string): CompanyResource => ({
  type: "Microsoft.Compute/diskEncryptionSets",
  name,
  identity: SYSTEM,
  properties: {
    activeKey: { sourceVault: { id: `{id:${VAULT}}` }, keyUrl: keyUrl(keyName) },
    encryptionType: "EncryptionAtRestWithCustomerKey",
    rotationToLatestKeyVersionEnabled: true,
  },
});

export const cluster = (name: string, keyName: string): CompanyResource => ({
  type: "Microsoft.ContainerService/managedClusters",
  name,
  identity: SYSTEM,
  properties: { securityProfile: { azureKeyVaultKms: { enabled: true, keyId: keyUrl(keyName) } } },
});

/** Returns a company whose vault has these keys, and these resources. */
export const companyWith = (
  keys: NonNullable<NonNullable<Company["subscriptions"][number]["vaults"]>[number]["keys"]>,
  resources: CompanyResource[],
): Company => ({
  subscriptions: [{ name: "Data", vaults: [{ name: VAULT, keys }], resources }],
});

// biome-ignore lint/suspicious/noExplicitAny: the body of a response, whose members the tests check
export type KeyRotationAnswer = any;

/** Starts the service with a company, scans its vaults and discovers its dependencies. */
export async function openKeyRotationWorld(company: Company, { discovers = true } = {}) {
  const storageClock = movedClock();
  const service = await Service.start({
    company,
    lease: 1,
    shortWaits: true,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  const { admin, advanceClock } = createRotationClient(service, storageClock);
  await service.scan();
  if (discovers) await service.admin("POST", "/api/assets/dependencies/discover");

  const idOf = (key: string) => `${VAULT}.key.${key}`;
  const get = async (runId: string): Promise<KeyRotationAnswer> =>
    (await admin("GET", `/api/automation/keys/rotations/${runId}`)).body;
  const rotate = (key: string, body?: object) => admin("POST", `/api/automation/keys/${idOf(key)}/rotate`, body);
  const wake = async () => {
    const headers = { "Content-Type": "application/json" };
    await fetch(`${service.url}/admin/functions/continueKeyRotations`, { method: "POST", body: "{}", headers });
  };

  /**
   * Polls a rotation until the condition is met, and moves the clock ahead a little now and then, so that waits end.
   *
   * @throws {Error} after 30 seconds.
   */
  async function waitUntil(runId: string, isMet: (run: KeyRotationAnswer) => boolean): Promise<KeyRotationAnswer> {
    for (let poll = 0; poll < 300; poll++) {
      const run = await get(runId);
      if (isMet(run)) return run;
      if (poll % 5 === 4) {
        await advanceClock(20_000);
        await wake();
      }
      await delay(50);
    }
    throw new Error(`The rotation never met the condition: ${JSON.stringify(await get(runId))}`);
  }

  /** Moves the clock ahead, then waits until the rotation ended or its consumers were checked at the new time. */
  async function skip(runId: string, milliseconds: number): Promise<KeyRotationAnswer> {
    await advanceClock(milliseconds);
    const now = Date.parse(service.cloud.control.now());
    await wake();
    return await waitUntil(
      runId,
      ({ endedAt, consumers }) =>
        endedAt !== null ||
        consumers.every(({ checkedAt }: { checkedAt: string | null }) => Date.parse(checkedAt ?? "") >= now - 5000),
    );
  }

  /** Returns the versions of a key, oldest first. */
  const versions = (key: string): string[] => service.cloud.control.keyVersions(VAULT, key)!;

  return {
    service,
    control: service.cloud.control,
    admin,
    advanceClock,
    idOf,
    get,
    rotate,
    wake,
    waitUntil,
    skip,
    versions,
    stop: async () => {
      await service.stop();
      storageClock.remove();
    },
  };
}
export type KeyRotationWorld = Awaited<ReturnType<typeof openKeyRotationWorld>>;
