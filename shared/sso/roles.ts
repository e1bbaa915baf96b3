import type { Role } from "../platform/http/endpoint.ts";
import type { SsoConfiguration } from "./configuration.ts";
import type { Person } from "./person.ts";

/** The role somebody gets, or why they get none. */
export type Decision = Role | { refused: "noRole" | "rolesConflict" | "rolesNotSent" };

/**
 * The role of somebody whom single sign-on made a user, worked out at every sign-in.
 *
 * @param now - The role they have; undefined for somebody new. It stays where no mapping says otherwise.
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
  // Neither is above the other: which one is meant must be said.
  if (mapped.has("auditor") && mapped.has("operator")) return { refused: "rolesConflict" };
  for (const role of ["auditor", "operator", "user"] as const) if (mapped.has(role)) return role;
  return defaultRole ?? { refused: "noRole" };
}

/**
 * The texts at a claim, or at a JSON pointer into the claims (RFC 6901); none when it is not there. Undefined when the
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
