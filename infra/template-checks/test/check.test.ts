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
import { COMMON_MISTAKES } from "./mistakes-in-both.ts";

// Tests `checkInfra`, which checks the Bicep templates, the Terraform configuration, the event policy and the documentation
// pages about them. The real files must pass. Most tests below change one or more of these files in memory, as a person could
// by mistake, and expect a finding. The test suite tries a random sample of the changes; a campaign (see
// test/support/sampling.ts) tries more.

/** Number of mistakes to try in each sampled group: the mistakes in one resource type (`subject`), or all of one `kind`. */
const MISTAKES_PER_GROUP = IS_CAMPAIGN ? 2 : 1;
const files = readInfraFiles();
const { scripts } = JSON.parse(readFileSync("package.json", "utf8")) as { scripts: object };
let templates: Templates;
let types: TypeLibrary;

beforeAll(async () => {
  templates = await parseTemplates(files);
  types = await loadTypes(typesIn(templates));
});

/** Returns the findings after some files are replaced: new text by file name. */
async function findingsWith(changed: ReadonlyMap<string, string> = new Map()): Promise<Finding[]> {
  const text = new Map([...files.text, ...changed]);
  const changedTemplates = await parseTemplates({ ...files, text }, templates);
  return checkInfra({ templates: changedTemplates, types, scripts: Object.keys(scripts) }).findings;
}

/** Returns whether the check has a finding for the mistake. */
async function isFound({ file, text }: Mistake): Promise<boolean> {
  return (await findingsWith(new Map([[file, text]]))).length > 0;
}

function groupBy(mistakes: readonly Mistake[], keyOf: (mistake: Mistake) => string): Mistake[][] {
  const groups = new Map<string, Mistake[]>();
  for (const mistake of mistakes) groups.set(keyOf(mistake), [...(groups.get(keyOf(mistake)) ?? []), mistake]);
  return [...groups.values()];
}

test("the real templates have no findings, and Bicep and Terraform declare the same resources", async () => {
  const { findings, table } = checkInfra({ templates, types, scripts: Object.keys(scripts) });
  expect(findings).toEqual([]);
  expect(table.length).toBeGreaterThan(50);
  expect(table.filter(({ terraform }) => terraform === "MISSING")).toEqual([]);
});

test(`at least 19 of 20 random mistakes are found (seed ${SEED})`, { timeout: LONG_MS }, async () => {
  const dice = new Dice(SEED);
  const mistakes = allMistakes(files.text);
  const chosen = new Set([
    ...sampled(
      groupBy(mistakes, ({ subject }) => subject),
      30, // groups
    ).flatMap((group) => dice.sample(group, MISTAKES_PER_GROUP)),
    ...groupBy(mistakes, ({ kind }) => kind).flatMap((group) => dice.sample(group, MISTAKES_PER_GROUP)),
  ]);
  expect(chosen.size).toBeGreaterThan(IS_CAMPAIGN ? 75 : 30);
  const missed: string[] = [];
  for (const mistake of chosen) {
    if (!(await isFound(mistake))) missed.push(`${mistake.file}:${mistake.line} ${mistake.kind}: ${mistake.what}`);
  }
  console.log(
    `${chosen.size - missed.length} of ${chosen.size} found${missed.map((one) => `\n  not found: ${one}`).join("")}`,
  );
  expect(missed.length).toBeLessThanOrEqual(chosen.size / 20);
});

const POLICY = "infra/azure/events-policy/policy.json";
const PARAMETERS = "infra/azure/main.parameters.json";
const TOPIC = "infra/azure/events/topic.bicep";
const EXAMPLE = "infra/terraform/examples/several-subscriptions/main.tf";
const MINIMAL_VERSIONS = "infra/terraform/examples/minimal/versions.tf";
const MAIN = "infra/azure/main.bicep";
const WATCH = "infra/azure/watch/subscription.bicep";
const MAIN_MODULE = "infra/terraform/main.tf";
const SERVICE = "infra/azure/service.bicep";
const VAULT = "infra/azure/modules/vault.bicep";
const APP = "infra/azure/modules/app.bicep";
const ALERTS = "infra/azure/modules/alerts.bicep";
const PRIVATE_ENDPOINTS = "infra/azure/modules/private-endpoints.bicep";
const ENDPOINTS = "infra/terraform/private-endpoints.tf";
const ROLES = "Contributor and User Access Administrator, or Owner";
/** A role assignment. If the event policy deployed it, the policy's identity would need the permission to assign roles. */
const ROLE_ASSIGNMENT =
  '{ "type": "Microsoft.Authorization/roleAssignments", "apiVersion": "2022-04-01", "name": "one", "properties": {} }';

// Each row: the file, a text in it, its replacement, and the expected finding.
test.each([
  [POLICY, '"topicType"', '"topicKind"', /no property topicKind/],
  [POLICY, '"Microsoft.KeyVault.vaults"', '"Microsoft.Storage.StorageAccounts"', /not one of a key vault/],
  [POLICY, '"type": "UserAssigned",', '"type": "SystemAssigned",', /identity of a topic: is/],
  [POLICY, `"[parameters('eventIdentityId')]": {}`, `"[parameters('vaultId')]": {}`, /identity of a topic: is/],
  [
    POLICY,
    `"userAssignedIdentity": "[parameters('eventIdentityId')]"`,
    `"userAssignedIdentity": "[parameters('vaultId')]"`,
    /deliveryWithResourceIdentity: is/,
  ],
  [POLICY, '"queueName": "vault-events"', '"queueName": "others"', /deliveryWithResourceIdentity: is/],
  [
    POLICY,
    '"resources": [',
    `"resources": [${ROLE_ASSIGNMENT},`,
    /must not deploy Microsoft.Authorization\/roleAssign/,
  ],
  [POLICY, "'/lifecycle-', parameters('environmentName'))]\"", "'/lifecycle')]\"", /it looks for/],
  [POLICY, '"defaultValue": "",', "", /eventIdentityId needs a defaultValue/],
  [POLICY, '"deployIfNotExists"', '"auditIfNotExists"', /effect/],
  [POLICY, "1e241071-0855-49ea-94dc-649edcd759de", "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", /roleDefinitionIds/],
  [POLICY, '"vaultId": { "type": "string" },', "", /vaultId/],
  [POLICY, '"apiVersion": "2025-02-15"', '"apiVersion": "2015-02-15"', /is not the version/],
  [PARAMETERS, "EVENTS_ENABLED=false", "EVENTS_ENABLED=true", /eventsEnabled is true/],
  [PARAMETERS, "EVENTS_ENABLED", "EVENTS", /read from EVENTS/],
  [PARAMETERS, "AZURE_LOCATION", "AZURE_REGION", /AZURE_REGION/],
  [TOPIC, "'StorageQueue'", "'StorageQeue'", /no form whose endpointType is StorageQeue/],
  [TOPIC, "operatorType: 'StringIn'", "operator: 'StringIn'", /no form whose operatorType is not set/],
  [EXAMPLE, "azurerm.other }", "azurerm.second }", /provider azurerm.second is not declared/],
  [EXAMPLE, '"Microsoft.EventGrid", ', "", /to_register lacks Microsoft.EventGrid$/],
  [MINIMAL_VERSIONS, '"Microsoft.App",', "", /to_register lacks Microsoft.App$/],
  // The Terraform provider ignores a name with other capitals, without an error.
  [MINIMAL_VERSIONS, "microsoft.insights", "Microsoft.Insights", /lacks microsoft.insights$/],
  [
    MINIMAL_VERSIONS,
    '"Microsoft.Web",',
    '"Microsoft.Web", "Microsoft.Sql",',
    /names Microsoft.Sql, which nothing needs/,
  ],
  [VAULT, "vaults@2026-02-01", "vaults@2025-05-01", /is retired on 2027-02-27: use 2026-02-01/],
  [APP, "vaults@2026-02-01", "vaults@2024-11-01", /is retired on 2027-02-27: use 2026-02-01/],
  [PRIVATE_ENDPOINTS, "resolutionPolicy: 'NxDomainRedirect'", "", /resolutionPolicy must be NxDomainRedirect/],
  // A policy adds the zone group, and the next apply would remove it.
  [ENDPOINTS, "ignore_changes = [private_dns_zone_group]", "", /lifecycle.ignore_changes is not set/],
  [ENDPOINTS, "changes = [private_dns_zone_group]", "changes = [dns_zone_group]", /dns_zone_group.* is not declared/],
  // Terraform would replace the topic of an existing deployment.
  [
    MAIN_MODULE,
    "  sender_role_id     = azurerm_role_assignment.topic_sender_role.id",
    "  depends_on = [azurerm_role_assignment.topic_sender_role]",
    /module events must not have depends_on/,
  ],
  [
    WATCH,
    "empty(inventoryReaderRoleDefinitionId) ? 'Credential Lifecycle Inventory Reader' : inventoryReaderRoleDefinitionId\n  )",
    "'Credential Lifecycle Inventory Reader'\n  )",
    /inventoryReaderRole: its name must depend on inventoryReaderRoleDefinitionId/,
  ],
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
  [
    "docs/remove.md",
    'delete --name "Credential Lifecycle Log',
    'delete --name "Log',
    /remove the custom role .* Log Reader/,
  ],
  [SERVICE, "param logRetentionDays int = 30", "param logRetentionDays int = 60", /logRetentionDays differs in main/],
  [SERVICE, "@maxValue(730)", "@maxValue(365)", /logRetentionDays differs in main/],
  [MAIN, "    zoneRedundant: zoneRedundant\n", "", /does not pass the parameter zoneRedundant/],
  [
    SERVICE,
    "fail('natGatewayEnabled needs",
    "fail('The gateway needs",
    /does not refuse what nat_gateway_enabled refuses/,
  ],
  [
    SERVICE,
    ": appEndpointRefused ? fail('appPrivate",
    ": appEndpointRefused ? failed('appPrivate",
    /the function failed is not known to this check/,
  ],
  [
    "infra/terraform/variables.tf",
    "!var.app_private_endpoint_enabled || var.network_enabled",
    "var.app_private_endpoint_enabled != null",
    /Terraform does not refuse: appPrivateEndpointEnabled/,
  ],
  ["infra/terraform/app.tf", "AZUREWEBJOBSSTORAGE ", "AzureWebJobsStorage ", /must set AZUREWEBJOBSSTORAGE/],
  ["infra/terraform/watch/README.md", "| scope_name |", "| name |", /has no row \| scope_name \|/],
  [
    "infra/terraform/watch/main.tf",
    'count = var.inventory_reader_role_definition_id == ""',
    'count = var.dependency_reader_role_definition_id == ""',
    /inventoryReaderDefinition .*created under the condition/,
  ],
  ["infra/terraform/main.tf", "if var.watch_roles_enabled", "if var.events_enabled", /created under the condition/],
  ["docs/deploy.md", "`events_enabled`", "`events`", /parameter events_enabled/],
  ["docs/deploy-options.md", "`OWNER_TAG`", "`OWNERS`", /setting OWNER_TAG/],
])("a mistake in %s is found: %j replaced by %j", async (file, original, replacement, message) => {
  const text = files.text.get(file)!;
  expect(text).toContain(original);
  // A documentation page can contain the text several times. In a template, only the first occurrence is replaced.
  const changed = file.endsWith(".md")
    ? text.replaceAll(original, replacement)
    : text.replace(original, () => replacement);
  const findings = await findingsWith(new Map([[file, changed]]));
  expect(findings.map((finding) => finding.message)).toContainEqual(expect.stringMatching(message));
});

test.each(COMMON_MISTAKES)("a mistake that both languages contain is found: $what", async ({ changes, message }) => {
  const changed = changes.map(([file, original, replacement]): [string, string] => {
    const text = files.text.get(file)!;
    expect(text).toContain(original);
    return [file, text.replace(original, () => replacement)];
  });
  const findings = await findingsWith(new Map(changed));
  expect(findings.map((finding) => finding.message)).toContainEqual(expect.stringMatching(message));
});

test("no source file, documentation page or template mentions a retired API version", () => {
  const sources = globSync("{functions,shared,docs,infra/azure}/**/*.{ts,tsx,md,bicep}", {
    exclude: (name) => name.includes("node_modules"),
  });
  const mentions = sources.flatMap((file) =>
    retiredVersionsIn(readFileSync(file, "utf8")).map((version) => `${file}: ${version}`),
  );
  expect(mentions).toEqual([]);
  // Proves that the sources above were found.
  expect(sources.filter((file) => readFileSync(file, "utf8").includes("KeyVault/vaults@")).length).toBeGreaterThan(3);
});

test("the service accepts every event type that the templates subscribe to", () => {
  const vaultId =
    "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv";
  const eventTypesIn = (file: string) =>
    files.text.get(file)!.match(/Microsoft\.(KeyVault|Resources)\.\w+(Created|Expiry|Expired|Changed|Success)/g)!;
  const fromVaults = eventTypesIn(POLICY).map((type) => ({ type, source: vaultId, subject: "one" }));
  const subscriptionId = vaultId.split("/").slice(0, 3).join("/");
  const fromResourceManager = eventTypesIn(TOPIC).map((type) => ({ type, source: subscriptionId, subject: vaultId }));
  // The policy subscribes to events of each vault, the topic to events about vaults from Azure Resource Manager.
  expect([fromVaults.length, fromResourceManager.length]).toEqual([10, 2]);
  for (const file of [POLICY, TOPIC])
    expect(files.text.get(file)).toMatch(new RegExp(`queueName"?: ['"]${EVENT_QUEUE}['"]`));
  for (const event of [...fromVaults, ...fromResourceManager]) {
    const { hint } = VaultEvent.parse({ specversion: "1.0", id: "1", ...event });
    expect([event.type, hint?.vaultName]).toEqual([event.type, "kv"]);
  }
});

describe("a declaration removed from either Bicep or Terraform is found", () => {
  const mistakes = allMistakes(files.text);
  const removedResources = mistakes.filter(
    ({ kind, subject }) => kind === "blockRemoved" && /^(Microsoft\.|azurerm_)/.test(subject),
  );
  // A removed line with an app setting, such as `ALERT_SENDER: …` or `AzureWebJobs… = …`.
  const removedSettings = mistakes.filter(
    ({ kind, what }) =>
      kind === "removed" && /^[A-Z][A-Za-z_]+_?\w*\s*[:=]/.test(what) && /[A-Z_]{6}|AzureWebJobs/.test(what),
  );

  test("a resource or role assignment", { timeout: LONG_MS }, async () => {
    expect(removedResources.length).toBeGreaterThan(70);
    for (const resource of sampled(removedResources, 14))
      expect([resource.what, await isFound(resource)]).toEqual([resource.what, true]);
  });

  test("an app setting", { timeout: LONG_MS }, async () => {
    expect(removedSettings.length).toBeGreaterThan(30);
    for (const setting of sampled(removedSettings, 7))
      expect([setting.what, await isFound(setting)]).toEqual([setting.what, true]);
  });
});
