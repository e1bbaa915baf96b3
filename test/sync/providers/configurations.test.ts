import { generateKeyPairSync } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProviderChange } from "../../../shared/sync/api.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { PROVIDERS, providerOf } from "../../../shared/sync/providers/providers.ts";
import { providersCloud } from "./simulated-provider.ts";

// Tests of the configurations of the sync providers: which are accepted, and which members are secrets.

let cloud: Cloud;
let deps: TargetDependencies;
beforeAll(async () => {
  ({ cloud, deps } = await providersCloud());
});
afterAll(() => cloud?.stop());

/** IDs of the providers that need credentials. */
const idsWithSecrets = PROVIDERS.filter(({ secretMembers }) => secretMembers.length > 0).map(({ id }) => id);

test.each(idsWithSecrets)("%s accepts the configuration that its simulation expects", async (id) => {
  const given = cloud.control.providers.configurations()[id]!;
  const provider = providerOf(id)!;
  const parsed = provider.configuration.parse(ProviderChange.parse(given));
  expect(parsed).toEqual(given);
  const isSecret = ([member]: [string, unknown]) => provider.secretMembers.includes(member);
  const secrets = Object.fromEntries(Object.entries(parsed).filter(isSecret));
  const settings = Object.fromEntries(Object.entries(parsed).filter((entry) => !isSecret(entry)));
  await provider.check(settings, secrets, deps);
});

test.each(idsWithSecrets)("%s rejects an unknown member", (id) => {
  const given = cloud.control.providers.configurations()[id]!;
  expect(providerOf(id)!.configuration.safeParse({ ...given, unknown: 1 }).success).toBe(false);
});

test("an RSA key of less than 2048 bits is rejected", () => {
  const given = { appId: "1", installationId: "2" };
  const pem = (modulusLength: number) =>
    generateKeyPairSync("rsa", { modulusLength }).privateKey.export({ type: "pkcs8", format: "pem" });
  const isAccepted = (bits: number) =>
    providerOf("github")!.configuration.safeParse({ ...given, privateKey: pem(bits) }).success;
  expect([isAccepted(2047), isAccepted(2048)]).toEqual([false, true]);
});

test("the check of certificates is fast, also for long invalid texts", () => {
  const { kubernetes } = cloud.control.providers.configurations();
  const certificate = `-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----${" ".repeat(200)}`;
  const isAccepted = (caCertificate: string) =>
    providerOf("kubernetes")!.configuration.safeParse({ ...kubernetes, caCertificate }).success;
  expect([isAccepted(certificate.repeat(50)), isAccepted(`${certificate.repeat(50)}.`)]).toEqual([true, false]);
});

test.each(["https://host.example?", "https://host.example#", "https://host.example/a b", "https://host\n.example"])(
  "%j is not accepted as a server's address",
  (address) => {
    const { kubernetes } = cloud.control.providers.configurations();
    const { configuration } = providerOf("kubernetes")!;
    expect(configuration.safeParse({ ...kubernetes, address: "https://host.example/api" }).success).toBe(true);
    expect(configuration.safeParse({ ...kubernetes, address }).success).toBe(false);
  },
);

test("a token that can't be part of a header is a bad response", async () => {
  const answer = { auth: { client_token: "two\r\nlines", lease_duration: 60 } };
  const outgoing = {
    send: async () => ({ status: 200, headers: {}, body: Buffer.from(JSON.stringify(answer)), complete: true }),
  };
  const { check } = providerOf("hashicorp")!;
  const checked = check({ address: "https://vault.example", roleId: "r" }, { secretId: "s" }, { ...deps, outgoing });
  await expect(checked).rejects.toMatchObject({ code: "badResponse" });
});

test("the address members of each provider are settings, not secrets", () => {
  for (const { id, configuration, addressMembers, secretMembers } of PROVIDERS) {
    const members = Object.keys(configuration.shape);
    expect([id, [...addressMembers, ...secretMembers].filter((member) => !members.includes(member))]).toEqual([id, []]);
    expect([id, addressMembers.filter((member) => secretMembers.includes(member))]).toEqual([id, []]);
  }
});
