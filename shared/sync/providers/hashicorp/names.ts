/**
 * Checks a name, which is a path below the mount. Returns the problem, or undefined.
 * https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
 */
export function pathProblem(name: string): string | undefined {
  if (name.length > 512) return "must have at most 512 characters";
  const segments = name.split("/");
  if (segments.some((segment) => segment === "")) return "must not begin or end with / or contain //";
  if (segments.some((segment) => segment === "." || segment === "..")) return "must not contain . or .. as a segment";
  if (!/^[\w./@=+-]+$/.test(name)) return "must contain only letters, digits and any of _./@=+-";
  return undefined;
}
