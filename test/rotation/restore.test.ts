import { TableClient, type TableEntityResult } from "@azure/data-tables";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Company } from "./consumers.ts";
import { BOSS, VAULT, World } from "./world.ts";

// Tables that an operator restores from a copy are older than the directory and the vaults. A rotation that was in progress
// in the copy resumes from a record that is no longer true.

let world: World;
let azurite: TestStorage;
let apps = 0;

beforeAll(async () => {
  azurite = await openStorage();
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
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

/** Differs whenever a rotation has done something in the cloud, or is about to. */
const progressOf = ({ status, attempts, publications, ending, revokingSince, steps }: RotationRecord): string =>
  [
    status,
    ending ?? "",
    revokingSince === undefined ? "" : "revoking",
    ...attempts.map(({ state }) => state),
    ...publications.map(({ state }) => state),
    ...steps.flatMap(({ name, status: at }) => (at === "done" ? [name] : [])),
  ].join(" ");

type App = ReturnType<World["application"]>;

/** Events between the backup and the restore. */
interface Situation {
  name: string;
  /** Adds consumers of the application's first place. */
  prepare?: (company: Company, place: string) => void;
  /** Continues the rotation from the copy to what the restore meets. */
  happens: (app: App, rotationId: string) => Promise<unknown>;
}

const completes = async (_app: App, rotationId: string): Promise<void> => {
  expect((await world.run(rotationId)).row.status).toBe("completed");
};

const situations: Situation[] = [
  { name: "that completed", happens: completes },
  {
    name: "that reached its overlap",
    happens: (_app, rotationId) => world.run(rotationId, { until: ({ status }) => status === "overlapping" }),
  },
  {
    name: "that was rolled back",
    prepare: (company, place) => {
      company.add("web-good", place, "action", { blast: 1 });
      company.add("web-bad", place, "action", { blast: 2, trouble: "never takes it" });
    },
    happens: async (_app, rotationId) => expect((await world.run(rotationId)).row.status).toBe("rolledBack"),
  },
  {
    name: "that completed, and whose new value was then copied by hand without tags",
    happens: async (app, rotationId) => {
      await completes(app, rotationId);
      for (const name of app.places)
        world.cloud.control.putSecret(VAULT, { name, value: world.cloud.control.secretValue(VAULT, name)! });
    },
  },
  {
    name: "that completed, and that another rotation followed",
    happens: async (app, rotationId) => {
      await completes(app, rotationId);
      const { newKeyId: secretId } = await world.start().get(rotationId);
      expect((await world.rotate({ ...app.request, secretId: secretId! })).status).toBe("completed");
    },
  },
];

/**
 * Restores the table from a copy taken when the `at`-th step of a rotation was recorded, and resumes.
 *
 * @returns undefined when a rotation has fewer steps.
 */
async function restoredAt(at: number, situation: Situation) {
  const app = world.application(`restore-${++apps}`, { places: 2 });
  const company = new Company(world);
  situation.prepare?.(company, app.places[0]!);
  world.consumers = situation.prepare ? company : unknownConsumers();
  const reader = world.start();
  const seen: string[] = [];
  let copy: Awaited<ReturnType<typeof copyTable>> | undefined;
  world.afterWrite = async () => {
    const rotationId = await reader.unfinishedOf(app.appId);
    if (copy !== undefined || rotationId === undefined) return;
    const progress = progressOf(await reader.get(rotationId));
    if (seen.includes(progress)) return;
    seen.push(progress);
    if (seen.length === at) copy = await copyTable();
  };
  const { rotationId } = await world.start().begin(app.request, BOSS);
  await situation.happens(app, rotationId);
  world.afterWrite = async () => {};
  if (copy === undefined) return undefined;
  await restoreTable(copy);
  world.messages.length = 0;
  await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
  return { app, copied: seen.at(-1)! };
}

/** The application has a client secret, and all that its places hold signs in and always did. */
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

test("a completed rotation that is restored from a copy taken while it was proving completes again", async () => {
  const app = world.application(`restore-${++apps}`);
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
    let steps = 0;
    for (let at = 1; ; at++) {
      const restored = await restoredAt(at, situation);
      if (restored === undefined) break;
      steps++;
      expectNobodyLockedOut(restored.app, restored.copied);
    }
    expect(steps).toBeGreaterThan(8);
  },
);
