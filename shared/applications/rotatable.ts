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

/** Maximum number of client secrets by sign-in audience. Applications for personal accounts have a lower one. */
const TWO_SECRETS = new Set(["AzureADandPersonalMicrosoftAccount", "PersonalMicrosoftAccount"]);
export const mostSecrets = ({ signInAudience }: Pick<ApplicationRecord, "signInAudience">): number =>
  TWO_SECRETS.has(signInAudience ?? "") ? 2 : Number.POSITIVE_INFINITY;

/** Application permissions that allow adding a secret: https://learn.microsoft.com/graph/api/application-addpassword */
const WRITE_ANY = ["Application.ReadWrite.All", "Directory.ReadWrite.All"];
const WRITE_OWNED = "Application.ReadWrite.OwnedBy";

const MESSAGES: Record<ReasonCode, string> = {
  servicePrincipal:
    "Its credentials are a service principal's. The application is another tenant's, or signs tokens with them: they are rotated where they are made.",
  noSecret: "It has no client secret.",
  notPermitted:
    "The service's identity may not add secrets. Grant it the application permission Application.ReadWrite.OwnedBy of Microsoft Graph and make it an owner of the application.",
  notOwner:
    "The service's identity has Application.ReadWrite.OwnedBy and is no owner of the application. Add its service principal as an owner.",
  noRoomForSecret:
    "Applications for personal accounts can hold two client secrets, and this one has two valid ones. Remove the unused one.",
  expiredSecretInTheWay:
    "Applications with personal accounts hold at most two client secrets, and it has two, an expired one among them. Rotate with removeExpired: true, or remove that.",
  forbiddenByPolicy: "A policy of the tenant allows it no new client secrets.",
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
    if (secrets.length >= mostSecrets(app)) {
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
  // If the owners are unknown, or so many that a list may be incomplete, there is no reason.
  if (owners === undefined || owners.length >= MOST_LISTED_OWNERS) return [];
  return owners.some(({ id }) => id === objectId?.toLowerCase()) ? [] : ["notOwner"];
}

/** Graph expands at most this many. */
const MOST_LISTED_OWNERS = 20;
