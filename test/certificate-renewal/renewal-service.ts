import { setTimeout as delay } from "node:timers/promises";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";

/** Helpers of the tests that issue and renew certificates over HTTP. */

export const BASE = "/api/automation/certificates";
export const VAULT = "kv-shop-prod";

/** Starts the service with a scanned inventory and a license. */
export async function startRenewalService(options: Parameters<typeof Service.start>[0] = {}): Promise<Service> {
  const env = { LICENSE_KEY: await licence(), ...options.env };
  const service = await Service.start({ company: "small", shortWaits: true, ...options, env });
  await service.scan();
  return service;
}

/** Body of an authority: the one without external account binding. */
export const authorityBody = (service: Service) => ({
  name: "Stand-in",
  directoryUrl: service.cloud.control.acmeAuthority.directory,
  contacts: ["pki@acme.example"],
});

export async function addAuthority(service: Service): Promise<string> {
  const answer = await service.admin("POST", `${BASE}/authorities`, authorityBody(service));
  if (answer.status !== 201) throw new Error(`Adding an authority answered ${answer.status}: ${answer.text}`);
  return answer.body.authorityId;
}

/** Starts to issue a certificate, and returns the ID of the renewal. */
export async function startIssue(service: Service, authorityId: string, name: string, dnsNames: string[]) {
  const body = { vaultName: VAULT, name, dnsNames, authorityId, keyType: "EC" };
  const answer = await service.admin("POST", BASE, body);
  if (answer.status !== 201) throw new Error(`Issuing answered ${answer.status}: ${answer.text}`);
  return answer.body.runId as string;
}

/** Waits until a renewal has ended, and returns it. */
// biome-ignore lint/suspicious/noExplicitAny: each test knows the shape of its response
export async function waitForEnd(service: Service, runId: string, timeoutMs = 60_000): Promise<any> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const { body } = await service.admin("GET", `${BASE}/renewals/${runId}`);
    if (body.status === "completed" || body.status === "failed") return body;
    if (Date.now() > deadline) throw new Error(`The renewal is still ${body.status}: ${JSON.stringify(body)}`);
    await delay(200);
  }
}

/** Returns the values of all challenge records that the zones have. */
export const challengeRecords = (service: Service): string[] =>
  [...service.cloud.control.zones.zones.values()].flatMap(({ records }) =>
    [...records.values()].filter(({ type }) => type === "TXT").flatMap(({ values }) => values),
  );
