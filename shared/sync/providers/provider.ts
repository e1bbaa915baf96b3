import type * as z from "zod";
import type { VaultSecrets } from "../../platform/azure/vault-secrets.ts";
import type { Outgoing } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Tokens } from "./tokens.ts";

/**
 * What a sync target is to the rest of the service. Each provider is one folder beside this file with the same file names:
 * `configuration.ts` (what is configured, and its schema), `provider.ts` (its `ProviderDefinition`), `target.ts` or a file for
 * each service (implements `SyncTarget`), `client.ts` (its calls and how they sign in; a key vault's are in `shared/platform/azure`),
 * `failures.ts` (what its errors mean), `names.ts` (which names it takes). An SDK is loaded with the first call. `providers.ts`
 * has one line for each.
 */

/** Says which value of which record a target holds. */
export interface Mark {
  recordId: string;
  /** The version of the secret in the source vault. */
  sourceVersion: string;
  /** `<vault>/<name>` of the source, for people who look at the target. */
  source: string;
}

/** What a target's name stands for now. Never with a value. */
export interface TargetState {
  exists: boolean;
  /** The record whose mark of ownership it carries; null for none, undefined where the provider can carry none. */
  ownedBy?: string | null;
  /**
   * The `markId` of what it holds now, where the provider can tell without a value. Anything else, or undefined: what it
   * holds was not written under a mark, or was changed since.
   */
  holds?: string | undefined;
  /** The provider's own id of the version that is current, such as `VersionId`. */
  version?: string | undefined;
  /** It is deleted and can be brought back until then; ISO 8601, or `unknown`. */
  deletedUntil?: string | undefined;
  /** Why it may not be written whatever it carries, such as that another service manages it. */
  refused?: string | undefined;
}

/** What a write came to. */
export interface Written {
  /** The provider's id of the version written, where it has one. */
  version?: string | undefined;
  /** It was not there before. */
  created: boolean;
}

/** The place that one service of a provider keeps secrets in. Every method throws `SyncFailure`. */
export interface SyncTarget {
  /** Looks without reading a value. */
  describe(name: string, signal?: AbortSignal): Promise<TargetState>;
  /**
   * Writes a value with its mark. A repeat with the same mark writes nothing where `marks` is true. `expected` is what
   * `describe` just answered: where the provider has conditional writes, a target changed since is `changedMeanwhile`.
   */
  put(name: string, value: string, mark: Mark, expected: TargetState, signal?: AbortSignal): Promise<Written>;
  /**
   * Makes the version that holds `mark` current again, without a value. Answers undefined when that version is no longer
   * there: then only `put` mends it. Left out where no provider's call does it.
   */
  restoreVersion?(name: string, mark: Mark, expected: TargetState, signal?: AbortSignal): Promise<Written | undefined>;
  /** Takes over one that exists: gives it the mark of ownership. Left out where that comes with the first write. */
  adopt?(name: string, mark: Mark, signal?: AbortSignal): Promise<void>;
  /** Brings a deleted one back within its recovery window. */
  undelete?(name: string, signal?: AbortSignal): Promise<void>;
  /** Deletes it, with the provider's longest recovery where it has one; nothing happens when it is not there. */
  remove(name: string, signal?: AbortSignal): Promise<void>;
}

/** One service of a provider, such as `secretsmanager`. */
export interface TargetService {
  /** What a name that means the same secret is written like, such as in lower case; left out, every spelling is another. */
  sameName?(name: string): string;
  /** Why a name can't be one, to complete "targetName: "; undefined when it can. */
  nameProblem(name: string): string | undefined;
  /** Bytes of a value at most, with the source of the figure where it is defined. */
  maxBytes: number;
  /** Whether a target tells which source version it holds. Without it drift is unknown and a repeat may write once more. */
  marks: boolean;
}

/** What a provider is configured with: `settings` are shown, `secrets` lie in the service's own key vault. */
export interface ProviderDefinition<Settings extends object = object, Secrets extends object = object> {
  /** As in `targetProvider` and `{provider}`. */
  readonly id: string;
  readonly title: string;
  /** The body of `POST /api/automation/sync/providers/{provider}`: flat, secrets write-only; strict. */
  readonly configuration: z.ZodObject & z.ZodType<Settings & Secrets>;
  /** The members of the configuration that are secret. */
  readonly secretMembers: readonly (keyof Secrets & string)[];
  /** The members that decide where the secrets are sent: changing one needs the secrets again. */
  readonly addressMembers: readonly (keyof Settings & string)[];
  /** The members that say, beside a record's own, where its target lies: another value means another target. */
  readonly placeMembers: readonly (keyof Settings & string)[];
  readonly services: Readonly<Record<string, TargetService>>;
  /**
   * Why a `targetRegion` can't be one, to complete "targetRegion: "; undefined when it can. `settings` are empty while the
   * provider is not configured. A member `region` of the settings stands in for a region that was not given.
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

/** What the providers are given. */
export interface ProviderDependencies {
  /** For all calls but an SDK's: guarded, since people give the addresses of some providers. */
  outgoing: Outgoing;
  clock: Clock;
  tokens: Tokens;
  /** Addresses that the environment names in place of the public ones; undefined for the public ones. */
  endpoints: { aws?: string | undefined; github?: string | undefined; google?: string | undefined };
}

/** What a record's target is given. */
export interface TargetDependencies extends ProviderDependencies {
  /** The secrets of the key vault that the record's region names. Parameter and failures as of `SyncVaults.open`. */
  vaultSecrets(forValue: boolean): Promise<VaultSecrets>;
}

/** Why a target could not be read or written; of those from `notConfigured` on, why a record could not be run at all. */
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
 * A call to a provider that failed for good, its retries included. `message` and `remedy` are written by us: nothing of an
 * answer gets in but the provider's own short code.
 */
export class SyncFailure extends Error {
  override readonly name = "SyncFailure";
  readonly code: SyncFailureCode;
  readonly remedy: string;
  /** The provider's own code, such as `UnrecognizedClientException`. */
  readonly providerCode: string | undefined;
  /** Seconds to leave it alone, where the provider says. */
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

  /** Whether a write may have been done all the same: there was no answer that says so or denies it. */
  get unclear(): boolean {
    return this.code === "unreachable" || this.code === "badResponse";
  }
}
