import { randomBytes } from "node:crypto";
import type { Service } from "../http.ts";
import { Aws } from "./aws/aws.ts";

/** The credentials of the providers, decided at the first start of a cloud. */
export interface ProviderCredentials {
  aws: { accessKeyId: string; secretAccessKey: string };
}

export function newProviderCredentials(): ProviderCredentials {
  return {
    aws: {
      accessKeyId: `AKIA${randomBytes(8).toString("hex").toUpperCase()}`,
      secretAccessKey: randomBytes(30).toString("base64url"),
    },
  };
}

/**
 * The other companies' clouds that secrets are copied to, at names beside those of Azure. What they hold lasts as long as
 * the process.
 */
export class Providers {
  readonly aws: Aws;

  constructor(credentials: ProviderCredentials) {
    this.aws = new Aws(credentials.aws);
  }

  /** By host name. */
  services(): Record<string, Service> {
    return { "aws.localhost": this.aws.service };
  }

  /** @param origin of a host name, with the port. */
  environment(origin: (host: string) => string): Record<string, string> {
    return { AWS_ENDPOINT_URL: origin("aws.localhost") };
  }

  /** What the service is configured with for each provider, by its id. */
  configurations(): Record<string, Record<string, string>> {
    return { aws: { ...this.aws.key, region: "eu-west-1" } };
  }
}
