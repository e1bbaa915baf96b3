import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DAY_MS } from "../../shared/platform/time.ts";
import { connectMcp, createApiToken, type McpClient } from "../support/mcp.ts";
import { Service } from "../support/service.ts";

// 100 questions with one right answer each, which the test computes from the planted inventory and not from the service.

/** The planted secrets. No two of a vault expire on the same day. */
const SECRETS = Array.from({ length: 100 }, (_, index) => ({
  vault: `kv-${index % 4}`,
  name: `secret-${index}`,
  expiresInDays: ((index * 37) % 200) - 20,
  owner: `team-${index % 25}@acme.example`,
  ticket: `T-${1000 + index}`,
}));
const VAULTS = ["kv-0", "kv-1", "kv-2", "kv-3"];
const company: Company = {
  subscriptions: [
    {
      name: "Main",
      vaults: VAULTS.map((name) => ({
        name,
        secrets: SECRETS.filter(({ vault }) => vault === name).map(({ name, expiresInDays, owner, ticket }) => ({
          name,
          expiresInDays,
          tags: { owner, ticket },
        })),
      })),
    },
  ],
};

let service: Service;
let assistant: McpClient;
beforeAll(async () => {
  service = await Service.start({ company });
  await service.scan();
  assistant = await connectMcp(service.url, await createApiToken(service, "user"));
}, 180_000);
afterAll(async () => {
  await assistant?.client.close();
  await service?.stop();
});

/** Returns the names of all items that a tool lists, over all pages. */
async function namesOf(tool: string, args: object): Promise<string[]> {
  const names: string[] = [];
  let cursor: string | undefined;
  do {
    const { json } = await assistant.call(tool, { ...args, ...(cursor !== undefined && { cursor }) });
    names.push(...json.data.items.map(({ name }: { name: string }) => name));
    cursor = json.data.nextCursor ?? undefined;
  } while (cursor !== undefined);
  return names;
}

const plantedNames = (matches: (secret: (typeof SECRETS)[number]) => boolean): string[] =>
  SECRETS.filter(matches).map(({ name }) => name);

test("100 questions get the right answer", async () => {
  const answers: [question: string, given: unknown, right: unknown][] = [];
  for (let index = 0; index < 25; index++) {
    const { vault, name, expiresInDays, ticket } = SECRETS[index * 3]!;
    const { json } = await assistant.call("asset_details", { asset_id: `${vault}.secret.${name}` });
    const days = Math.round((Date.parse(json.data.expiresOn) - Date.now()) / DAY_MS);
    answers.push([`In how many days does ${name} expire?`, String(days), String(expiresInDays)]);

    const within = index * 7 + 0.5;
    const inVault = VAULTS[index % 4]!;
    const expiresBefore = new Date(Date.now() + within * DAY_MS).toISOString();
    const expiring = await namesOf("what_expires", { vault: inVault, expiresBefore });
    const planted = SECRETS.filter((secret) => secret.vault === inVault && secret.expiresInDays <= within);
    const inOrder = planted.sort((a, b) => a.expiresInDays - b.expiresInDays).map((secret) => secret.name);
    answers.push([`What expires in ${inVault} within ${within} days, in order?`, expiring, inOrder]);

    const owner = `team-${index}@acme.example`;
    const owned = await namesOf("find_assets", { owner });
    answers.push([`What does ${owner} own?`, owned.sort(), plantedNames((one) => one.owner === owner).sort()]);

    const tagged = await namesOf("find_assets", { tag: `ticket=${ticket}` });
    answers.push([`Which secret has the ticket ${ticket}?`, tagged, plantedNames((one) => one.ticket === ticket)]);
  }
  expect(answers.length).toBe(100);
  for (const [question, given, right] of answers) expect([question, given]).toEqual([question, right]);
});
