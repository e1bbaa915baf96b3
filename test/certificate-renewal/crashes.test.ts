import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { RENEWALS, type RenewalRecord, Renewals } from "../../shared/certificate-renewal/renewal.ts";
import { recordKey } from "../../shared/certificate-renewal/rows.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openRenewalWorld, VAULT } from "./renewal-world.ts";

/**
 * Tests that a renewal survives crashes at any call outside of the process, and lost answers. The history of the simulated cloud
 * decides: one order is finalized once, the vault has the version or is as before, and no record and no operation is left.
 */

const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 5;

let world: Awaited<ReturnType<typeof openRenewalWorld>>;
beforeAll(async () => {
  world = await openRenewalWorld();
}, 60_000);
afterAll(() => world?.stop());
afterEach(() => world.control.clearFaults());

let count = 0;
/**
 * Issues a certificate, and checks what the cloud has at the end. Returns the number of outside calls.
 *
 * @param interrupt - Called before the renewal is run to its end.
 */
async function issue(
  steps: Steps,
  expected: "completed" | "failed" = "completed",
  interrupt?: (runId: string) => Promise<void>,
): Promise<number> {
  const name = `crash-${++count}`;
  const server = world.control.acmeAuthority.server;
  const runId = await world.begin(name);
  await interrupt?.(runId);
  const row = await world.run(runId, steps);
  const context = `SEED=${SEED}, ${steps.when} call ${steps.crashAt}: ${JSON.stringify(row.failure)}`;
  expect(row.status, context).toBe(expected);
  const issued = server.issued.filter(({ names }) => names.includes(`${name}.acme.example`));
  expect(issued.length, context).toBeLessThanOrEqual(1);
  expect(Math.max(0, ...server.finalized.values()), context).toBeLessThanOrEqual(1);
  const records = [...world.control.zones.zones.values()].flatMap(({ records: sets }) =>
    [...sets.values()].filter(({ type }) => type === "TXT"),
  );
  expect(records, context).toEqual([]);
  const certificate = world.control.certificateState(VAULT, name);
  if (expected === "completed") {
    expect(certificate, context).toEqual({ pending: "completed", serials: [issued[0]!.serial] });
    expect(row.serialNumber).toBe(issued[0]!.serial.toLowerCase());
  } else {
    expect(certificate.serials, context).toEqual([]);
    expect(certificate.pending, context).not.toBe("inProgress");
  }
  return steps.taken;
}

test("an issued certificate survives a crash at a sampled call", { timeout: 7_200_000 }, async () => {
  const calls = await issue({ taken: 0 });
  expect(calls).toBeGreaterThan(40);
  let crashes = 0;
  for (let crashAt = 1 + (SEED % CALLS_BETWEEN_CRASHES); crashAt < calls; crashAt += CALLS_BETWEEN_CRASHES) {
    for (const when of IS_CAMPAIGN ? (["before", "after"] as const) : ([crashAt % 2 ? "before" : "after"] as const)) {
      const steps: Steps = { taken: 0, crashAt, when };
      await issue(steps);
      if (steps.dead) crashes++;
    }
  }
  expect(crashes).toBeGreaterThan(5);
});

/** Operations of the cloud that a renewal calls. */
const OPERATIONS = [
  "acme.newNonce",
  "acme.newOrder",
  "acme.getOrder",
  "acme.getAuthorization",
  "acme.challenge",
  "acme.finalize",
  "acme.certificate",
  "arm.getDnsZone",
  "arm.getDnsRecordSet",
  "arm.putDnsRecordSet",
  "arm.deleteDnsRecordSet",
  "keyvault.createCertificate",
  "keyvault.getCertificateOperation",
  "keyvault.getCertificate",
  "keyvault.mergeCertificate",
];

test.each(OPERATIONS)(
  "a lost answer to %s neither fails a renewal nor repeats an order",
  { timeout: 600_000 },
  async (operation) => {
    for (const kind of ["loseAnswer", "reset"] as const) {
      world.control.clearFaults();
      world.control.addFault({ match: { operation }, action: { kind }, times: 1 });
      await issue({ taken: 0 });
    }
  },
);

test.each(["acme.finalize", "keyvault.createCertificate", "keyvault.mergeCertificate", "arm.putDnsRecordSet"])(
  "a renewal that %s denies for good is rolled back",
  { timeout: 600_000 },
  async (operation) => {
    world.control.addFault({ match: { operation }, action: { kind: "deny" } });
    await issue({ taken: 0 }, "failed");
  },
);

test("records that cannot be deleted once the vault has the version are deleted later, and nothing is rolled back", {
  timeout: 600_000,
}, async () => {
  const deny = { match: { operation: "arm.deleteDnsRecordSet" }, action: { kind: "deny" as const }, times: 4 };
  world.control.addFault(deny);
  await issue({ taken: 0 });
});

/** Delivers messages until a step has the status. */
async function deliverUntil(runId: string, name: string, status: string): Promise<RenewalRecord> {
  for (let delivery = 0; delivery < 30; delivery++) {
    const row = await world.start().renewals.get(runId);
    if (row.steps.find((step) => step.name === name)?.status === status) return row;
    world.skip(Math.max(0, Date.parse(row.dueAt) - world.now()) + 1);
    await world.start().renewals.handle({ runId }, "request-3");
  }
  throw new Error(`The step ${name} did not get the status ${status}.`);
}
const changeRow = (runId: string, change: (record: RenewalRecord) => Partial<RenewalRecord>) =>
  world.tables.modify(Renewals, RENEWALS, recordKey(runId), (row) => ({ ...withoutKeys(row!), ...change(row!) }));

test("a record of an attempt before a crash is removed, although the authority no longer asks for it", {
  timeout: 600_000,
}, async () => {
  const again = (steps: RenewalRecord["steps"]) =>
    steps.map((step) => (step.name === "publish" ? { ...step, status: "waiting" as const } : step));
  await issue({ taken: 0 }, "completed", async (runId) => {
    await deliverUntil(runId, "publish", "done");
    world.control.acmeAuthority.server.orders.at(-1)!.authorizations[0]!.status = "valid";
    await changeRow(runId, ({ steps }) => ({ steps: again(steps) }));
  });
});

test("an order that the authority never finishes fails after a day", { timeout: 600_000 }, async () => {
  const { server } = world.control.acmeAuthority;
  server.neverIssues = true;
  const runId = await world.begin("never");
  await deliverUntil(runId, "finalize", "running");
  const early = new Date(world.now() - 2 * DAY_MS).toISOString();
  await changeRow(runId, ({ steps }) => ({
    steps: steps.map((step) => (step.name === "finalize" ? { ...step, startedAt: early } : step)),
  }));
  const row = await world.run(runId);
  server.neverIssues = false;
  expect([row.status, row.failure?.code]).toEqual(["failed", "stepTimeout"]);
  expect(world.control.certificateState(VAULT, "never").pending).not.toBe("inProgress");
});
