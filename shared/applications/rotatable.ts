import type { ApplicationRecord, StateRecord } from "./application.ts";

/** Reasons why an application's secret can't be rotated. `MESSAGES` has their texts. */
export const REASONS = [
  "servicePrincipal",
  "noSecret",
  "notPermitted",
  "notOwner",
  "noRoomForSecret",
  "expiredSecretInTheWay",
  "forbiddenByPolicy",
] as const;
export type ReasonCode = (typeof REASONS)[number];

/** Sign-in audiences with personal accounts, whose applications can have at most two client secrets. */
const TWO_SECRET_AUDIENCES = new Set(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"]);
/** Returns the maximum number of client secrets of an application. */
export const maxSecrets = ({ signInAudience }: Pick<ApplicationRecord, "signInAudience">): number =>
  TWO_SECRET_AUDIENCES.has(signInAudience ?? "") ? 2 : Number.POSITIVE_INFINITY;

/** Application permissions that allow adding a secret: https://learn.microsoft.com/graph/api/application-addpassword */
const WRITE_ANY = ["Application.ReadWrite.All", "Directory.ReadWrite.All"];
const WRITE_OWNED = "Application.ReadWrite.OwnedBy";

const MESSAGES: Record<ReasonCode, string> = {
  servicePrincipal:
    "The credentials belong to a service principal: the application belongs to another tenant or signs tokens with them. Rotate them where they were created.",
  noSecret: "The application has no client secret.",
  notPermitted:
    "The service's identity has no permission to add secrets. Grant it the application permission Application.ReadWrite.OwnedBy of Microsoft Graph and make it an owner of the application.",
  notOwner:
    "The service's identity has Application.ReadWrite.OwnedBy but is not an owner of the application. Add its service principal as an owner.",
  noRoomForSecret:
    "Applications for personal accounts can have at most two client secrets, and this application has two valid ones. Remove the unused one.",
  expiredSecretInTheWay:
    "Applications for personal accounts can have at most two client secrets, and this application has two, one of them expired. Let the rotation delete the expired one first (removeExpired: true), or delete it yourself.",
  forbiddenByPolicy: "A policy of the tenant forbids new client secrets for the application.",
};

export interface Reason {
  code: ReasonCode;
  message: string;
}

/**
 * Returns the known reasons that prevent a rotation, without a request.
 *
 * @param rights - Permissions of the service's identity. Undefined before the first discovery.
 * @param now - Milliseconds since 1970.
 */
export function reasonsAgainst(
  app: Pick<ApplicationRecord, "kind" | "signInAudience" | "owners" | "credentials" | "details">,
  rights: StateRecord["rights"],
  now: number,
): Reason[] {
  const codes: ReasonCode[] = [];
  const secrets = app.credentials.filter(({ kind, of }) => kind === "secret" && of === "application");
  if (app.kind === "servicePrincipal") codes.push("servicePrincipal");
  else {
    if (secrets.length === 0) codes.push("noSecret");
    if (rights) codes.push(...missingRight(app.owners, rights));
    if (secrets.length >= maxSecrets(app)) {
      const expired = secrets.some(({ expiresOn }) => expiresOn !== undefined && expiresOn * 1000 < now);
      codes.push(expired ? "expiredSecretInTheWay" : "noRoomForSecret");
    }
    if (app.details?.policy?.allowed === false) codes.push("forbiddenByPolicy");
  }
  return codes.map((code) => ({ code, message: MESSAGES[code] }));
}

function missingRight(owners: ApplicationRecord["owners"], rights: NonNullable<StateRecord["rights"]>): ReasonCode[] {
  const { permissions, objectId } = rights;
  if (WRITE_ANY.some((permission) => permissions.includes(permission))) return [];
  if (!permissions.includes(WRITE_OWNED)) return ["notPermitted"];
  // If the owners are unknown, or so many that Graph's list may be incomplete, the service may be an owner.
  if (owners === undefined || owners.length >= MAX_LISTED_OWNERS) return [];
  return owners.some(({ id }) => id === objectId?.toLowerCase()) ? [] : ["notOwner"];
}

/** Maximum number of owners that Graph returns with an application. */
const MAX_LISTED_OWNERS = 20;
