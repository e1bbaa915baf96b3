import { X509Certificate } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { Service } from "../support/service.ts";
import {
  addAuthority,
  authorityBody,
  BASE,
  challengeRecords,
  startIssue,
  startRenewalService,
  VAULT,
  waitForEnd,
} from "./renewal-service.ts";

/** Issues, renews and revokes certificates over HTTP: the real clients against the simulated authority, DNS and key vaults. */

let service: Service;
let authorityId: string;
beforeAll(async () => {
  service = await startRenewalService();
  authorityId = await addAuthority(service);
}, 120_000);
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.clearFaults());

const authority = () => service.cloud.control.acmeAuthority.server;

test("a certificate is issued, and its private key never leaves the vault", { timeout: 120_000 }, async () => {
  const runId = await startIssue(service, authorityId, "api", ["api.acme.example", "*.api.acme.example"]);
  const renewal = await waitForEnd(service, runId);
  expect(renewal, JSON.stringify(renewal)).toMatchObject({ status: "completed", failure: null, kind: "issue" });
  expect(renewal.steps.map(({ name, status }: { name: string; status: string }) => `${name} ${status}`)).toEqual([
    "order done",
    "publish done",
    "observe done",
    "validate done",
    "request done",
    "finalize done",
    "merge done",
    "cleanUp done",
  ]);
  const issued = authority().issued.at(-1)!;
  expect(issued.names).toEqual(["api.acme.example", "*.api.acme.example"]);
  expect(renewal.serialNumber).toBe(issued.serial.toLowerCase());
  expect(challengeRecords(service)).toEqual([]);
  expect(
    service.cloud.control.requests({ operation: "keyvault.getSecret" }).filter(({ vault }) => vault === VAULT),
  ).toEqual([]);
  expect(new X509Certificate(issued.pem).publicKey.asymmetricKeyType).toBe("ec");
});
