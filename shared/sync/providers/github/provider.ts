import type { ProviderDefinition } from "../provider.ts";
import { githubClient } from "./client.ts";
import { GithubConfiguration, type GithubSecrets, type GithubSettings } from "./configuration.ts";
import { nameProblem, sameName } from "./names.ts";
import { githubTarget } from "./target.ts";

export const github: ProviderDefinition<GithubSettings, GithubSecrets> = {
  id: "github",
  title: "GitHub",
  configuration: GithubConfiguration,
  secretMembers: ["token", "privateKey"],
  addressMembers: ["apiUrl"],
  placeMembers: ["apiUrl"],
  services: {
    // https://docs.github.com/actions/reference/secrets-reference#limits-for-secrets: 48 KB
    actions: { nameProblem, sameName, maxBytes: 48 * 1024, marks: false },
  },
  regionProblem: (region) => (region === undefined ? undefined : "is not taken: GitHub has no regions"),
  async check(settings, secrets, deps, signal) {
    // It counts against no limit. A server without limits answers 404, once it knows who asks.
    const client = githubClient(settings, secrets, deps);
    await client.call("GET", "/rate_limit", "look at the configured credential", [200, 404], undefined, signal);
  },
  open: (_to, settings, secrets, deps) => githubTarget(settings, secrets, deps),
};
