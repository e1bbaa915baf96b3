import { afterAll, beforeAll, expect, test } from "vitest";
import type { Cloud } from "../../../infra/local/cloud/cloud.ts";
import { ProviderChange } from "../../../shared/sync/api.ts";
import type { ProviderDependencies } from "../../../shared/sync/providers/provider.ts";
import { PROVIDERS, providerOf } from "../../../shared/sync/providers/providers.ts";
import { providersCloud } from "./stand-in.ts";

let cloud: Cloud;
let deps: ProviderDependencies;
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

test("every member that says where secrets go is a setting of the provider", () => {
  for (const { id, configuration, addressMembers, secretMembers } of PROVIDERS) {
    const members = Object.keys(configuration.shape);
    expect([id, [...addressMembers, ...secretMembers].filter((member) => !members.includes(member))]).toEqual([id, []]);
    expect([id, addressMembers.filter((member) => secretMembers.includes(member))]).toEqual([id, []]);
  }
});
