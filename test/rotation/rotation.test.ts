import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { VAULT, World } from "./room.ts";

let world: World;
let azurite: Azurite;

beforeAll(async () => {
  azurite = await startAzurite();
  const subscriptions = [
    { id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }, { name: "kv-handover" }] },
  ];
  const { cloud, config } = await liveIn({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString());
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});
afterEach(() => {
  world.cloud.control.clearFaults();
  world.tier = "pro";
  world.targets = [];
});

test("a secret is replaced everywhere, and the old one removed after the overlap", async () => {
  const { control } = world.cloud;
  const app = world.application("everywhere", { places: 2 });
  const plan = await world.start().plan(app.request);
  expect(plan.publications).toHaveLength(2);
  expect(control.directory.secrets(app.appId)).toHaveLength(1);
  const row = await world.rotate(app.request);
  if (process.env.SHOW) console.log(JSON.stringify(row, null, 1), world.calls.join(" "), world.log.lines.join("\n"));
  expect(row).toMatchObject({ status: "completed", oldKeyId: app.keyId, needsConfirmation: false });
  const secrets = control.directory.secrets(app.appId);
  expect(secrets.filter(({ removedAt }) => removedAt === undefined).map(({ keyId }) => keyId)).toEqual([row.newKeyId]);
  for (const place of app.places) {
    const value = control.secretValue(VAULT, place)!;
    expect(control.directory.keyIdOf(app.appId, value)).toBe(row.newKeyId);
    const item = control.items(VAULT, "secrets").find(({ name }) => name === place)!;
    expect(item.tags).toMatchObject({
      owner: "shop@acme.example",
      CredentialId: row.newKeyId,
      "rotation-id": row.rotationId,
    });
  }
  expect(control.directory.gaps()).toEqual([]);
  const held = control.items("kv-lifecycle-service", "secrets").map(({ name }) => name);
  expect(held).toEqual(["row-signing"]);
});
