import { generateKeyPairSync } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProviderChange } from "../../../shared/sync/api.ts";
import type { TargetDependencies } from "../../../shared/sync/providers/provider.ts";
import { PROVIDERS, providerOf } from "../../../shared/sync/providers/providers.ts";
import { providersCloud } from "./simulated-provider.ts";

let cloud: Cloud;
let deps: TargetDependencies;
beforeAll(async () => {
  ({ cloud, deps } = await providersCloud());
});
afterAll(() => cloud?.stop());

const configured = PROVIDERS.filter(({ secretMembers }) => secretMembers.length > 0).map(({ id }) => id);

test.each(configured)(
  "%s is configured over the API with what its stand-in answers to, and nothing is added",
  async (id) => {
    const given = cloud.control.providers.configurations()[id]!;
    const provider = providerOf(id)!;
    const parsed = provider.configuration.parse(ProviderChange.parse(given));
    expect(parsed).toEqual(given);
    const isSecret = ([member]: [string, unknown]) => provider.secretMembers.includes(member);
    const secrets = Object.fromEntries(Object.entries(parsed).filter(isSecret));
    const settings = Object.fromEntries(Object.entries(parsed).filter((entry) => !isSecret(entry)));
    await provider.check(settings, secrets, deps);
  },
);

test.each(configured)("%s takes no member that it does not know", (id) => {
  const given = cloud.control.providers.configurations()[id]!;
  expect(providerOf(id)!.configuration.safeParse({ ...given, unknown: 1 }).success).toBe(false);
});

test("an RSA key that is too short to sign with is refused before it is tried", () => {
  const given = { appId: "1", installationId: "2" };
  const pem = (modulusLength: number) =>
    generateKeyPairSync("rsa", { modulusLength }).privateKey.export({ type: "pkcs8", format: "pem" });
  const isTaken = (bits: number) =>
    providerOf("github")!.configuration.safeParse({ ...given, privateKey: pem(bits) }).success;
  expect([isTaken(2047), isTaken(2048)]).toEqual([false, true]);
});

test("certificates that are none are refused in no time, however they are spaced", () => {
  const { kubernetes } = cloud.control.providers.configurations();
  const one = `-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----${" ".repeat(200)}`;
  const isTaken = (caCertificate: string) =>
    providerOf("kubernetes")!.configuration.safeParse({ ...kubernetes, caCertificate }).success;
  expect([isTaken(one.repeat(50)), isTaken(`${one.repeat(50)}.`)]).toEqual([true, false]);
});

test.each(["https://host.example?", "https://host.example#", "https://host.example/a b", "https://host\n.example"])(
  "%j is no server's address",
  (address) => {
    const { kubernetes } = cloud.control.providers.configurations();
    const { configuration } = providerOf("kubernetes")!;
    expect(configuration.safeParse({ ...kubernetes, address: "https://host.example/api" }).success).toBe(true);
    expect(configuration.safeParse({ ...kubernetes, address }).success).toBe(false);
  },
);

test("a token that can't go into a header is a bad answer", async () => {
  const answer = { auth: { client_token: "two\r\nlines", lease_duration: 60 } };
  const outgoing = {
    send: async () => ({ status: 200, headers: {}, body: Buffer.from(JSON.stringify(answer)), complete: true }),
  };
  const { check } = providerOf("hashicorp")!;
  const checked = check({ address: "https://vault.example", roleId: "r" }, { secretId: "s" }, { ...deps, outgoing });
  await expect(checked).rejects.toMatchObject({ code: "badResponse" });
});

test("every member that says where secrets go is a setting of the provider", () => {
  for (const { id, configuration, addressMembers, secretMembers } of PROVIDERS) {
    const members = Object.keys(configuration.shape);
    expect([id, [...addressMembers, ...secretMembers].filter((member) => !members.includes(member))]).toEqual([id, []]);
    expect([id, addressMembers.filter((member) => secretMembers.includes(member))]).toEqual([id, []]);
  }
});
