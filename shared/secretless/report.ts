import type { CredentialUsage } from "../applications/credential-usage.ts";
import type { ConsumerKind } from "../dependencies/edge.ts";

/** Records of the report that says whether an application can work without its client secrets. */

/**
 * What can replace the secret for one consumer. `managedIdentity`: an identity of Azure. `federatedCredential`: a token of another
 * platform that the application trusts. `none`: nothing that the service knows. `unknown`: the kind of consumer does not decide.
 */
export const REPLACEMENTS = ["managedIdentity", "federatedCredential", "none", "unknown"] as const;

/**
 * How a managed identity replaces the secret. `trusted`: the application trusts the identity and keeps its own permissions.
 * `instead`: the consumer uses the identity instead of the application, and the identity needs its own permissions.
 */
export const IDENTITY_MODES = ["trusted", "instead"] as const;

/** Reasons why a secret can't be replaced, for all of its consumers or for one. */
export const BLOCKERS = ["foreignApplication", "federatedCredentialLimit", "outsideAzure", "unknownKind"] as const;

/** `possible`: for every known consumer. `partly`: for some. `blocked`: for none. `unknown`: no consumer decides. */
export const VERDICTS = ["possible", "partly", "blocked", "unknown"] as const;

export interface Blocker {
  code: (typeof BLOCKERS)[number];
  message: string;
}

/** A federated credential that the application needs. Placeholders in `<…>` stand for parts that the service can't know. */
export interface NeededFederatedCredential {
  issuer: string;
  subject: string;
  audience: string;
  /** The subject in the platform's usual format, to compare with that of a token. */
  usualSubject?: string;
  /** Whether the application has a federated credential with this issuer and the usual subject. */
  exists: boolean;
}

/** Something that a person has to find out, and how. */
interface OpenQuestion {
  name: string;
  how: string;
}

/** One step of a plan. Commands are lines for a POSIX shell. */
export interface Step {
  text: string;
  command?: string;
}

export interface Replacement {
  by: (typeof REPLACEMENTS)[number];
  mode?: (typeof IDENTITY_MODES)[number];
  federatedCredential?: NeededFederatedCredential;
  questions: OpenQuestion[];
  blockers: Blocker[];
  steps: Step[];
}

/** A consumer of a client secret. */
export interface SecretConsumer {
  id: string;
  kind: ConsumerKind;
  name: string;
  /** Names of settings, variables or fields. */
  evidence: string[];
  /** `observed`: a log shows a read. `entitled`: it may read the vault secret, and no use is known. */
  strength: "references" | "entitled" | "observed";
  /** Asset IDs of the vault secrets through which it gets the secret. Empty if it stores its own copy. */
  places: string[];
  /** Whether it stores a copy of the value. */
  copy: boolean;
  /** Whether the consumer is known to use this secret. False: it uses one of the application's secrets, unknown which. */
  isCertain: boolean;
  /** How it gets a new version of the secret. */
  refresh: "automatic" | "action" | "blind" | "willBreak";
}

/** What a sync record copies, and where to. */
export interface SyncTarget {
  provider: string;
  /** For `azure`: the name of the vault. */
  region: string | undefined;
  name: string;
  /** Members of the provider's configuration that locate the target, at the last run. */
  location: Record<string, unknown>;
}

/** A source that was not searched, or a use that no source shows. */
export interface Unknown {
  code: string;
  message: string;
  remedy: string;
}

export interface SecretReport {
  keyId: string;
  assetId: string;
  displayName: string | undefined;
  /** Unix seconds. */
  expiresOn: number | undefined;
  verdict: (typeof VERDICTS)[number];
  reason: string;
  usage: CredentialUsage;
  places: { assetId: string; confidence: "certain" | "likely" }[];
  consumers: (SecretConsumer & { replacement: Replacement })[];
  blockers: Blocker[];
  /** The steps in their order. `consumer` is the ID of the consumer that a step is for. */
  plan: (Step & { consumer?: string })[];
  unknown: Unknown[];
}

export interface SecretlessReport {
  appId: string;
  objectId: string;
  tenantId: string;
  displayName: string;
  /** Existing federated credentials. Undefined if they could not be read. */
  federatedCredentials: { readAt: string; items: { name: string; issuer: string; subject: string }[] } | undefined;
  secrets: SecretReport[];
  /** What was not searched for all secrets of the application. */
  unknown: Unknown[];
}

/** https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations */
export const MAX_FEDERATED_CREDENTIALS = 20;
