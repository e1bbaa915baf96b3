import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { Certificate } from "pkijs";
import { Service } from "../../../test/support/service.ts";
import { CLOUD_KEYS } from "../../../test/support/test-app.ts";
import { CACHE, GO } from "../cache.ts";
import { installedFromNpm } from "../npm.ts";
import { caseRunner, type Part } from "../part.ts";
import { PROGRAMS } from "../programs.ts";
import { freePort, startServer } from "../servers.ts";

// Renewal windows by ACME renewal information (RFC 9773): acme-client orders certificates from Pebble, the ACME server of Let's
// Encrypt for tests. The cases import them into a vault, and compare what the service shows with Pebble's own answer.

const DAY_SECONDS = 86_400;
/** Pebble's profiles of these cases, with their validity in days. */
const PROFILES = { default: 90, shortlived: 6 };
type Profile = keyof typeof PROFILES;

interface SuggestedWindow {
  start: string;
  end: string;
}

export const part: Part = {
  name: "pebble",
  description: "renewal windows of certificates that acme-client ordered from Pebble",
  programs: ["pebble", "acmeClient"],
  needs: ["go"],
  limits: [
    "Pebble accepts every challenge in these cases (`PEBBLE_VA_ALWAYS_VALID`), because the service only reads renewal information.",
    "acme-client 5.4.0 reads no renewal information. It orders the certificates.",
  ],
  async *run() {
    const runCase = caseRunner("pebble");
    const runClientCase = caseRunner("acmeClient");
    const { address, stop } = await startPebble();
    try {
      const issued = new Map<Profile, Buffer>();
      for (const profile of Object.keys(PROFILES) as Profile[])
        yield await runClientCase(
          `orders a certificate of the profile ${profile}`,
          `valid for ${PROFILES[profile]} days`,
          async () => {
            const der = await order(address, profile);
            issued.set(profile, der);
            const { notBefore, notAfter } = Certificate.fromBER(new Uint8Array(der));
            const seconds = (notAfter.value.getTime() - notBefore.value.getTime()) / 1000;
            return `valid for ${Math.round(seconds / DAY_SECONDS)} days`;
          },
        );
      const service = await Service.start({
        company: {
          subscriptions: [
            {
              name: "Main",
              vaults: [
                {
                  name: "kv-acme",
                  certificates: [...issued].map(([name, der]) => ({
                    name,
                    issuer: "Unknown",
                    der: der.toString("base64"),
                    renewal: { action: "EmailContacts" as const, daysBeforeExpiry: 30 },
                  })),
                },
              ],
            },
          ],
        },
        env: { ARI_DIRECTORIES: `Pebble=${address}/dir` },
      });
      try {
        // The first scan finds the certificates, the second one asks their authority.
        await service.scan();
        await service.scan();
        const readiness = async () => {
          const { body } = await service.admin("GET", "/compliance/certificates/readiness");
          // biome-ignore lint/suspicious/noExplicitAny: the cases read a few members
          return new Map<string, any>(body.items.map((item: any) => [item.name, item]));
        };
        for (const [profile, der] of issued) {
          const { start, end } = await windowOf(address, der);
          yield await runCase(`window of the profile ${profile}`, "ari, the window of Pebble", async () => {
            const { windowStart, windowEnd, windowSource, authorityCheck } = (await readiness()).get(profile);
            const isSame = seconds(start) === seconds(windowStart) && seconds(end) === seconds(windowEnd);
            const { failure } = authorityCheck ?? { failure: "not asked" };
            return `${windowSource}, ${isSame ? "the window of Pebble" : `${windowStart} to ${windowEnd}; ${failure}`}`;
          });
        }
        yield await runCase("Retry-After of Pebble is honored", "no failure, 21600 seconds", async () => {
          const { checkedAt, retryAfter, failure } = (await readiness()).get("default").authorityCheck;
          return `${failure ?? "no failure"}, ${seconds(retryAfter) - seconds(checkedAt)} seconds`;
        });
        // Pebble responds 400 to the key identifier of another authority.
        yield await runCase("a certificate that Pebble did not issue", /answered 400/, async () => {
          // The certificate has the name of Pebble's authority, so that the service asks Pebble about it.
          service.cloud.control.putCertificate("kv-acme", {
            name: "foreign",
            issuer: "Pebble of another company",
            validityDays: 90,
          });
          await service.scan();
          await service.scan();
          return `${(await readiness()).get("foreign").authorityCheck.failure}`;
        });
        yield await runCase("the other windows stay", "ari, ari", async () => {
          const items = await readiness();
          return [...issued.keys()].map((name) => items.get(name).windowSource).join(", ");
        });
        yield await runCase("Pebble is stopped", /was not reached.*; ari$/, async () => {
          await stop();
          service.cloud.control.putCertificate("kv-acme", { name: "later", issuer: "Pebble", validityDays: 90 });
          await service.scan();
          await service.scan();
          const items = await readiness();
          return `${items.get("later").authorityCheck.failure}; ${items.get("default").windowSource}`;
        });
      } finally {
        await service.stop();
      }
    } finally {
      await stop();
    }
  },
};

const seconds = (instant: string): number => Math.floor(Date.parse(instant) / 1000);

/** Builds Pebble once and starts it with the certificate of the simulated cloud, which this process and the service trust. */
async function startPebble(): Promise<{ address: string; stop: () => Promise<void> }> {
  const { version, package: name } = PROGRAMS.pebble;
  const folder = path.join(CACHE, `pebble-${version}`);
  const program = path.join(folder, "pebble");
  if (!existsSync(program)) {
    console.log("  building Pebble …");
    await promisify(execFile)("go", ["install", `${name}@v${version}`], {
      env: { ...process.env, ...GO, GOBIN: folder },
    });
  }
  const [port, managementPort, httpPort, tlsPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  const server = path.join(CLOUD_KEYS, "server.pem");
  const profiles = Object.fromEntries(
    Object.entries(PROFILES).map(([profile, days]) => [
      profile,
      { description: profile, validityPeriod: days * DAY_SECONDS },
    ]),
  );
  const config = path.join(mkdtempSync(path.join(tmpdir(), "pebble-")), "config.json");
  writeFileSync(
    config,
    JSON.stringify({
      pebble: {
        listenAddress: `127.0.0.1:${port}`,
        managementListenAddress: `127.0.0.1:${managementPort}`,
        certificate: server,
        privateKey: server,
        httpPort,
        tlsPort,
        profiles,
      },
    }),
  );
  const address = `https://127.0.0.1:${port}`;
  const environment = { PEBBLE_VA_ALWAYS_VALID: "1", PEBBLE_VA_NOSLEEP: "1", PEBBLE_WFE_NONCEREJECT: "0" };
  const stop = await startServer([program, "-config", config], environment, () => fetch(`${address}/dir`));
  return { address, stop };
}

/** Orders a certificate and returns its DER. */
async function order(address: string, profile: Profile): Promise<Buffer> {
  const require = createRequire(path.join(installedFromNpm("acme-client", ["acmeClient"]), "acme-client/package.json"));
  const acme = require("acme-client");
  const client = new acme.Client({
    directoryUrl: `${address}/dir`,
    accountKey: await acme.crypto.createPrivateKey(),
    backoffMin: 200,
  });
  await client.createAccount({ termsOfServiceAgreed: true });
  const name = `${profile}.acme.example`;
  const created = await client.createOrder({ identifiers: [{ type: "dns", value: name }], profile });
  for (const authorization of await client.getAuthorizations(created)) {
    const challenge = authorization.challenges.find(({ type }: { type: string }) => type === "http-01");
    await client.completeChallenge(challenge);
    await client.waitForValidStatus(challenge);
  }
  const [, request] = await acme.crypto.createCsr({ commonName: name, altNames: [name] });
  const finalized = await client.finalizeOrder(created, request);
  const chain: string = await client.getCertificate(finalized);
  return Buffer.from(chain.split("-----")[2]!.replace(/\s/g, ""), "base64");
}

/** Returns Pebble's own answer. The identifier is computed with another library than the service's. */
async function windowOf(address: string, der: Buffer): Promise<SuggestedWindow> {
  const { serialNumber, extensions } = Certificate.fromBER(new Uint8Array(der));
  const authority = extensions!.find(({ extnID }) => extnID === "2.5.29.35")!.parsedValue;
  const id = [authority.keyIdentifier, serialNumber]
    .map(({ valueBlock }) => Buffer.from(valueBlock.valueHexView).toString("base64url"))
    .join(".");
  const { renewalInfo } = (await (await fetch(`${address}/dir`)).json()) as { renewalInfo: string };
  const answer = await fetch(`${renewalInfo.replace(/\/$/, "")}/${id}`);
  return ((await answer.json()) as { suggestedWindow: SuggestedWindow }).suggestedWindow;
}
