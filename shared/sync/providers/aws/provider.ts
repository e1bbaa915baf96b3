import { randomUUID } from "node:crypto";
import { type ProviderDefinition, SyncFailure } from "../provider.ts";
import { AwsConfiguration, type AwsSecrets, type AwsSettings, isRegion } from "./configuration.ts";
import { parameterNameProblem, secretNameProblem } from "./names.ts";
import { parameterStore } from "./parameter-store.ts";
import { secretsManager } from "./secrets-manager.ts";

/**
 * Amazon Web Services as a provider of sync targets: Secrets Manager and Parameter Store. `addressMembers` decide where the
 * credentials are sent, and `locationMembers` which target a name refers to. Targets store a mark, which shows their source
 * version.
 */
export const aws: ProviderDefinition<AwsSettings, AwsSecrets> = {
  id: "aws",
  title: "Amazon Web Services",
  configuration: AwsConfiguration,
  secretMembers: ["accessKeyId", "secretAccessKey"],
  addressMembers: ["region"],
  locationMembers: [],
  services: {
    // https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_limits.html
    secretsmanager: { nameProblem: secretNameProblem, maxBytes: 65_536, storesMark: true },
    // Limit of a standard parameter:
    // https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html
    parameterstore: { nameProblem: parameterNameProblem, maxBytes: 4_096, storesMark: true },
  },

  regionProblem: (region) =>
    region === undefined || isRegion(region) ? undefined : "must be a region such as eu-west-1",

  async check({ region }, secrets, { endpoints }, signal) {
    const target = secretsManager({ region, isTested: true, endpoint: endpoints.aws }, secrets);
    try {
      // No secret has this name, so the answer shows only whether the key is valid.
      await target.describe(`credential-lifecycle/check/${randomUUID()}x`, signal);
    } catch (error) {
      // The key is valid. Its permissions may be limited to some names, and the names of records are not known here.
      if (!(error instanceof SyncFailure && error.code === "accessDenied")) throw error;
    }
  },

  open({ service, region }, settings, secrets, { endpoints }) {
    const isConfiguredRegion = region === undefined || region === settings.region;
    const address = { region: region ?? settings.region, isTested: isConfiguredRegion, endpoint: endpoints.aws };
    return service === "parameterstore" ? parameterStore(address, secrets) : secretsManager(address, secrets);
  },
};
