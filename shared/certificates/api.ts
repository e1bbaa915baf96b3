import * as z from "zod";
import { subscriptionId, toInstant, vaultName } from "../inventory/api.ts";
import { assetId } from "../inventory/asset.ts";
import { RENEWERS, WINDOW_SOURCES } from "../inventory/renewal.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { type FoundReadiness, READINESS_PROBLEMS } from "./readiness.ts";

/** Schemas and views of the readiness of certificates for shorter lifetimes. */

const instant = z.iso.datetime();
const count = z.int().min(0);
const renewals = z.object({
  today: count.meta({ description: "Under the limit that applies today." }),
  at100Days: count.meta({ description: "Under the limit from 2027-03-15." }),
  at47Days: count.meta({ description: "Under the limit from 2029-03-15." }),
});
const problemCode = z.enum(READINESS_PROBLEMS).meta({
  description:
    "`importedByHand`, `noRenewer`: nothing is known to renew it. `renewerStopped`: a renewal is late. `pinnedConsumer`: a consumer names a version. `keyNotExportable`: a consumer reads a private key that can't be exported. `noOwner`: no owner is named. `triggerTooEarly`: the policy renews earlier than 47 days allow. `orderNotMet`: the authority issued another validity than ordered.",
});
const STATES = ["ready", "failing", "unknown"] as const;

const CertificateReadiness = z
  .object({
    id: z.string().meta({ description: "ID of the certificate.", example: "kv-payments.certificate.www" }),
    name: z.string(),
    vaultName: z.string(),
    subscriptionId: z.string(),
    owner: z.string().nullable().meta({ description: "Value of the tag that the setting OWNER_TAG names." }),
    issuer: z.string().nullable().meta({ description: "Distinguished name of the issuer. Null when unknown." }),
    publiclyTrusted: z.boolean().nullable().meta({
      description:
        "Whether browsers trust the certificate, so that the dated limits apply. Null until a scan has read the certificate itself.",
    }),
    validityDays: z
      .int()
      .nullable()
      .meta({ description: "Days for which the certificate was issued. Null when unknown." }),
    orderedMonths: z.int().nullable().meta({ description: "Months that the policy orders. Null when unknown." }),
    expiresOn: instant.nullable(),
    renewedBy: z.enum(RENEWERS).meta({ description: "Who renews the certificate." }),
    renewalLate: z.boolean().meta({ description: "Whether the renewal window has passed." }),
    windowStart: instant.nullable().meta({ description: "Start of the renewal window. Null when unknown." }),
    windowEnd: instant.nullable().meta({ description: "End of the renewal window. Null when unknown." }),
    windowSource: z.enum(WINDOW_SOURCES).nullable().meta({ description: "Source of the window. Null without one." }),
    authorityCheck: z
      .object({
        checkedAt: instant.meta({ description: "Time when the authority was last asked for the window." }),
        retryAfter: instant.meta({ description: "Time before which the authority is not asked again." }),
        failure: z.string().nullable().meta({ description: "Why it returned no window. Null after a success." }),
      })
      .nullable()
      .meta({ description: "Null if ARI_DIRECTORIES does not name the authority, or it was not asked yet." }),
    renewalsPerYear: renewals.nullable().meta({
      description: "365 days divided by the shorter of the validity and the limit, rounded up. Null when unknown.",
    }),
    state: z.enum(STATES).meta({
      description:
        "`failing`: has problems. `unknown`: has none, but a scan must read its details again. `ready`: has none.",
    }),
    problems: z
      .array(z.object({ code: problemCode, detail: z.string() }))
      .meta({ description: "Why renewals would fail or go unnoticed." }),
  })
  .meta({ id: "CertificateReadiness" });

const Summary = z
  .object({
    certificates: count.meta({ description: "Number of enabled certificates of key vaults in scope." }),
    ready: count.meta({ description: "Number of certificates without problems." }),
    failing: count.meta({ description: "Number of certificates with problems." }),
    unknown: count.meta({ description: "Number of certificates whose details a scan must read again." }),
    renewalsPerYear: renewals.meta({ description: "Sums over the certificates whose renewals are known." }),
    withoutRenewals: count.meta({ description: "Number of certificates whose renewals are unknown." }),
    byRenewer: z
      .array(
        z.object({
          renewedBy: z.enum(RENEWERS).meta({ description: "Who renews the certificates." }),
          certificates: count.meta({ description: "Number of certificates with this renewer." }),
          renewalsPerYear: renewals.meta({ description: "Sums over the certificates of this renewer." }),
        }),
      )
      .meta({ description: "Numbers by renewer. Renewals of `none` are done by hand or not at all." }),
    byProblem: z
      .array(
        z.object({
          code: problemCode,
          certificates: count.meta({ description: "Number of certificates with this problem." }),
        }),
      )
      .meta({ description: "Number of certificates with each problem." }),
    consumersKnown: z.boolean().meta({
      description:
        "False without a PRO license or before the first discovery of dependencies: `pinnedConsumer` and `keyNotExportable` are then not reported.",
    }),
  })
  .meta({ id: "CertificateReadinessSummary" });

export const ReadinessList = pageOf(CertificateReadiness, "CertificateReadinessList")
  .extend({ summary: Summary.nullable().meta({ description: "Sums over all pages. Null when `cursor` is given." }) })
  .meta({ id: "CertificateReadinessList" });

const filters = {
  vault: vaultName.optional().meta({ description: "Name of a vault." }),
  subscription: subscriptionId.optional(),
};
export const ReadinessQuery = z.strictObject({
  ...filters,
  failing: queryBoolean()
    .optional()
    .meta({ description: "`true`: only certificates with problems. A page can then be shorter than `limit`." }),
  limit: pageParameters.limit,
  cursor: pageParameters.cursor,
});
export const ReadinessFileQuery = z.strictObject({ ...filters, cursor: pageParameters.cursor });
export const ReadinessReportQuery = z.strictObject(filters);

export type ReadinessView = z.infer<typeof CertificateReadiness>;

export function readinessView({ readiness, check }: FoundReadiness): ReadinessView {
  const { asset, owner, renewal, publiclyTrusted, validityDays, renewalsPerYear, state, problems } = readiness;
  return {
    id: assetId(asset),
    name: asset.name,
    vaultName: asset.vaultName,
    subscriptionId: asset.subscriptionId,
    owner: owner ?? null,
    issuer: asset.issuer ?? null,
    publiclyTrusted: publiclyTrusted ?? null,
    validityDays: validityDays ?? null,
    orderedMonths: asset.certificate?.orderedMonths ?? null,
    expiresOn: toInstant(asset.expiresOn),
    renewedBy: renewal.renewedBy,
    renewalLate: renewal.late,
    windowStart: toInstant(renewal.windowStart),
    windowEnd: toInstant(renewal.windowEnd),
    windowSource: renewal.source ?? null,
    authorityCheck: check
      ? {
          checkedAt: toInstant(check.checkedAt)!,
          retryAfter: toInstant(check.retryAfter)!,
          failure: check.failure ?? null,
        }
      : null,
    renewalsPerYear: renewalsPerYear ?? null,
    state,
    problems,
  };
}
