import type * as z from "zod";
import type { VaultSecrets } from "../../platform/azure/vault-secrets.ts";
import type { Outgoing } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Tokens } from "./tokens.ts";

/**
 * The interface of sync targets for the rest of the service. Each provider is a folder beside this file with the same file
 * names: `configuration.ts` (schema of the configuration), `provider.ts` (the `ProviderDefinition`), `target.ts` or one file
 * for each service (implements `SyncTarget`), `client.ts` (calls and sign-in; those of Key Vault are in
 * `shared/platform/azure`), `failures.ts` (meaning of errors), `names.ts` (valid names). SDKs are loaded by the first call.
 * `providers.ts` has one line for each provider.
 */

/**
 * The mark of a write: which record wrote the value of a target, from which version of its source. A target stores the ID of
 * the mark (`markId`) beside the value, if the provider can (`TargetService.storesMark`).
 */
export interface Mark {
  recordId: string;
  /** Version of the secret in the source vault. */
  sourceVersion: string;
  /** `<vault>/<name>` of the source, for people who inspect the target. */
  source: string;
}

/** Current state of a target. Never contains a value. */
export interface TargetState {
  exists: boolean;
  /** ID of the record that the target names as its owner. Null for none, undefined if the provider stores no marks. */
  ownedBy?: string | null;
  /**
   * The `markId` that was written with the current value. Any other text, or undefined, means that the value was written
   * without a mark or was changed since.
   */
  currentMarkId?: string | undefined;
  /** The provider's ID of the current version, such as `VersionId`. */
  version?: string | undefined;
  /** The target is deleted and can be recovered until this time: ISO 8601, or `unknown`. */
  deletedUntil?: string | undefined;
  /** Why the target can't be written at all, for example because another service manages it. */
  refused?: string | undefined;
}

/** Result of a write. */
export interface Written {
  /** The provider's ID of the written version, if there is one. */
  version?: string | undefined;
  /** Whether the target did not exist before. */
  created: boolean;
}

/** Secrets in one service of a provider. Every method throws `SyncFailure`. */
export interface SyncTarget {
  /** Returns the state of a target without reading a value. */
  describe(name: string, signal?: AbortSignal): Promise<TargetState>;
  /**
   * Writes a value with its mark. If `storesMark` is true, a repeated call with the same mark writes nothing. `expected` is the
   * last result of `describe`: if the provider has conditional writes, a target that changed since fails with
   * `changedMeanwhile`.
   */
  put(name: string, value: string, mark: Mark, expected: TargetState, signal?: AbortSignal): Promise<Written>;
  /**
   * Makes the version with `mark` current again, without sending a value. Returns undefined if that version no longer exists;
   * then only `put` restores it. Left out if the provider has no such call.
   */
  restoreVersion?(name: string, mark: Mark, expected: TargetState, signal?: AbortSignal): Promise<Written | undefined>;
  /** Takes over an existing target: makes it name the record as its owner. Left out if the first write does that. */
  adopt?(name: string, mark: Mark, signal?: AbortSignal): Promise<void>;
  /** Recovers a deleted target within its recovery window. */
  undelete?(name: string, signal?: AbortSignal): Promise<void>;
  /** Deletes the target, with the provider's longest recovery window if there is one. Does nothing if it does not exist. */
  remove(name: string, signal?: AbortSignal): Promise<void>;
}

/** One service of a provider, such as `secretsmanager`. */
export interface TargetService {
  /** Returns a normalized name: names of the same secret are equal. Left out if every spelling is another secret. */
  comparableName?(name: string): string;
  /** Returns why a name is invalid, to complete "targetName: "; undefined if it is valid. */
  nameProblem(name: string): string | undefined;
  /** Maximum size of a value in bytes, with its source where it is defined. */
  maxBytes: number;
  /**
   * Whether targets store the mark of their value, which shows the source version. Otherwise drift can't be detected, and a
   * repeated run may write once more.
   */
  storesMark: boolean;
}

/** A provider and its configuration: `settings` are returned, `secrets` are stored in the service's own key vault. */
export interface ProviderDefinition<Settings extends object = object, Secrets extends object = object> {
  /** ID in `targetProvider` and `{provider}`. */
  readonly id: string;
  readonly title: string;
  /** Strict schema of the body of `POST /api/automation/sync/providers/{provider}`: flat, with write-only secrets. */
  readonly configuration: z.ZodObject & z.ZodType<Settings & Secrets>;
  /** Members of the configuration that are secret. */
  readonly secretMembers: readonly (keyof Secrets & string)[];
  /** Members that decide where secrets are sent. A change requires the secrets again. */
  readonly addressMembers: readonly (keyof Settings & string)[];
  /**
   * Members that, together with the record, locate a target. After a change of one of them, the same name means another target,
   * unless the target that is found there names the record as its owner.
   */
  readonly locationMembers: readonly (keyof Settings & string)[];
  readonly services: Readonly<Record<string, TargetService>>;
  /**
   * Returns why a `targetRegion` is invalid, to complete "targetRegion: "; undefined if it is valid. `settings` are empty while
   * the provider is not configured. A `region` in the settings is the default for records.
   */
  regionProblem(region: string | undefined, settings: Partial<Settings>): string | undefined;
  /** Checks the configuration with one call that changes nothing. @throws {SyncFailure} */
  check(settings: Settings, secrets: Secrets, deps: ProviderDependencies, signal?: AbortSignal): Promise<void>;
  open(
    to: { service: string; region: string | undefined },
    settings: Settings,
    secrets: Secrets,
    deps: TargetDependencies,
  ): SyncTarget;
}

/** Services that all providers use. */
export interface ProviderDependencies {
  /** For all calls except those of SDKs. Guarded, because users configure the addresses of some providers. */
  outgoing: Outgoing;
  clock: Clock;
  tokens: Tokens;
  /** Addresses from the environment. Undefined: the public ones. */
  endpoints: { aws?: string | undefined; github?: string | undefined; google?: string | undefined };
}

/** Services for opening the target of a record. */
export interface TargetDependencies extends ProviderDependencies {
  /** Opens the key vault that the record's region names. For the parameter and failures see `SyncVaults.open`. */
  vaultSecrets(readsValue: boolean): Promise<VaultSecrets>;
}

/** Codes of failures: a target could not be read or written. From `notConfigured` on: a record could not be run at all. */
export type SyncFailureCode =
  | "badCredentials"
  | "accessDenied"
  | "throttled"
  | "unreachable"
  | "badResponse"
  | "notFound"
  | "targetNotOwned"
  | "targetRefused"
  | "targetDeleted"
  | "changedMeanwhile"
  | "tooLarge"
  | "invalidName"
  | "limitReached"
  | "encryption"
  | "notConfigured"
  | "otherPlace"
  | "serviceVault"
  | "syncLoop"
  | "sourceNotFound"
  | "sourceDisabled"
  | "sourceExpired"
  | "sourceNotYetValid"
  | "sourceManaged";

/**
 * A call to a provider failed after its retries, or a record could not be run. `message` and `remedy` are texts of this
 * service. Of a provider's answer they contain at most its short code.
 */
export class SyncFailure extends Error {
  override readonly name = "SyncFailure";
  readonly code: SyncFailureCode;
  readonly remedy: string;
  /** The provider's own code, such as `UnrecognizedClientException`. */
  readonly providerCode: string | undefined;
  /** Seconds to wait, if the provider names them. */
  readonly retryAfterSeconds: number | undefined;

  constructor(
    code: SyncFailureCode,
    message: string,
    details: { remedy: string; providerCode?: string | undefined; retryAfterSeconds?: number | undefined },
  ) {
    super(message);
    this.code = code;
    this.remedy = details.remedy;
    this.providerCode = details.providerCode;
    this.retryAfterSeconds = details.retryAfterSeconds;
  }

  /** Whether a write may have happened, because no answer confirms or denies it. */
  get unclear(): boolean {
    return this.code === "unreachable" || this.code === "badResponse";
  }
}
