import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { companyWith, type KeyRotationWorld, openKeyRotationWorld, VAULT } from "./world.ts";

// Tests over HTTP of the rotation policies of keys. The simulated Key Vault checks a policy as the real one does.

let world: KeyRotationWorld;
beforeAll(async () => {
  const keys = [{ name: "one" }, { name: "two", rotation: { rotateAfterDays: 90, expiryDays: 200 } }];
  world = await openKeyRotationWorld(companyWith(keys, []), { discovers: false });
}, 120_000);
afterAll(() => world?.stop());
afterEach(() => world.control.clearFaults());

const pathOf = (key: string) => `/api/automation/keys/${world.idOf(key)}/rotation-policy`;
const put = (key: string, body: object) => world.admin("PUT", pathOf(key), body);
const YEARLY = { action: "Rotate", timeAfterCreate: "P1Y", timeBeforeExpiry: null };
const NOTIFY = { action: "Notify", timeAfterCreate: null, timeBeforeExpiry: "P30D" };

test("the policy is read from the vault, with Key Vault's default for a key without one", async () => {
  const { status, body } = await world.admin("GET", pathOf("two"));
  expect([status, body.expiresIn]).toEqual([200, "P200D"]);
  expect(body.lifetimeActions).toContainEqual({ ...YEARLY, timeAfterCreate: "P90D" });
  expect((await world.admin("GET", pathOf("one"))).body).toEqual({
    assetId: `${VAULT}.key.one`,
    expiresIn: null,
    lifetimeActions: [NOTIFY],
  });
});

test("a policy is replaced, and an empty list restores the default", async () => {
  const policy = { expiresIn: "P2Y", lifetimeActions: [{ action: "Rotate", timeAfterCreate: "P1Y" }] };
  const { status, body } = await put("one", policy);
  expect([status, body.expiresIn, body.lifetimeActions]).toEqual([200, "P2Y", [YEARLY, NOTIFY]]);
  expect((await world.admin("GET", pathOf("one"))).body).toEqual(body);
  // Safe to repeat.
  expect((await put("one", policy)).body).toEqual(body);
  expect((await put("one", { lifetimeActions: [] })).body.lifetimeActions).toEqual([NOTIFY]);
  const { body: log } = await world.admin("GET", "/audit/entries?event_type=keyRotation.policyChanged");
  expect(log.items[0]).toMatchObject({ target: { type: "asset", id: `${VAULT}.key.one` } });
});

test.each([
  ["a duration that is none", { expiresIn: "2 years", lifetimeActions: [] }],
  [
    "two actions of a kind",
    { lifetimeActions: [NOTIFY, NOTIFY].map(() => ({ action: "Notify", timeBeforeExpiry: "P30D" })) },
  ],
  ["an action without a time", { lifetimeActions: [{ action: "Rotate" }] }],
  ["a Notify action after creation", { lifetimeActions: [{ action: "Notify", timeAfterCreate: "P30D" }] }],
  // Key Vault itself rejects these.
  ["an expiry that is too short", { expiresIn: "P10D", lifetimeActions: [] }],
  [
    "a rotation before an expiry that is not set",
    { lifetimeActions: [{ action: "Rotate", timeBeforeExpiry: "P30D" }] },
  ],
  [
    "a rotation after the expiry",
    { expiresIn: "P30D", lifetimeActions: [{ action: "Rotate", timeAfterCreate: "P30D" }] },
  ],
])("%s is rejected, and the policy stays", async (_, body) => {
  const before = (await world.admin("GET", pathOf("two"))).body;
  const { status, body: problem } = await put("two", body);
  expect([status, problem.code], JSON.stringify(problem)).toEqual([400, "invalidRequest"]);
  expect((await world.admin("GET", pathOf("two"))).body).toEqual(before);
});

test("a missing permission and a lost answer are reported, and a repeat completes the change", async () => {
  const body = { expiresIn: "P1Y", lifetimeActions: [] };
  world.control.addFault({ match: { operation: "keyvault.setRotationPolicy" }, action: { kind: "deny" } });
  const denied = await put("one", body);
  expect([denied.status, denied.body.detail]).toEqual([503, expect.stringContaining("keyrotationpolicies/write")]);
  world.control.clearFaults();
  world.control.addFault({ match: { operation: "keyvault.setRotationPolicy" }, action: { kind: "loseAnswer" } });
  const lost = await put("one", body);
  expect([lost.status, lost.body.detail]).toEqual([503, expect.stringContaining("may or may not have been made")]);
  world.control.clearFaults();
  expect((await put("one", body)).body.expiresIn).toBe("P1Y");
}, 60_000);
