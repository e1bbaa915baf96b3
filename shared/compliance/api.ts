import * as z from "zod";
import { subscriptionId, vaultName } from "../inventory/api.ts";
import { ROLES } from "../platform/http/endpoint.ts";
import { pageOf, pageParameters, queryInstant } from "../platform/http/paging.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { singleLine } from "../platform/http/single-line.ts";
import { wholeNumber } from "../platform/http/whole-number.ts";
import { RESOURCE_TYPES, SEVERITIES } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { EXEMPTION_CATEGORIES, SCOPES } from "./compliance-rows.ts";
import { FRAMEWORK_IDS } from "./controls.ts";
import type { Exemption } from "./exemptions.ts";
import { CONTROL_STATUSES, type FrameworkResult } from "./frameworks.ts";
import type { ViolationFilter } from "./violations.ts";

/** Schemas and views of scores, violations, frameworks and exemptions in the API. */

const instant = z.iso.datetime();
const count = z.int().min(0);
const scoreNumber = z
  .number()
  .min(0)
  .max(100)
  .meta({ description: "100 × passed weight ÷ total weight. Weights: critical 10, high 5, medium 2, low 1." });

const Evaluation = z
  .object({
    evaluationId: z.string(),
    status: z.enum(["queued", "running", "completed", "partial"]).meta({
      description: "`partial`: some vaults could not be evaluated; see `failedVaults`.",
    }),
    requestedAt: instant,
    requestedBy: z.string(),
    vaults: count.nullable().meta({ description: "Number of vaults. Null until the evaluation is planned." }),
    vaultsLeft: count.meta({ description: "Number of vaults that are not evaluated yet." }),
    failedVaults: z.array(z.string()).meta({ description: "Vaults that could not be evaluated in five attempts." }),
  })
  .meta({ id: "ComplianceEvaluation" });

const scoreFields = {
  score: scoreNumber,
  passed: count.meta({ description: "Numbers of pairs of check and resource." }),
  failed: count,
  total: count,
  bySeverity: z
    .object({ critical: count, high: count, medium: count, low: count })
    .meta({ description: "Number of failed pairs." }),
  exempted: count.meta({ description: "Number of failed pairs that an exemption excludes from the score." }),
  evaluatedAt: instant
    .nullable()
    .meta({ description: "Time of the newest evaluation of any vault. Null before the first evaluation." }),
  evaluation: Evaluation.nullable().meta({ description: "Last evaluation of all resources that was requested." }),
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
          "Edition of the checks. Null for evaluations made before editions existed. A new edition can change the score without a change of any resource.",
      }),
    }),
  )
  .meta({
    description:
      "One score per day, oldest first; the last entry is the current score. Days without a score are left out.",
  });
const MAX_HISTORY_DAYS = 366;
/** Query of endpoints with a trend. */
export const HistoryQuery = z.strictObject({
  history: wholeNumber(1, MAX_HISTORY_DAYS)
    .optional()
    .meta({ description: `Also return the score of each of this number of days, 1 to ${MAX_HISTORY_DAYS}.` }),
});
export const ReportQuery = z.strictObject({
  days: wholeNumber(1, MAX_HISTORY_DAYS, 90)
    .optional()
    .meta({ description: `Report period in days up to now, 1 to ${MAX_HISTORY_DAYS}. Default: 90.` }),
});
export const Score = z.object({ ...scoreFields, history: History.optional() }).meta({ id: "ComplianceScore" });

export const Breakdown = z
  .object({
    checks: z
      .array(
        z.object({
          id: z.string(),
          title: z.string().meta({ description: "Title of the failure, as in violations." }),
          severity: z.enum(SEVERITIES),
          failed: count.meta({ description: "Number of violations without an exemption." }),
          exempted: count.meta({ description: "Number of violations with an exemption." }),
        }),
      )
      .meta({ description: "Checks that fail, those that lower the score the most first." }),
    subscriptions: z
      .array(
        z.object({
          subscriptionId: z.string().nullable().meta({
            description: "Null for the credentials of applications and of B2C tenants.",
          }),
          name: z.string(),
          score: scoreNumber,
          passed: count.meta({ description: "Numbers of pairs of check and resource." }),
          failed: count,
          total: count,
          bySeverity: scoreFields.bySeverity,
        }),
      )
      .meta({ description: "Score of each subscription, lowest first." }),
    evaluatedAt: scoreFields.evaluatedAt,
  })
  .meta({ id: "ComplianceBreakdown" });
export const ViolationOwners = z
  .object({
    owners: z
      .array(
        z.object({
          owner: z.string(),
          failed: count.meta({ description: "Number of violations; equals `open` of the list with this owner." }),
          bySeverity: scoreFields.bySeverity.meta({ description: "Numbers of violations by severity." }),
        }),
      )
      .meta({ description: "Owners, those with the most critical violations first." }),
    none: count.meta({
      description: "Number of violations of resources without an owner; equals `open` of the list with hasOwner=false.",
    }),
    noneBySeverity: scoreFields.bySeverity.meta({ description: "The same violations by severity." }),
    examined: count.meta({ description: "Number of violations that were examined, including exempted ones." }),
    complete: z.boolean().meta({
      description: "False if there are more violations than one call examines. The most severe ones come first.",
    }),
  })
  .meta({ id: "ComplianceOwners" });
export const EvaluationResult = Evaluation.extend({
  score: z.object(scoreFields).nullable().meta({ description: "Current score. Null until all vaults are evaluated." }),
}).meta({ id: "ComplianceEvaluationResult" });

export const Violation = z
  .object({
    id: z.string().meta({ description: "ID of the violation: `<checkId>.<resourceId>`." }),
    resourceId: z.string().meta({ description: "ID of an asset, or name of a vault.", example: "kv-pay.secret.db" }),
    resourceType: z.enum(RESOURCE_TYPES).meta({ description: "Type of the resource: a vault, or a kind of asset." }),
    resourceName: z.string().meta({ description: "Name of the resource." }),
    credentialTitle: z.string().nullable().meta({
      description:
        "For a directory credential: its owner object and name at the last evaluation, since its ID contains only IDs.",
    }),
    vaultName: z.string().nullable().meta({ description: "Null for resources outside key vaults." }),
    subscriptionId: z.string().nullable(),
    owner: z.string().nullable().meta({
      description:
        "Value of the tag that the setting OWNER_TAG names; for application credentials, the first owner of the application. From the last evaluation of the vault.",
    }),
    checkId: z.string(),
    title: z.string(),
    severity: z.enum(SEVERITIES),
    rationale: z.string().meta({ description: "Why the violation matters." }),
    frameworks: z.array(z.enum(FRAMEWORK_IDS)).meta({ description: "Frameworks that require the check." }),
    controls: z
      .array(z.object({ framework: z.enum(FRAMEWORK_IDS), control: z.string() }))
      .meta({ description: "Controls that the violation fails." }),
    evidence: z.string().meta({ description: "Observed facts of this resource." }),
    remediation: z
      .object({
        portal: z.string().meta({ description: "Steps in the Azure portal." }),
        cli: z.string().meta({
          description:
            "Commands for a POSIX shell, quoted where needed. Lines that start with # are comments: explanations, alternatives, and commands to run later, such as deleting a credential once its replacement is in use. Replace placeholders in <…>.",
        }),
        bicep: z.string().nullable().meta({ description: "Null when no template changes the resource." }),
        bicepNote: z
          .string()
          .meta({ description: "Reason why there is no template, or what to know before you deploy it." }),
      })
      .meta({ description: "Remediation for this resource." }),
    firstSeenAt: instant,
    lastSeenAt: instant.meta({ description: "Time of the vault's last complete listing of this type." }),
    exempted: z.boolean(),
    exemptionId: z.string().nullable().meta({ description: "Exemption of the violation. Null without one." }),
  })
  .meta({ id: "Violation" });

export const ViolationList = pageOf(Violation, "ViolationList")
  .extend({
    open: count.nullable().meta({
      description: "Number of violations without an exemption; equals `failed` in the score. Null when total is null.",
    }),
    exempted: count
      .nullable()
      .meta({ description: "Number of violations with an exemption. Null when total is null." }),
  })
  .meta({ id: "ViolationList" });

const CHECK_IDS = CHECKS.map(({ id }) => id).sort();
const filters = {
  severity: z.enum(SEVERITIES).optional(),
  framework: z.enum(FRAMEWORK_IDS).optional().meta({ description: "ID of a framework." }),
  check: z
    .enum(CHECK_IDS as [string, ...string[]])
    .optional()
    .meta({ description: "ID of a check.", example: "secret-expired" }),
  vault: vaultName.optional().meta({ description: "Name of a vault. Returns its violations and those of its assets." }),
  subscription: subscriptionId.optional(),
  resource: z.string().min(1).max(512).optional().meta({
    description:
      "`resourceId` of a violation: the ID of an asset, or the name of a vault. Each call searches 10,000 violations, as with `owner`.",
    example: "kv-pay.secret.db",
  }),
  owner: z.string().min(1).max(256).optional().meta({
    description:
      "One of the first three owners. Each call searches 10,000 violations and returns the matches; `total` is then null.",
  }),
  hasOwner: queryBoolean().optional().meta({
    description:
      "`true`: only violations of resources with an owner. `false`: only those without one. Each call searches 10,000 violations, as with `owner`.",
  }),
  exempted: queryBoolean()
    .optional()
    .meta({ description: "`true`: only violations with an exemption. `false`: only violations without one." }),
};
export const ViolationQuery = z.strictObject({ ...filters, ...pageParameters });
export const ViolationFileQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });
export const ViolationReportQuery = z.strictObject(filters);

/** Returns the filter of a query, with names and IDs in lower case, as they are compared. */
export function violationFilter({
  severity,
  framework,
  check,
  vault,
  subscription,
  resource,
  owner,
  hasOwner,
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
    hasOwner,
    exempted,
  };
}

const controlCounts = { passed: count, failed: count, exempted: count };
const frameworkFields = {
  id: z.enum(FRAMEWORK_IDS),
  name: z.string(),
  version: z.string(),
  source: z.string().meta({ description: "Source of the mapping of checks to controls." }),
  score: scoreNumber,
  passed: count,
  failed: count,
  total: count,
  controlsTotal: count.meta({ description: "Number of mapped controls." }),
  controlsByStatus: z
    .object({ pass: count, fail: count, notApplicable: count, manual: count })
    .meta({ description: "Numbers of controls that pass, fail, do not apply, or need a manual review." }),
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
              "`fail`: a resource fails one of its checks. `notApplicable`: its checks apply to no resource. `manual`: requires a manual review.",
          }),
          notAssessed: z.string().nullable().meta({
            example: "The service does not know which keys were lost, compromised or damaged.",
            description:
              "Requirement of the control that the service can't see. A person must review it, also if the checks pass. Null if the mapping names none.",
          }),
          ...controlCounts,
          checks: z
            .array(
              z.object({
                id: z.string(),
                title: z.string(),
                severity: z.enum(SEVERITIES),
                resourceType: z
                  .enum(RESOURCE_TYPES)
                  .meta({ description: "Type of the resources that the check inspects." }),
                basis: z.string().meta({
                  description: "Why the check belongs to the control: source of the mapping, or the requirement.",
                }),
                ...controlCounts,
              }),
            )
            .meta({ description: "Checks of the control with their results." }),
        }),
      )
      .meta({ description: "Controls with their checks." }),
  })
  .meta({ id: "FrameworkDetails" });

const Scope = z
  .strictObject({
    type: z.enum(SCOPES).meta({
      description: "Scope of the exemption: all resources, a subscription, a vault with its assets, or one asset.",
    }),
    id: z
      .string()
      .max(300)
      .optional()
      .meta({ description: "Subscription ID, vault name or asset ID. Omit for `all`." }),
  })
  .meta({ id: "NewExemptionScope" });

export const NewExemption = z
  .strictObject({
    checkId: z.string().max(100),
    scope: Scope,
    category: z.enum(EXEMPTION_CATEGORIES).meta({
      description: "`waiver`: the risk is accepted. `mitigated`: the requirement is met by other means.",
    }),
    reason: singleLine(1000),
    ticket: singleLine(200).optional().meta({ description: "Reference to the agreement, such as a ticket number." }),
    until: queryInstant("end").meta({
      description: "Expiry: a time, or a date. The exemption then expires at the end of that day.",
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
          .meta({ description: "All resources, a subscription, a vault with its assets, or one asset." }),
        id: z
          .string()
          .nullable()
          .meta({ description: "Subscription ID, vault name or asset ID. Null for all resources." }),
      })
      .meta({ description: "Scope of the exemption." }),
    category: z
      .enum(EXEMPTION_CATEGORIES)
      .meta({ description: "`waiver`: the risk is accepted. `mitigated`: the requirement is met by other means." }),
    reason: z.string(),
    ticket: z.string().nullable().meta({ description: "Reference to the agreement. Null when none was given." }),
    until: instant.meta({ description: "Expiry time." }),
    active: z.boolean().meta({ description: "False once the exemption has expired." }),
    createdAt: instant,
    createdBy: z.string(),
    createdByRole: z.enum(ROLES).nullable().meta({ description: "Null when not recorded." }),
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
