import * as z from "zod";
import { pageParameters, queryInstant } from "../http/paging.ts";
import { assetId } from "../inventory/asset.ts";
import { daysUntil, type Moment, STATUSES, statusOf } from "../inventory/health.ts";
import { bucketOf, credentialName, holderName } from "../inventory/holder.ts";
import { ListFailure, RUN_STATUSES } from "../runs/runs.ts";
import { type ApplicationRecord, FederatedCredential, type RunRecord } from "./application.ts";
import type { FoundApplication } from "./query.ts";
import { REASONS } from "./rotatable.ts";

/** Applications and their discovery as the API shows them. */

const instant = z.iso.datetime().meta({ description: "ISO 8601 in UTC." });
const toInstant = (seconds: number | undefined): string | null =>
  seconds === undefined ? null : new Date(seconds * 1000).toISOString();

export const DiscoveryRun = z
  .object({
    runId: z.string(),
    mode: z.enum(["full", "changes"]).meta({ description: "`changes` reads what changed since the run before." }),
    status: z.enum(RUN_STATUSES).meta({
      description:
        "`partial`: one of the lists could not be read; what was known of it stays. `failed`: nothing could be read.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    apps: z.int().nullable().meta({ description: "Applications that are known after it; null while it runs." }),
    credentials: z.int().nullable().meta({ description: "Their secrets and certificates." }),
    expiring: z.int().nullable().meta({ description: "Those of the status warning or critical." }),
    failures: z.array(ListFailure).meta({ description: "What could not be read, and what to do about it." }),
  })
  .meta({ id: "ApplicationDiscovery" });

export function runView(run: RunRecord): z.infer<typeof DiscoveryRun> {
  const { runId, mode, status, requestedBy, createdAt, finishedAt, apps, credentials, expiring, failures } = run;
  return {
    runId,
    mode,
    status,
    requestedBy,
    createdAt,
    finishedAt: finishedAt ?? null,
    apps: apps ?? null,
    credentials: credentials ?? null,
    expiring: expiring ?? null,
    failures,
  };
}

const Credential = z
  .object({
    keyId: z.string(),
    assetId: z.string().meta({ description: "The credential's id in the inventory." }),
    kind: z.enum(["secret", "certificate"]).meta({ description: "Whether it is a client secret or a certificate." }),
    of: z
      .enum(["application", "servicePrincipal"])
      .meta({ description: "Whether it is the application's own or its service principal's." }),
    displayName: z.string().nullable(),
    hint: z.string().nullable().meta({ description: "Of a secret: its first three characters." }),
    thumbprint: z.string().nullable().meta({ description: "Of a certificate: SHA-1, hexadecimal." }),
    startsOn: instant.nullable().meta({ description: "From when on it may be used; null where nothing says so." }),
    expiresOn: instant.nullable(),
    status: z
      .enum(STATUSES)
      .meta({ description: "By the time until it expires and the compliance policy, computed now." }),
    daysUntilExpiry: z.int().nullable(),
  })
  .meta({ id: "ApplicationCredential" });

export const Application = z
  .object({
    appId: z.string().meta({ description: "The client id." }),
    objectId: z.string().meta({ description: "The directory object's id; Microsoft Graph takes it for changes." }),
    kind: z.enum(["application", "servicePrincipal"]).meta({
      description: "`servicePrincipal`: the application is another tenant's and has credentials of its own here.",
    }),
    displayName: z.string(),
    owners: z
      .array(
        z.object({
          id: z.string(),
          displayName: z.string().nullable(),
          userPrincipalName: z.string().nullable().meta({ description: "The name that the owner signs in with." }),
          mail: z.string().nullable().meta({ description: "The owner's e-mail address." }),
        }),
      )
      .nullable()
      .meta({ description: "At most 20; null where they are not known." }),
    credentials: z.array(Credential).meta({ description: "Its client secrets and certificates." }),
    federated: z.array(FederatedCredential).nullable().meta({
      description: "Federated credentials; null until GET of this one application has read them. Kept for a day.",
    }),
    rotatable: z.boolean().meta({ description: "Whether nothing is known that stands in the way of a rotation." }),
    reasons: z
      .array(z.object({ code: z.enum(REASONS), message: z.string() }))
      .meta({ description: "What stands in the way, and what to do about it." }),
    policy: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: "When it is rotated by itself; null where nobody has said so." }),
    firstSeenAt: instant,
    lastSeenAt: instant.nullable().meta({ description: "When all applications were last listed to the end." }),
  })
  .meta({ id: "Application" });

export function applicationView(found: FoundApplication, moment: Moment): z.infer<typeof Application> {
  const { app, reasons, policy, tenantId, lastSeenAt } = found;
  return {
    appId: app.appId,
    objectId: app.objectId,
    kind: app.kind,
    displayName: app.displayName,
    owners:
      app.owners?.map(({ id, displayName, userPrincipalName, mail }) => ({
        id,
        displayName: displayName ?? null,
        userPrincipalName: userPrincipalName ?? null,
        mail: mail ?? null,
      })) ?? null,
    credentials: app.credentials.map((credential) => credentialView(app, credential, tenantId, moment)),
    federated: app.details?.federated ?? null,
    rotatable: reasons.length === 0,
    reasons,
    policy,
    firstSeenAt: app.firstSeenAt,
    lastSeenAt: lastSeenAt === undefined ? null : [lastSeenAt, app.firstSeenAt].sort()[1]!,
  };
}

function credentialView(
  { appId }: ApplicationRecord,
  credential: ApplicationRecord["credentials"][number],
  tenantId: string,
  moment: Moment,
): z.infer<typeof Credential> {
  const { keyId, kind, of, displayName, hint, thumbprint, startsOn, expiresOn } = credential;
  const place = { vaultName: holderName(tenantId, bucketOf(appId)), type: kind, name: credentialName(appId, keyId) };
  return {
    keyId,
    assetId: assetId(place),
    kind,
    of,
    displayName: displayName ?? null,
    hint: hint ?? null,
    thumbprint: thumbprint ?? null,
    startsOn: toInstant(startsOn),
    expiresOn: toInstant(expiresOn),
    status: statusOf(expiresOn, moment),
    daysUntilExpiry: expiresOn === undefined ? null : daysUntil(expiresOn, moment),
  };
}

export const ApplicationQuery = z.strictObject({
  status: z.enum(STATUSES).optional().meta({ description: "With a credential of this status." }),
  search: z.string().min(1).max(120).optional().meta({ description: "Part of the display name or of the client id." }),
  owner: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "An owner's id, sign-in name, mail address or display name, in any case." }),
  rotatable: z
    .enum(["true", "false"])
    .transform((value) => value === "true")
    .optional(),
  expiresBefore: queryInstant("start")
    .optional()
    .meta({ description: "With a credential that expires before this date or instant.", type: "string" }),
  ...pageParameters,
});
