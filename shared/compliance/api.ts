import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import { queryInstant } from "../http/paging.ts";
import { singleLine } from "../http/text.ts";
import { RESOURCE_TYPES, SEVERITIES } from "./check.ts";
import { FRAMEWORK_IDS } from "./controls.ts";
import type { Exemption } from "./exemptions.ts";
import { CONTROL_STATUSES, type FrameworkResult } from "./frameworks.ts";
import { EXEMPTION_CATEGORIES, SCOPES } from "./layout.ts";

/** Scores, violations, frameworks and exemptions as the API takes and shows them. */

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
export const Score = z
  .object({
    ...scoreFields,
    history: z
      .array(z.object({ date: z.iso.date(), score: scoreNumber, passed: count, failed: count, total: count }))
      .optional()
      .meta({ description: "One per day, oldest first, today's as it is now; days without a score are left out." }),
  })
  .meta({ id: "ComplianceScore" });
export const EvaluationResult = Evaluation.extend({
  score: z.object(scoreFields).nullable().meta({ description: "Null while vaults are left to evaluate." }),
}).meta({ id: "ComplianceEvaluationResult" });

export const Violation = z
  .object({
    id: z.string().meta({ description: "`<checkId>.<resourceId>`" }),
    resourceId: z.string().meta({ description: "An asset's id, or a vault's name.", example: "kv-pay.secret.db" }),
    resourceType: z.enum(RESOURCE_TYPES),
    resourceName: z.string(),
    vaultName: z.string().nullable().meta({ description: "Null for what is no key vault's." }),
    subscriptionId: z.string().nullable(),
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
export const Framework = z.object(frameworkFields).meta({ id: "Framework" });
export const FrameworkDetails = z
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

export const NewExemption = z
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

export const ExemptionView = z
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

export const frameworkView = ({ controls: _, ...framework }: FrameworkResult): z.infer<typeof Framework> => framework;

export const exemptionView = ({
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
