import ipaddr from "ipaddr.js";

/**
 * Returns the client's address: the entry of `X-Forwarded-For` at position `trustedHops` from the right (Azure App Service
 * appends one entry), without a port. Entries further left can be forged by the caller. An IPv6 address is reduced to its /64,
 * because a customer usually owns a whole /64. Returns `unknown` if there is no such entry or it is not an address.
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
