import * as z from "zod";
import { RESOURCE_TYPES, SEVERITIES } from "../shared/compliance/check.ts";
import type { ScoreAnswer } from "../shared/compliance/compliance.ts";
import { FRAMEWORK_IDS } from "../shared/compliance/controls.ts";
import { type Exemption, OPERATOR_EXEMPTION_DAYS } from "../shared/compliance/exemptions.ts";
import { CONTROL_STATUSES, type FrameworkResult } from "../shared/compliance/frameworks.ts";
import { EvaluateMessage, EXEMPTION_CATEGORIES, QUEUE, SCOPES } from "../shared/compliance/layout.ts";
import { ROLES } from "../shared/http/endpoint.ts";
import { pageOf, pageParameters, pageRequest, queryInstant } from "../shared/http/paging.ts";
import { created, deleted, ok, resource } from "../shared/http/reply.ts";
import { singleLine } from "../shared/http/text.ts";
import { endpoint, poison, queue, timer } from "./kit.ts";

const tag = "Compliance";
const instant = z.iso.datetime();
const count = z.int().min(0);
const scoreNumber = z
  .number()
  .min(0)
  .max(100)
  .meta({ description: "100 × the passed weight ÷ the whole weight: critical 10, high 5, medium 2, low 1." });

const Evaluation = z
  .object({
    evaluationId: z.string(),
    status: z.enum(["queued", "running", "completed", "partial"]),
    requestedAt: instant,
    requestedBy: z.string(),
    vaults: count.nullable().meta({ description: "Vaults it covers; null until it is planned." }),
    vaultsLeft: count,
    failedVaults: z.array(z.string()).meta({ description: "What could not be evaluated, in five tries." }),
  })
  .meta({ id: "ComplianceEvaluation" });

const scoreFields = {
  score: scoreNumber,
  passed: count.meta({ description: "Pairs of check and resource." }),
  failed: count,
  total: count,
  bySeverity: z
    .object({ critical: count, high: count, medium: count, low: count })
    .meta({ description: "What failed." }),
  exempted: count.meta({ description: "Failing pairs that an exemption keeps out of the score." }),
  evaluatedAt: instant.nullable().meta({ description: "The newest evaluation of any vault; null before the first." }),
  evaluation: Evaluation.nullable().meta({ description: "The last evaluation of everything that was asked for." }),
};
const Score = z
  .object({
    ...scoreFields,
    history: z
      .array(z.object({ date: z.iso.date(), score: scoreNumber, passed: count, failed: count, total: count }))
      .optional()
      .meta({ description: "One per day, oldest first, today's as it is now; days without a score are left out." }),
  })
  .meta({ id: "ComplianceScore" });
const EvaluationResult = Evaluation.extend({
  score: z.object(scoreFields).nullable().meta({ description: "Null while vaults are left to evaluate." }),
}).meta({ id: "ComplianceEvaluationResult" });

const Violation = z
  .object({
    id: z.string().meta({ description: "`<checkId>.<resourceId>`" }),
    resourceId: z.string().meta({ description: "An asset's id, or a vault's name.", example: "kv-pay.secret.db" }),
    resourceType: z.enum(RESOURCE_TYPES),
    resourceName: z.string(),
    vaultName: z.string(),
    subscriptionId: z.string(),
    checkId: z.string(),
    title: z.string(),
    severity: z.enum(SEVERITIES),
    rationale: z.string(),
    frameworks: z.array(z.enum(FRAMEWORK_IDS)),
    controls: z.array(z.object({ framework: z.enum(FRAMEWORK_IDS), control: z.string() })),
    evidence: z.string(),
    remediation: z.object({
      portal: z.string(),
      cli: z.string(),
      bicep: z.string().nullable().meta({ description: "Null where Bicep has no resource for it." }),
    }),
    firstSeenAt: instant,
    lastSeenAt: instant.meta({ description: "Its vault's last listing of this type that was read to its end." }),
    exempted: z.boolean(),
    exemptionId: z.string().nullable(),
  })
  .meta({ id: "Violation" });

const controlCounts = { passed: count, failed: count, exempted: count };
const frameworkFields = {
  id: z.enum(FRAMEWORK_IDS),
  name: z.string(),
  version: z.string(),
  source: z.string().meta({ description: "Where the mapping of checks to controls comes from." }),
  score: scoreNumber,
  passed: count,
  failed: count,
  total: count,
  controlsTotal: count,
  controlsByStatus: z.object({ pass: count, fail: count, notApplicable: count, manual: count }),
};
const Framework = z.object(frameworkFields).meta({ id: "Framework" });
const FrameworkDetails = z
  .object({
    ...frameworkFields,
    controls: z.array(
      z.object({
        id: z.string(),
        title: z.string().nullable(),
        status: z.enum(CONTROL_STATUSES).meta({
          description:
            "`fail` when a resource fails one of its checks, `notApplicable` when its checks apply to nothing, `manual` when only a person can tell.",
        }),
        ...controlCounts,
        checks: z.array(
          z.object({
            id: z.string(),
            title: z.string(),
            severity: z.enum(SEVERITIES),
            resourceType: z.enum(RESOURCE_TYPES),
            ...controlCounts,
          }),
        ),
      }),
    ),
  })
  .meta({ id: "FrameworkDetails" });

const Scope = z
  .strictObject({
    type: z.enum(SCOPES),
    id: z
      .string()
      .max(300)
      .optional()
      .meta({ description: "A subscription id, a vault's name or an asset's id; left out for `all`." }),
  })
  .meta({ id: "ExemptionScope" });

const NewExemption = z
  .strictObject({
    checkId: z.string().max(100),
    scope: Scope,
    category: z.enum(EXEMPTION_CATEGORIES).meta({
      description: "`waiver`: the risk is accepted. `mitigated`: it is met by other means.",
    }),
    reason: singleLine(1000),
    ticket: singleLine(200).optional(),
    until: queryInstant("end").meta({
      description: "When it ends: an instant, or a date, whose end it is.",
      type: "string",
    }),
  })
  .meta({ id: "NewExemption" });

const ExemptionView = z
  .object({
    id: z.string(),
    checkId: z.string(),
    scope: z.object({ type: z.enum(SCOPES), id: z.string().nullable() }),
    category: z.enum(EXEMPTION_CATEGORIES),
    reason: z.string(),
    ticket: z.string().nullable(),
    until: instant,
    active: z.boolean().meta({ description: "False once it has ended." }),
    createdAt: instant,
    createdBy: z.string(),
    createdByRole: z.enum(ROLES).nullable().meta({ description: "Null where it was not kept." }),
    etag: z.string(),
  })
  .meta({ id: "Exemption" });

const scoreView = (answer: ScoreAnswer): z.infer<typeof Score> => ({ ...answer });

const frameworkView = ({ controls: _, ...framework }: FrameworkResult): z.infer<typeof Framework> => framework;

const exemptionView = ({
  scopeType,
  scopeId,
  ticket,
  createdByRole,
  ...rest
}: Exemption): z.infer<typeof ExemptionView> => ({
  ...rest,
  scope: { type: scopeType, id: scopeId ?? null },
  ticket: ticket ?? null,
  createdByRole: createdByRole ?? null,
});

const getComplianceScore = endpoint({
  name: "getComplianceScore",
  method: "GET",
  route: "compliance/score",
  summary: "The compliance score",
  description: "Pairs of check and resource; what does not apply, needs a person or is exempted is left out.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    history: z
      .string()
      .regex(/^\d{1,3}$/, "must be a whole number of days")
      .transform(Number)
      .pipe(z.number().min(1).max(366))
      .optional()
      .meta({ description: "Also the score of each of so many days, 1 to 366.", example: "30" }),
  }),
  responds: { 200: Score },
  handle: async ({ query, services }) => ok(scoreView(await services.compliance.score(query.history))),
});

const listViolations = endpoint({
  name: "listViolations",
  method: "GET",
  route: "compliance/violations",
  summary: "What fails, by severity, check and resource",
  description: "Exempted violations stay listed and say so.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    severity: z.enum(SEVERITIES).optional(),
    framework: z.enum(FRAMEWORK_IDS).optional().meta({ description: "A framework's id." }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(Violation, "ViolationList") },
  handle: async ({ query, services }) => {
    const { severity, framework } = query;
    return ok(await services.compliance.violations({ severity, framework }, pageRequest(query)));
  },
});

const evaluateCompliance = endpoint({
  name: "evaluateCompliance",
  method: "POST",
  route: "compliance/evaluate",
  summary: "Evaluate everything now",
  description:
    "Up to 20 vaults with 2,000 assets are evaluated before the answer, which then holds the score. More are `queued`; GET /compliance/score tells how far it is. 409 while enableComplianceScanning is false.",
  tag,
  access: "admin",
  tier: "core",
  responds: { 200: EvaluationResult },
  handle: async ({ caller, services }) => ok(await services.compliance.evaluate(caller)),
});

const listFrameworks = endpoint({
  name: "listFrameworks",
  method: "GET",
  route: "compliance/frameworks",
  summary: "The frameworks, by id",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(Framework, "FrameworkList") },
  handle: async ({ query, services }) => {
    const page = await services.compliance.frameworks(pageRequest(query));
    return ok({ ...page, items: page.items.map(frameworkView) });
  },
});

const getFramework = endpoint({
  name: "getFramework",
  method: "GET",
  route: "compliance/frameworks/{framework_id}",
  summary: "One framework with its controls",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ framework_id: z.string().meta({ enum: FRAMEWORK_IDS }) }),
  responds: { 200: FrameworkDetails },
  handle: async ({ params, services }) => ok(await services.compliance.framework(params.framework_id)),
});

const exemptionParams = z.object({
  exemption_id: z.string().meta({ example: "secret-expired.asset.kv-pay.secret.db" }),
});

const listExemptions = endpoint({
  name: "listExemptions",
  method: "GET",
  route: "compliance/exemptions",
  summary: "The exemptions, by id, ended ones too",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(ExemptionView, "ExemptionList") },
  handle: async ({ query, services }) => {
    const page = await services.compliance.exemptions.list(pageRequest(query));
    return ok({ ...page, items: page.items.map(exemptionView) });
  },
});

const getExemption = endpoint({
  name: "getExemption",
  method: "GET",
  route: "compliance/exemptions/{exemption_id}",
  summary: "One exemption",
  tag,
  access: "user",
  tier: "core",
  params: exemptionParams,
  responds: { 200: ExemptionView },
  handle: async ({ params, services }) =>
    resource(exemptionView(await services.compliance.exemptions.get(params.exemption_id))),
});

const createExemption = endpoint({
  name: "createExemption",
  method: "POST",
  route: "compliance/exemptions",
  summary: "Exempt from a check",
  description: `Takes effect with the next answer and ends by itself. A check has one exemption per scope: 409 while that has not ended. An operator's ends within ${OPERATOR_EXEMPTION_DAYS} days; a longer one is an administrator's (403).`,
  tag,
  access: "operator",
  tier: "core",
  body: NewExemption,
  responds: { 201: ExemptionView },
  handle: async ({ body, caller, services }) => {
    const exemption = await services.compliance.exemptions.create(body, caller);
    return created(exemptionView(exemption), `/compliance/exemptions/${exemption.id}`);
  },
});

const removeExemption = endpoint({
  name: "removeExemption",
  method: "DELETE",
  route: "compliance/exemptions/{exemption_id}",
  summary: "Remove an exemption",
  description: `One that ends more than ${OPERATOR_EXEMPTION_DAYS} days from now is an administrator's to remove (403).`,
  tag,
  access: "operator",
  tier: "core",
  conditional: true,
  params: exemptionParams,
  responds: { 200: z.object({ deleted: z.literal(true) }).meta({ id: "DeletedExemption" }) },
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.compliance.exemptions.end(params.exemption_id, caller, ifMatch);
    return deleted();
  },
});

export const endpoints = [
  getComplianceScore,
  listViolations,
  evaluateCompliance,
  listFrameworks,
  getFramework,
  listExemptions,
  getExemption,
  createExemption,
  removeExemption,
];

export const timers = [
  timer({
    name: "evaluateDueCompliance",
    schedule: () => "0 10 0 * * *",
    handle: ({ services }) => services.compliance.runDue(),
  }),
  timer({
    name: "recordComplianceScore",
    schedule: () => "0 50 * * * *",
    handle: ({ services }) => services.compliance.recordScore(),
  }),
];

export const queues = [
  queue({
    name: "evaluateVaultCompliance",
    queue: QUEUE,
    message: EvaluateMessage,
    handle: (message, { services }) => services.compliance.handle(message),
  }),
  poison({
    name: "evaluateVaultComplianceFailed",
    of: QUEUE,
    message: EvaluateMessage,
    handle: (message, { services, requestId }) => services.compliance.failed(message, requestId),
  }),
];
