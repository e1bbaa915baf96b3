// The check that certificates of vaults are served, with TLS servers of this process that choose a certificate by the name (SNI).
import { generateKeyPairSync, type KeyObject, randomBytes } from "node:crypto";
import { createServer as createHttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createSecureContext, createServer, type SecureContext, type SecureVersion, type Server } from "node:tls";
import { makeCertificate, pem } from "simulated-cloud/x509.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { EndpointRecord } from "../../shared/certificates/endpoint.ts";
import { afterCheck, type Handshake } from "../../shared/certificates/endpoint-state.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

const VAULT = "kv-web";
const CERTIFICATES = 10;
const HOSTS_EACH = 5;
const ENDPOINTS = "/api/assets/dependencies/endpoints";
/** Thumbprint of a certificate in App Service. */
const THUMBPRINT = "AB".repeat(20);
const hostOf = (certificate: number, index: number) => `www${index}.shop${certificate}.localhost`;
const idOf = (certificate: number) => `${VAULT}.certificate.shop${certificate}`;
const certificateOf = (host: string) => Number(/shop(\d+)/.exec(host)![1]);
const allHosts = Array.from({ length: CERTIFICATES * HOSTS_EACH }, (_, index) =>
  hostOf(Math.floor(index / HOSTS_EACH), index % HOSTS_EACH),
);

const daysFromNow = (days: number) => new Date(Date.now() + days * DAY_MS);
const newKey = () => generateKeyPairSync("ec", { namedCurve: "P-256" });

interface Issued {
  der: Buffer;
  serial: string;
  key: KeyObject;
}
const root = newKey();
const intermediate = newKey();
const ROOT_NAME = "CN=Shop Root";
const INTERMEDIATE_NAME = "CN=Shop Issuing";

function issue(
  subject: string,
  dnsNames: string[],
  notBeforeDays: number,
  notAfterDays = 60,
  // A first byte below 0x80 needs no leading zero in DER.
  serial = Buffer.concat([Buffer.from([0x2a]), randomBytes(15)]),
): Issued {
  const key = newKey();
  const der = makeCertificate({
    subject,
    issuer: INTERMEDIATE_NAME,
    serial,
    notBefore: daysFromNow(notBeforeDays),
    notAfter: daysFromNow(notAfterDays),
    publicKey: key.publicKey,
    signingKey: intermediate.privateKey,
    dnsNames,
  });
  return { der, serial: serial.toString("hex"), key: key.privateKey };
}
const authority = (subject: string, { publicKey }: { publicKey: KeyObject }) =>
  makeCertificate({
    subject,
    issuer: ROOT_NAME,
    serial: randomBytes(8),
    notBefore: daysFromNow(-400),
    notAfter: daysFromNow(400),
    publicKey,
    signingKey: root.privateKey,
    authority: true,
  });
const ROOT_DER = authority(ROOT_NAME, root);
const INTERMEDIATE_DER = authority(INTERMEDIATE_NAME, intermediate);

function contextOf({ der, key }: Issued, { complete }: { complete: boolean }): SecureContext {
  const chain = complete ? [der, INTERMEDIATE_DER] : [der];
  return createSecureContext({
    key: key.export({ type: "pkcs8", format: "pem" }),
    cert: chain.map((one) => pem("CERTIFICATE", one)).join(""),
  });
}

const namesOf = (certificate: number) => Array.from({ length: HOSTS_EACH }, (_, index) => hostOf(certificate, index));
const renew = (certificate: number, notBeforeDays: number) =>
  issue(`CN=shop${certificate}`, namesOf(certificate), notBeforeDays);
const current = Array.from({ length: CERTIFICATES }, (_, certificate) => renew(certificate, -3));
const old = Array.from({ length: CERTIFICATES }, (_, certificate) => renew(certificate, -90));
const withOtherName = issue("CN=other", ["other.localhost"], -3);

/** The certificates that the servers send, by name. */
const served = new Map<string, SecureContext>();
const serveCurrent = (host: string) => served.set(host, contextOf(current[certificateOf(host)]!, { complete: true }));
/** Bytes that clients sent after the handshake. */
let bytesAfterHandshake = 0;

async function startServer(maxVersion: SecureVersion): Promise<Server> {
  const server = createServer({ maxVersion, SNICallback: (name, done) => done(null, served.get(name)) }, (socket) => {
    socket.on("data", (data) => {
      bytesAfterHandshake += data.length;
    });
    socket.on("error", () => undefined);
  });
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}
const portOf = (server: Server) => (server.address() as AddressInfo).port;

/** The events that the alert rule's receiver got. */
const events: { type: string; data: { items: { title: string }[] } }[] = [];
const receiver = createHttpServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    events.push(JSON.parse(Buffer.concat(chunks).toString()));
    response.end();
  });
});

let service: Service;
let servers: Server[];
/** The port of a host: every second host is served with TLS 1.2 only. */
const portFor = (host: string) => portOf(servers[allHosts.indexOf(host) % 2]!);

beforeAll(async () => {
  servers = [await startServer("TLSv1.3"), await startServer("TLSv1.2")];
  await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  for (const host of allHosts) serveCurrent(host);
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Shop",
          vaults: [
            {
              name: VAULT,
              certificates: current.map(({ der }, certificate) => ({
                name: `shop${certificate}`,
                issuer: "Unknown",
                der: der.toString("base64"),
                createdDaysAgo: 2,
              })),
              secrets: [{ name: "db" }],
            },
          ],
          resources: [
            {
              type: "Microsoft.Web/certificates",
              name: "shop2",
              properties: {
                keyVaultId: `{id:${VAULT}}`,
                keyVaultSecretName: "shop2",
                keyVaultSecretStatus: "Initialized",
                thumbprint: THUMBPRINT,
              },
            },
            {
              type: "Microsoft.Web/certificates",
              name: "shop7",
              properties: {
                keyVaultId: `{id:${VAULT}}`,
                keyVaultSecretName: "shop7",
                keyVaultSecretStatus: "Initialized",
                thumbprint: "CD".repeat(20),
              },
            },
            {
              type: "Microsoft.Web/sites",
              name: "app-shop",
              kind: "app,linux",
              properties: {
                hostNameSslStates: [
                  { name: "app.shop2.localhost", sslState: "SniEnabled", thumbprint: THUMBPRINT.toLowerCase() },
                  { name: "both.shop7.localhost", sslState: "SniEnabled", thumbprint: "CD".repeat(20) },
                  { name: "other.shop2.localhost", sslState: "SniEnabled", thumbprint: "00".repeat(20) },
                  { name: "app-shop.azurewebsites.net", sslState: "Disabled", thumbprint: null },
                ],
              },
            },
            {
              type: "Microsoft.Network/applicationGateways",
              name: "agw-shop",
              properties: {
                sslCertificates: [
                  { name: "shop", properties: { keyVaultSecretId: `{uri:${VAULT}}/secrets/shop0` } },
                  { name: "both", properties: { keyVaultSecretId: `{uri:${VAULT}}/secrets/shop7` } },
                  { name: "unbound", properties: { keyVaultSecretId: `{uri:${VAULT}}/secrets/shop1` } },
                ],
                httpListeners: [
                  { properties: { hostName: "plain.shop0.localhost" } },
                  {
                    properties: {
                      hostNames: ["gateway.shop0.localhost", "*.shop0.localhost"],
                      sslCertificate: { id: "/subscriptions/s/sslCertificates/shop" },
                    },
                  },
                  {
                    properties: {
                      hostName: "both.shop7.localhost",
                      sslCertificate: { id: "/subscriptions/s/sslCertificates/both" },
                    },
                  },
                ],
              },
            },
          ],
        },
      ],
    },
    env: {
      LICENSE_KEY: await licence(),
      ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true",
      ENDPOINT_PORTS: servers.map(portOf).join(","),
      ENDPOINT_PRIVATE_RANGES: "127.0.0.0/8",
      ENDPOINT_AUTHORITIES: pem("CERTIFICATE", ROOT_DER),
    },
  });
  await service.scan();
  await createUsers(service, [
    { username: "olga", password: "an-operator-s-password", role: "operator" },
    { username: "uwe", password: "a-user-s-password", role: "user" },
  ]);
});
afterAll(async () => {
  await service?.stop();
  for (const server of [...servers, receiver]) server.close();
});

const listEndpoints = () => service.listAll(ENDPOINTS);
async function runTimer(name: string): Promise<void> {
  const fired = await fetch(`${service.url}/__host/timers/${name}`, { method: "POST" });
  expect(await fired.json()).toMatchObject({ succeeded: true });
  await service.waitUntilIdle();
}
const checkAll = () => runTimer("checkAllCertificateEndpoints");
/** Returns the codes of the problems of each endpoint with problems, by host. */
// biome-ignore lint/suspicious/noExplicitAny: the test knows the shape of the response
const problemsOf = (endpoints: any[]): Record<string, string[]> =>
  Object.fromEntries(
    endpoints
      .filter(({ problems }) => problems.length > 0)
      .map(({ host, problems }) => [host, problems.map(({ code }: { code: string }) => code)]),
  );
const expected = (hosts: string[], code: string) => Object.fromEntries(hosts.map((host) => [host, [code]]));

test("an operator adds endpoints, and each answer has the served certificate", async () => {
  const token = await service.signIn({ username: "olga", password: "an-operator-s-password" });
  for (const host of allHosts) {
    const body = { assetId: idOf(certificateOf(host)), host, port: portFor(host) };
    const added = await service.call("POST", ENDPOINTS, { token, body });
    expect(added.status, added.text).toBe(201);
    expect(added.body).toMatchObject({
      serial: current[certificateOf(host)]!.serial,
      current: true,
      late: false,
      problems: [],
      addedBy: "olga",
      protocol: allHosts.indexOf(host) % 2 === 0 ? "TLSv1.3" : "TLSv1.2",
    });
  }
  const { body } = await service.admin("GET", `/api/assets/discovery/assets/${idOf(3)}`);
  expect(body.served).toHaveLength(HOSTS_EACH);
  expect(body.served[0]).toMatchObject({ host: hostOf(3, 0), current: true, late: false });
  const audit = await service.listAll("/audit/entries?event_type=certificateEndpoint.added");
  expect(audit.filter(({ outcome }) => outcome === "success")).toHaveLength(allHosts.length);
});

test("one run finds each old certificate, each incomplete chain and each other name, and nothing else", async () => {
  const rule = {
    name: "Endpoints",
    alertType: "staleEndpoint",
    deliveryMethod: "webhook",
    webhookUrl: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`,
  };
  expect((await service.admin("POST", "/alerts/rules", rule)).status).toBe(201);
  // Spread over the certificates and both servers.
  const shuffled = Array.from({ length: allHosts.length }, (_, index) => allHosts[(index * 7) % allHosts.length]!);
  const [oldHosts, incompleteHosts, otherNames] = [
    shuffled.slice(0, 10),
    shuffled.slice(10, 15),
    shuffled.slice(15, 18),
  ];
  for (const host of oldHosts) served.set(host, contextOf(old[certificateOf(host)]!, { complete: true }));
  for (const host of incompleteHosts) served.set(host, contextOf(current[certificateOf(host)]!, { complete: false }));
  for (const host of otherNames) served.set(host, contextOf(withOtherName, { complete: true }));
  await checkAll();
  const endpoints = await listEndpoints();
  expect(problemsOf(endpoints)).toEqual({
    ...expected(oldHosts, "oldCertificate"),
    ...expected(incompleteHosts, "incompleteChain"),
    ...expected(otherNames, "otherName"),
  });
  // The vault has the current version for two days, and the platform had one day.
  expect(
    endpoints
      .filter(({ late }) => late)
      .map(({ host }) => host)
      .sort(),
  ).toEqual([...oldHosts, ...otherNames].sort());
  expect(bytesAfterHandshake).toBe(0);

  await runTimer("evaluateAlerts");
  await expect.poll(() => events.length).toBe(1);
  const titles = [...oldHosts, ...incompleteHosts, ...otherNames].map(
    (host) => `${VAULT}/shop${certificateOf(host)} at ${host}:${portFor(host)}`,
  );
  expect(events[0]).toMatchObject({ type: "lifecycle.alert.staleEndpoint" });
  expect(events[0]!.data.items.map(({ title }) => title).sort()).toEqual(titles.sort());

  for (const host of allHosts) serveCurrent(host);
  await checkAll();
  expect(problemsOf(await listEndpoints())).toEqual({});
  await runTimer("evaluateAlerts");
  await service.waitForEmptyQueues();
  expect(events).toHaveLength(1);
});

test("an old certificate is not late while the platform has time, and a version that no scan has seen is current", async () => {
  const host = hostOf(4, 1);
  const next = renew(4, -1);
  service.cloud.control.putCertificate(VAULT, {
    name: "shop4",
    issuer: "Unknown",
    der: next.der.toString("base64"),
    createdDaysAgo: 0,
  });
  served.set(host, contextOf(next, { complete: true }));
  const check = await service.admin("POST", `${ENDPOINTS}/check`, { assetId: idOf(4) });
  const stateOf = (name: string) => check.body.items.find((item: { host: string }) => item.host === name);
  expect(stateOf(host)).toMatchObject({ serial: next.serial, current: true, problems: [] });
  await service.scan();
  const { body } = await service.admin("POST", `${ENDPOINTS}/check`, { assetId: idOf(4) });
  const states = Object.fromEntries(
    body.items.map(({ host, current, late }: Record<string, unknown>) => [host, { current, late }]),
  );
  expect(states).toEqual({
    ...Object.fromEntries(namesOf(4).map((name) => [name, { current: false, late: false }])),
    [host]: { current: true, late: false },
  });
});

test("an expired certificate and a server that does not answer are found, and an outage is no alert at first", async () => {
  const [expiredHost, closedHost] = [hostOf(5, 0), hostOf(5, 1)];
  served.set(expiredHost, contextOf(issue("CN=shop5", namesOf(5), -200, -100), { complete: true }));
  // Without a certificate, the handshake fails.
  served.delete(closedHost);
  const { body } = await service.admin("POST", `${ENDPOINTS}/check`, { assetId: idOf(5) });
  expect(problemsOf(body.items)).toEqual({
    [expiredHost]: ["oldCertificate", "expired"],
    [closedHost]: ["unreachable"],
  });
  // The last known certificate stays.
  const closed = body.items.find(({ host }: { host: string }) => host === closedHost);
  expect(closed).toMatchObject({ serial: current[5]!.serial, current: true, late: false });
  for (const host of [expiredHost, closedHost]) serveCurrent(host);
});

test("a certificate with the serial number of the current version is not that version", async () => {
  const host = hostOf(6, 0);
  const serial = Buffer.from(current[6]!.serial, "hex");
  served.set(host, contextOf(issue("CN=shop6", namesOf(6), -2, 60, serial), { complete: true }));
  const { body } = await service.admin("POST", `${ENDPOINTS}/check`, { assetId: idOf(6) });
  expect(body.items.find((one: { host: string }) => one.host === host)).toMatchObject({
    serial: current[6]!.serial,
    current: false,
    late: true,
  });
  expect(problemsOf(body.items)).toEqual({ [host]: ["otherCertificate"] });
  serveCurrent(host);
});

test("an outage of one check does not report an earlier problem again, and a longer one is reported once", () => {
  const at = (minute: number) => new Date(Date.UTC(2026, 10, 28, 12, minute));
  const version = { serial: "02", thumbprint: "BB", notBefore: 2, createdOn: 0 };
  const facts = { serial: "01", thumbprint: "AA", notBefore: 1, namesHost: true, isComplete: true };
  const late: Handshake = { facts, protocol: "TLSv1.3" };
  const closed: Handshake = { failure: "www.example.com:443 was not reached.", blocked: false };
  let record: EndpointRecord = {
    vaultName: VAULT,
    name: "shop",
    host: "www.example.com",
    port: 443,
    platform: "other",
    addedAt: at(0).toISOString(),
    addedBy: "olga",
  };
  const since: (string | undefined)[] = [];
  for (const [minute, handshake] of [late, closed, late, closed, closed, closed, late].entries()) {
    record = afterCheck(record, handshake, version, at(minute));
    since.push(record.staleSince);
  }
  const [first, outage] = [at(0).toISOString(), at(4).toISOString()];
  expect(since).toEqual([first, first, first, first, outage, outage, outage]);
  const current = { ...late, facts: { ...facts, serial: "02", thumbprint: "BB" } };
  expect(afterCheck(record, current, version, at(7)).staleSince).toBeUndefined();
});

test("an endpoint that can't be reached is not called current after the vault has a later version", () => {
  const now = new Date(Date.UTC(2026, 10, 28));
  const facts = { serial: "01", thumbprint: "AA", namesHost: true, isComplete: true };
  const version = { serial: "01", thumbprint: "AA", notBefore: 1, createdOn: 0 };
  const added = { addedAt: now.toISOString(), addedBy: "olga" };
  const endpoint = { vaultName: VAULT, name: "shop", host: "www.example.com", port: 443, platform: "other" as const };
  const reached = afterCheck({ ...endpoint, ...added }, { facts, protocol: "TLSv1.3" }, version, now);
  const currentAfter = (failed: { blocked: boolean }, serial: string) =>
    afterCheck(reached, { failure: "It was not reached.", ...failed }, { ...version, serial }, now).current;
  for (const failed of [{ blocked: false }, { blocked: true }])
    expect([currentAfter(failed, "01"), currentAfter(failed, "02")]).toEqual([true, undefined]);
});

test("a discovery finds host names of gateways and web apps, and removes those that are gone", async () => {
  const discovered = async (certificate: number) =>
    (await service.listAll(`${ENDPOINTS}?assetId=${idOf(certificate)}`)).filter(({ resource }) => resource !== null);
  const gatewayHosts = () => discovered(0);
  await service.admin("POST", "/api/assets/dependencies/discover");
  await service.waitUntilIdle();
  expect(await gatewayHosts()).toEqual([
    expect.objectContaining({
      host: "gateway.shop0.localhost",
      port: 443,
      platform: "applicationGateway",
      addedBy: "system",
      resource: expect.objectContaining({ name: "agw-shop" }),
    }),
  ]);
  expect(await discovered(2)).toMatchObject([{ host: "app.shop2.localhost", platform: "appService" }]);
  // A gateway in front of a web app: which of them answers is unknown, so the deadline is that of the slower platform.
  expect(await discovered(7)).toMatchObject([{ host: "both.shop7.localhost", platform: "appService" }]);
  const address = `${ENDPOINTS}?assetId=${idOf(0)}&host=gateway.shop0.localhost`;
  expect((await service.admin("DELETE", address)).status).toBe(409);
  const { consumers } = service.cloud.control;
  consumers.remove(consumers.idOf("agw-shop"));
  await service.admin("POST", "/api/assets/dependencies/discover");
  await service.waitUntilIdle();
  expect(await gatewayHosts()).toEqual([]);
  // The endpoints that people added stay.
  expect(await service.listAll(`${ENDPOINTS}?assetId=${idOf(0)}`)).toHaveLength(HOSTS_EACH);
});

test("requests without the role, for other ports, too many endpoints and private addresses are rejected", async () => {
  const [host, port] = [hostOf(1, 0), portFor(hostOf(1, 0))];
  const body = { assetId: idOf(1), host: "new.shop1.localhost", port };
  const user = await service.signIn({ username: "uwe", password: "a-user-s-password" });
  expect((await service.call("POST", ENDPOINTS, { token: user, body })).status).toBe(403);
  const remove = `${ENDPOINTS}?assetId=${idOf(1)}&host=${host}&port=${port}`;
  expect((await service.call("DELETE", remove, { token: user })).status).toBe(403);
  expect((await service.call("GET", `${ENDPOINTS}?assetId=${idOf(1)}`, { token: user })).status).toBe(200);

  const answerOf = async (change: object, url = "") => {
    const { status, text } = await service.admin("POST", `${url}${ENDPOINTS}`, { ...body, ...change });
    return { status, text };
  };
  expect(await answerOf({})).toMatchObject({ status: 409, text: expect.stringContaining("at most 5") });
  expect(await answerOf({ host })).toMatchObject({ status: 409, text: expect.stringContaining("alreadyExists") });
  expect(await answerOf({ port: 22 })).toMatchObject({ status: 400, text: expect.stringContaining("ENDPOINT_PORTS") });
  for (const wrong of ["127.0.0.1", "*.shop1.localhost", "https://www.shop1.localhost", "www.shop1.localhost/x"])
    expect(await answerOf({ host: wrong }), wrong).toMatchObject({ status: 400 });
  expect(await answerOf({ assetId: `${VAULT}.secret.db` })).toMatchObject({ status: 409 });
  expect(await answerOf({ assetId: `${VAULT}.certificate.none` })).toMatchObject({ status: 404 });

  expect((await service.admin("DELETE", remove)).body).toEqual({ deleted: true });
  expect((await service.admin("DELETE", remove)).status).toBe(404);
  // Another host of the same service, on which no private range is allowed.
  const strict = await service.addHost({ ENDPOINT_PRIVATE_RANGES: "" });
  expect(await answerOf({}, strict.url)).toMatchObject({
    status: 400,
    text: expect.stringMatching(/127\.0\.0\.1 of new\.shop1\.localhost is blocked.*ENDPOINT_PRIVATE_RANGES/),
  });
  expect(await service.listAll(`${ENDPOINTS}?assetId=${idOf(1)}`)).toHaveLength(HOSTS_EACH - 1);
});
