import type { Config } from "../../platform/config/config.ts";
import { createOutgoing, hostAndPort } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import { SECOND_MS } from "../../platform/time.ts";
import type { ProviderDependencies } from "./provider.ts";
import { createTokens } from "./tokens.ts";

/** Limits of one request. The largest answer is a secret of HashiCorp Vault, by default about 1 MB, in JSON. */
const LIMITS = { timeoutMs: 30 * SECOND_MS, maxAnswerBytes: 4 * 1024 * 1024 };

type Addresses = Pick<
  Config,
  "PRIVATE_TARGET_HOSTS" | "AWS_ENDPOINT_URL" | "GITHUB_API_URL" | "GOOGLE_SECRET_MANAGER_ENDPOINT"
>;

/** Creates the services that providers use. They call by HTTPS, at public addresses and at hosts that the environment names. */
export function providerDependencies(config: Addresses, clock: Clock): ProviderDependencies {
  const { AWS_ENDPOINT_URL: aws, GITHUB_API_URL: github, GOOGLE_SECRET_MANAGER_ENDPOINT: google } = config;
  const endpoints = [github, google].flatMap((address) => (address ? [hostAndPort(new URL(address))] : []));
  const named = new Set([...endpoints, ...config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase())]);
  const outgoing = createOutgoing({
    ...LIMITS,
    // `named`: a host that the environment names may have a private address. `public`: only public addresses.
    allowedNetwork: (url) => (named.has(hostAndPort(url)) ? "named" : "public"),
    plainHttp: () => false,
    remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
  });
  return { outgoing, clock, tokens: createTokens(clock), endpoints: { aws, github, google } };
}
