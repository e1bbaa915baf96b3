import type { Role } from "../platform/http/endpoint.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Person } from "./person.ts";

/** The role of a person, or why there is none. */
export type Decision = Role | { refused: "noRole" | "rolesConflict" | "rolesNotSent" };

/**
 * Determines the role of an SSO user at every sign-in.
 *
 * @param now - The current role; undefined for a new user. It stays if there is no mapping.
 */
export function roleOf(config: SsoConfiguration, person: Person, now: Role | undefined): Decision {
  const { rolesClaim, roleMapping, defaultRole } = config;
  if (rolesClaim === undefined || roleMapping === undefined) return now ?? defaultRole ?? { refused: "noRole" };
  const values = valuesOf(person, rolesClaim);
  if (!values) return { refused: "rolesNotSent" };
  const mapped = new Set(
    values.filter((value) => Object.hasOwn(roleMapping, value)).map((value) => roleMapping[value]!),
  );
  if (mapped.has("admin")) return "admin";
  // Neither role includes the other, so the mapping must decide.
  if (mapped.has("auditor") && mapped.has("operator")) return { refused: "rolesConflict" };
  for (const role of ["auditor", "operator", "user"] as const) if (mapped.has(role)) return role;
  return defaultRole ?? { refused: "noRole" };
}

/**
 * Returns the texts at a claim, or at a JSON pointer into the claims (RFC 6901); none if it does not exist. Undefined if the
 * provider says that it left the claim out for its length, as Entra does:
 * https://learn.microsoft.com/entra/identity-platform/id-token-claims-reference#groups-overage-claim
 */
function valuesOf({ claims }: Person, where: string): string[] | undefined {
  const path = where.startsWith("/") ? where.slice(1).split("/").map(unescaped) : [where];
  const elsewhere = claims._claim_names;
  if (isObject(elsewhere) && Object.hasOwn(elsewhere, path[0]!)) return undefined;
  let value: unknown = claims;
  for (const part of path) value = isObject(value) && Object.hasOwn(value, part) ? value[part] : undefined;
  return [value].flat().filter((one) => typeof one === "string");
}

const unescaped = (part: string): string => part.replaceAll("~1", "/").replaceAll("~0", "~");

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
