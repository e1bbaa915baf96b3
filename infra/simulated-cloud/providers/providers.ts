import { type KeyObject, randomBytes, randomUUID } from "node:crypto";
import type { Service } from "../http.ts";
import { Aws } from "./aws/aws.ts";
import { Github, type GithubCredentials } from "./github.ts";
import { Google, type GoogleCredentials } from "./google.ts";
import { Hashicorp, type HashicorpCredentials } from "./hashicorp.ts";
import { Kubernetes } from "./kubernetes.ts";

/** The credentials of the providers, decided at the first start of a cloud. */
export interface ProviderCredentials {
  aws: { accessKeyId: string; secretAccessKey: string };
  hashicorp: HashicorpCredentials;
  kubernetes: { token: string };
  github: GithubCredentials;
  google: GoogleCredentials;
}

/** Where the providers are, and what they share with the rest of the cloud. */
export interface ProviderPlaces {
  /** `https://host:port` of a host name of the cloud. */
  origin(host: string): string;
  /** The API server stands on its own, with an authority that nobody trusts unasked. */
  kubernetes: { address: string; caCertificate: string };
  /** The RSA key of the app at GitHub and of the service account at Google. */
  signingKey: KeyObject;
}

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

/**
 * The other companies' clouds that secrets are copied to, at names beside those of Azure. What they hold lasts as long as
 * the process.
 */
export class Providers {
  readonly aws: Aws;
  readonly hashicorp: Hashicorp;
  readonly kubernetes: Kubernetes;
  readonly github: Github;
  readonly google: Google;
  readonly #at: ProviderPlaces;

  constructor(credentials: ProviderCredentials, at: ProviderPlaces) {
    this.#at = at;
    this.aws = new Aws(credentials.aws);
    this.hashicorp = new Hashicorp(credentials.hashicorp);
    this.kubernetes = new Kubernetes(credentials.kubernetes.token);
    this.github = new Github(credentials.github, at.signingKey);
    this.google = new Google(credentials.google, at.origin("google.localhost"), at.signingKey);
  }

  /** By host name. */
  services(): Record<string, Service> {
    return {
      "aws.localhost": this.aws.service,
      "hashicorp.localhost": this.hashicorp.service,
      "github.localhost": this.github.service,
      "google.localhost": this.google.service,
    };
  }

  environment(): Record<string, string> {
    return {
      AWS_ENDPOINT_URL: this.#at.origin("aws.localhost"),
      GITHUB_API_URL: this.#at.origin("github.localhost"),
      GOOGLE_SECRET_MANAGER_ENDPOINT: this.#at.origin("google.localhost"),
    };
  }

  /** Hosts that people name and that stand in no public network. */
  privateHosts(): string[] {
    return [this.#at.origin("hashicorp.localhost"), this.#at.kubernetes.address].map(
      (address) => new URL(address).host,
    );
  }

  /** The app at GitHub, in place of the token; its key is in the form in which GitHub hands them out. */
  githubApp(): Record<"appId" | "installationId" | "privateKey", string> {
    const { appId, installationId } = this.github.credentials;
    const privateKey = this.#at.signingKey.export({ type: "pkcs1", format: "pem" }).toString();
    return { appId, installationId, privateKey };
  }

  /** What the service is configured with for each provider, by its id. */
  configurations(): Record<string, Record<string, string>> {
    const { token } = this.hashicorp.credentials;
    const { projectId, clientEmail, keyId } = this.google.credentials;
    const keyFile = {
      type: "service_account",
      project_id: projectId,
      private_key_id: keyId,
      private_key: this.#at.signingKey.export({ type: "pkcs8", format: "pem" }).toString(),
      client_email: clientEmail,
      token_uri: "https://oauth2.googleapis.com/token",
    };
    return {
      aws: { ...this.aws.key, region: "eu-west-1" },
      github: { token: this.github.credentials.token },
      google: { projectId, serviceAccountKey: JSON.stringify(keyFile) },
      kubernetes: {
        ...this.#at.kubernetes,
        namespace: this.kubernetes.namespace,
        token: this.kubernetes.token,
      },
      hashicorp: { address: this.#at.origin("hashicorp.localhost"), mount: "secret", token },
    };
  }
}
