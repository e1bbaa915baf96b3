import { randomUUID } from "node:crypto";
import { type ProviderDefinition, SyncFailure } from "../provider.ts";
import { GoogleConfiguration, type GoogleSecrets, type GoogleSettings } from "./configuration.ts";
import { nameProblem } from "./names.ts";
import { googleTarget } from "./target.ts";

/**
 * Google Cloud as a provider of sync targets: Secret Manager. `addressMembers` decide where the credentials are sent, and
 * `locationMembers` which target a name refers to. Targets store a mark, which shows their source version.
 */
export const google: ProviderDefinition<GoogleSettings, GoogleSecrets> = {
  id: "google",
  title: "Google Cloud",
  configuration: GoogleConfiguration,
  secretMembers: ["serviceAccountKey"],
  addressMembers: [],
  locationMembers: ["projectId"],
  services: {
    // https://cloud.google.com/secret-manager/quotas: 64 KiB
    secretmanager: { nameProblem, maxBytes: 65_536, storesMark: true },
  },
  regionProblem: (region) => (region === undefined ? undefined : "is not taken: the configuration names the location"),

  async check(settings, secrets, deps, signal) {
    try {
      // No secret has this name, so the answer shows only whether the key and the project are valid.
      await googleTarget(settings, secrets, deps).describe(`check-${randomUUID()}`, signal);
    } catch (error) {
      // The key is valid. Its permissions may be limited to some names, and the names of records are not known here.
      if (!(error instanceof SyncFailure && error.code === "accessDenied")) throw error;
    }
  },

  open: (_to, settings, secrets, deps) => googleTarget(settings, secrets, deps),
};
