import { randomUUID } from "node:crypto";
import { type ProviderDefinition, SyncFailure } from "../provider.ts";
import { AwsConfiguration, type AwsSecrets, type AwsSettings, isRegion } from "./configuration.ts";
import { parameterNameProblem, secretNameProblem } from "./names.ts";
import { parameterStore } from "./parameter-store.ts";
import { secretsManager } from "./secrets-manager.ts";

export const aws: ProviderDefinition<AwsSettings, AwsSecrets> = {
  id: "aws",
  title: "Amazon Web Services",
  configuration: AwsConfiguration,
  secretMembers: ["accessKeyId", "secretAccessKey"],
  addressMembers: ["region"],
  placeMembers: [],
  services: {
    // https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_limits.html
    secretsmanager: { nameProblem: secretNameProblem, maxBytes: 65_536, marks: true },
    // https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html: a standard one
    parameterstore: { nameProblem: parameterNameProblem, maxBytes: 4_096, marks: true },
  },

  regionProblem: (region) =>
    region === undefined || isRegion(region) ? undefined : "must be a region such as eu-west-1",

  async check({ region }, secrets, { endpoints }, signal) {
    const target = secretsManager({ region, proven: true, endpoint: endpoints.aws }, secrets);
    try {
      // Nothing has this name, so that an answer proves the key and nothing else.
      await target.describe(`credential-lifecycle/check/${randomUUID()}x`, signal);
    } catch (error) {
      // The key was accepted. Rights may be given for some names only, and those of records are not known here.
      if (!(error instanceof SyncFailure && error.code === "accessDenied")) throw error;
    }
  },

  open({ service, region }, settings, secrets, { endpoints }) {
    const own = region === undefined || region === settings.region;
    const to = { region: region ?? settings.region, proven: own, endpoint: endpoints.aws };
    return service === "parameterstore" ? parameterStore(to, secrets) : secretsManager(to, secrets);
  },
};
