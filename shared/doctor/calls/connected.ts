import type { CheckResult } from "../../b2c/connection-test.ts";
import { PERMISSIONS } from "../../b2c/tenant-problems.ts";
import { SECOND_MS } from "../../platform/time.ts";
import { PROVIDERS } from "../../sync/providers/providers.ts";
import type { CheckContext } from "../context.ts";
import type { OutgoingCall } from "../outgoing-call.ts";
import { notProven, type Outcome, off, type Result } from "../result.ts";

// The calls to systems that administrators connected: Azure DevOps, B2C tenants, sync targets, alert channels and the identity
// provider. Sync targets and B2C tenants are called with their own credentials.

const DEVOPS = "permissions-options.md#azure-devops";

/** Time limit of the check of one sync provider. */
const PROVIDER_MS = 30 * SECOND_MS;

const NOT_LICENSED = off("Needs a PRO license.");

type DevopsSteps = Awaited<ReturnType<CheckContext["devopsTest"]>>["steps"];

/**
 * Reports steps of the organization's connection test.
 *
 * @param resultOfStep - Returns what a step that succeeded adds to its result.
 */
const devopsSteps =
  (steps: DevopsSteps[number]["step"][], resultOfStep: (step: DevopsSteps[number]) => Partial<Result>) =>
  async (context: CheckContext): Promise<Result[]> => {
    if (!(await context.deps.devops.organization())) return off("No organization is connected.");
    const test = await context.devopsTest();
    const reportedSteps = test.steps.filter(({ step }) => steps.includes(step));
    if (reportedSteps.length === 0) return [notProven("the organization", "An earlier step failed.")];
    return reportedSteps.map((step) => {
      const { project, ok, code, detail, remedy } = step;
      const resource = project === null ? "the organization" : `project ${project}`;
      if (!ok) return { outcome: outcomeOf(code), resource, ...(detail && { detail }), ...(remedy && { remedy }) };
      return { outcome: "works", resource, ...resultOfStep(step) };
    });
  };

/** Failures for which the identity was not added to the organization, project or tenant, or lacks consent or a secret. */
const MISSING = new Set(["accessDenied", "unauthorized", "notFound", "noConsent", "secretMissing"]);
const UNREACHABLE = new Set(["unreachable", "timedOut", "foreignHost", "firewall"]);

function outcomeOf(code: string | null): Outcome {
  if (code !== null && MISSING.has(code)) return "permissionMissing";
  return code !== null && UNREACHABLE.has(code) ? "unreachable" : "failed";
}

const devops: OutgoingCall[] = [
  {
    id: "devops.connection",
    feature: "Test, projects",
    call: "GET _apis/connectionData",
    permissions: ["user of the organization"],
    page: DEVOPS,
    check: devopsSteps(["signIn"], () => ({})),
  },
  {
    id: "devops.projects",
    feature: "Test, projects",
    call: "_apis/projects",
    permissions: ["Readers of each project"],
    page: DEVOPS,
    check: devopsSteps(["projects", "project"], () => ({})),
  },
  {
    id: "devops.readItems",
    feature: "Dependencies (PRO)",
    call: "GET {project}/_apis/distributedtask/variablegroups",
    permissions: ["Reader"],
    page: DEVOPS,
    check: devopsSteps(["variableGroups", "serviceConnections"], ({ step, found }) =>
      // Azure DevOps leaves out what the identity has no role on, without an error.
      found === 0
        ? {
            outcome: "notProven",
            detail: `${LISTS[step]} are empty: there are none, or the identity has no role on any.`,
          }
        : {},
    ),
  },
  {
    id: "devops.changeItems",
    feature: "Rotation (PRO)",
    call: "PUT _apis/distributedtask/variablegroups/{id}",
    permissions: ["Administrator"],
    page: DEVOPS,
    optional: true,
    check: devopsSteps(["variableGroups", "serviceConnections"], ({ step, found, changeable, remedy }) => {
      if (!found) return { outcome: "notProven", detail: `${LISTS[step]} are empty.` };
      if (changeable === found) return {};
      return {
        outcome: "permissionMissing",
        detail: `The identity may change ${changeable ?? 0} of ${found} ${LISTS[step]?.toLowerCase()}.`,
        ...(remedy && { remedy }),
      };
    }),
  },
];

/** Names of the lists that steps of the connection test read. */
const LISTS: Partial<Record<DevopsSteps[number]["step"], string>> = {
  variableGroups: "Variable groups",
  serviceConnections: "Service connections",
};

/** Reports one check of the connection test of each sampled tenant. */
async function tenantChecks(context: CheckContext, name: CheckResult["name"]): Promise<Result[]> {
  if (!(await context.licensed())) return NOT_LICENSED;
  const tests = await context.tenantTests();
  if (tests.length === 0) return off("No tenant is registered.");
  return tests.map(({ domain, checks }) => {
    const resource = `tenant ${domain}`;
    const check = checks.find((one) => one.name === name);
    if (check?.outcome === "ok") return { outcome: "works", resource };
    if (check?.outcome === "notApplicable")
      return { outcome: "off", resource, detail: "Tenants of this type have none." };
    const finding = check?.finding;
    if (!finding) return notProven(resource, "The sign-in to the tenant failed.");
    return { outcome: outcomeOf(finding.code), resource, detail: finding.message, remedy: finding.remedy };
  });
}

const tenants: OutgoingCall[] = [
  { id: "b2c.signIn", call: "token request", name: "signIn" as const, permissions: [] },
  {
    id: "b2c.organization",
    call: "GET /organization",
    name: "tenant" as const,
    permissions: [PERMISSIONS.organization],
  },
  {
    id: "b2c.applications",
    call: "GET /applications",
    name: "applications" as const,
    permissions: [PERMISSIONS.applications],
  },
  {
    id: "b2c.policyKeys",
    call: "GET /trustFramework/keySets",
    name: "policyKeys" as const,
    permissions: [PERMISSIONS.policyKeys],
  },
  {
    id: "b2c.identityProviders",
    call: "GET /identity/identityProviders",
    name: "identityProviders" as const,
    permissions: [PERMISSIONS.identityProviders],
  },
].map(({ name, ...call }) => ({
  ...call,
  feature: "B2C tenants (PRO)",
  page: "permissions-options.md#b2c-tenants-pro",
  check: (context) => tenantChecks(context, name),
}));

/** Reports for some sync records of a provider whether the target can be read. Reads the state of the target, but no value. */
async function syncTargets(context: CheckContext, provider: string): Promise<Result[]> {
  const records = await context.syncRecords(provider);
  return await Promise.all(
    records.map(async ({ recordId, targetName }): Promise<Result> => {
      const resource = `target ${targetName}`;
      const { failure } = await context.deps.sync.plan(recordId);
      if (failure === undefined) return { outcome: "works", resource };
      const { code, message: detail, remedy } = failure;
      // The source is read first. Sources are vaults, whose calls are in this table too.
      if (failure.side !== "target") return notProven(resource, detail);
      return { outcome: outcomeOf(code), resource, detail, remedy };
    }),
  );
}

/**
 * Each provider with credentials of its own is called with those, and then for some of its targets. Azure Key Vault has none: the
 * service's identity writes to it (`keyVault.setSecret`).
 */
const targets: OutgoingCall[] = PROVIDERS.filter(({ secretMembers }) => secretMembers.length > 0).map(
  ({ id, title }) => ({
    id: `sync.${id}`,
    feature: `Sync to ${title} (PRO)`,
    call: "one read of the provider and of three targets",
    permissions: [],
    page: "sync-providers.md",
    async check(context) {
      if (!(await context.licensed())) return NOT_LICENSED;
      const { configurations } = context.deps.sync;
      if (!(await configurations.all()).some(({ provider }) => provider === id))
        return off("The provider is not configured.");
      const signal = AbortSignal.any([context.signal, AbortSignal.timeout(PROVIDER_MS)]);
      const credentials = await context.attempt(title, async () => {
        await configurations.check(id, signal);
        return { detail: "The credentials work. Only a run shows whether they permit to write." };
      });
      if (credentials.outcome !== "works") return [credentials];
      return [credentials, ...(await syncTargets(context, id))];
    },
  }),
);

/** A channel can only be written to, so its test message is the proof. */
const channels: OutgoingCall[] = (
  [
    ["webhook", "Webhooks"],
    ["teams", "Microsoft Teams"],
    ["slack", "Slack"],
    ["pagerDuty", "PagerDuty"],
    ["serviceNow", "ServiceNow"],
  ] as const
).map(([method, title]) => ({
  id: `alerts.${method}`,
  feature: `Alerts by ${title}`,
  call: "POST to the address of an alert rule",
  permissions: [],
  page: "alerts.md",
  async check(context) {
    if (!(await context.alertChannels()).has(method)) return off("No alert rule uses it.");
    return [notProven(title, "A check sends no message. POST /alerts/rules/{rule_id}/test sends one.")];
  },
}));

export const connectedCalls: readonly OutgoingCall[] = [
  ...devops,
  ...tenants,
  ...targets,
  ...channels,
  {
    id: "sso.provider",
    feature: "Single sign-on (PRO)",
    call: "discovery document of the identity provider",
    permissions: [],
    page: "single-sign-on.md",
    async check(context) {
      if (!(await context.deps.ssoConfigured())) return off("Single sign-on is not configured.");
      return [notProven("the identity provider", "POST /auth/sso/config/test calls it.")];
    },
  },
];
