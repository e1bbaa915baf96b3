// Simulates Azure Policy: assignments at a scope and above, definitions, initiatives and exemptions.
// https://learn.microsoft.com/rest/api/policy

import type { ServiceResponse } from "../http.ts";
import type { GovernancePolicy } from "./governance.ts";
import { type GovernanceCall, governedRoute } from "./governance-call.ts";
import { failure, page, type Route } from "./request-context.ts";

const PAGE_SIZE = 100;
const POLICY_VERSIONS = ["2021-06-01", "2022-06-01", "2023-04-01", "2024-04-01"];
const EXEMPTION_VERSIONS = ["2020-07-01-preview", "2022-07-01-preview"];
const AUTHORIZATION = "providers/Microsoft.Authorization";

/** Returns the route of a request about policies. Undefined for other requests. */
export function policyRoute(call: GovernanceCall): Route | undefined {
  if (call.request.method !== "GET") return undefined;
  const [, pathInSubscription, list] =
    /^(?:(.+)\/)?providers\/microsoft\.authorization\/(policyassignments|policyexemptions)$/.exec(call.path) ?? [];
  if (list !== undefined) return listRoute(call, pathInSubscription, list);
  const [, kind, name] =
    /(?:^|\/)providers\/microsoft\.authorization\/(policydefinitions|policysetdefinitions)\/([^/]+)$/.exec(call.path) ??
    [];
  return kind === undefined ? undefined : definitionRoute(call, kind, name!);
}

function listRoute(call: GovernanceCall, pathInSubscription: string | undefined, list: string): Route {
  const { options, request, subscription, rules } = call;
  const scope = `/subscriptions/${subscription}${pathInSubscription ? `/${pathInSubscription}` : ""}`;
  const areAssignments = list === "policyassignments";
  const route = {
    name: areAssignments ? "arm.listPolicyAssignments" : "arm.listPolicyExemptions",
    versions: areAssignments ? POLICY_VERSIONS : EXEMPTION_VERSIONS,
    action: areAssignments
      ? "Microsoft.Authorization/policyAssignments/read"
      : "Microsoft.Authorization/policyExemptions/read",
    scope,
  };
  return governedRoute(call, route, () => {
    const filter = request.query.get("$filter");
    if (filter !== "atScope()")
      return failure(400, "InvalidFilterInQueryString", `The filter '${filter}' is not supported. Use atScope().`);
    if (!areAssignments) {
      return page(options, request, rules.exemptions ?? [], PAGE_SIZE, ({ policyAssignment, expiresOn }) => ({
        id: `${scope}/${AUTHORIZATION}/policyExemptions/${policyAssignment}`,
        name: policyAssignment,
        type: "Microsoft.Authorization/policyExemptions",
        properties: {
          policyAssignmentId: assignmentId(
            subscription,
            rules.policies?.find((one) => one.name === policyAssignment),
          ),
          exemptionCategory: "Waiver",
          ...(expiresOn && { expiresOn }),
        },
      }));
    }
    const applying = (rules.policies ?? []).filter((one) => {
      const assigned = scopeOf(subscription, one).toLowerCase();
      return assigned.startsWith("/providers/") || `${scope.toLowerCase()}/`.startsWith(`${assigned}/`);
    });
    return page(options, request, applying, PAGE_SIZE, (one) => assignmentResource(subscription, one));
  });
}

const scopeOf = (subscription: string, { scope = `/subscriptions/${subscription}` }: GovernancePolicy): string => scope;

const assignmentId = (subscription: string, policy: GovernancePolicy | undefined): string =>
  policy ? `${scopeOf(subscription, policy)}/${AUTHORIZATION}/policyAssignments/${policy.name}` : "";

function assignmentResource(subscription: string, policy: GovernancePolicy): object {
  const {
    name,
    displayName,
    values = {},
    enforcementMode = "Default",
    notScopes,
    overrides,
    resourceSelectors,
  } = policy;
  const kind = policy.initiative ? "policySetDefinitions" : "policyDefinitions";
  return {
    id: assignmentId(subscription, policy),
    name,
    type: "Microsoft.Authorization/policyAssignments",
    properties: {
      displayName: displayName ?? name,
      policyDefinitionId: `/subscriptions/${subscription}/${AUTHORIZATION}/${kind}/${name}`,
      scope: scopeOf(subscription, policy),
      enforcementMode,
      parameters: Object.fromEntries(Object.entries(values).map(([key, value]) => [key, { value }])),
      ...(notScopes && { notScopes }),
      ...(overrides && { overrides }),
      ...(resourceSelectors && { resourceSelectors }),
    },
  };
}

function definitionRoute(call: GovernanceCall, kind: string, name: string): Route {
  const { subscription, rules } = call;
  const isSet = kind === "policysetdefinitions";
  const policy = rules.policies?.find((one) => one.name.toLowerCase() === name && (!isSet || one.initiative));
  const route = {
    name: isSet ? "arm.getPolicySetDefinition" : "arm.getPolicyDefinition",
    versions: POLICY_VERSIONS,
    action: isSet
      ? "Microsoft.Authorization/policySetDefinitions/read"
      : "Microsoft.Authorization/policyDefinitions/read",
  };
  return governedRoute(call, route, (): ServiceResponse => {
    if (policy === undefined)
      return failure(
        404,
        isSet ? "PolicySetDefinitionNotFound" : "PolicyDefinitionNotFound",
        `The policy definition '${name}' could not be found.`,
      );
    const id = `/subscriptions/${subscription}/${AUTHORIZATION}`;
    const { displayName, mode = "All", policyRule, parameters = {} } = policy;
    if (!isSet) {
      const properties = {
        displayName: displayName ?? policy.name,
        policyType: "Custom",
        mode,
        parameters,
        policyRule,
      };
      return { status: 200, body: { id: `${id}/policyDefinitions/${policy.name}`, name: policy.name, properties } };
    }
    // The initiative passes each of its parameters on to its only policy.
    const passedParameters = Object.keys(parameters).map((key) => [key, { value: `[parameters('${key}')]` }]);
    const member = {
      policyDefinitionId: `${id}/policyDefinitions/${policy.name}`,
      policyDefinitionReferenceId: `${policy.name}-1`,
      parameters: Object.fromEntries(passedParameters),
    };
    const properties = { displayName: policy.name, policyType: "Custom", parameters, policyDefinitions: [member] };
    return { status: 200, body: { id: `${id}/policySetDefinitions/${policy.name}`, name: policy.name, properties } };
  });
}
