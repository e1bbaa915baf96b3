import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import { pageOf, pageParameters, queryInstant } from "../http/paging.ts";
import { singleLine } from "../http/text.ts";
import { subscriptionId, vaultName } from "../inventory/api.ts";
import { RESOURCE_TYPES, SEVERITIES } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { FRAMEWORK_IDS } from "./controls.ts";
import type { Exemption } from "./exemptions.ts";
import { CONTROL_STATUSES, type FrameworkResult } from "./frameworks.ts";
import { EXEMPTION_CATEGORIES, SCOPES } from "./layout.ts";
import type { ViolationFilter } from "./violations.ts";

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
    status: z.enum(["queued", "running", "completed", "partial"]).meta({
      description: "`partial`: some vaults could not be evaluated; `failedVaults` names them.",
    }),
    requestedAt: instant,
    requestedBy: z.string(),
    vaults: count.nullable().meta({ description: "Vaults it covers; null until it is planned." }),
    vaultsLeft: count.meta({ description: "Vaults that are left to evaluate." }),
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
const History = z
  .array(
    z.object({
      date: z.iso.date(),
      score: scoreNumber,
      passed: count,
      failed: count,
      total: count,
      edition: z.int().nullable().meta({
        description:
          "Which edition of the checks it was judged by; null before they had one. Where it changes, the score may without anything having changed.",
      }),
    }),
  )
  .meta({ description: "One per day, oldest first, today's as it is now; days without a score are left out." });
const historyDays = z
  .string()
  .regex(/^\d{1,3}$/, "must be a whole number of days")
  .transform(Number)
  .pipe(z.number().min(1).max(366))
  .optional();
/** The query of what has a trend. */
export const HistoryQuery = z.strictObject({
  history: historyDays.meta({ description: "Also the score of each of so many days, 1 to 366.", example: "30" }),
});
export const ReportQuery = z.strictObject({
  days: historyDays.meta({
    description: "The report's period: so many days up to now, 1 to 366; 90 when left out.",
    example: "90",
  }),
});
export const Score = z.object({ ...scoreFields, history: History.optional() }).meta({ id: "ComplianceScore" });
export const EvaluationResult = Evaluation.extend({
  score: z
    .object(scoreFields)
    .nullable()
    .meta({ description: "The score as it is now; null while vaults are left to evaluate." }),
}).meta({ id: "ComplianceEvaluationResult" });

export const Violation = z
  .object({
    id: z.string().meta({ description: "`<checkId>.<resourceId>`" }),
    resourceId: z.string().meta({ description: "An asset's id, or a vault's name.", example: "kv-pay.secret.db" }),
    resourceType: z.enum(RESOURCE_TYPES).meta({ description: "What fails: a vault, or a kind of asset." }),
    resourceName: z.string().meta({ description: "The resource's name." }),
    credentialTitle: z.string().nullable().meta({
      description:
        "Of a directory's credential: whose it is and what it is called, as its name holds ids alone. As of its last evaluation.",
    }),
    vaultName: z.string().nullable().meta({ description: "Null for what is no key vault's." }),
    subscriptionId: z.string().nullable(),
    owner: z.string().nullable().meta({
      description:
        "The tag that the setting OWNER_TAG names; of an application's credential the application's first owner. As of its vault's last evaluation.",
    }),
    checkId: z.string(),
    title: z.string(),
    severity: z.enum(SEVERITIES),
    rationale: z.string().meta({ description: "Why it matters." }),
    frameworks: z.array(z.enum(FRAMEWORK_IDS)).meta({ description: "The frameworks that ask for it." }),
    controls: z
      .array(z.object({ framework: z.enum(FRAMEWORK_IDS), control: z.string() }))
      .meta({ description: "The controls that it fails." }),
    evidence: z.string().meta({ description: "What was seen on this resource." }),
    remediation: z
      .object({
        portal: z.string().meta({ description: "Steps in the Azure portal." }),
        cli: z.string().meta({
          description:
            "Lines for a POSIX shell, quoted where that is needed. Lines that begin with # are comments: another way, or what the commands need. What stands in <…> is to be filled in.",
        }),
        bicep: z.string().nullable().meta({ description: "Null where no template changes the resource." }),
        bicepNote: z.string().meta({ description: "Why there is none, or what to know before it is deployed." }),
      })
      .meta({ description: "How to mend it on this resource." }),
    firstSeenAt: instant,
    lastSeenAt: instant.meta({ description: "Its vault's last listing of this type that was read to its end." }),
    exempted: z.boolean(),
    exemptionId: z.string().nullable().meta({ description: "The exemption that covers it; null without one." }),
  })
  .meta({ id: "Violation" });

export const ViolationList = pageOf(Violation, "ViolationList")
  .extend({
    open: count.nullable().meta({
      description: "How many of the total no exemption covers: what the score calls `failed`. Null where the total is.",
    }),
    exempted: count
      .nullable()
      .meta({ description: "How many of the total an exemption covers. Null where the total is." }),
  })
  .meta({ id: "ViolationList" });

const CHECK_IDS = CHECKS.map(({ id }) => id).sort();
const filters = {
  severity: z.enum(SEVERITIES).optional(),
  framework: z.enum(FRAMEWORK_IDS).optional().meta({ description: "A framework's id." }),
  check: z
    .enum(CHECK_IDS as [string, ...string[]])
    .optional()
    .meta({ description: "A check's id.", example: "secret-expired" }),
  vault: vaultName.optional().meta({ description: "A vault's name: the vault itself, and what it holds." }),
  subscription: subscriptionId.optional(),
  resource: z.string().min(1).max(512).optional().meta({
    description:
      "The `resourceId` of a violation: an asset's id, or a vault's name. A call looks through 10,000 violations for it, as for an owner.",
    example: "kv-pay.secret.db",
  }),
  owner: z.string().min(1).max(256).optional().meta({
    description:
      "One of the first three owners. A call looks through 10,000 violations for it, then answers what it found; `total` is null then.",
  }),
  exempted: z
    .enum(["true", "false"])
    .transform((value) => value === "true")
    .optional()
    .meta({ description: "`true`: only those that an exemption covers; `false`: only those that none covers." }),
};
export const ViolationQuery = z.strictObject({ ...filters, ...pageParameters });
export const ViolationFileQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });
export const ViolationReportQuery = z.strictObject(filters);

/** The filter that a query asks for. */
export function violationFilter({
  severity,
  framework,
  check,
  vault,
  subscription,
  resource,
  owner,
  exempted,
}: z.output<typeof ViolationReportQuery>): ViolationFilter {
  return {
    severity,
    framework,
    check,
    vault: vault?.toLowerCase(),
    subscription: subscription?.toLowerCase(),
    resource: resource?.toLowerCase(),
    owner,
    exempted,
  };
}

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
  controlsTotal: count.meta({ description: "How many controls are mapped." }),
  controlsByStatus: z
    .object({ pass: count, fail: count, notApplicable: count, manual: count })
    .meta({ description: "How many controls pass, fail, apply to nothing, or need a person." }),
};
export const Framework = z.object(frameworkFields).meta({ id: "Framework" });
export const FrameworkDetails = z
  .object({
    ...frameworkFields,
    history: History.optional(),
    controls: z
      .array(
        z.object({
          id: z.string(),
          title: z.string(),
          status: z.enum(CONTROL_STATUSES).meta({
            description:
              "`fail` when a resource fails one of its checks, `notApplicable` when its checks apply to nothing, `manual` when only a person can tell.",
          }),
          ...controlCounts,
          checks: z
            .array(
              z.object({
                id: z.string(),
                title: z.string(),
                severity: z.enum(SEVERITIES),
                resourceType: z.enum(RESOURCE_TYPES).meta({ description: "What it looks at." }),
                basis: z
                  .string()
                  .meta({ description: "Why the check speaks to the control: who says so, or what its text asks." }),
                ...controlCounts,
              }),
            )
            .meta({ description: "The checks that speak to it, with what they found." }),
        }),
      )
      .meta({ description: "Each control with the checks that speak to it." }),
  })
  .meta({ id: "FrameworkDetails" });

const Scope = z
  .strictObject({
    type: z
      .enum(SCOPES)
      .meta({ description: "What it covers: everything, a subscription, a vault with all it holds, or one asset." }),
    id: z
      .string()
      .max(300)
      .optional()
      .meta({ description: "A subscription id, a vault's name or an asset's id; left out for `all`." }),
  })
  .meta({ id: "NewExemptionScope" });

export const NewExemption = z
  .strictObject({
    checkId: z.string().max(100),
    scope: Scope,
    category: z.enum(EXEMPTION_CATEGORIES).meta({
      description: "`waiver`: the risk is accepted. `mitigated`: it is met by other means.",
    }),
    reason: singleLine(1000),
    ticket: singleLine(200).optional().meta({ description: "Where it was agreed, such as a ticket's number." }),
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
    scope: z
      .object({
        type: z
          .enum(SCOPES)
          .meta({ description: "Everything, a subscription, a vault with all it holds, or one asset." }),
        id: z
          .string()
          .nullable()
          .meta({ description: "A subscription id, a vault's name or an asset's id; null for everything." }),
      })
      .meta({ description: "What it covers." }),
    category: z
      .enum(EXEMPTION_CATEGORIES)
      .meta({ description: "`waiver`: the risk is accepted. `mitigated`: it is met by other means." }),
    reason: z.string(),
    ticket: z.string().nullable().meta({ description: "Where it was agreed; null where nothing was said." }),
    until: instant.meta({ description: "When it ends." }),
    active: z.boolean().meta({ description: "False once it has ended." }),
    createdAt: instant,
    createdBy: z.string(),
    createdByRole: z.enum(ROLES).nullable().meta({ description: "Null where it was not kept." }),
    etag: z.string(),
  })
  .meta({ id: "Exemption" });
export const DeletedExemption = z.object({ deleted: z.literal(true) }).meta({ id: "DeletedExemption" });

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
