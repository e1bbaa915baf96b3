import { QueueClient } from "@azure/storage-queue";
import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { Fault } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { movedClock } from "../support/moved-clock.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { Service } from "../support/service.ts";
import type { FaultedRequest } from "../support/table-proxy.ts";
import { createRotationClient } from "./http-client.ts";

// Tests of rotations over HTTP, in a host process that is killed at any step and replaced, and of messages that fail.

/**
 * Moments at which a test kills the host process: during the named call, before or after the cloud carries it out. They are in
 * the order of a rotation. A campaign (a long run of all cases) uses all of them, the normal suite only the second.
 */
const KILLS: { moment: string; fault: Fault }[] = [
  {
    moment: "adding a client secret, before the call",
    fault: { match: { operation: "graph.addPassword" }, action: { kind: "hang" } },
  },
  {
    moment: "adding a client secret, after the call",
    fault: { match: { operation: "graph.addPassword" }, action: { kind: "hangAfter" } },
  },
  {
    moment: "storing a copy in the service's vault, after the call",
    fault: { match: { operation: "keyvault.setSecret", vault: "kv-lifecycle-service" }, action: { kind: "hangAfter" } },
  },
  {
    moment: "testing the sign-in, before the call",
    fault: { match: { operation: "entra.token" }, action: { kind: "hang" } },
  },
  {
    moment: "writing the first vault secret, before the call",
    fault: { match: { operation: "keyvault.setSecret", item: "shop-api-0" }, action: { kind: "hang" } },
  },
  {
    moment: "writing the second vault secret, after the call",
    fault: { match: { operation: "keyvault.setSecret", item: "shop-api-1" }, action: { kind: "hangAfter" } },
  },
  {
    moment: "removing the old client secret, after the call",
    fault: { match: { operation: "graph.removePassword" }, action: { kind: "hangAfter" } },
  },
];
const USED_KILLS = IS_CAMPAIGN ? KILLS : KILLS.slice(1, 2);

const APP = "Shop API";
const [appId, secretId] = [appIdOf(APP), keyIdOf(APP, "primary")];
const VAULT = "kv-shop";
/** The vault secrets that store the client secret of the application. */
const places = ["shop-api-0", "shop-api-1"];
const base = "/api/automation/rotation";
const company: Company = {
  subscriptions: [
    {
      name: "Shop",
      vaults: [
        {
          name: VAULT,
          secrets: places.map((name) => ({
            name,
            value: secretValueOf(APP, "primary"),
            contentType: `Shop API:${appId}:${secretId}`,
          })),
        },
      ],
    },
  ],
  applications: [{ name: APP, secrets: [{ name: "primary", expiresInDays: 20 }] }],
};

const storageClock = movedClock();
let service: Service;
type RotationClient = ReturnType<typeof createRotationClient>;
let admin: RotationClient["admin"];
let advanceClock: RotationClient["advanceClock"];
let getRotation: RotationClient["getRotation"];
let waitUntil: RotationClient["waitUntil"];
beforeAll(async () => {
  service = await Service.start({
    company,
    lease: 1,
    tableProxy: true,
    env: { LICENSE_KEY: await licence() },
    storageEnv: storageClock.environment,
  });
  ({ admin, advanceClock, getRotation, waitUntil } = createRotationClient(service, storageClock));
  expect(await service.scan()).toMatchObject({ status: "completed" });
  for (const name of places) {
    const body = { assetId: `${VAULT}.secret.${name}` };
    expect((await admin("POST", `${base}/apps/${appId}/matches/confirm`, body)).status).toBe(200);
  }
});
afterAll(async () => {
  await service?.stop();
  storageClock.remove();
});

test("the rotation endpoints validate requests, plan, start one rotation and cancel it", async () => {
  const rotate = (body: object) => admin("POST", `${base}/rotate`, body);
  expect((await rotate({})).status).toBe(400);
  expect((await rotate({ appId: "no id", secretId })).status).toBe(400);
  expect((await rotate({ appId, secretId, expiryDays: 731 })).status).toBe(400);
  expect((await rotate({ appId, secretId, newValue: "x" })).body.errors[0].path).toBe("body.newValue");
  expect((await rotate({ appId, secretId: appId })).status).toBe(404);
  expect((await rotate({ appId: secretId, secretId })).status).toBe(404);
  expect((await admin("GET", `${base}/rotations/nonsense`)).status).toBe(404);
  expect((await admin("GET", `${base}/history?status=done`)).status).toBe(400);

  const plan = await rotate({ app_id: appId.toUpperCase(), secret_id: secretId, dry_run: true });
  expect([plan.status, plan.body.rotationId, plan.body.targets.length]).toEqual([200, null, 2]);
  expect((await admin("GET", `${base}/history`)).body.items).toEqual([]);

  const started = await rotate({ appId, secretId, overlapDays: 2 });
  expect(started.status).toBe(201);
  const id: string = started.body.rotationId;
  expect(started.headers.get("location")).toBe(`${base}/rotations/${id}`);
  const again = await rotate({ appId, secretId });
  expect([again.status, again.body.code, again.body.rotationId]).toEqual([409, "rotationUnfinished", id]);
  expect((await admin("POST", `${base}/rotations/${id}/retry`)).status).toBe(409);
  const early = await admin("POST", `${base}/rotations/${id}/finish`, { force: true });
  expect(early.status).toBe(409);
  expect((await admin("POST", `${base}/rotations/${id}/finish`)).status).toBe(409);

  await waitUntil(id, ({ status }) => status === "proving");
  expect((await admin("POST", `${base}/rotations/${id}/cancel`)).status).toBe(200);
  const ended = await waitUntil(id, ({ endedAt }) => endedAt !== null);
  expect(ended).toMatchObject({ status: "cancelled", oldKeyId: secretId, nextAt: null, attention: null });
  const history = await admin("GET", `${base}/history?appId=${appId}&status=cancelled`);
  expect(history.body).toMatchObject({ total: 1, items: [{ rotationId: id, newKeyId: ended.newKeyId }] });
});

test("a rotation continues in another process after its host was killed", async () => {
  const { control } = service.cloud;
  const { directory } = control;
  for (const secret of places) directory.watchTarget({ appId, vault: VAULT, secret });
  const [currentSecret] = directory.secrets(appId).filter(({ removedAt }) => removedAt === undefined);
  const started = await admin("POST", `${base}/rotate`, { appId, secretId: currentSecret!.keyId, overlapDays: 2 });
  expect(started.status, started.text).toBe(201);
  const id: string = started.body.rotationId;
  for (const { moment, fault } of USED_KILLS) {
    const faultId = control.addFault({ ...fault, times: 1 });
    await waitUntil(id, () => control.faults().some((one) => one.id === faultId && one.happened > 0));
    await service.hosts.splice(0)[0]!.stop("SIGKILL");
    control.removeFault(faultId);
    // The lease of the killed host's worker expires after 5 minutes.
    await advanceClock(6 * MINUTE_MS);
    await service.addHost();
    expect((await getRotation(id)).endedAt, moment).toBeNull();
  }
  const ended = await waitUntil(id, ({ endedAt, attention }) => endedAt !== null || attention !== null);
  expect(ended.status, JSON.stringify(ended.attention)).toBe("completed");
  const secrets = directory.secrets(appId);
  expect(secrets.filter(({ removedAt }) => removedAt === undefined).map(({ keyId }) => keyId)).toEqual([
    ended.newKeyId,
  ]);
  for (const place of places) {
    expect(directory.keyIdOf(appId, control.secretValue(VAULT, place)!)).toBe(ended.newKeyId);
  }
  // No watched vault secret ever held a value that did not sign in.
  expect(directory.gaps()).toEqual([]);
  const text = JSON.stringify([ended, service.hosts[0]!.lines]);
  for (const value of [secretValueOf(APP, "primary"), control.secretValue(VAULT, places[0]!)!]) {
    expect(text).not.toContain(value);
  }
  expect(control.items("kv-lifecycle-service", "secrets").filter(({ name }) => name.startsWith("rotation-"))).toEqual(
    [],
  );
});

test("a message that was put into the poison queue changes nothing, and one that failed five times requests attention", async () => {
  const [currentSecret] = service.cloud.control.directory
    .secrets(appId)
    .filter(({ removedAt }) => removedAt === undefined);
  const started = await admin("POST", `${base}/rotate`, { appId, secretId: currentSecret!.keyId, overlapDays: 2 });
  expect(started.status, started.text).toBe(201);
  const id: string = started.body.rotationId;
  const overlapping = await waitUntil(
    id,
    ({ nextAt, overlapEndsAt }) => overlapEndsAt !== null && nextAt >= overlapEndsAt,
    { skipsDays: false },
  );
  const listFailures = async () => (await admin("GET", "/system/failed-messages")).body.items;

  const poison = new QueueClient(service.azurite.connectionString(), "rotations-poison");
  await poison.createIfNotExists();
  await poison.sendMessage(Buffer.from(JSON.stringify({ rotationId: id })).toString("base64"));
  await expect.poll(listFailures, { timeout: 30_000 }).toMatchObject([{ queue: "rotations", readable: true }]);
  const waiting = async () => (await poison.getProperties()).approximateMessagesCount;
  await expect.poll(waiting, { timeout: 30_000 }).toBe(0);
  expect(overlapping.status).toBe("overlapping");
  expect(await getRotation(id)).toEqual(overlapping);

  // A worker that handles a message first takes the lease of the rotation, in a transaction. Storage rejects this transaction
  // until the message has failed five times. The timer can send further messages meanwhile, so there are more faults than five.
  const isTakingLease = ({ path, body, by }: FaultedRequest) =>
    by === "workRotation" && path === "$batch" && body.includes(id);
  service.tables.fail(Array<"InvalidInputInside">(100).fill("InvalidInputInside"), isTakingLease);
  expect((await admin("POST", `${base}/rotations/${id}/finish`, { force: true })).status).toBe(200);
  const stopped = await waitUntil(id, ({ attention }) => attention !== null, { skipsDays: false });
  expect(stopped).toMatchObject({ status: "needsAttention", attention: { code: "internal" } });
  const unusedFaults = service.tables.removeFaults();
  expect(unusedFaults).toBeLessThanOrEqual(100 - 5);
  // A further message may have failed five times too.
  const queues = (await listFailures()).map(({ queue }: { queue: string }) => queue);
  expect(queues.length).toBeGreaterThanOrEqual(2);
  expect(new Set(queues)).toEqual(new Set(["rotations"]));
});
