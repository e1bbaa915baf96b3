import { globSync, readFileSync } from "node:fs";
import { Dice } from "simulated-cloud/company/dice.ts";
import { beforeAll, describe, expect, test } from "vitest";
import { EVENT_QUEUE, VaultEvent } from "../../../shared/discovery/vault-event.ts";
import { IS_CAMPAIGN, LONG_MS, SEED, sampled } from "../../../test/support/sampling.ts";
import { retiredVersionsIn } from "../api-versions.ts";
import type { TypeLibrary } from "../bicep/library.ts";
import { loadTypes } from "../bicep/types.ts";
import { checkInfra, parseTemplates, type Templates, typesIn } from "../check.ts";
import type { Finding } from "../expression.ts";
import { readInfraFiles } from "../files.ts";
import { allMistakes, type Mistake } from "./mistakes.ts";

/** Plants a number of mistakes of each kind for each subject. Checks some subjects in the test suite. */
const EACH = IS_CAMPAIGN ? 2 : 1;
const files = readInfraFiles();
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: object };
let templates: Templates;
let types: TypeLibrary;

beforeAll(async () => {
  templates = await parseTemplates(files);
  types = await loadTypes(typesIn(templates));
});

async function findingsWith(changed: ReadonlyMap<string, string> = new Map()): Promise<Finding[]> {
  const text = new Map([...files.text, ...changed]);
  const spoilt = await parseTemplates({ ...files, text }, templates);
  return checkInfra({ templates: spoilt, types, scripts: Object.keys(scripts) }).findings;
}

/** Returns whether the check finds the mistake in the files. */
async function foundOf({ file, text }: Mistake): Promise<boolean> {
  return (await findingsWith(new Map([[file, text]]))).length > 0;
}

function grouped(mistakes: readonly Mistake[], by: (mistake: Mistake) => string): Mistake[][] {
  const groups = new Map<string, Mistake[]>();
  for (const mistake of mistakes) groups.set(by(mistake), [...(groups.get(by(mistake)) ?? []), mistake]);
  return [...groups.values()];
}

test("the templates hold what the check asks for, on both sides", async () => {
  const { findings, table } = checkInfra({ templates, types, scripts: Object.keys(scripts) });
  expect(findings).toEqual([]);
  expect(table.length).toBeGreaterThan(50);
  expect(table.filter(({ terraform }) => terraform === "MISSING")).toEqual([]);
});

test(`of mistakes planted by seed ${SEED}, at least 19 of 20 are found`, { timeout: LONG_MS }, async () => {
  const dice = new Dice(SEED);
  const all = allMistakes(files.text);
  const chosen = new Set([
    ...sampled(
      grouped(all, ({ subject }) => subject),
      30,
    ).flatMap((group) => dice.sample(group, EACH)),
    ...grouped(all, ({ kind }) => kind).flatMap((group) => dice.sample(group, EACH)),
  ]);
  expect(chosen.size).toBeGreaterThan(IS_CAMPAIGN ? 75 : 30);
  const missed: string[] = [];
  for (const mistake of chosen) {
    if (!(await foundOf(mistake))) missed.push(`${mistake.file}:${mistake.line} ${mistake.kind}: ${mistake.what}`);
  }
  console.log(
    `${chosen.size - missed.length} of ${chosen.size} found${missed.map((one) => `\n  not found: ${one}`).join("")}`,
  );
  expect(missed.length).toBeLessThanOrEqual(chosen.size / 20);
});

/** A mistake at a fixed place: the file, the original text, its replacement, and the expected finding. */
const POLICY = "infra/azure/events-policy/policy.json";
const CONDITION = "infra/azure/events-policy/sender-only.txt";
const PARAMETERS = "infra/azure/main.parameters.json";
const TOPIC = "infra/azure/events/topic.bicep";
const EXAMPLE = "infra/terraform/examples/several-subscriptions/main.tf";
const MINIMAL = "infra/terraform/examples/minimal/versions.tf";
const VAULT = "infra/azure/modules/vault.bicep";
const APP = "infra/azure/modules/app.bicep";
const ALERTS = "infra/azure/modules/alerts.bicep";
const LINKS = "infra/azure/modules/private-endpoints.bicep";
const ROLES = "Contributor and User Access Administrator, or Owner";
test.each([
  [POLICY, '"topicType"', '"topicKind"', /no property topicKind/],
  [POLICY, '"Microsoft.KeyVault.vaults"', '"Microsoft.Storage.StorageAccounts"', /not one of a key vault/],
  [POLICY, '"identity": { "type": "SystemAssigned" },', "", /identity/],
  [POLICY, '"queueName": "vault-events"', '"queueName": "others"', /deliveryWithResourceIdentity: is/],
  [POLICY, "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a", "974c5e8b-45b9-4653-ba55-5f855dd0fb88", /role of a topic: is/],
  [POLICY, "queues/vault-events')]", "queues')]", /is not the queue/],
  [POLICY, "'/lifecycle-', parameters('environmentName'))]\"", "'/lifecycle')]\"", /it looks for/],
  [POLICY, '"deployIfNotExists"', '"auditIfNotExists"', /effect/],
  [POLICY, "1e241071-0855-49ea-94dc-649edcd759de", "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", /roleDefinitionIds/],
  [POLICY, "\"[split(parameters('storageAccountId'), '/')[4]]\"", '"rg-other"', /resourceGroup/],
  [POLICY, '"vaultId": { "type": "string" },', "", /vaultId/],
  [POLICY, '"apiVersion": "2025-02-15"', '"apiVersion": "2015-02-15"', /is not the version/],
  [CONDITION, "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a", "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", /must be/],
  [CONDITION, " AND ", " OR ", /must be/],
  [PARAMETERS, "EVENTS_ENABLED=false", "EVENTS_ENABLED=true", /eventsEnabled is true/],
  [PARAMETERS, "EVENTS_ENABLED", "EVENTS", /read from EVENTS/],
  [PARAMETERS, "AZURE_LOCATION", "AZURE_REGION", /AZURE_REGION/],
  [TOPIC, "'StorageQueue'", "'StorageQeue'", /no form whose endpointType is StorageQeue/],
  [TOPIC, "operatorType: 'StringIn'", "operator: 'StringIn'", /no form whose operatorType is not said/],
  [EXAMPLE, "azurerm.other }", "azurerm.second }", /provider azurerm.second is not declared/],
  [EXAMPLE, '"Microsoft.EventGrid", ', "", /to_register lacks Microsoft.EventGrid$/],
  [MINIMAL, '"Microsoft.App",', "", /to_register lacks Microsoft.App$/],
  // The provider silently skips a case that is spelled otherwise.
  [MINIMAL, "microsoft.insights", "Microsoft.Insights", /lacks microsoft.insights$/],
  [MINIMAL, '"Microsoft.Web",', '"Microsoft.Web", "Microsoft.Sql",', /names Microsoft.Sql, which nothing needs/],
  [VAULT, "vaults@2026-02-01", "vaults@2025-05-01", /is retired on 2027-02-27: use 2026-02-01/],
  [APP, "vaults@2026-02-01", "vaults@2024-11-01", /is retired on 2027-02-27: use 2026-02-01/],
  [LINKS, "resolutionPolicy: 'NxDomainRedirect'", "", /resolutionPolicy must be NxDomainRedirect/],
  [ALERTS, "autoMitigate: true", "", /autoMitigate must be true/],
  ["infra/terraform/alerts.tf", "    error_message =", "    message =", /a check has asserts/],
  ["infra/terraform/alerts.tf", "auto_mitigation_enabled = true", "", /auto_mitigation_enabled is not set/],
  [ALERTS, "overrideQueryTimeRange: 'P2D'", "", /noScanAlert: its query looks back as far as its time range/],
  ["infra/azure/queries/no-scan.kql", "ago(1d)", "ago(3d)", /noScanAlert: its query looks back/],
  ["host.json", "Trace;Exception", "Exception", /lacks Trace: alerts and the workbook read traces/],
  ["host.json", "applicationInsights", "applicationInsight", /lacks Trace/],
  [
    "docs/permissions.md",
    ROLES,
    "Contributor, or Owner",
    /^Contributor does not allow Microsoft.Authorization\/roleAssignments\/write/,
  ],
  [
    "docs/permissions.md",
    ROLES,
    "Contributor and Role Based Access Control Administrator",
    /does not allow Microsoft.Authorization\/roleDefinitions\/write, which watch needs/,
  ],
  ["docs/permissions.md", ROLES, "User Access Administrator", /Microsoft.PolicyInsights\/remediations\/write/],
  [
    "docs/permissions.md",
    ROLES,
    "User Access Administrator",
    /subscriptions\/resourceGroups\/write, which events needs/,
  ],
  ["docs/permissions.md", ROLES, "User Access Administrator", /deployments\/write, which watch needs/],
  ["docs/permissions.md", "| `events-policy` |", "| the policy |", /does not name the roles for events-policy/],
  ["docs/deploy.md", "| `Microsoft.Communication` |", "| mail |", /table of resource providers lacks Microsoft.Comm/],
  ["docs/deploy.md", "  Microsoft.ManagedIdentity", "  ", /command that registers lacks Microsoft.ManagedIdentity/],
  ["docs/deploy.md", "`events_enabled`", "`events`", /parameter events_enabled/],
  ["docs/deploy-options.md", "`OWNER_TAG`", "`OWNERS`", /setting OWNER_TAG/],
])("%s: with %s as %s something is found", async (file, from, to, message) => {
  const text = files.text.get(file)!;
  expect(text).toContain(from);
  // Every occurrence on a page, and the only one in a template.
  const spoilt = file.endsWith(".md") ? text.replaceAll(from, to) : text.replace(from, () => to);
  const found = await findingsWith(new Map([[file, spoilt]]));
  expect(found.map((one) => one.message)).toContainEqual(expect.stringMatching(message));
});

test("no retired version of an API is printed, whatever prints it", () => {
  const sources = globSync("{functions,shared,docs,infra/azure}/**/*.{ts,tsx,md,bicep}", {
    exclude: (name) => name.includes("node_modules"),
  });
  const found = sources.flatMap((file) =>
    retiredVersionsIn(readFileSync(file, "utf8")).map((one) => `${file}: ${one}`),
  );
  expect(found).toEqual([]);
  expect(sources.filter((file) => readFileSync(file, "utf8").includes("KeyVault/vaults@")).length).toBeGreaterThan(3);
});

test("every event that the templates ask for is one that the service reads", () => {
  const vault =
    "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv";
  const typesOf = (file: string) =>
    files.text.get(file)!.match(/Microsoft\.(KeyVault|Resources)\.\w+(Created|Expiry|Expired|Changed|Success)/g)!;
  const fromVaults = typesOf(POLICY).map((type) => ({ type, source: vault, subject: "one" }));
  const fromManager = typesOf(TOPIC).map((type) => ({ type, source: vault.slice(0, 51), subject: vault }));
  expect([fromVaults.length, fromManager.length]).toEqual([10, 2]);
  for (const file of [POLICY, TOPIC])
    expect(files.text.get(file)).toMatch(new RegExp(`queueName"?: ['"]${EVENT_QUEUE}['"]`));
  for (const event of [...fromVaults, ...fromManager]) {
    const { hint } = VaultEvent.parse({ specversion: "1.0", id: "1", ...event });
    expect([event.type, hint?.vaultName]).toEqual([event.type, "kv"]);
  }
});

describe("taken out of one side", () => {
  const all = allMistakes(files.text);
  const resources = all.filter(
    ({ kind, subject }) => kind === "blockRemoved" && /^(Microsoft\.|azurerm_)/.test(subject),
  );
  const settings = all.filter(
    ({ kind, what }) =>
      kind === "removed" && /^[A-Z][A-Za-z_]+_?\w*\s*[:=]/.test(what) && /[A-Z_]{6}|AzureWebJobs/.test(what),
  );

  test("each resource and each role that is tried is missed", { timeout: LONG_MS }, async () => {
    expect(resources.length).toBeGreaterThan(70);
    for (const resource of sampled(resources, 14))
      expect([resource.what, await foundOf(resource)]).toEqual([resource.what, true]);
  });

  test("each setting that is tried is missed", { timeout: LONG_MS }, async () => {
    expect(settings.length).toBeGreaterThan(30);
    for (const setting of sampled(settings, 7))
      expect([setting.what, await foundOf(setting)]).toEqual([setting.what, true]);
  });
});
