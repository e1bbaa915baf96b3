/**
 * Returns the value of a cookie. Undefined if it is missing, or present twice, because then another host may have set one of
 * them.
 */
export function cookieOf(headers: Headers, name: string): string | undefined {
  const values = (headers.get("cookie") ?? "")
    .split(";")
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
    .map((pair) => pair.slice(name.length + 1));
  return values.length === 1 && values[0] !== "" ? values[0] : undefined;
}
