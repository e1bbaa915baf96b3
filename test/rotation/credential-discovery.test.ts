import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import { type Config, loadConfig } from "../../shared/platform/config/config.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { type Credentials, createCredentials } from "../../shared/rotation/resource-keys/credentials.ts";
import type { LinkDiscoveryLimits } from "../../shared/rotation/resource-keys/discovery.ts";
import { createKeysClient } from "../../shared/rotation/resource-keys/keys-client.ts";
import {
  COMPARISONS,
  Comparisons,
  comparisonKey,
  KEY_LINKS,
  KeyLinks,
  linkKey,
} from "../../shared/rotation/resource-keys/links.ts";
import { useManagedIdentity } from "../azure/live-cloud.ts";
import { recordingLog } from "../azure/services.ts";
import { IS_CAMPAIGN, LONG_MS } from "../support/sampling.ts";
import { Service } from "../support/service.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { plantedCompany } from "./planted-credentials.ts";

/**
 * Tests of the discovery of keys of Azure resources in vault secrets when its process crashes. Another process continues the
 * run, and the links are then the same as without a crash.
 */

const { company, links: planted, secrets, resources } = plantedCompany(20);
const caller = { actor: "boss", requestId: "request-1" } as const;
const expected = planted.map(({ vaultName, secretName, keyName }) => `${vaultName}/${secretName} ${keyName}`).sort();

/** Calls that decide and record the end of a run, at least. */
const END_CALLS = 5;

let service: Service;
let config: Config;
let events: AuditEvent[];
let messages: unknown[];

beforeAll(async () => {
  service = await Service.start({ company });
  await service.scan();
  await useManagedIdentity(service.cloud);
  config = loadConfig({ ...service.environment, AzureWebJobsStorage: service.azurite.connectionString() });
}, 300_000);
afterAll(() => service?.stop());
beforeEach(() => {
  events = [];
  messages = [];
});

function openTables(): Tables {
  const log = recordingLog();
  const vault = createServiceKeyVault({ config, identity: createIdentity(config), log })!;
  const keys = keyVaultRowKeys(vault, systemRandomness());
  return createTables({ connectionString: service.azurite.connectionString() }, { log, keys });
}

/**
 * Starts a process that discovers. With `steps` it crashes at one of its calls to storage, the audit log, the queue or the cloud.
 *
 * @param isLate - Whether the lease of an earlier process has expired.
 * @param onListed - Called after the keys of a resource were listed.
 */
function startProcess(
  steps: Steps = { taken: 0 },
  isLate = false,
  limits?: LinkDiscoveryLimits,
  onListed: (id: string) => void = () => {},
): Credentials {
  const log = recordingLog();
  const identity = createIdentity(config);
  const arm = createArm({ config, identity, log });
  const tables = openTables();
  const aged: Tables = {
    ...tables,
    getWithAge: async (e, partitionKey, rowKey) => {
      const found = await tables.getWithAge(e, partitionKey, rowKey);
      return found && { ...found, ageMs: found.ageMs + (isLate ? 2 * MINUTE_MS : 0) };
    },
  };
  const isPromise = (method: string) => !["pages", "topLevelResources", "fence", "batches"].includes(method);
  const wrapped = crashable(aged, steps, isPromise);
  const vaults = createVaultSecrets({ config, identity, log });
  const client = createKeysClient(arm, config.cloud);
  const list: typeof client.keys = async (id, kind, signal) => {
    const listed = await client.keys(id, kind, signal);
    onListed(id);
    return listed;
  };
  const keys = crashable({ ...client, keys: list }, steps, isPromise);
  const queues = {
    send: async (_queue: string, message: unknown) => void messages.push(message),
    checkReachable: async () => {},
  };
  return createCredentials({
    tables: wrapped,
    config,
    keys,
    vaults: { open: (vault) => crashable(vaults.open(vault), steps) },
    links: {
      store: async (link) => void (await wrapped.put(KeyLinks, KEY_LINKS, linkKey(link), link)),
    },
    units: async () => [company.subscriptions[0]!.id!],
    audit: crashable({ append: async (event: AuditEvent) => void events.push(event) }, steps),
    queues: crashable(queues, steps),
    clock: { now: () => new Date() },
    randomness: systemRandomness(),
    log,
    ...(limits && { limits }),
  });
}

async function storedLinks(): Promise<string[]> {
  const lines: string[] = [];
  for await (const rows of openTables().pages(KeyLinks, { partitionKey: KEY_LINKS }))
    lines.push(...rows.map(({ vaultName, secretName, keyName }) => `${vaultName}/${secretName} ${keyName}`));
  return lines.sort();
}

async function removeLinks(): Promise<void> {
  const tables = openTables();
  for await (const rows of tables.pages(KeyLinks, { partitionKey: KEY_LINKS }))
    for (const { rowKey } of rows) await tables.remove(KeyLinks, KEY_LINKS, rowKey);
}

test(
  "a run continues after a crash at any call, finds the same links and has one audit entry of its end",
  async () => {
    const counted: Steps = { taken: 0 };
    const { run } = await startProcess(counted).discover(caller);
    expect(run.status).toBe("completed");
    expect(await storedLinks()).toEqual(expected);
    const total = counted.taken;
    expect(total).toBeGreaterThan(80);

    // All calls in a campaign, otherwise every 13th and those of the end.
    const stride = IS_CAMPAIGN ? 1 : 13;
    const callNumbers = Array.from({ length: total }, (_, index) => index + 1);
    const sample = callNumbers.filter((callNumber) => callNumber % stride === 1 || stride === 1);
    const cases = [
      ...sample.map((crashAt, index) => ({
        crashAt,
        when: index % 2 === 0 ? ("after" as const) : ("before" as const),
      })),
      ...callNumbers.slice(-END_CALLS).map((crashAt) => ({ crashAt, when: "after" as const })),
    ];
    for (const { crashAt, when } of cases) {
      await removeLinks();
      events = [];
      const steps: Steps = { taken: 0, crashAt, when };
      await startProcess(steps)
        .discover(caller)
        .catch((error: unknown) => {
          if (!(error instanceof SimulatedCrash)) throw error;
        });
      expect(steps.dead, `crash ${when} call ${crashAt}`).toBe(true);
      const { run } = await startProcess({ taken: 0 }, true).discover(caller);
      expect(run.status, `crash ${when} call ${crashAt}`).toBe("completed");
      expect(await storedLinks(), `crash ${when} call ${crashAt}`).toEqual(expected);
      // A run that ended before the crash has an entry of its own.
      const ends = events.filter(({ type }) => type === "rotation.credentialsDiscovered");
      const runs = new Set(ends.map(({ target }) => target?.id));
      expect(new Set(ends.map(({ id }) => id)).size, `crash ${when} call ${crashAt}`).toBe(runs.size);
    }
    console.log(`${cases.length} crashes in a run of ${total} calls`);
  },
  LONG_MS,
);

test(
  "a message that arrives twice, or while another worker has the run, does no harm",
  async () => {
    await removeLinks();
    // Some call in the middle of the run.
    const steps: Steps = { taken: 0, crashAt: 40 };
    await startProcess(steps)
      .discover(caller)
      .catch(() => {});
    const message = messages[0] as { runId: string };
    messages = [];
    // The lease of the crashed worker has not expired: the message is sent again.
    await startProcess().handle(message);
    expect(messages).toEqual([message]);
    const late = startProcess({ taken: 0 }, true);
    await Promise.all([late.handle(message), late.handle(message)]);
    await late.handle(message);
    expect((await late.run(message.runId)).status).toBe("completed");
    expect(await storedLinks()).toEqual(expected);
  },
  LONG_MS,
);

test("a run that is longer than a message continues with the next one, and a crash between repeats one batch", async () => {
  await removeLinks();
  // Each message compares one batch of ten secrets with the keys of at most five resources.
  const limits = { workMs: 0, resources: 5, secrets: 10 };
  const { run } = await startProcess({ taken: 0 }, true, limits).discover(caller);
  expect(run.status).toBe("running");
  const message = { runId: run.runId };
  let deliveries = 0;
  for (let current = run; current.status === "running"; deliveries++) {
    messages = [];
    // Every third worker crashes at some call of its batch.
    const crash = deliveries % 3 === 1 ? { crashAt: 25 } : {};
    const isDone = await startProcess({ taken: 0, ...crash }, true, limits)
      .handle(message)
      .then(
        () => true,
        (error: unknown) => {
          if (!(error instanceof SimulatedCrash)) throw error;
          return false;
        },
      );
    current = await startProcess().run(run.runId);
    // One message follows each that did not end the run, and the queue delivers that of a crashed worker again.
    if (isDone) expect(messages).toEqual(current.status === "running" ? [message] : []);
  }
  expect(deliveries).toBeGreaterThan(12);
  const ended = await startProcess().run(run.runId);
  expect(ended).toMatchObject({ status: "completed", resources, secrets, links: planted.length, failures: [] });
  expect(ended.position).toBeUndefined();
  expect(await storedLinks()).toEqual(expected);
  console.log(`${deliveries + 1} messages for ${resources} resources and ${secrets} secrets`);
});

test("the link of a secret stays if a rotation regenerates the key and writes the secret during the discovery", async () => {
  const { run } = await startProcess({ taken: 0 }, true).discover(caller);
  expect([run.status, await storedLinks()]).toEqual(["completed", expected]);
  const link = planted.find(({ kind }) => kind === "maps")!;
  const { control } = service.cloud;
  let isRotated = false;
  const rotate = (id: string) => {
    if (isRotated || id.toLowerCase() !== link.resourceId.toLowerCase()) return;
    isRotated = true;
    control.consumers.regenerateKey(id, "secondary");
    const { value } = control.consumers.keys(id).findLast(({ key }) => key === "secondary")!;
    control.putSecret(link.vaultName, { name: link.secretName, value });
  };
  const { run: second } = await startProcess({ taken: 0 }, true, undefined, rotate).discover(caller);
  expect([isRotated, second.status, second.removed]).toEqual([true, "completed", 0]);
  expect(await storedLinks()).toEqual(expected);
});

test("a comparison is incomplete if the secrets of a vault were not listed, or if a row of the inventory can't be read", async () => {
  const tables = openTables();
  const { resourceId, vaultName, secretName } = planted[0]!;
  const discover = async () => {
    const { run } = await startProcess({ taken: 0 }, true).discover(caller);
    const comparison = await tables.get(Comparisons, COMPARISONS, comparisonKey(resourceId));
    return [run.status, comparison?.hasUnread];
  };
  expect(await discover()).toEqual(["completed", false]);
  const listed = withoutKeys((await tables.get(Vaults, VAULTS, vaultKey(vaultName)))!);
  const secret = { code: "accessDenied", message: "denied", remedy: "", at: listed.firstSeenAt };
  await tables.put(Vaults, VAULTS, vaultKey(vaultName), { ...listed, failures: { secret } });
  expect(await discover()).toEqual(["completed", true]);
  await tables.put(Vaults, VAULTS, vaultKey(vaultName), listed);
  expect(await discover()).toEqual(["completed", false]);
  const links = await storedLinks();

  const storage = service.azurite.connectionString();
  const assets = TableClient.fromConnectionString(storage, "Assets", { allowInsecureConnection: true });
  const rowKey = nameKey("secret", secretName, vaultName);
  for (const partitionKey of [partitions.all, partitions.vault(vaultName)])
    await assets.updateEntity({ partitionKey, rowKey, enabled: "changed by another program" }, "Merge");
  expect(await discover()).toEqual(["partial", true]);
  // The secret was not compared, so its link stays.
  expect(await storedLinks()).toEqual(links);
});
