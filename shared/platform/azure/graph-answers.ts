import { decodeJwt } from "jose";
import * as z from "zod";
import { DAY_SECONDS } from "../time.ts";
import { type Route, undocumented } from "./calls.ts";
import { type CallTarget, malformedAnswer } from "./failure.ts";
import type {
  ApplicationChanges,
  DirectoryOwner,
  FederatedCredential,
  GraphApplication,
  IdentityProvider,
  KeyCredential,
  KeySet,
  NewPassword,
  Organization,
  PasswordCredential,
  PasswordPolicy,
} from "./graph-objects.ts";

/**
 * Schemas of Microsoft Graph's responses, with the members that the service uses, and functions that convert them.
 * https://learn.microsoft.com/graph/api/resources/application
 */

/** A text of any member. Documented members are shorter than 4,096 characters. */
const text = z.string().max(4096).nullish();
/** The ID of an object. IDs become part of addresses and storage keys, so their form is checked. */
const guid = z.string().regex(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
const instant = z.iso.datetime({ offset: true }).nullish();

const password = z.object({
  keyId: guid,
  displayName: text,
  hint: z.string().max(16).nullish(),
  startDateTime: instant,
  endDateTime: instant,
});
const key = z.object({
  keyId: guid,
  displayName: text,
  type: z.string().max(64),
  usage: z.string().max(64),
  customKeyIdentifier: text,
  startDateTime: instant,
  endDateTime: instant,
});
const owner = z.object({ id: guid, displayName: text, userPrincipalName: text, mail: text });
const servicePrincipal = z.object({
  id: guid,
  appId: guid,
  displayName: text,
  passwordCredentials: z.array(password),
  keyCredentials: z.array(key),
});
const application = servicePrincipal.extend({
  signInAudience: text,
  createdDateTime: instant,
  owners: z.array(owner).nullish(),
});
/**
 * An entry of the list `federatedApplications`, which has only an ID. An entry with other members must match the schema
 * `application`. Without this rule, an application that lacks a documented member would be accepted as an ID.
 */
const idAlone = z
  .looseObject({ id: guid })
  .refine((entry) => Object.keys(entry).every((name) => name === "id" || name.startsWith("@odata.")));
const removed = z.object({ id: guid, "@removed": z.object({}) });
const changes = z.union([removed, application]);
const federated = z.object({
  id: guid,
  name: z.string(),
  issuer: z.string(),
  subject: z.string(),
  audiences: z.array(z.string()),
});

const organization = z.object({
  id: guid,
  displayName: text,
  tenantType: text,
  verifiedDomains: z.array(z.object({ name: z.string().max(256) })),
});
/** https://learn.microsoft.com/graph/api/resources/identityproviderbase */
const identityProvider = z.object({
  "@odata.type": text,
  id: z.string().min(1).max(256),
  displayName: text,
  clientId: text,
});
/** Other members of a key are not read, because they can contain its private part. */
const policyKey = z.object({
  kid: text,
  kty: text,
  x5t: text,
  x5c: z.array(z.unknown()).nullish(),
  status: text,
  nbf: z.number().nullish(),
  exp: z.number().nullish(),
});
const keySet = z.object({ id: z.string().min(1).max(256), keys: z.array(policyKey).nullish() });

const link = z
  .string()
  .refine((address) => URL.canParse(address))
  .optional();

/** A page of a list with unchecked entries. */
export const graphPage = z.object({
  value: z.array(z.unknown()),
  "@odata.nextLink": link,
  "@odata.deltaLink": link,
});
export type GraphPage = z.infer<typeof graphPage>;

/** https://learn.microsoft.com/graph/api/resources/appmanagementpolicy */
const restriction = z.object({
  restrictionType: z.string(),
  state: text,
  maxLifetime: text,
  restrictForAppsCreatedAfterDateTime: instant,
});
type Restriction = z.infer<typeof restriction>;
const restrictions = z.object({ passwordCredentials: z.array(restriction).nullish() }).nullish();
const assignedPolicies = z.object({
  createdDateTime: instant,
  appManagementPolicies: z.array(z.object({ isEnabled: z.boolean(), restrictions })).nullish(),
});
const tenantPolicy = z.object({ isEnabled: z.boolean(), applicationRestrictions: restrictions });

const newPassword = password.extend({ secretText: z.string().min(1) });

/** Permissions that the remedy of a denied call names. */
const READ = "the application permission Application.Read.All of Microsoft Graph";
const DELTA = `${READ} (or Directory.Read.All)`;
const POLICY = "the application permission Policy.Read.ApplicationConfiguration of Microsoft Graph";
const ORGANIZATION = "the application permission Organization.Read.All of Microsoft Graph";
const PROVIDERS = "the application permission IdentityProvider.Read.All of Microsoft Graph";
const KEY_SETS = "the application permission TrustFrameworkKeySet.Read.All of Microsoft Graph";
const WRITE =
  "the application permission Application.ReadWrite.OwnedBy of Microsoft Graph, and make its service principal an owner of the application";

const target = (operation: string, grant: string) => ({ operation, resource: "Microsoft Graph", grant });
const listOf = (entry: z.ZodType) => ({ answer: graphPage, entry, paged: true });

const APPLICATION_PATH = "applications(?:/[0-9a-f-]{36}|\\(appId='[0-9a-f-]{36}'\\))";

const READ_ONE = target("read an application", READ);

/** The calls to Microsoft Graph v1.0, by their path after `/v1.0/`. */
const ROUTES: [path: RegExp, route: Route][] = [
  // `federatedApplications` lists applications with their IDs only.
  [/^applications$/, { ...listOf(z.union([application, idAlone])), target: target("list applications", READ) }],
  [/^applications\/delta$/, { ...listOf(changes), target: target("list changed applications", DELTA) }],
  [/^servicePrincipals$/, { ...listOf(servicePrincipal), target: target("list service principals", READ) }],
  [
    new RegExp(`^${APPLICATION_PATH}/owners$`),
    { ...listOf(owner), target: target("list an application's owners", READ) },
  ],
  [
    new RegExp(`^${APPLICATION_PATH}/federatedIdentityCredentials$`),
    { ...listOf(federated), target: target("list an application's federated credentials", READ) },
  ],
  [
    new RegExp(`^${APPLICATION_PATH}/federatedIdentityCredentials\\(name='[^']*'\\)$`),
    { answer: "upserted", target: target("add a federated credential", WRITE) },
  ],
  [
    new RegExp(`^${APPLICATION_PATH}/federatedIdentityCredentials/[0-9a-f-]{36}$`),
    { answer: "nothing", target: target("remove a federated credential", WRITE) },
  ],
  // Calls of this path select different members, so only the ID is checked here, and `requireDocumented` checks the others.
  [new RegExp(`^${APPLICATION_PATH}$`), { answer: z.object({ id: guid }), target: READ_ONE }],
  [/^organization$/, { ...listOf(organization), target: target("read the organization", ORGANIZATION) }],
  [
    /^identity\/identityProviders$/,
    { ...listOf(identityProvider), target: target("list the identity providers", PROVIDERS) },
  ],
  [/^policies\/defaultAppManagementPolicy$/, { answer: tenantPolicy, target: target("read the policy", POLICY) }],
  [
    new RegExp(`^${APPLICATION_PATH}/addPassword$`),
    { answer: newPassword, target: target("add a client secret", WRITE) },
  ],
  [
    new RegExp(`^${APPLICATION_PATH}/removePassword$`),
    { answer: "nothing", target: target("remove a client secret", WRITE) },
  ],
];

/** Key sets of custom policies exist only in the beta version of the API. */
const BETA: Route = { ...listOf(keySet), target: target("list the policy keys", KEY_SETS) };

/** Returns the route of a path, or undefined if no call uses that path. */
export function graphRoute(path: string): Route | undefined {
  if (path === "/beta/trustFramework/keySets") return BETA;
  const pathInVersion = /^\/v1\.0\/(.+)$/.exec(path)?.[1];
  return pathInVersion === undefined ? undefined : ROUTES.find(([pattern]) => pattern.test(pathInVersion))?.[1];
}

export function readOrganization(entry: unknown): Organization {
  const { id, displayName, tenantType, verifiedDomains } = organization.parse(entry);
  const domains = verifiedDomains.map(({ name }) => name.toLowerCase());
  return {
    id: id.toLowerCase(),
    displayName: displayName ?? "",
    ...definedMembers({ tenantType }),
    verifiedDomains: domains,
  };
}

export function readIdentityProvider(entry: unknown): IdentityProvider {
  const { "@odata.type": type, id, displayName, clientId } = identityProvider.parse(entry);
  const kind = type?.replace(/^#microsoft\.graph\./, "") ?? "";
  return { id, displayName: displayName || id, kind, ...definedMembers({ clientId }) };
}

export function readKeySet(entry: unknown): KeySet {
  const { id, keys } = keySet.parse(entry);
  return { id, keys: (keys ?? []).map(policyKeyOf) };
}

function policyKeyOf({ kid, kty, x5t, x5c, status, nbf, exp }: z.infer<typeof policyKey>) {
  const thumbprint = x5t ? Buffer.from(x5t, "base64url") : undefined;
  return {
    ...definedMembers({ kid, keyType: kty, startsOn: unixSeconds(nbf), expiresOn: unixSeconds(exp) }),
    certificate: (x5c?.length ?? 0) > 0,
    ...(thumbprint?.length === 20 ? { thumbprint: thumbprint.toString("hex").toUpperCase() } : {}),
    enabled: status?.toLowerCase() !== "disabled",
  };
}

/** Returns undefined for 0, which means that the key does not expire. */
const unixSeconds = (instant: number | null | undefined): number | undefined =>
  instant ? Math.floor(instant) : undefined;

export function readApplication(entry: unknown): GraphApplication {
  const { signInAudience, createdDateTime, owners, ...rest } = requireDocumented(application, entry, READ_ONE);
  return {
    kind: "application",
    ...credentialsOf(rest),
    ...definedMembers({ signInAudience, createdOn: seconds(createdDateTime) }),
    ...(owners && { owners: owners.map(readOwner) }),
  };
}

/** @throws {CloudFailure} badResponse if the answer is not what the service documents. */
function requireDocumented<T>(schema: z.ZodType<T>, answer: unknown, callTarget: CallTarget): T {
  const { data, error } = schema.safeParse(answer);
  if (error) throw undocumented(callTarget, error);
  return data;
}

export function readServicePrincipal(entry: unknown): GraphApplication {
  return { kind: "servicePrincipal", ...credentialsOf(servicePrincipal.parse(entry)) };
}

/** Returns the members that applications and service principals have in common. */
function credentialsOf(entry: z.infer<typeof servicePrincipal>) {
  return {
    objectId: entry.id.toLowerCase(),
    appId: entry.appId.toLowerCase(),
    displayName: entry.displayName ?? "",
    passwords: entry.passwordCredentials.map(passwordOf),
    keys: entry.keyCredentials.map(keyOf),
  };
}

export function readChanges(entries: readonly unknown[]): ApplicationChanges {
  const all = entries.map((entry) => changes.parse(entry));
  return {
    changed: all.filter((change) => !("@removed" in change)).map(readApplication),
    removed: all.filter((change) => "@removed" in change).map(({ id }) => id.toLowerCase()),
  };
}

export function readOwner(entry: unknown): DirectoryOwner {
  const { id, ...names } = owner.parse(entry);
  return { id: id.toLowerCase(), ...definedMembers(names) };
}

/** Reads the entry of a list of which only the IDs are needed. */
export const readId = (entry: unknown): string => z.object({ id: guid }).parse(entry).id.toLowerCase();

/** Reads a federated credential. */
export const readFederated = (entry: unknown): FederatedCredential => federated.parse(entry);

export function readNewPassword(answer: unknown): NewPassword {
  const created = newPassword.parse(answer);
  return { ...passwordOf(created), secretText: created.secretText };
}

function passwordOf({ keyId, displayName, hint, ...dates }: z.infer<typeof password>): PasswordCredential {
  return { keyId: keyId.toLowerCase(), ...definedMembers({ displayName, hint }), ...validityPeriod(dates) };
}

function keyOf({ keyId, displayName, type, usage, customKeyIdentifier, ...dates }: z.infer<typeof key>): KeyCredential {
  const thumbprint = thumbprintOf(customKeyIdentifier);
  return {
    keyId: keyId.toLowerCase(),
    type,
    usage,
    ...definedMembers({ displayName, thumbprint }),
    ...validityPeriod(dates),
  };
}

const validityPeriod = (dates: {
  startDateTime?: string | null | undefined;
  endDateTime?: string | null | undefined;
}) => definedMembers({ startsOn: seconds(dates.startDateTime), expiresOn: seconds(dates.endDateTime) });

/**
 * Returns a thumbprint in upper-case hexadecimal. The portal stores it in hexadecimal, other clients store its 20 bytes in
 * base64.
 */
function thumbprintOf(identifier: string | null | undefined): string | undefined {
  if (!identifier) return undefined;
  if (/^[0-9a-f]{40}$/i.test(identifier)) return identifier.toUpperCase();
  const bytes = Buffer.from(identifier, "base64");
  return bytes.length === 20 ? bytes.toString("hex").toUpperCase() : undefined;
}

/**
 * Combines the policy that is assigned to an application with the tenant's policy. A restriction of the assigned policy
 * replaces the same restriction of the tenant. A disabled restriction therefore exempts the application.
 */
export function passwordPolicyOf(applicationAnswer: unknown, tenantAnswer: unknown): PasswordPolicy {
  const { createdDateTime, appManagementPolicies } = requireDocumented(assignedPolicies, applicationAnswer, READ_ONE);
  const tenant = tenantPolicy.parse(tenantAnswer);
  const assigned = (appManagementPolicies ?? [])
    .filter(({ isEnabled }) => isEnabled)
    .map((policy) => policy.restrictions);
  const assignedFirst = [...assigned, ...(tenant.isEnabled ? [tenant.applicationRestrictions] : [])];
  const restrictionOf = (type: string): Restriction | undefined => {
    const all = assignedFirst.flatMap((policy) => policy?.passwordCredentials ?? []);
    const first = all.find(({ restrictionType }) => restrictionType.toLowerCase() === type.toLowerCase());
    return first && applies(first, createdDateTime) ? first : undefined;
  };
  const lifetime = restrictionOf("passwordLifetime")?.maxLifetime;
  const longestDays = lifetime ? daysOf(lifetime) : undefined;
  return { allowed: restrictionOf("passwordAddition") === undefined, ...definedMembers({ longestDays }) };
}

/** Returns whether a restriction is enabled and covers an application of that age. An unknown age counts as covered. */
function applies(
  { state, restrictForAppsCreatedAfterDateTime: createdAfter }: Restriction,
  created: string | null | undefined,
) {
  if (state?.toLowerCase() === "disabled") return false;
  return !createdAfter || !created || Date.parse(created) >= Date.parse(createdAfter);
}

/**
 * Returns the whole days of an ISO 8601 duration, such as `P1Y6M`. Counts 365 days a year and 28 days a month, so that the
 * result is never longer than the limit of the policy.
 */
function daysOf(duration: string): number | undefined {
  const match = /^P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?$/.exec(
    duration,
  );
  if (match === null) return undefined;
  const [years = 0, months = 0, weeks = 0, days = 0, hours = 0, minutes = 0, secs = 0] = match
    .slice(1)
    .map((part) => Number(part ?? 0));
  const whole = years * 365 + months * 28 + weeks * 7 + days;
  return whole + Math.floor((hours * 3600 + minutes * 60 + secs) / DAY_SECONDS);
}

/**
 * Returns the object ID and the application permissions in the claims of a token. Does not verify the token: Microsoft Graph
 * does when the token is used.
 */
export function readPermissions(token: string): { objectId: string | undefined; permissions: string[] } {
  let claims: ReturnType<typeof decodeJwt>;
  try {
    claims = decodeJwt(token);
  } catch {
    throw malformedAnswer(target("read the identity's permissions", READ), "the token is no JWT");
  }
  const { oid, roles } = claims;
  const permissions = Array.isArray(roles) ? roles.filter((role): role is string => typeof role === "string") : [];
  return { objectId: typeof oid === "string" ? oid.toLowerCase() : undefined, permissions };
}

const seconds = (time: string | null | undefined): number | undefined =>
  time ? Math.floor(Date.parse(time) / 1000) : undefined;

/** Returns the members that are not undefined, null or an empty text. */
function definedMembers<T extends object>(members: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const entries = Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return Object.fromEntries(entries) as { [K in keyof T]?: NonNullable<T[K]> };
}
