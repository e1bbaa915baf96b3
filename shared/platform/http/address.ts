import ipaddr from "ipaddr.js";

/**
 * The client's address: the entry `trustedHops` from the right of `X-Forwarded-For` (the platform appends one), port
 * stripped, IPv6 as its /64, since one customer commonly owns a whole /64. Everything further left is the caller's to
 * forge. `unknown` when there is no such entry or it is no address.
 */
export function clientAddress(headers: Headers, trustedHops: number): string {
  const entries = (headers.get("x-forwarded-for") ?? "").split(",").map((entry) => entry.trim());
  const entry = entries.at(-trustedHops);
  if (!entry) return "unknown";
  const bare = entry.startsWith("[")
    ? entry.slice(1, entry.indexOf("]"))
    : entry.split(":").length === 2
      ? entry.slice(0, entry.indexOf(":"))
      : entry;
  if (!ipaddr.isValid(bare)) return "unknown";
  const address = ipaddr.process(bare);
  if (address.kind() === "ipv4") return address.toString();
  const groups = (address as ipaddr.IPv6).parts.slice(0, 4).map((group) => group.toString(16));
  return `${groups.join(":")}::/64`;
}
