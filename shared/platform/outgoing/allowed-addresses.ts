import ipaddr from "ipaddr.js";

/**
 * Addresses of Azure (168.63.129.16) and of AWS (fd00:ec2::254) that serve credentials or configuration. Always blocked.
 * https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service and
 * https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
 */
const PLATFORM = new Set(["168.63.129.16", "fd00:ec2::254"]);
/** Contains the metadata service (169.254.169.254) and App Service's endpoint for tokens, such as 169.254.130.1. */
const PLATFORM_IPV4 = ipaddr.IPv4.parseCIDR("169.254.128.0/17");

/**
 * Which addresses a request to a user-configured host may reach. Public addresses are always allowed. IPv4-mapped IPv6 addresses
 * are blocked for `public`.
 */
export type AllowedNetwork =
  /** Only public addresses. For hosts to which neither of the next values applies. */
  | "public"
  /**
   * For hosts that an environment variable names (identity providers, sync targets): also private networks, without link-local
   * addresses.
   */
  | "named"
  /** For webhooks, if the environment allows it: also private networks, with link-local addresses. */
  | "ownNetwork";

const NAMED_RANGES: readonly string[] = ["private", "loopback", "uniqueLocal", "carrierGradeNat"];
const RANGES: Record<AllowedNetwork, ReadonlySet<string>> = {
  public: new Set(),
  named: new Set(NAMED_RANGES),
  ownNetwork: new Set([...NAMED_RANGES, "linkLocal"]),
};

/** The only IPv6 range that is routed on the internet: https://www.iana.org/assignments/ipv6-address-space */
const GLOBAL_IPV6 = ipaddr.IPv6.parseCIDR("2000::/3");

/**
 * Returns why requests to this address are blocked, or undefined if they are allowed.
 *
 * @param address - An IPv4 or IPv6 address from a resolver.
 * @param ranges - Ranges that are allowed in addition, such as `10.1.0.0/16`. Addresses of the platform stay blocked.
 */
export function blockedReason(
  address: string,
  reach: AllowedNetwork,
  ranges: readonly string[] = [],
): string | undefined {
  if (!ipaddr.isValid(address)) return "it is not an IP address";
  const parsed = ipaddr.parse(address);
  if (parsed instanceof ipaddr.IPv6 && parsed.isIPv4MappedAddress()) {
    const inner = parsed.toIPv4Address().toString();
    return blockedReason(inner, reach, ranges) ?? (reach === "public" ? "it is an IPv4-mapped address" : undefined);
  }
  const isPlatform = PLATFORM.has(parsed.toString()) || (parsed instanceof ipaddr.IPv4 && parsed.match(PLATFORM_IPV4));
  if (isPlatform) return "it is an address of the platform";
  const range = parsed.range();
  if (RANGES[reach].has(range) || ranges.some((text) => isInRange(parsed, text))) return undefined;
  if (range !== "unicast") return `it is not public (${range})`;
  if (parsed instanceof ipaddr.IPv6 && !parsed.match(GLOBAL_IPV6)) return "it is not a global address";
  return undefined;
}

/** Returns whether the address is in the range. An address of one IP version is in no range of the other. */
function isInRange(address: ipaddr.IPv4 | ipaddr.IPv6, text: string): boolean {
  const [start, bits] = ipaddr.parseCIDR(text);
  return address.kind() === start.kind() && address.match(start, bits);
}
