// Checks which policies would deny a resource of the templates, and which parameter avoids it.

import { CloudFailure } from "../../../shared/platform/azure/failure.ts";
import { type Context, existingScope, notChecked, parameterName, proposeValue } from "../context.ts";
import { type CheckResult, counted, type Finding, listOf, quote } from "../finding.ts";
import { type AssignedPolicy, assignedPolicies } from "../policy/assignments.ts";
import { denialsOf, effectOf } from "../policy/denials.ts";
import { resolve } from "../policy/expressions.ts";
import { isObject, memberOf, type Value } from "../values.ts";

export async function checkPolicies(context: Context): Promise<CheckResult> {
  const findings = new Map<string, Finding>();
  const policies = new Map<string, AssignedPolicy[]>();
  for (const scope of new Set(context.plan.scopes.map((one) => existingScope(context, one)))) {
    try {
      policies.set(scope, await assignedPolicies(context.arm, scope));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const command = `az policy assignment list --scope ${quote(scope)} --disable-scope-strict-match`;
      findings.set(scope, notChecked("policy.unreadable", scope, error, command));
    }
  }
  // The proposed values can add resources that another policy denies, such as a network. So the policies are evaluated again
  // until no finding proposes a further value.
  let proposals: number;
  do {
    proposals = context.proposed.size;
    const plan = proposals === 0 ? context.plan : context.planWith(Object.fromEntries(context.proposed));
    for (const scope of plan.scopes) {
      const newFindings = (policies.get(existingScope(context, scope)) ?? []).flatMap((one) =>
        findingsOf({ ...context, plan }, one, scope),
      );
      for (const one of newFindings) {
        const key = `${one.code} ${one.subject}`;
        findings.set(key, findings.get(key) ?? one);
      }
    }
  } while (proposals !== context.proposed.size);
  const count = [...policies.values()].reduce((sum, { length }) => sum + length, 0);
  return { summary: counted(count, "policy", "policies"), findings: [...findings.values()] };
}

function findingsOf(context: Context, policy: AssignedPolicy, scope: string): Finding[] {
  const effect = effectOf(policy);
  if (effect === "deployifnotexists") return zoneGroupFindings(context, policy);
  // Other effects change, report or complete resources. An effect that preflight can't evaluate (undefined) may be `deny`.
  if (effect !== "deny" && effect !== undefined) return [];
  const { denied, unclear } = denialsOf(policy, context.plan, scope);
  const assignmentName = policy.assignment.properties.displayName ?? policy.assignment.name;
  const subject = policy.displayName === assignmentName ? assignmentName : `${policy.displayName} (${assignmentName})`;
  const exemption = `az policy exemption create --name ${context.parameters.environmentName} --exemption-category Waiver --policy-assignment ${quote(policy.assignment.id)} --scope ${quote(existingScope(context, scope))}`;
  const types = (resources: { type: string }[]) => listOf(resources.map(({ type }) => type));
  if (effect === "deny" && denied.length > 0) {
    const change = avoidingChange(context, policy, scope);
    return [
      {
        code: "policy.denies",
        severity: "stops",
        subject,
        message: `The policy denies ${types(denied)}.`,
        remedy: change
          ? `Set ${parameterName(context, change.name)} to ${JSON.stringify(change.value)}.`
          : adviceWithoutParameter(context, policy, denied),
        command: change ? proposeValue(context, change.name, change.value) : exemption,
      },
    ];
  }
  if (denied.length + unclear.length === 0) return [];
  return [
    {
      code: "policy.notEvaluated",
      severity: "notChecked",
      subject,
      message: `The policy can deny ${types([...denied, ...unclear])}, but uses a function or field that preflight can't evaluate.`,
      remedy: "Compare the policy with the templates, or run what-if.",
      command: `az rest --method get --url ${quote(`${policy.assignment.properties.policyDefinitionId}?api-version=2023-04-01`)}`,
    },
  ];
}

function adviceWithoutParameter(context: Context, policy: AssignedPolicy, denied: readonly { type: string }[]): string {
  const exemption = "ask the owner of the policy for an exemption.";
  const asksForKey = /encryption|keySource|keyVaultProperties/i.test(JSON.stringify(policy.rule.if));
  if (asksForKey && context.hasParameter("customerManagedKey"))
    return `Set ${parameterName(context, "customerManagedKey")} to a key of yours, or ${exemption}`;
  if (!denied.every(({ type }) => type.startsWith("Microsoft.Network/virtualNetworks")))
    return `No parameter avoids it: ${exemption}`;
  const subnets = ["functionSubnetResourceId", "privateEndpointSubnetResourceId"].map((one) =>
    parameterName(context, one),
  );
  return `Name existing subnets in ${subnets.join(" and ")}, or ${exemption}`;
}

/** A change of one parameter. */
interface Change {
  name: string;
  value: Value;
}

/**
 * Returns the change of one parameter with which the policy denies nothing. Changes that preflight already proposes apply.
 * Finds the change by planning the deployment with each candidate.
 */
function avoidingChange(context: Context, policy: AssignedPolicy, scope: string): Change | undefined {
  const proposed = Object.fromEntries(context.proposed);
  return candidates(context, policy).find(({ name, value }) => {
    const plan = context.planWith({ ...proposed, [name]: value });
    const { denied, unclear } = denialsOf(policy, plan, scope);
    return denied.length + unclear.length === 0;
  });
}

/**
 * Returns the changes that may avoid a denial, in the order in which they are tried. First are tags and regions that the
 * policy's parameters name, then the parameters that change what is deployed.
 */
function candidates(context: Context, policy: AssignedPolicy): Change[] {
  const texts = Object.values(policy.parameters).flatMap((value) => textsIn(resolveParameter(policy, value)));
  return [
    ...tagCandidates(context, policy, texts),
    // Texts that look like the name of a region.
    ...texts.filter((text) => /^[a-z]+[a-z0-9]*$/.test(text)).map((value) => ({ name: "location", value })),
    ...["LRS", "ZRS", "GRS", "GZRS"].map((value) => ({ name: "storageReplication", value })),
    { name: "networkEnabled", value: true },
    { name: "privateDnsZonesEnabled", value: false },
    { name: "natGatewayEnabled", value: false },
    { name: "appPrivateEndpointEnabled", value: true },
    { name: "appPublicNetworkAccessEnabled", value: false },
    { name: "monitoringPublicNetworkAccessEnabled", value: false },
    { name: "zoneRedundant", value: true },
    { name: "diagnosticSettingsEnabled", value: true },
    { name: "appConfigurationEnabled", value: false },
    { name: "mailEnabled", value: false },
    { name: "eventsEnabled", value: false },
  ].filter(({ name }) => context.hasParameter(name));
}

/**
 * Candidates for tags that the policy names: with a value of the policy's parameters if it requires one, else a placeholder.
 */
function tagCandidates({ parameters, proposed }: Context, policy: AssignedPolicy, texts: string[]): Change[] {
  // Tags in field names such as `tags['owner']`, `tags[owner]` and `tags.owner`.
  const inRule = [...JSON.stringify(policy.rule.if).matchAll(/tags(?:\['|\[|\.)([\w -]+)/g)].map(([, name]) => name!);
  const currentTags = proposed.get("tags") ?? parameters.values.tags ?? {};
  const tags = isObject(currentTags) ? currentTags : {};
  const names = [...new Set([...texts, ...inRule])];
  return names.flatMap((tag) =>
    [...texts.filter((one) => one !== tag), "VALUE"].map((value) => ({
      name: "tags",
      value: { ...tags, [tag]: value },
    })),
  );
}

/** Returns the value of a policy's parameter. In an initiative, it can refer to the initiative's parameters. */
const resolveParameter = ({ outer }: AssignedPolicy, value: Value): Value =>
  resolve(value, { parameters: ([name]) => memberOf(outer, String(name)) });

const textsIn = (value: Value): string[] =>
  typeof value === "string" ? [value] : Array.isArray(value) ? value.flatMap(textsIn) : [];

/** A policy that adds private endpoints to central DNS zones conflicts with the zones of the templates. */
function zoneGroupFindings(context: Context, policy: AssignedPolicy): Finding[] {
  const type = String(memberOf(policy.rule.details, "type")).toLowerCase();
  const createsZones = context.plan.resources.some((one) => one.type === "Microsoft.Network/privateDnsZones");
  if (type !== "microsoft.network/privateendpoints/privatednszonegroups" || !createsZones) return [];
  return [
    {
      code: "policy.zoneGroups",
      severity: "degrades",
      subject: policy.assignment.properties.displayName ?? policy.assignment.name,
      message:
        "The policy adds private endpoints to central DNS zones. An endpoint can have one zone group, so the policy and the templates conflict.",
      remedy: `Set ${parameterName(context, "privateDnsZonesEnabled")} to false.`,
      command: proposeValue(context, "privateDnsZonesEnabled", false),
    },
  ];
}
