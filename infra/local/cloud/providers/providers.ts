import { randomBytes, randomUUID } from "node:crypto";
import type { Service } from "../http.ts";
import { Aws } from "./aws/aws.ts";
import { Hashicorp, type HashicorpCredentials } from "./hashicorp.ts";
import { Kubernetes } from "./kubernetes.ts";

/** The credentials of the providers, decided at the first start of a cloud. */
export interface ProviderCredentials {
  aws: { accessKeyId: string; secretAccessKey: string };
  hashicorp: HashicorpCredentials;
  kubernetes: { token: string };
}

/** Where the providers are. */
export interface ProviderAddresses {
  /** `https://host:port` of a host name of the cloud. */
  origin(host: string): string;
  /** The API server stands on its own, with an authority that nobody trusts unasked. */
  kubernetes: { address: string; caCertificate: string };
}

export function newProviderCredentials(): ProviderCredentials {
  return {
    aws: {
      accessKeyId: `AKIA${randomBytes(8).toString("hex").toUpperCase()}`,
      secretAccessKey: randomBytes(30).toString("base64url"),
    },
    hashicorp: { token: `hvs.${randomBytes(18).toString("hex")}`, roleId: randomUUID(), secretId: randomUUID() },
    kubernetes: { token: randomBytes(40).toString("base64url") },
  };
}

/**
 * The other companies' clouds that secrets are copied to, at names beside those of Azure. What they hold lasts as long as
 * the process.
 */
export class Providers {
  readonly aws: Aws;
  readonly hashicorp: Hashicorp;
  readonly kubernetes: Kubernetes;
  readonly #at: ProviderAddresses;

  constructor(credentials: ProviderCredentials, at: ProviderAddresses) {
    this.#at = at;
    this.aws = new Aws(credentials.aws);
    this.hashicorp = new Hashicorp(credentials.hashicorp);
    this.kubernetes = new Kubernetes(credentials.kubernetes.token);
  }

  /** By host name. */
  services(): Record<string, Service> {
    return { "aws.localhost": this.aws.service, "hashicorp.localhost": this.hashicorp.service };
  }

  environment(): Record<string, string> {
    return { AWS_ENDPOINT_URL: this.#at.origin("aws.localhost") };
  }

  /** Hosts that people name and that stand in no public network. */
  privateHosts(): string[] {
    return [this.#at.origin("hashicorp.localhost"), this.#at.kubernetes.address].map(
      (address) => new URL(address).host,
    );
  }

  /** What the service is configured with for each provider, by its id. */
  configurations(): Record<string, Record<string, string>> {
    const { token } = this.hashicorp.credentials;
    return {
      aws: { ...this.aws.key, region: "eu-west-1" },
      kubernetes: {
        ...this.#at.kubernetes,
        namespace: this.kubernetes.namespace,
        token: this.kubernetes.token,
      },
      hashicorp: { address: this.#at.origin("hashicorp.localhost"), mount: "secret", token },
    };
  }
}
