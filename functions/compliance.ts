import * as z from "zod";
import {
  EvaluationResult,
  ExemptionView,
  exemptionView,
  Framework,
  FrameworkDetails,
  frameworkView,
  NewExemption,
  Score,
  Violation,
} from "../shared/compliance/api.ts";
import { SEVERITIES } from "../shared/compliance/check.ts";
import { FRAMEWORK_IDS } from "../shared/compliance/controls.ts";
import { OPERATOR_EXEMPTION_DAYS } from "../shared/compliance/exemptions.ts";
import { EvaluateMessage, QUEUE } from "../shared/compliance/layout.ts";
import { pageOf, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { created, deleted, ok, resource } from "../shared/http/reply.ts";
import { endpoint, poison, queue, timer } from "./kit.ts";

const tag = "Compliance";

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
  handle: async ({ query, services }) => ok(await services.compliance.score(query.history)),
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
