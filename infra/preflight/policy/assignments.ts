// Reads the policies that apply at a scope: the assignments there and above, their definitions, and exemptions.

import * as z from "zod";
import type { Arm } from "../../../shared/platform/azure/arm.ts";
import type { Value } from "../values.ts";

/** https://learn.microsoft.com/rest/api/policy/policy-assignments */
const POLICY_VERSION = "2023-04-01";
const EXEMPTION_VERSION = "2022-07-01-preview";

const Json = z.custom<Value>();
const ParameterValues = z.record(z.string(), z.object({ value: Json.optional() })).nullish();
const Selector = z.object({
  kind: z.string(),
  in: z.array(z.string()).nullish(),
  notIn: z.array(z.string()).nullish(),
});
const Assignment = z.object({
  id: z.string(),
  name: z.string(),
  properties: z.object({
    displayName: z.string().nullish(),
    policyDefinitionId: z.string(),
    scope: z.string().nullish(),
    notScopes: z.array(z.string()).nullish(),
    enforcementMode: z.string().nullish(),
    parameters: ParameterValues,
    resourceSelectors: z.array(z.object({ selectors: z.array(Selector).nullish() })).nullish(),
    overrides: z
      .array(z.object({ kind: z.string(), value: z.string(), selectors: z.array(Selector).nullish() }))
      .nullish(),
  }),
});
export type Assignment = z.infer<typeof Assignment>;

const ParameterDefinitions = z.record(z.string(), z.object({ defaultValue: Json.optional() })).nullish();
const Definition = z.object({
  id: z.string(),
  properties: z.object({
    displayName: z.string().nullish(),
    mode: z.string().nullish(),
    parameters: ParameterDefinitions,
    policyRule: z.object({
      if: Json,
      // biome-ignore lint/suspicious/noThenProperty: the word of a policy.
      then: z.object({ effect: z.string(), details: Json.optional() }),
    }),
  }),
});
const SetDefinition = z.object({
  properties: z.object({
    parameters: ParameterDefinitions,
    policyDefinitions: z.array(
      z.object({
        policyDefinitionId: z.string(),
        policyDefinitionReferenceId: z.string().nullish(),
        parameters: ParameterValues,
      }),
    ),
  }),
});
const Exemption = z.object({
  properties: z.object({
    policyAssignmentId: z.string(),
    policyDefinitionReferenceIds: z.array(z.string()).nullish(),
    expiresOn: z.string().nullish(),
  }),
});

/** One policy of an assignment, with the values of its parameters. */
export interface AssignedPolicy {
  assignment: Assignment;
  displayName: string;
  mode: string;
  rule: { if: Value; effect: string; details: Value };
  /** Values of parameters by name. Expressions in the values of an initiative refer to `outer`. */
  parameters: Record<string, Value>;
  /** Parameters of the initiative. Undefined for a policy that is assigned itself. */
  outer: Record<string, Value> | undefined;
  /** Id of the policy in its initiative. */
  referenceId: string | undefined;
}

/**
 * Returns the enforced policies at a scope, without exempted ones.
 * @throws {CloudFailure} if they can't be read.
 */
export async function assignedPolicies(arm: Arm, scope: string, now = new Date()): Promise<AssignedPolicy[]> {
  const list = <T>(type: string, apiVersion: string, entry: z.ZodType<T>) =>
    arm.list(
      {
        path: `${scope}/providers/Microsoft.Authorization/${type}`,
        apiVersion,
        // The scope itself and the scopes above.
        query: { $filter: "atScope()" },
        target: { operation: `list ${type}`, resource: scope },
      },
      entry,
    );
  const [assignments, exemptions] = await Promise.all([
    list("policyAssignments", POLICY_VERSION, Assignment),
    list("policyExemptions", EXEMPTION_VERSION, Exemption),
  ]);
  const unreadable = [...assignments.unreadable, ...exemptions.unreadable][0];
  if (unreadable) throw unreadable;
  const policies: AssignedPolicy[] = [];
  for (const assignment of assignments.entries.filter((one) => isEnforced(one, scope))) {
    policies.push(...(await policiesOf(arm, assignment)));
  }
  const active = exemptions.entries.filter(({ properties: { expiresOn } }) => !expiresOn || new Date(expiresOn) > now);
  return policies.filter(({ assignment, referenceId }) => {
    return !active.some(({ properties: { policyAssignmentId, policyDefinitionReferenceIds: ids } }) => {
      const sameAssignment = policyAssignmentId.toLowerCase() === assignment.id.toLowerCase();
      return sameAssignment && (!ids?.length || (referenceId !== undefined && ids.includes(referenceId)));
    });
  });
}

/** Returns whether an assignment denies at a scope: it is enforced, and does not exclude the scope. */
function isEnforced({ properties: { enforcementMode, notScopes } }: Assignment, scope: string): boolean {
  const id = scope.toLowerCase();
  const excluded = notScopes?.some((one) => id === one.toLowerCase() || id.startsWith(`${one.toLowerCase()}/`));
  return enforcementMode !== "DoNotEnforce" && !excluded;
}

/** Reads the policies of an assignment: one, or those of the assigned initiative. */
async function policiesOf(arm: Arm, assignment: Assignment): Promise<AssignedPolicy[]> {
  const { policyDefinitionId: id, parameters } = assignment.properties;
  const read = <T>(definitionId: string, schema: z.ZodType<T>) =>
    arm.call(
      {
        path: definitionId,
        apiVersion: POLICY_VERSION,
        target: { operation: "read the policy definition", resource: definitionId },
      },
      schema,
    );
  const policy = async (
    definitionId: string,
    given: z.infer<typeof ParameterValues>,
  ): Promise<Omit<AssignedPolicy, "outer" | "referenceId">> => {
    const { properties } = await read(definitionId, Definition);
    const { effect, details } = properties.policyRule.then;
    return {
      assignment,
      displayName: properties.displayName ?? definitionId.split("/").at(-1)!,
      mode: properties.mode ?? "All",
      rule: { if: properties.policyRule.if, effect, details },
      parameters: withDefaults(properties.parameters, given),
    };
  };
  if (!/\/policySetDefinitions\//i.test(id))
    return [{ ...(await policy(id, parameters)), outer: undefined, referenceId: undefined }];
  const { properties } = await read(id, SetDefinition);
  const outer = withDefaults(properties.parameters, parameters);
  return Promise.all(
    properties.policyDefinitions.map(async (one) => ({
      ...(await policy(one.policyDefinitionId, one.parameters)),
      outer,
      referenceId: one.policyDefinitionReferenceId ?? undefined,
    })),
  );
}

/** Returns the given values of parameters, and the defaults of the others. */
function withDefaults(
  definitions: z.infer<typeof ParameterDefinitions>,
  given: z.infer<typeof ParameterValues>,
): Record<string, Value> {
  const values: Record<string, Value> = {};
  for (const [name, { defaultValue }] of Object.entries(definitions ?? {})) values[name] = defaultValue;
  for (const [name, { value }] of Object.entries(given ?? {})) values[name] = value;
  return values;
}
