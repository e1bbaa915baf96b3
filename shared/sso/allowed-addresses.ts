import type { Config } from "../platform/config/config.ts";
import { isLoopback } from "../platform/http/origin.ts";
import { addressProblem, hostAndPort, type OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import { SECOND_MS } from "../platform/time.ts";

/** Limits of each request to an identity provider. */
const LIMITS = { timeoutMs: 5 * SECOND_MS, maxAnswerBytes: 256 * 1024 };

/**
 * Returns the rules for addresses of the configured identity provider. Allowed are public addresses with https, and the hosts
 * in PRIVATE_TARGET_HOSTS. Without such rules an administrator could make the service send requests into its own network.
 */
export function providerAddressRules(
  config: Pick<Config, "PRIVATE_TARGET_HOSTS" | "PUBLIC_BASE_URL">,
): OutgoingOptions {
  const privateHosts = new Set(config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase()));
  const isPrivateHost = (url: URL) => privateHosts.has(hostAndPort(url));
  const onThisMachine = config.PUBLIC_BASE_URL !== undefined && isLoopback(new URL(config.PUBLIC_BASE_URL).hostname);
  return {
    ...LIMITS,
    // `named`: any address of the host, because the configuration names the host. `public`: only public addresses.
    allowedNetwork: (url) => (isPrivateHost(url) ? "named" : "public"),
    // If the service itself runs on this machine for a trial, its identity provider may do so too, without TLS.
    plainHttp: (url) => onThisMachine && isPrivateHost(url) && isLoopback(url.hostname),
    remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
  };
}

/** The rules for addresses that anonymous callers may request: public ones with https, never those in PRIVATE_TARGET_HOSTS. */
export const PUBLIC_ADDRESS_RULES: OutgoingOptions = {
  ...LIMITS,
  allowedNetwork: () => "public",
  plainHttp: () => false,
  remedy: "",
};

/** Returns what is wrong with an issuer's address, as the end of a sentence "must …". Undefined if it is valid. */
export function issuerProblem(issuer: string, addressRules: OutgoingOptions): string | undefined {
  if (!URL.canParse(issuer)) return "must be an address";
  const url = new URL(issuer);
  if (url.search !== "") return "must not have a query";
  return addressProblem(url, addressRules.plainHttp(url));
}
