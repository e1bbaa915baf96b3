import type { Config } from "../platform/config/config.ts";
import { isLoopback } from "../platform/http/origin.ts";
import { addressProblem, hostAndPort, type OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import { SECOND_MS } from "../platform/time.ts";

const LIMITS = { timeoutMs: 5 * SECOND_MS, maxAnswerBytes: 256 * 1024 };

/** Addresses of an identity provider: public ones by https, and the hosts that PRIVATE_TARGET_HOSTS names. */
export function providerTargets(config: Pick<Config, "PRIVATE_TARGET_HOSTS" | "PUBLIC_BASE_URL">): OutgoingOptions {
  const named = new Set(config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase()));
  const isNamed = (url: URL) => named.has(hostAndPort(url));
  const onThisMachine = config.PUBLIC_BASE_URL !== undefined && isLoopback(new URL(config.PUBLIC_BASE_URL).hostname);
  return {
    ...LIMITS,
    allowedNetwork: (url) => (isNamed(url) ? "named" : "public"),
    // Where the service itself is only to be tried on this machine, so may its identity provider be.
    plainHttp: (url) => onThisMachine && isNamed(url) && isLoopback(url.hostname),
    remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
  };
}

/** What anybody may have looked at: public addresses by https, and no list changes that. */
export const PUBLIC_TARGETS: OutgoingOptions = {
  ...LIMITS,
  allowedNetwork: () => "public",
  plainHttp: () => false,
  remedy: "",
};

/** What is wrong with an issuer's address, completing "must …"; undefined when nothing is. */
export function issuerProblem(issuer: string, targets: OutgoingOptions): string | undefined {
  if (!URL.canParse(issuer)) return "must be an address";
  const url = new URL(issuer);
  if (url.search !== "") return "must not have a query";
  return addressProblem(url, targets.plainHttp(url));
}
