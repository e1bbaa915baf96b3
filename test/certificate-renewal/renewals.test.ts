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

const API = `${VAULT}.certificate.api`;

let service: Service;
let authorityId: string;
beforeAll(async () => {
  service = await startRenewalService();
  authorityId = await addAuthority(service);
}, 120_000);
afterAll(() => service?.stop());
afterEach(() => service.cloud.control.clearFaults());

const authority = () => service.cloud.control.acmeAuthority.server;
const stepsOf = (renewal: { steps: { name: string; status: string }[] }) =>
  renewal.steps.map(({ name, status }) => `${name} ${status}`);

test("a certificate is issued, and its private key never leaves the vault", { timeout: 120_000 }, async () => {
  const runId = await startIssue(service, authorityId, "api", ["api.acme.example", "*.api.acme.example"]);
  const renewal = await waitForEnd(service, runId);
  expect(renewal, JSON.stringify(renewal)).toMatchObject({ status: "completed", failure: null, kind: "issue" });
  expect(stepsOf(renewal)).toEqual([
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
  // Both names have the same record, so it had two values.
  expect(Math.max(...service.cloud.control.zones.changes.map(({ values }) => values.length))).toBe(2);
  const reads = service.cloud.control.requests({ operation: "keyvault.getSecret" });
  expect(reads.filter(({ vault }) => vault === VAULT)).toEqual([]);
  expect(new X509Certificate(issued.pem).publicKey.asymmetricKeyType).toBe("ec");
});

test("the records of a name with an alias are written to the zone of the alias", { timeout: 120_000 }, async () => {
  const changesBefore = service.cloud.control.zones.changes.length;
  const runId = await startIssue(service, authorityId, "shop", ["shop.acme.example"]);
  expect(await waitForEnd(service, runId)).toMatchObject({
    status: "completed",
    records: [{ domain: "shop.acme.example", recordName: "shop" }],
  });
  const changes = service.cloud.control.zones.changes.slice(changesBefore);
  expect(new Set(changes.map(({ zone }) => zone))).toEqual(new Set(["challenges.acme.example"]));
  expect(service.cloud.control.nameServer.questions).toContain("TXT shop.challenges.acme.example");
});

test("a renewal makes a new version that replaces the current one", { timeout: 120_000 }, async () => {
  await service.scan();
  const policy = { authorityId, automatic: true, keyType: "EC" };
  const set = await service.admin("PUT", `${BASE}/${API}/policy`, policy);
  expect([set.status, set.body.automatic, set.body.keyCurve], set.text).toEqual([200, true, "P-256"]);
  const previous = authority().issued.find(({ names }) => names[0] === "api.acme.example")!;

  const changes = service.cloud.control.zones.changes.length;
  const orders = authority().orders.length;
  const plan = await service.admin("POST", `${BASE}/${API}/renew`, { dryRun: true });
  expect([plan.status, plan.body.runId, plan.body.missing], plan.text).toEqual([200, null, []]);
  expect(plan.body.records).toMatchObject([{ domain: "api.acme.example", recordName: "_acme-challenge.api" }]);
  expect([service.cloud.control.zones.changes.length, authority().orders.length]).toEqual([changes, orders]);

  const started = await service.admin("POST", `${BASE}/${API}/renew`);
  expect(started.status, started.text).toBe(201);
  const renewal = await waitForEnd(service, started.body.runId);
  expect(renewal.status, JSON.stringify(renewal)).toBe("completed");
  const issued = authority().issued.at(-1)!;
  expect(issued.replaces).toBe(previous.id);
  expect(renewal.version).not.toBe(renewal.previousVersion);
  expect([...authority().finalized.values()].every((count) => count === 1)).toBe(true);
  const list = await service.admin("GET", `${BASE}/renewals?assetId=${API}`);
  expect(list.body.items.map(({ kind }: { kind: string }) => kind)).toEqual(["renew", "issue"]);
});

test("a self-signed certificate and one of a connected authority get a new version at once", {
  timeout: 120_000,
}, async () => {
  for (const name of ["internal-api", "www"]) {
    const started = await service.admin("POST", `${BASE}/${VAULT}.certificate.${name}/renew`);
    expect([started.status, started.body.method], started.text).toEqual([201, "vaultPolicy"]);
    const renewal = await waitForEnd(service, started.body.runId);
    expect(stepsOf(renewal)).toEqual(["create done", "issue done", "cleanUp done"]);
    expect(renewal.version).not.toBe(renewal.previousVersion);
  }
});

test("the named version is revoked by the account that ordered it, and no other", { timeout: 60_000 }, async () => {
  const [renewal] = (await service.admin("GET", `${BASE}/renewals?assetId=${API}`)).body.items;
  const body = { version: renewal.previousVersion, authorityId, reason: "superseded" };
  const missing = await service.admin("POST", `${BASE}/${API}/revoke`, { ...body, version: "0".repeat(32) });
  expect([missing.status, missing.body.code]).toEqual([404, "notFound"]);
  const revoked = await service.admin("POST", `${BASE}/${API}/revoke`, body);
  expect([revoked.status, revoked.body.revoked], revoked.text).toEqual([200, true]);
  expect(
    authority()
      .issued.filter((one) => one.revoked)
      .map(({ serial }) => serial.toLowerCase()),
  ).toEqual([revoked.body.serialNumber]);
  expect(revoked.body.serialNumber).not.toBe(renewal.serialNumber);
  // A repeat after a lost answer finds it revoked.
  expect((await service.admin("POST", `${BASE}/${API}/revoke`, body)).status).toBe(200);
});

test("a renewal that fails leaves the vault and the zones as before, and says why", { timeout: 120_000 }, async () => {
  service.cloud.control.addFault({ match: { operation: "arm.putDnsRecordSet" }, action: { kind: "deny" } });
  const runId = await startIssue(service, authorityId, "denied", ["denied.acme.example"]);
  const renewal = await waitForEnd(service, runId);
  expect(renewal).toMatchObject({ status: "failed", failure: { code: "accessDenied" }, version: null });
  expect(renewal.failure.remedy).toContain("DNS Zone Contributor");
  expect(stepsOf(renewal)).toContain("publish failed");
  expect(challengeRecords(service)).toEqual([]);
});

test("a renewal can be cancelled while it waits", { timeout: 120_000 }, async () => {
  service.cloud.control.addFault({ match: { operation: "acme.newOrder" }, action: { kind: "reset" } });
  const runId = await startIssue(service, authorityId, "cancelled", ["cancelled.acme.example"]);
  const cancel = () => service.admin("POST", `${BASE}/renewals/${runId}/cancel`);
  await expect.poll(async () => (await cancel()).status, { timeout: 60_000, interval: 500 }).toBe(200);
  const renewal = await waitForEnd(service, runId);
  expect([renewal.status, renewal.failure.code, renewal.version]).toEqual(["failed", "cancelled", null]);
  // A repeat changes nothing.
  expect((await cancel()).body).toEqual(renewal);
  const completed = (await service.admin("GET", `${BASE}/renewals?assetId=${API}`)).body.items[0];
  const late = await service.admin("POST", `${BASE}/renewals/${completed.runId}/cancel`);
  expect([late.status, late.body.code]).toEqual([409, "conflict"]);
});

test("a certificate of another account is renewed without naming it in the order", { timeout: 120_000 }, async () => {
  const other = await addAuthority(service);
  await service.admin("PUT", `${BASE}/${API}/policy`, { authorityId: other });
  const started = await service.admin("POST", `${BASE}/${API}/renew`);
  const renewal = await waitForEnd(service, started.body.runId);
  expect(renewal.status, JSON.stringify(renewal)).toBe("completed");
  expect(authority().issued.at(-1)!.replaces).toBe(undefined);
});

test("a renewal without a zone, and one of a foreign operation, can't start", { timeout: 60_000 }, async () => {
  const body = { vaultName: VAULT, name: "foreign", dnsNames: ["www.other.example"], authorityId, dryRun: true };
  const plan = await service.admin("POST", BASE, body);
  expect(plan.body.missing).toEqual(["No zone of ACME_DNS_ZONE_IDS contains the record of www.other.example."]);
  const started = await service.admin("POST", BASE, { ...body, dryRun: false });
  expect([started.status, started.body.code]).toEqual([409, "conflict"]);
});

test("a directory that leads to a private address is rejected", { timeout: 60_000 }, async () => {
  const address = service.cloud.control.acmeAuthority.directory.replace("letsencrypt", "management");
  for (const [method, path] of [
    ["POST", `${BASE}/authorities/test`],
    ["POST", `${BASE}/authorities`],
  ] as const) {
    const body = path.endsWith("test")
      ? { directoryUrl: address }
      : { ...authorityBody(service), directoryUrl: address };
    const answer = await service.admin(method, path, body);
    expect([answer.status, answer.body.code], answer.text).toEqual([400, "invalidRequest"]);
    expect(answer.body.detail).toContain("is blocked: it is not public (loopback)");
    expect(answer.body.detail).toContain("PRIVATE_TARGET_HOSTS");
  }
});

test("an authority that needs an external account binding accepts only the right key", {
  timeout: 60_000,
}, async () => {
  const { directory } = service.cloud.control.boundAuthority;
  const body = { ...authorityBody(service), name: "Bound", directoryUrl: directory };
  const without = await service.admin("POST", `${BASE}/authorities`, body);
  expect([without.status, without.body.detail]).toEqual([
    400,
    expect.stringContaining("requires an external account binding"),
  ]);
  const wrong = { keyId: "acme-corporation", hmacKey: "d3Jvbmcta2V5" };
  const rejected = await service.admin("POST", `${BASE}/authorities`, { ...body, externalAccountBinding: wrong });
  expect([rejected.status, rejected.body.code]).toEqual([409, "conflict"]);
  const right = { keyId: "acme-corporation", hmacKey: "c3RhbmQtaW4tbWFjLWtleS1vZi10aGUtZXh0ZXJuYWwtYWNjb3VudA" };
  const added = await service.admin("POST", `${BASE}/authorities`, { ...body, externalAccountBinding: right });
  expect([added.status, added.body.externalAccountKeyId], added.text).toEqual([201, "acme-corporation"]);
  expect(added.text).not.toContain(right.hmacKey);
  const { authorityId: id } = added.body;
  const replaced = await service.admin("PUT", `${BASE}/authorities/${id}`, { ...body, name: "Renamed" });
  expect([replaced.body.name, replaced.body.externalAccountKeyId], replaced.text).toEqual([
    "Renamed",
    "acme-corporation",
  ]);
  expect(service.cloud.control.boundAuthority.server.accounts.length).toBe(1);
  expect((await service.admin("DELETE", `${BASE}/authorities/${id}`)).status).toBe(200);
});

test("a renewal keeps what the vault's policy says of the format and the use, and a failed one restores the policy", {
  timeout: 180_000,
}, async () => {
  const { control } = service.cloud;
  const earlier = {
    key_props: { kty: "RSA", key_size: 3072, exportable: true, reuse_key: false },
    secret_props: { contentType: "application/x-pem-file" },
    x509_props: {
      subject: "CN=api.acme.example, O=Acme",
      sans: { dns_names: ["api.acme.example", "*.api.acme.example"] },
      ekus: ["1.3.6.1.5.5.7.3.2"],
      key_usage: ["digitalSignature"],
      validity_months: 6,
    },
    issuer: { name: "DigiCert", cert_transparency: false },
    lifetime_actions: [{ trigger: { lifetime_percentage: 70 }, action: { action_type: "AutoRenew" } }],
  };
  control.setCertificatePolicy(VAULT, "api", earlier);
  // Without a key, new versions have that of the vault's policy.
  expect((await service.admin("PUT", `${BASE}/${API}/policy`, { authorityId })).body.keyType).toBe(null);
  control.addFault({ match: { operation: "keyvault.mergeCertificate" }, action: { kind: "deny" } });
  const failed = await service.admin("POST", `${BASE}/${API}/renew`);
  const renewal = await waitForEnd(service, failed.body.runId);
  expect([renewal.status, renewal.failure.code]).toEqual(["failed", "accessDenied"]);
  expect(control.requests({ operation: "keyvault.updateCertificatePolicy" }).length).toBe(1);
  expect(control.certificatePolicy(VAULT, "api")).toMatchObject(earlier);

  control.clearFaults();
  const started = await service.admin("POST", `${BASE}/${API}/renew`);
  expect((await waitForEnd(service, started.body.runId)).status).toBe("completed");
  expect(control.certificatePolicy(VAULT, "api")).toMatchObject({
    ...earlier,
    issuer: { name: "Unknown" },
    lifetime_actions: [{ trigger: { lifetime_percentage: 70 }, action: { action_type: "EmailContacts" } }],
  });
});
