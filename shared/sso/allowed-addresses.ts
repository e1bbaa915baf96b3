import type { Config } from "../platform/config/config.ts";
import { isLoopback } from "../platform/http/origin.ts";
import { addressProblem, hostAndPort, type OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import { SECOND_MS } from "../platform/time.ts";

const LIMITS = { timeoutMs: 5 * SECOND_MS, maxAnswerBytes: 256 * 1024 };

/** Allowed addresses of an identity provider: public ones with https, and the hosts in PRIVATE_TARGET_HOSTS. */
export function providerTargets(config: Pick<Config, "PRIVATE_TARGET_HOSTS" | "PUBLIC_BASE_URL">): OutgoingOptions {
  const named = new Set(config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase()));
  const isNamed = (url: URL) => named.has(hostAndPort(url));
  const onThisMachine = config.PUBLIC_BASE_URL !== undefined && isLoopback(new URL(config.PUBLIC_BASE_URL).hostname);
  return {
    ...LIMITS,
    allowedNetwork: (url) => (isNamed(url) ? "named" : "public"),
    // If the service itself runs on this machine for a trial, its identity provider may, too.
    plainHttp: (url) => onThisMachine && isNamed(url) && isLoopback(url.hostname),
    remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
  };
}

/** Addresses that anonymous callers may request: public ones with https, independent of any list. */
export const PUBLIC_TARGETS: OutgoingOptions = {
  ...LIMITS,
  allowedNetwork: () => "public",
  plainHttp: () => false,
  remedy: "",
};

/** Returns what is wrong with an issuer's address, as the end of a sentence "must …". Undefined if it is valid. */
export function issuerProblem(issuer: string, targets: OutgoingOptions): string | undefined {
  if (!URL.canParse(issuer)) return "must be an address";
  const url = new URL(issuer);
  if (url.search !== "") return "must not have a query";
  return addressProblem(url, targets.plainHttp(url));
}
