import ipaddr from "ipaddr.js";

/**
 * Addresses of the platform under this service, which answer it with credentials or configuration. Never reachable,
 * whatever is configured. https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service and
 * https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
 */
const PLATFORM = new Set(["169.254.169.254", "168.63.129.16", "169.254.130.1", "fd00:ec2::254"]);

/** How far a request may go beyond public addresses. */
export type Reach =
  | "public"
  /** A host that the configuration names: also the network this service stands in, without link-local addresses. */
  | "named"
  /** The network this service stands in. */
  | "ownNetwork";

const NAMED_RANGES: readonly string[] = ["private", "loopback", "uniqueLocal", "carrierGradeNat"];
const RANGES: Record<Reach, ReadonlySet<string>> = {
  public: new Set(),
  named: new Set(NAMED_RANGES),
  ownNetwork: new Set([...NAMED_RANGES, "linkLocal"]),
};

/** The only part of IPv6 that is routed on the internet: https://www.iana.org/assignments/ipv6-address-space */
const GLOBAL_IPV6 = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * Why no request may go to this address, or undefined when one may.
 *
 * @param address - An IPv4 or IPv6 address as a resolver gives it.
 */
export function refusal(address: string, reach: Reach): string | undefined {
  if (!ipaddr.isValid(address)) return "it is no IP address";
  const parsed = ipaddr.parse(address);
  if (parsed instanceof ipaddr.IPv6 && parsed.isIPv4MappedAddress()) {
    const inner = parsed.toIPv4Address().toString();
    return refusal(inner, reach) ?? (reach === "public" ? "it is an IPv4-mapped address" : undefined);
  }
  if (PLATFORM.has(parsed.toString())) return "it is an address of the platform";
  const range = parsed.range();
  if (RANGES[reach].has(range)) return undefined;
  if (range !== "unicast") return `it is not public (${range})`;
  if (parsed instanceof ipaddr.IPv6 && !parsed.match(GLOBAL_IPV6)) return "it is not a global address";
  return undefined;
}
