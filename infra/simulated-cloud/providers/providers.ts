// The simulated providers that secrets are synced to, with their credentials.

import { type KeyObject, randomBytes, randomUUID } from "node:crypto";
import type { Service } from "../http.ts";
import { Aws } from "./aws/aws.ts";
import { Github, type GithubCredentials } from "./github.ts";
import { Google, type GoogleCredentials } from "./google.ts";
import { Hashicorp, type HashicorpCredentials } from "./hashicorp.ts";
import { Kubernetes } from "./kubernetes.ts";

/** Credentials of the providers. They are created at the first start of a cloud. */
export interface ProviderCredentials {
  aws: { accessKeyId: string; secretAccessKey: string };
  hashicorp: HashicorpCredentials;
  kubernetes: { token: string };
  github: GithubCredentials;
  google: GoogleCredentials;
}

/** Addresses and shared state of the providers. */
export interface ProviderAddresses {
  /** Returns `https://host:port` for a host name of the cloud. */
  origin(host: string): string;
  /** The Kubernetes API server has a port and a certificate authority of its own. */
  kubernetes: { address: string; caCertificate: string };
  /** RSA key of the GitHub App and of the Google service account. */
  signingKey: KeyObject;
}

/** Creates random credentials. */
export function newProviderCredentials(): ProviderCredentials {
  return {
    aws: {
      accessKeyId: `AKIA${randomBytes(8).toString("hex").toUpperCase()}`,
      secretAccessKey: randomBytes(30).toString("base64url"),
    },
    hashicorp: { token: `hvs.${randomBytes(18).toString("hex")}`, roleId: randomUUID(), secretId: randomUUID() },
    kubernetes: { token: randomBytes(40).toString("base64url") },
    github: {
      token: `github_pat_${randomBytes(30).toString("hex")}`,
      appId: "424242",
      installationId: "51515151",
    },
    google: {
      projectId: "acme-payments",
      clientEmail: "sync@acme-payments.iam.gserviceaccount.com",
      keyId: randomBytes(20).toString("hex"),
    },
  };
}

/** Simulates the providers other than Azure that secrets are synced to. Their contents are in memory. */
export class Providers {
  readonly aws: Aws;
  readonly hashicorp: Hashicorp;
  readonly kubernetes: Kubernetes;
  readonly github: Github;
  readonly google: Google;
  readonly #addresses: ProviderAddresses;

  constructor(credentials: ProviderCredentials, addresses: ProviderAddresses) {
    this.#addresses = addresses;
    this.aws = new Aws(credentials.aws);
    this.hashicorp = new Hashicorp(credentials.hashicorp);
    this.kubernetes = new Kubernetes(credentials.kubernetes.token);
    this.github = new Github(credentials.github, addresses.signingKey);
    this.google = new Google(credentials.google, addresses.origin("google.localhost"), addresses.signingKey);
  }

  /** Returns the services by host name. */
  services(): Record<string, Service> {
    return {
      "aws.localhost": this.aws.service,
      "hashicorp.localhost": this.hashicorp.service,
      "github.localhost": this.github.service,
      "google.localhost": this.google.service,
    };
  }

  /** Returns the environment variables that direct the service to the simulated providers. */
  environment(): Record<string, string> {
    return {
      AWS_ENDPOINT_URL: this.#addresses.origin("aws.localhost"),
      GITHUB_API_URL: this.#addresses.origin("github.localhost"),
      GOOGLE_SECRET_MANAGER_ENDPOINT: this.#addresses.origin("google.localhost"),
    };
  }

  /** Returns the private hosts that users configure as addresses of providers. */
  privateHosts(): string[] {
    return [this.#addresses.origin("hashicorp.localhost"), this.#addresses.kubernetes.address].map(
      (address) => new URL(address).host,
    );
  }

  /** Returns the configuration that authenticates as the GitHub App. The key has the format in which GitHub issues keys. */
  githubApp(): Record<"appId" | "installationId" | "privateKey", string> {
    const { appId, installationId } = this.github.credentials;
    const privateKey = this.#addresses.signingKey.export({ type: "pkcs1", format: "pem" }).toString();
    return { appId, installationId, privateKey };
  }

  /** Returns the service's configuration for each provider, by provider ID. */
  configurations(): Record<string, Record<string, string>> {
    const { token } = this.hashicorp.credentials;
    const { projectId, clientEmail, keyId } = this.google.credentials;
    const keyFile = {
      type: "service_account",
      project_id: projectId,
      private_key_id: keyId,
      private_key: this.#addresses.signingKey.export({ type: "pkcs8", format: "pem" }).toString(),
      client_email: clientEmail,
      token_uri: "https://oauth2.googleapis.com/token",
    };
    return {
      aws: { ...this.aws.key, region: "eu-west-1" },
      github: { token: this.github.credentials.token },
      google: { projectId, serviceAccountKey: JSON.stringify(keyFile) },
      kubernetes: {
        ...this.#addresses.kubernetes,
        namespace: this.kubernetes.namespace,
        token: this.kubernetes.token,
      },
      hashicorp: { address: this.#addresses.origin("hashicorp.localhost"), mount: "secret", token },
    };
  }
}
