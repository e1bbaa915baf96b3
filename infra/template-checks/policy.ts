import path from "node:path";
import * as z from "zod";
import { type BicepFile, parseBicep, type Resource } from "./bicep/parse.ts";
import { type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { roleOfName } from "./roles.ts";

// Parses and checks the Azure Policy that makes key vaults send their events to the service's queue. The policy creates an
// Event Grid topic and an event subscription for each vault. It is one JSON file for Bicep and Terraform, because a policy
// contains the JSON template that it deploys. That template is converted to Bicep, so that it is checked against Azure's types like
// the Bicep files.

const FOLDER = "infra/azure/events-policy";
const FILE = `${FOLDER}/policy.json`;
const TOPIC = "Microsoft.EventGrid/systemTopics";

/** Values that a deployment passes to the parameters of its template. */
const PassedParameters = z.record(z.string(), z.strictObject({ value: z.string() }));
/** An ARM JSON template, as far as this project uses its members. */
const Template = z.strictObject({
  $schema: z.literal("https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"),
  contentVersion: z.literal("1.0.0.0"),
  parameters: z.record(z.string(), z.strictObject({ type: z.literal("string") })),
  resources: z.array(z.looseObject({ type: z.string(), apiVersion: z.string(), name: z.string() })).min(1),
});
type Template = z.infer<typeof Template>;

/**
 * Schema of the policy: the members and the only values that this project uses. Any other member or value is a finding.
 * https://learn.microsoft.com/azure/governance/policy/concepts/effect-deploy-if-not-exists
 */
const Policy = z.strictObject({
  parameters: z.record(
    z.string(),
    z.strictObject({
      type: z.literal("String"),
      defaultValue: z.literal("").optional(),
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
          properties: z.strictObject({
            mode: z.literal("incremental"),
            parameters: PassedParameters,
            template: Template,
          }),
        }),
      }),
    }),
  }),
});
type Policy = z.infer<typeof Policy>;

/**
 * Parameters of the first version. Azure updates an existing policy with a further one only if that has a default value
 * (InvalidPolicyParameterUpdate). The assignments set all of them.
 */
const FIRST_PARAMETERS = new Set(["environmentName", "storageAccountId"]);

/** The parsed policy. */
export interface ParsedPolicy {
  findings: Finding[];
  /** The template as Bicep: the resources next to a vault. Empty if the policy does not match the schema. */
  files: ReadonlyMap<string, BicepFile>;
  policy?: Policy;
}

/** Parses policy.json. If it does not match the schema, the result has findings and no policy. */
export async function parsePolicy(files: InfraFiles): Promise<ParsedPolicy> {
  const content = readJson(files.text.get(FILE) ?? "");
  const parsed = Policy.safeParse(content);
  if (!parsed.success) {
    const findings = parsed.error.issues.map((issue) => finding(`${issue.path.join(".")}: ${issue.message}`));
    return { findings, files: new Map() };
  }
  const { template } = parsed.data.policyRule.then.details.deployment.properties;
  const bicepFiles = new Map([[FILE, await parseBicep(FILE, templateAsBicep(template))]]);
  return { findings: [], files: bicepFiles, policy: parsed.data };
}

/**
 * Checks the names and parameters of the policy and its template. Also checks the topics that the policy creates for vaults.
 * They must deliver events to the same queue in the same way, and with the same identity, as the topics of subscriptions in
 * events/topic.bicep.
 */
export function checkPolicy(
  { policy, files, findings }: ParsedPolicy,
  bicep: ReadonlyMap<string, BicepFile>,
): Finding[] {
  if (!policy) return findings;
  const { name, deployment } = policy.policyRule.then.details;
  const { parameters, template } = deployment.properties;
  const [vaultTemplate] = files.values();
  const topic = resourceOf(bicep, "events/topic.bicep", TOPIC);
  const subscription = resourceOf(bicep, "events/topic.bicep", `${TOPIC}/eventSubscriptions`);
  const resourceIn = (file: BicepFile | undefined, type: string) => file?.resources.find((one) => one.type === type);
  const policyTopic = resourceIn(vaultTemplate, TOPIC);
  const policySubscription = resourceIn(vaultTemplate, `${TOPIC}/eventSubscriptions`);
  return [
    ...Object.entries(policy.parameters)
      .filter(([parameter, { defaultValue }]) => !FIRST_PARAMETERS.has(parameter) && defaultValue === undefined)
      .map(([parameter]) => finding(`${parameter} needs a defaultValue, or an earlier deployment can't be updated`)),
    ...parameterDifferences(
      "parameters",
      usedParameters(JSON.stringify({ name, parameters })),
      Object.keys(policy.parameters),
    ),
    ...parameterDifferences("parameters of its template", Object.keys(parameters), Object.keys(template.parameters)),
    // The identity of the policy may write Event Grid resources only, next to a vault.
    ...template.resources
      .filter(({ type }) => !type.startsWith("Microsoft.EventGrid/"))
      .map(({ type }) => finding(`its template must not deploy ${type}`)),
    // Resource Manager deploys resources at the same time unless one depends on another.
    ...template.resources
      .slice(1)
      .filter(({ dependsOn }) => !Array.isArray(dependsOn) || dependsOn.length === 0)
      .map(({ type }) => finding(`${type} must depend on the resources that are created before it`)),
    ...subscriptionNames(parameters.topicName?.value ?? "", template).flatMap((one) =>
      one === name ? [] : [finding(`it looks for ${name}, but creates ${one}`)],
    ),
    ...(text(property(policyTopic?.body, "properties", "topicType")) === "Microsoft.KeyVault.vaults"
      ? []
      : [finding("its topic is not one of a key vault")]),
    ...compareValues("identity of a topic", policyTopic, topic, "identity"),
    ...["deliveryWithResourceIdentity", "eventDeliverySchema", "retryPolicy"].flatMap((key) =>
      compareValues(key, policySubscription, subscription, "properties", key),
    ),
    ...["subscription", "management-group"].flatMap((scope) => {
      const assignment = resourceOf(bicep, `events-policy/${scope}.bicep`, "Microsoft.Authorization/policyAssignments");
      const givenParameters = property(assignment?.body, "properties", "parameters");
      const keys = givenParameters?.kind === "object" ? givenParameters.entries.map(({ key }) => key ?? "") : [];
      return parameterDifferences(`parameters of the ${scope}'s assignment`, keys, Object.keys(policy.parameters));
    }),
  ];
}

/**
 * Returns the names of the event subscriptions that the template creates, in the form of `details.name` of the policy. The
 * template names its parameter (`parameters('topicName')`). `details.name` contains the expression passed to that parameter.
 */
function subscriptionNames(topicName: string, { resources }: Template): string[] {
  const topic = /^\[concat\((.*)\)\]$/.exec(topicName)?.[1] ?? topicName;
  return resources
    .filter(({ type }) => type === `${TOPIC}/eventSubscriptions`)
    .map(({ name }) => name.replace("parameters('topicName'), '/", `${topic}, '/`));
}

/** Compares a member of a resource of the policy with the same member of a resource in infra/azure/events. */
function compareValues(
  what: string,
  policyResource: Resource | undefined,
  eventsResource: Resource | undefined,
  ...memberPath: string[]
): Finding[] {
  const inPolicy = expressionText(property(policyResource?.body, ...memberPath));
  const inEvents = expressionText(property(eventsResource?.body, ...memberPath));
  return inPolicy === inEvents
    ? []
    : [finding(`${what}: is ${inPolicy}, in ${FOLDER.replace("-policy", "")} ${inEvents}`)];
}

/** Returns an expression on one line, as Bicep writes it. */
function expressionText(expression: Expression | undefined): string {
  switch (expression?.kind) {
    case undefined:
      return "not set";
    case "literal":
      return JSON.stringify(expression.value);
    case "name":
      return expression.name;
    case "member":
      return `${expressionText(expression.of)}.${expression.name}`;
    case "object":
      return `{ ${expression.entries.map(({ key, keyExpression, value }) => `${key ?? expressionText(keyExpression)}: ${expressionText(value)}`).join(", ")} }`;
    case "array":
      return `[${expression.items.map(expressionText).join(", ")}]`;
    case "template":
      return `'${expression.parts.map((part) => text(part) ?? `\${${expressionText(part)}}`).join("")}'`;
    case "call":
      return `${expression.name}(${expression.args.map(expressionText).join(", ")})`;
    default:
      return JSON.stringify(expression, (key, value) => (key === "line" ? undefined : value));
  }
}

function parameterDifferences(what: string, left: readonly string[], right: readonly string[]): Finding[] {
  const onOneSide = [...left.filter((one) => !right.includes(one)), ...right.filter((one) => !left.includes(one))];
  return onOneSide.map((one) => finding(`${what}: ${one} must be both passed and declared`));
}

/** Returns the names of the parameters that a JSON template uses. */
const usedParameters = (json: string): string[] => [
  ...new Set([...json.matchAll(/parameters\('(\w+)'\)/g)].map(([, name]) => name!)),
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

/**
 * Converts a JSON template to Bicep. A child resource gets its `parent` by its type.
 */
function templateAsBicep({ parameters, resources }: Template): string {
  const symbolOf = (type: string) => `resource${resources.findIndex((one) => one.type === type)}`;
  const declared = Object.entries(parameters).map(([name, { type }]) => `param ${name} ${type}`);
  const bicepResources = resources.map(({ type, apiVersion, ...body }, index) => {
    const parentResource = resources.find((one) => type.startsWith(`${one.type}/`));
    const entries = entriesOf(body);
    const parent = parentResource ? [`parent: ${symbolOf(parentResource.type)}`] : [];
    return `resource resource${index} '${type}@${apiVersion}' = {\n${[...parent, ...entries].join("\n")}\n}`;
  });
  return [...declared, ...bicepResources, ""].join("\n\n");
}

const entriesOf = (object: object): string[] =>
  Object.entries(object).map(([key, value]) => `${keyToBicep(key)}: ${toBicep(value)}`);

/** Formats the name of a JSON member as Bicep. `[parameters('a')]` becomes `'${a}'`. */
function keyToBicep(key: string): string {
  const parameter = /^\[parameters\('(\w+)'\)\]$/.exec(key)?.[1];
  if (parameter !== undefined) return `'\${${parameter}}'`;
  return /^\w+$/.test(key) ? key : `'${key}'`;
}

/** Formats a JSON value as Bicep. A string in brackets is an expression: `[parameters('a')]` becomes `a`. */
function toBicep(value: unknown): string {
  if (Array.isArray(value)) return `[\n${value.map(toBicep).join("\n")}\n]`;
  if (typeof value === "object" && value !== null) return `{\n${entriesOf(value).join("\n")}\n}`;
  if (typeof value !== "string") return JSON.stringify(value);
  const expression = /^\[(.*)\]$/s.exec(value)?.[1];
  return expression === undefined
    ? `'${value.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("${", "\\${")}'`
    : expression.replace(/parameters\('(\w+)'\)/g, "$1");
}
