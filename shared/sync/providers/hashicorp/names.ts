/** Names are paths below the mount: https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2 */
export function pathProblem(name: string): string | undefined {
  if (name.length > 512) return "must have at most 512 characters";
  const segments = name.split("/");
  if (segments.some((segment) => segment === "")) return "must not begin or end with / or contain //";
  if (segments.some((segment) => segment === "." || segment === "..")) return "must not hold . or .. as a step";
  if (!/^[\w./@=+-]+$/.test(name)) return "must hold letters, digits and any of _./@=+- only";
  return undefined;
}
