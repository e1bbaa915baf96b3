import { TableClient, type TableEntityResult } from "@azure/data-tables";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { SimulatedConsumers } from "./consumers.ts";
import { BOSS, SERVICE_VAULT, VAULT, World } from "./world.ts";

// An operator may restore the tables from a backup. The restored tables are older than the directory and the vaults, so a
// rotation that was in progress at the backup resumes from an outdated record. These tests check that it causes no lockout.

/** Vault that receives a new value if a rotation must not write the vaults that store the old one. */
const HANDOVER_VAULT = "kv-handover";

let world: World;
let azurite: TestStorage;
let appCount = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: HANDOVER_VAULT }] },
  ];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
afterEach(() => {
  world.afterWrite = async () => {};
  world.targets = [];
  world.messages.length = 0;
});

const table = () =>
  TableClient.fromConnectionString(azurite.connectionString(), "Rotations", { allowInsecureConnection: true });

async function copyTable(): Promise<TableEntityResult<Record<string, unknown>>[]> {
  const rows: TableEntityResult<Record<string, unknown>>[] = [];
  for await (const row of table().listEntities()) rows.push(row);
  return rows;
}

async function restoreTable(copy: Awaited<ReturnType<typeof copyTable>>): Promise<void> {
  for (const { partitionKey, rowKey } of await copyTable()) await table().deleteEntity(partitionKey!, rowKey!);
  for (const { etag: _, timestamp: __, ...row } of copy) {
    await table().createEntity(row as { partitionKey: string; rowKey: string });
  }
}

/** Returns a text that changes whenever a rotation has changed something in the cloud or is about to. */
const progressOf = ({ status, attempts, publications, ending, revokingSince, steps }: RotationRecord): string =>
  [
    status,
    ending ?? "",
    revokingSince === undefined ? "" : "revoking",
    ...attempts.map(({ state }) => state),
    ...publications.map(({ state }) => state),
    ...steps.flatMap(({ name, status: stepStatus }) => (stepStatus === "done" ? [name] : [])),
  ].join(" ");

type App = ReturnType<World["addApplication"]>;

/** Events between the backup and the restore. */
interface Situation {
  name: string;
  /** Adds consumers of the application's first vault secret. */
  prepare?: (consumers: SimulatedConsumers, place: string) => void;
  /** Continues the rotation after the backup, up to the state in which the table is restored. */
  continueRotation: (app: App, rotationId: string) => Promise<unknown>;
  /**
   * The copies of the new value in the service's own vault at the backup: by default as the rotation left them. `restored`: put
   * back with the table. `gone`: deleted.
   */
  heldCopies?: "restored" | "gone";
}

const runToCompletion = async (_app: App, rotationId: string): Promise<void> => {
  expect((await world.run(rotationId)).row.status).toBe("completed");
};

const runToOverlap = (_app: App, rotationId: string) =>
  world.run(rotationId, { until: ({ status }) => status === "overlapping" });

const runToRollback: Pick<Situation, "prepare" | "continueRotation"> = {
  // The service refreshes `web-good` first, so the rollback must also give it the old value again.
  prepare: (consumers, place) => {
    consumers.add("web-good", place, "action", { blast: 1 });
    consumers.add("web-bad", place, "action", { blast: 2, refreshFault: "never takes it" });
  },
  continueRotation: async (_app, rotationId) => expect((await world.run(rotationId)).row.status).toBe("rolledBack"),
};

// A rotation deletes the copies of the new value at its end, so they are gone after the first and the third situation.
const situations: Situation[] = [
  { name: "that completed", continueRotation: runToCompletion },
  { name: "that reached its overlap", continueRotation: runToOverlap },
  { name: "that was rolled back", ...runToRollback },
  { name: "that completed, with its held copies", continueRotation: runToCompletion, heldCopies: "restored" },
  { name: "that reached its overlap, without its held copies", continueRotation: runToOverlap, heldCopies: "gone" },
  { name: "that was rolled back, with its held copies", ...runToRollback, heldCopies: "restored" },
  {
    name: "whose new value was copied by hand without tags after it completed",
    continueRotation: async (app, rotationId) => {
      await runToCompletion(app, rotationId);
      for (const name of app.places)
        world.cloud.control.putSecret(VAULT, { name, value: world.cloud.control.secretValue(VAULT, name)! });
    },
  },
  {
    name: "that another rotation followed",
    continueRotation: async (app, rotationId) => {
      await runToCompletion(app, rotationId);
      const { newKeyId: secretId } = await world.start().get(rotationId);
      expect((await world.rotate({ ...app.request, secretId: secretId! })).status).toBe("completed");
    },
  },
];

/**
 * Runs a rotation, restores the table from a copy taken when the step with this number was recorded, and resumes the rotation.
 *
 * @returns undefined if the rotation has fewer steps.
 */
async function restoreAtStep(stepNumber: number, situation: Situation) {
  // Rows of the previous rotation would be copied and restored with each further one.
  await restoreTable([]);
  const app = world.addApplication(`restore-${++appCount}`, { places: 2 });
  const consumers = new SimulatedConsumers(world);
  situation.prepare?.(consumers, app.places[0]!);
  world.consumers = situation.prepare ? consumers : unknownConsumers();
  const reader = world.start();
  const recordedSteps: string[] = [];
  let copy: Awaited<ReturnType<typeof copyTable>> | undefined;
  let held: ReturnType<World["heldCopiesOf"]> = [];
  world.afterWrite = async () => {
    const rotationId = copy === undefined ? await reader.unfinishedOf(app.appId) : undefined;
    if (rotationId === undefined) return;
    const rotation = await reader.get(rotationId);
    const progress = progressOf(rotation);
    if (recordedSteps.includes(progress)) return;
    recordedSteps.push(progress);
    if (recordedSteps.length !== stepNumber) return;
    copy = await copyTable();
    held = world.heldCopiesOf(rotation);
  };
  const { rotationId } = await world.start().begin(app.request, BOSS);
  await situation.continueRotation(app, rotationId);
  world.afterWrite = async () => {};
  if (copy === undefined) return undefined;
  await restoreTable(copy);
  if (situation.heldCopies === "restored") world.restoreHeldCopies(held);
  if (situation.heldCopies === "gone")
    for (const [name] of held) world.cloud.control.remove(SERVICE_VAULT, "secrets", name);
  world.messages.length = 0;
  await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  return { app, copied: recordedSteps.at(-1)!, held: held.length };
}

/** Checks that the application has a client secret, and that each vault secret signs in and did so at all times. */
function expectNobodyLockedOut(app: App, copied: string): void {
  const { directory } = world.cloud.control;
  const live = directory.secrets(app.appId).filter(({ removedAt }) => removedAt === undefined);
  expect(live, `copied at: ${copied}`).not.toEqual([]);
  for (const place of app.places) {
    const value = world.cloud.control.secretValue(VAULT, place)!;
    expect(directory.signsIn(app.appId, value), `${place} signs in, copied at: ${copied}`).toBe(true);
  }
  expect(
    directory.gaps().filter(({ appId }) => appId === app.appId),
    `copied at: ${copied}`,
  ).toEqual([]);
}

test("a completed rotation restored from a backup of its proving phase completes again", async () => {
  const app = world.addApplication(`restore-${++appCount}`);
  const { rotationId } = await world.start().begin(app.request, BOSS);
  await world.run(rotationId, { until: ({ status }) => status === "proving" });
  const copy = await copyTable();
  const { newKeyId } = (await world.run(rotationId)).row;
  await restoreTable(copy);
  expect((await world.run(rotationId)).row).toMatchObject({ status: "completed", newKeyId });
});

test.each(situations)(
  "a rotation $name causes no lockout if the table is restored from any step",
  async (situation) => {
    let [steps, withHeldCopies] = [0, 0];
    for (let step = 1; ; step++) {
      const restored = await restoreAtStep(step, situation);
      if (restored === undefined) break;
      steps++;
      if (restored.held > 0) withHeldCopies++;
      expectNobodyLockedOut(restored.app, restored.copied);
    }
    // The test is only useful if it restored many steps, also steps with a held copy.
    expect(steps).toBeGreaterThan(8);
    expect(withHeldCopies).toBeGreaterThan(4);
  },
);

// `phase`: the status of the rotation at the backup. `held`: whether the service's vault still has its copy of the new value (the
// held copy). `handover`: how a user removed the secret from the handover vault. `end`: the status after the restore.
test.each([
  { phase: "proving", held: "gone", handover: "purged", end: "failed" },
  { phase: "proving", held: "restored too", handover: "purged", end: "overlapping" },
  { phase: "publishing", held: "restored too", handover: "deleted", end: "rolledBack" },
])(
  "a handed-over secret is not removed if the table is restored from the $phase phase, with the held copy $held and the handover $handover",
  async ({ phase, held, handover, end }) => {
    const { config } = world;
    world.config = { ...config, HANDOVER_KEY_VAULT_URL: world.vaultUriOf(HANDOVER_VAULT) };
    const { control } = world.cloud;
    const secrets = [
      { name: "old", expiresInDays: 20 },
      { name: "second", expiresInDays: 200 },
    ];
    const app = world.addApplication(`restore-${++appCount}`, { secrets });
    world.targets = [];
    const { rotationId } = await world.start().begin({ ...app.request, updateKeyVaults: false }, BOSS);
    const { row: copied } = await world.run(rotationId, { until: ({ status }) => status === phase });
    const copy = await copyTable();
    const heldName = `rotation-${rotationId}-${copied.newKeyId}`;
    const heldValue = control.secretValue(SERVICE_VAULT, heldName)!;
    await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
    await world.start().finish(rotationId, true, BOSS);
    const { newKeyId, publications, status } = (await world.run(rotationId)).row;
    expect(status).toBe("completed");
    // A user takes the value to a place that the service does not know, and deletes the handover secret.
    const { vaultName: name, vaultUri, secretName } = publications[0]!;
    if (handover === "purged") control.remove(HANDOVER_VAULT, "secrets", secretName);
    else {
      const services = { config, identity: createIdentity(config), log: world.log };
      await createVaultSecrets(services).open({ name, vaultUri }).remove(secretName);
    }
    if (held !== "gone") control.putSecret(SERVICE_VAULT, { name: heldName, value: heldValue });
    await restoreTable(copy);
    world.messages.length = 0;
    const { row } = await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
    world.config = config;
    expect(row.status, JSON.stringify(row)).toBe(end);
    if (row.status !== "overlapping")
      expect(row.notes.join(" ")).toMatch(new RegExp(`${newKeyId} was not removed: .* can't see who took it`));
    const live = control.directory.secrets(app.appId).filter(({ removedAt }) => removedAt === undefined);
    expect(live.map(({ keyId }) => keyId)).toContain(newKeyId);
  },
);
