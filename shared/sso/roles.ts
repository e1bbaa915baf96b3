import type { Role } from "../platform/http/endpoint.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Person } from "./person.ts";

/** The role of a person, or the reason why the sign-in is rejected (`REFUSALS` in sign-in-refused.ts). */
export type Decision = Role | { refused: "noRole" | "rolesConflict" | "rolesNotSent" };

/**
 * Determines the role of an SSO user at each sign-in.
 *
 * @param currentRole - Undefined for a new user. Without a mapping the user keeps it.
 */
export function roleOf(config: SsoConfiguration, person: Person, currentRole: Role | undefined): Decision {
  const { rolesClaim, roleMapping, defaultRole } = config;
  if (rolesClaim === undefined || roleMapping === undefined) return currentRole ?? defaultRole ?? { refused: "noRole" };
  const values = valuesOf(person, rolesClaim);
  if (!values) return { refused: "rolesNotSent" };
  const mapped = new Set(
    values.filter((value) => Object.hasOwn(roleMapping, value)).map((value) => roleMapping[value]!),
  );
  if (mapped.has("admin")) return "admin";
  // Neither role includes the other, so an administrator must change the mapping or the person's groups.
  if (mapped.has("auditor") && mapped.has("operator")) return { refused: "rolesConflict" };
  for (const role of ["auditor", "operator", "user"] as const) if (mapped.has(role)) return role;
  return defaultRole ?? { refused: "noRole" };
}

/**
 * Returns the texts of a claim, or at a JSON pointer into the claims (RFC 6901). Returns none if the claim does not exist, and
 * undefined if the provider reports that it left the claim out because it is too long, as Entra does:
 * https://learn.microsoft.com/entra/identity-platform/id-token-claims-reference#groups-overage-claim
 */
function valuesOf({ claims }: Person, rolesClaim: string): string[] | undefined {
  const path = rolesClaim.startsWith("/") ? rolesClaim.slice(1).split("/").map(unescapePointer) : [rolesClaim];
  const omittedClaims = claims._claim_names;
  if (isObject(omittedClaims) && Object.hasOwn(omittedClaims, path[0]!)) return undefined;
  let value: unknown = claims;
  for (const part of path) value = isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined;
  return [value].flat().filter((item) => typeof item === "string");
}

const unescapePointer = (part: string): string => part.replaceAll("~1", "/").replaceAll("~0", "~");

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
