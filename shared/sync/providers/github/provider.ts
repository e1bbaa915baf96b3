import type { ProviderDefinition } from "../provider.ts";
import { githubClient } from "./client.ts";
import { GithubConfiguration, type GithubSecrets, type GithubSettings } from "./configuration.ts";
import { comparableName, nameProblem } from "./names.ts";
import { githubTarget } from "./target.ts";

/**
 * GitHub as a provider of sync targets: Actions secrets of repositories and environments. `addressMembers` decide where the
 * credentials are sent, and `locationMembers` which target a name refers to. GitHub's secrets can't store a `Mark` (the record
 * and the source version, beside the value), so the service can't see which version a target has.
 */
export const github: ProviderDefinition<GithubSettings, GithubSecrets> = {
  id: "github",
  title: "GitHub",
  configuration: GithubConfiguration,
  secretMembers: ["token", "privateKey"],
  addressMembers: ["apiUrl"],
  locationMembers: ["apiUrl"],
  services: {
    // 48 KB: https://docs.github.com/actions/reference/secrets-reference#limits-for-secrets
    actions: { nameProblem, comparableName, maxBytes: 48 * 1024, storesMark: false },
  },
  regionProblem: (region) => (region === undefined ? undefined : "is not taken: GitHub has no regions"),
  async check(settings, secrets, deps, signal) {
    // This request counts against no rate limit. Servers without rate limits answer 404, after they have authenticated the
    // caller.
    const client = githubClient(settings, secrets, deps);
    await client.call("GET", "/rate_limit", "inspect the configured credential", [200, 404], undefined, signal);
  },
  open: (_to, settings, secrets, deps) => githubTarget(settings, secrets, deps),
};
