import path from "node:path";
import * as z from "zod";
import { type BicepFile, parseBicep, type Resource } from "./bicep/parse.ts";
import { type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { roleOfName } from "./roles.ts";

/**
 * Parser and checks of the policy that makes key vaults send their events. It is one JSON file for Bicep and Terraform, because
 * a policy contains the template that it deploys as JSON. Its templates are parsed as Bicep, so that they are checked against
 * Azure's types like the others.
 */
const FOLDER = "infra/azure/events-policy";
const FILE = `${FOLDER}/policy.json`;
const TOPIC = "Microsoft.EventGrid/systemTopics";
const DEPLOYMENT = "Microsoft.Resources/deployments";

const Given = z.record(z.string(), z.strictObject({ value: z.string() }));
const Template = z.strictObject({
  $schema: z.literal("https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"),
  contentVersion: z.literal("1.0.0.0"),
  parameters: z.record(z.string(), z.strictObject({ type: z.literal("string") })),
  resources: z.array(z.looseObject({ type: z.string(), apiVersion: z.string(), name: z.string() })).min(1),
});
type Template = z.infer<typeof Template>;

/** A template that another template deploys into the service's own resource group. */
const Nested = z.looseObject({
  subscriptionId: z.literal("[split(parameters('storageAccountId'), '/')[2]]"),
  resourceGroup: z.literal("[split(parameters('storageAccountId'), '/')[4]]"),
  properties: z.looseObject({
    expressionEvaluationOptions: z.strictObject({ scope: z.literal("Inner") }),
    parameters: Given,
    template: Template,
  }),
});

/**
 * Schema of the policy members that this project uses. Other members are findings.
 * https://learn.microsoft.com/azure/governance/policy/concepts/effect-deploy-if-not-exists
 */
const Policy = z.strictObject({
  parameters: z.record(
    z.string(),
    z.strictObject({
      type: z.literal("String"),
      metadata: z.strictObject({ displayName: z.string(), description: z.string() }),
    }),
  ),
  policyRule: z.strictObject({
    if: z.strictObject({ field: z.literal("type"), equals: z.literal("Microsoft.KeyVault/vaults") }),
    // biome-ignore lint/suspicious/noThenProperty: the word of a policy.
    then: z.strictObject({
      effect: z.literal("deployIfNotExists"),
      details: z.strictObject({
        type: z.literal(`${TOPIC}/eventSubscriptions`),
        name: z.string(),
        evaluationDelay: z.literal("AfterProvisioning"),
        roleDefinitionIds: z.tuple([
          z.literal(`/providers/Microsoft.Authorization/roleDefinitions/${roleOfName("EventGrid Contributor")!.id}`),
        ]),
        deployment: z.strictObject({
          properties: z.strictObject({ mode: z.literal("incremental"), parameters: Given, template: Template }),
        }),
      }),
    }),
  }),
});
type Policy = z.infer<typeof Policy>;

/** The parsed policy. */
export interface ParsedPolicy {
  findings: Finding[];
  /** Its templates as Bicep: the resources deployed next to a vault and next to the queue. */
  files: ReadonlyMap<string, BicepFile>;
  policy?: Policy;
}

export async function parsePolicy(files: InfraFiles): Promise<ParsedPolicy> {
  const read = readJson(files.text.get(FILE) ?? "");
  const parsed = Policy.safeParse(read);
  if (!parsed.success) {
    const findings = parsed.error.issues.map((issue) => finding(`${issue.path.join(".")}: ${issue.message}`));
    return { findings, files: new Map() };
  }
  const outer = parsed.data.policyRule.then.details.deployment.properties.template;
  const nested = outer.resources.flatMap((one) => Nested.safeParse(one).data?.properties.template ?? []);
  const found = new Map<string, BicepFile>();
  for (const [index, template] of [outer, ...nested].entries()) {
    found.set(`${FILE} ${index}`, await parseBicep(FILE, templateAsBicep(template)));
  }
  return { findings: [], files: found, policy: parsed.data };
}

/**
 * Checks the names and parameters of the policy and its templates, and that the topics of vaults deliver to the same target as
 * the topics of subscriptions.
 */
export function checkPolicy(
  { policy, files, findings }: ParsedPolicy,
  bicep: ReadonlyMap<string, BicepFile>,
  conditions: string,
): Finding[] {
  if (!policy) return findings;
  const { name, deployment } = policy.policyRule.then.details;
  const { parameters, template } = deployment.properties;
  const [beside, queue] = [...files.values()];
  const topic = resourceOf(bicep, "events/topic.bicep", TOPIC);
  const subscription = resourceOf(bicep, "events/topic.bicep", `${TOPIC}/eventSubscriptions`);
  const role = resourceOf(bicep, "events/sender-role.bicep", "Microsoft.Authorization/roleAssignments");
  const made = (file: BicepFile | undefined, type: string) => file?.resources.find((one) => one.type === type);
  const madeTopic = made(beside, TOPIC);
  const madeSubscription = made(beside, `${TOPIC}/eventSubscriptions`);
  const madeRole = made(queue, "Microsoft.Authorization/roleAssignments");
  return [
    ...parameterDifferences("parameters", used(JSON.stringify({ name, parameters })), Object.keys(policy.parameters)),
    ...parameterDifferences("parameters of its template", Object.keys(parameters), Object.keys(template.parameters)),
    ...template.resources.flatMap((one) => checkNested(one)),
    ...template.resources
      .slice(1)
      .filter(({ dependsOn }) => !Array.isArray(dependsOn) || dependsOn.length === 0)
      .map(({ type }) => finding(`${type} must depend on the resources that are created before it`)),
    ...createdName(parameters.topicName?.value ?? "", template).flatMap((one) =>
      one === name ? [] : [finding(`it looks for ${name} and makes ${one}`)],
    ),
    ...(text(property(madeTopic?.body, "properties", "topicType")) === "Microsoft.KeyVault.vaults"
      ? []
      : [finding("its topic is not one of a key vault")]),
    ...compareValues("identity of a topic", madeTopic, topic, "identity"),
    ...["deliveryWithResourceIdentity", "eventDeliverySchema", "retryPolicy"].flatMap((key) =>
      compareValues(key, madeSubscription, subscription, "properties", key),
    ),
    ...compareValues("role of a topic", madeRole, role, "properties"),
    ...["subscription", "management-group"].flatMap((scope) => {
      const assignment = resourceOf(bicep, `events-policy/${scope}.bicep`, "Microsoft.Authorization/policyAssignments");
      const given = property(assignment?.body, "properties", "parameters");
      const keys = given?.kind === "object" ? given.entries.map(({ key }) => key ?? "") : [];
      return parameterDifferences(`parameters of the ${scope}'s assignment`, keys, Object.keys(policy.parameters));
    }),
    ...checkCondition(conditions),
  ];
}

/** Checks that a resource that deploys another template has all required members. */
function checkNested(resource: Template["resources"][number]): Finding[] {
  if (resource.type !== DEPLOYMENT) return [];
  const parsed = Nested.safeParse(resource);
  if (!parsed.success) return parsed.error.issues.map((issue) => finding(`${issue.path.join(".")}: ${issue.message}`));
  const { parameters, template } = parsed.data.properties;
  const scope = template.resources.map((one) => one.scope);
  const onQueue = "[concat(parameters('storageAccountId'), '/queueServices/default/queues/vault-events')]";
  return [
    ...parameterDifferences(
      "parameters of the template in its template",
      Object.keys(parameters),
      Object.keys(template.parameters),
    ),
    ...scope.filter((one) => one !== onQueue).map((one) => finding(`${one} is not the queue`)),
  ];
}

/** Checks that the policy's permission to assign roles is limited to one role, for creating and deleting assignments. */
function checkCondition(condition: string): Finding[] {
  const file = `${FOLDER}/sender-only.txt`;
  const { id } = roleOfName("Storage Queue Data Message Sender")!;
  const attribute = (of: string, name: string) => `@${of}[Microsoft.Authorization/roleAssignments:${name}]`;
  const clause = (action: string, of: string) =>
    `((!(ActionMatches{'Microsoft.Authorization/roleAssignments/${action}'})) OR (${attribute(of, "RoleDefinitionId")} ` +
    `ForAnyOfAnyValues:GuidEquals {${id}} AND ${attribute(of, "PrincipalType")} ` +
    "ForAnyOfAnyValues:StringEqualsIgnoreCase {'ServicePrincipal'}))";
  const expected = `${clause("write", "Request")} AND ${clause("delete", "Resource")}`;
  return condition.trim() === expected ? [] : [{ file, line: 1, message: `must be ${expected}` }];
}

/** Returns the name of the event subscription that the template creates, as the policy writes it. */
function createdName(topicName: string, { resources }: Template): string[] {
  const topic = /^\[concat\((.*)\)\]$/.exec(topicName)?.[1] ?? topicName;
  return resources
    .filter(({ type }) => type === `${TOPIC}/eventSubscriptions`)
    .map(({ name }) => name.replace("parameters('topicName'), '/", `${topic}, '/`));
}

function compareValues(
  what: string,
  made: Resource | undefined,
  other: Resource | undefined,
  ...at: string[]
): Finding[] {
  const [left, right] = [withoutLines(property(made?.body, ...at)), withoutLines(property(other?.body, ...at))];
  return left === right ? [] : [finding(`${what}: is ${left}, in ${FOLDER.replace("-policy", "")} ${right}`)];
}

/** Returns an expression without line numbers. */
const withoutLines = (expression: Expression | undefined): string =>
  JSON.stringify(expression, (key, value) => (key === "line" ? undefined : value)) ?? "not set";

function parameterDifferences(what: string, left: readonly string[], right: readonly string[]): Finding[] {
  const lacking = [...left.filter((one) => !right.includes(one)), ...right.filter((one) => !left.includes(one))];
  return lacking.map((one) => finding(`${what}: ${one} must be both passed and declared`));
}

const used = (written: string): string[] => [
  ...new Set([...written.matchAll(/parameters\('(\w+)'\)/g)].map(([, name]) => name!)),
];

const resourceOf = (bicep: ReadonlyMap<string, BicepFile>, file: string, type: string): Resource | undefined =>
  bicep.get(path.posix.join("infra/azure", file))?.resources.find((one) => one.type === type);

const finding = (message: string): Finding => ({ file: FILE, line: 1, message });

function readJson(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    return source;
  }
}

/** Converts a JSON template to Bicep's form. Nested templates are left out, because they are checked separately. */
function templateAsBicep({ parameters, resources }: Template): string {
  const symbolOf = (type: string) => `resource${resources.findIndex((one) => one.type === type)}`;
  const declared = Object.entries(parameters).map(([name, { type }]) => `param ${name} ${type}`);
  const made = resources.map(({ type, apiVersion, subscriptionId, resourceGroup, ...body }, index) => {
    const around = resources.find((one) => type.startsWith(`${one.type}/`));
    const { template, ...properties } = (body.properties ?? {}) as Record<string, unknown>;
    const entries = entriesOf({ ...body, properties });
    const parent = around ? [`parent: ${symbolOf(around.type)}`] : [];
    return `resource resource${index} '${type}@${apiVersion}' = {\n${[...parent, ...entries].join("\n")}\n}`;
  });
  return [...declared, ...made, ""].join("\n\n");
}

const entriesOf = (object: object): string[] =>
  Object.entries(object).map(([key, value]) => `${/^\w+$/.test(key) ? key : `'${key}'`}: ${written(value)}`);

function written(value: unknown): string {
  if (Array.isArray(value)) return `[\n${value.map(written).join("\n")}\n]`;
  if (typeof value === "object" && value !== null) return `{\n${entriesOf(value).join("\n")}\n}`;
  if (typeof value !== "string") return JSON.stringify(value);
  const expression = /^\[(.*)\]$/s.exec(value)?.[1];
  return expression === undefined
    ? `'${value.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("${", "\\${")}'`
    : expression.replace(/parameters\('(\w+)'\)/g, "$1");
}
