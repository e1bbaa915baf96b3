import { randomBytes, timingSafeEqual } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import { type CompanyApplication, type PasswordPolicy, secretText } from "../company/applications.ts";
import type { Principal } from "../tokens.ts";
import { type ApplicationRecord, applicationFrom, DEFAULT_AUDIENCE, newKeyId, type SecretRecord } from "./records.ts";

/**
 * Settings of the directory, which the control API can change: behavior that differs in Entra, and the service's permissions.
 */
export interface DirectorySettings {
  /**
   * Maximum age of read results in seconds. Replicas lag differently, so that successive reads can go back in time.
   * Default 0.
   */
  readLagSeconds: number;
  /** Reject the removal of a secret that the replica does not know yet. Default false. */
  writesLag: boolean;
  /** Seconds until a new secret can sign in. Default 0. */
  signInDelaySeconds: number;
  /**
   * Length in seconds of the following unstable period, in which some sign-ins with the secret succeed and others fail. Three
   * consecutive successes over at least 15 seconds end the period early. Default 0.
   */
  flappingSeconds: number;
  /**
   * Microsoft Graph application permissions of the service's identities. They take effect immediately, not with the next token.
   */
  permissions: string[];
  /** The tenant's restrictions on new secrets. */
  policy?: PasswordPolicy;
  /** Minimum milliseconds between two writes. An earlier write is rejected as concurrent. Default 0: never. */
  writeGapMilliseconds: number;
}

/**
 * A change of the directory, as stored in the data folder: an application in its new state, or the ID of a deleted one. `at` is
 * the simulated time in Unix milliseconds.
 */
export type DirectoryChange =
  | { what: "application"; application: ApplicationRecord; at: number }
  | { what: "noApplication"; objectId: string; at: number };

export function isDirectoryChange(change: { what: string }): change is DirectoryChange {
  return change.what === "application" || change.what === "noApplication";
}

/** A state of an application, and the time from which it is current, Unix milliseconds of the simulated clock. */
interface Version {
  at: number;
  /** Undefined after the application was deleted. */
  state: ApplicationRecord | undefined;
}

/** Lag of each replica as a fraction of `readLagSeconds`. Reads use the replicas in turn. */
const REPLICAS = [1, 0, 0.5];

/**
 * Returns whether an attempt fails while a new secret is unstable: the second, the fifth, the sixth, and then every fifth
 * attempt. Attempts count from 1.
 */
const failsWhileUnstable = (attempts: number): boolean =>
  attempts === 2 || attempts === 5 || attempts === 6 || (attempts > 6 && attempts % 5 === 0);

/** Number of consecutive successes that end the unstable period, and the minimum time from the first to the last. */
const STABLE_AFTER = { count: 3, milliseconds: 15_000 };

/** Stores a tenant's applications with their earlier states, and decides which secrets can sign in. */
export class Directory {
  readonly clock: CloudClock;
  /** The identities with which the service can sign in: a managed identity, and an application with a secret. */
  readonly service: readonly Principal[];
  /** Object IDs of the identities that have called Microsoft Graph. */
  readonly #callers = new Set<string>();
  settings: DirectorySettings = {
    readLagSeconds: 0,
    writesLag: false,
    signInDelaySeconds: 0,
    flappingSeconds: 0,
    permissions: [
      "Application.Read.All",
      "Application.ReadWrite.OwnedBy",
      "Policy.Read.ApplicationConfiguration",
      "Organization.Read.All",
      "User.ReadBasic.All",
    ],
    writeGapMilliseconds: 0,
  };
  /** Applications by object ID, in creation order. */
  readonly #versions = new Map<string, Version[]>();
  /** Object IDs by client ID. */
  readonly #objectIds = new Map<string, string>();
  /** Log of changes for delta queries. An entry's number is its index. */
  readonly #log: { objectId: string; at: number }[] = [];
  /** Unstable new secrets by key ID: the number of attempts, and the times of the successes since the last failure. */
  readonly #attempts = new Map<string, number>();
  readonly #successes = new Map<string, number[]>();
  #journal: ((change: DirectoryChange) => void) | undefined;
  /** Number in every delta link. Links with an earlier number are invalid. */
  deltaGeneration = 0;
  #reads = 0;
  #lastWrite = Number.NEGATIVE_INFINITY;

  /** @param base Unix seconds from which the company's days count. */
  constructor(options: {
    applications: readonly CompanyApplication[];
    base: number;
    clock: CloudClock;
    service: readonly Principal[];
  }) {
    this.clock = options.clock;
    this.service = options.service;
    for (const declared of options.applications) {
      const application = applicationFrom(declared, options.base);
      this.#apply({ what: "application", application, at: 0 });
    }
    // The initial applications are no changes: delta queries report only what follows.
    this.#log.length = 0;
  }

  /** Applies the changes of earlier runs, then reports each new change. */
  restore(changes: readonly DirectoryChange[], journal: (change: DirectoryChange) => void): void {
    for (const change of changes) this.#apply(change);
    // The clock was moved in an earlier run and must not go back.
    const newest = Math.max(0, ...changes.map(({ at }) => at));
    this.clock.move(Math.max(0, newest - this.clock.now()));
    this.#journal = journal;
  }

  /** Returns the state of the directory in the next replica. */
  view(): DirectoryView {
    const lag = this.settings.readLagSeconds * 1000 * REPLICAS[this.#reads++ % REPLICAS.length]!;
    const replicaTime = this.clock.now() - lag;
    const stateOf = (versions: readonly Version[]) => versions.findLast((one) => one.at <= replicaTime)?.state;
    return {
      applications: () => [...this.#versions.values()].map(stateOf),
      byObjectId: (id) => stateOf(this.#versions.get(id.toLowerCase()) ?? []),
      byAppId: (id) => stateOf(this.#versions.get(this.#objectIds.get(id.toLowerCase()) ?? "") ?? []),
      sequence: this.#log.findLastIndex((entry) => entry.at <= replicaTime) + 1,
    };
  }

  /** Records that an identity has called Microsoft Graph. */
  recordCaller(objectId: string): void {
    this.#callers.add(objectId);
  }

  /**
   * Returns the owners of the applications with `serviceOwns`: the identities with which the service has called. A deployment uses
   * only one of them.
   */
  owningIdentities(): Principal[] {
    return this.service.filter(({ objectId }) => this.#callers.has(objectId));
  }

  /** Returns the application permissions of a service principal. */
  permissionsOf(objectId: string): readonly string[] {
    return this.service.some((one) => one.objectId === objectId) ? this.settings.permissions : [];
  }

  /**
   * Returns whether a write follows the previous write within `writeGapMilliseconds`, so that it is rejected as concurrent.
   * Otherwise records the time of the write.
   */
  isTooSoonForWrite(): boolean {
    const now = this.clock.now();
    const isTooSoon = now - this.#lastWrite < this.settings.writeGapMilliseconds;
    if (!isTooSoon) this.#lastWrite = now;
    return isTooSoon;
  }

  /** Invalidates all delta links. */
  forgetDeltaLinks(): void {
    this.deltaGeneration++;
  }

  /** Returns the object IDs that changed between two positions of the log, without duplicates. */
  changedBetween(from: number, to: number): string[] {
    return [...new Set(this.#log.slice(from, to).map(({ objectId }) => objectId))];
  }

  /** Returns the current state of an application, without lag. */
  currentState(appOrObjectId: string): ApplicationRecord | undefined {
    const id = appOrObjectId.toLowerCase();
    return this.#versions.get(this.#objectIds.get(id) ?? id)?.at(-1)?.state;
  }

  /** Returns the current state of all applications. */
  all(): ApplicationRecord[] {
    return [...this.#versions.values()].flatMap((versions) => versions.at(-1)?.state ?? []);
  }

  /** Returns the current or former client secret with this value, of any application. */
  secretWithValue(value: string): SecretRecord | undefined {
    for (const { secrets, removed } of this.all()) {
      const secret = [...secrets, ...removed].find((one) => one.value === value);
      if (secret !== undefined) return secret;
    }
    return undefined;
  }

  put(application: ApplicationRecord): void {
    this.#change({ what: "application", application, at: this.clock.now() });
  }

  remove(objectId: string): void {
    this.#change({ what: "noApplication", objectId, at: this.clock.now() });
  }

  /** Adds a client secret with a new value. */
  addSecret(
    application: ApplicationRecord,
    secret: Pick<SecretRecord, "displayName" | "startsOn" | "expiresOn" | "madeBy">,
  ): SecretRecord {
    const madeAt = this.clock.now();
    const worksFrom = madeAt + this.settings.signInDelaySeconds * 1000;
    const newSecret = {
      ...secret,
      keyId: newKeyId(),
      value: secretText(randomBytes(40)),
      madeAt,
      worksFrom,
      settlesAt: worksFrom + this.settings.flappingSeconds * 1000,
    };
    this.put({ ...application, secrets: [...application.secrets, newSecret] });
    return newSecret;
  }

  /** Revokes a secret immediately. Returns false if there is none. */
  removeSecret(application: ApplicationRecord, keyId: string): boolean {
    const secret = application.secrets.find((one) => one.keyId === keyId);
    if (secret === undefined) return false;
    const remaining = application.secrets.filter((one) => one !== secret);
    const removed = [...application.removed, { ...secret, removedAt: this.clock.now() }];
    this.put({ ...application, secrets: remaining, removed });
    return true;
  }

  /**
   * Checks a client secret for one sign-in. Returns Entra's error code if the sign-in fails: 7000215 for an unknown secret,
   * 7000222 for an expired one.
   */
  signIn(application: ApplicationRecord, value: string): "accepted" | 7000215 | 7000222 {
    const now = this.clock.now();
    const secret = application.secrets.find((one) => equal(one.value, value));
    if (secret !== undefined && secret.expiresOn * 1000 <= now) return 7000222;
    if (secret !== undefined && secret.startsOn * 1000 <= now && this.#acceptsSecret(secret, now)) {
      return "accepted";
    }
    // The sign-in endpoint does not know the newest secret yet. If all other secrets are expired, the endpoint reports the
    // value as expired.
    const settledSecrets = application.secrets.filter((one) => one.worksFrom <= now && one.settlesAt <= now);
    return secret !== undefined &&
      settledSecrets.length > 0 &&
      settledSecrets.every((one) => one.expiresOn * 1000 <= now)
      ? 7000222
      : 7000215;
  }

  /**
   * Returns whether a sign-in with a valid secret succeeds. A new secret fails until `worksFrom`, and then fails at times until
   * `settlesAt`, or until enough sign-ins in a row have succeeded.
   */
  #acceptsSecret(secret: SecretRecord, now: number): boolean {
    if (now >= secret.settlesAt) return true;
    if (now < secret.worksFrom) return false;
    const attempts = (this.#attempts.get(secret.keyId) ?? 0) + 1;
    this.#attempts.set(secret.keyId, attempts);
    if (failsWhileUnstable(attempts)) {
      this.#successes.delete(secret.keyId);
      return false;
    }
    const successes = [...(this.#successes.get(secret.keyId) ?? []), now];
    this.#successes.set(secret.keyId, successes);
    // Not a change of the directory: neither a new version nor an entry in the log.
    if (successes.length >= STABLE_AFTER.count && now - successes[0]! >= STABLE_AFTER.milliseconds)
      secret.settlesAt = now;
    return true;
  }

  /**
   * Checks the claims of a workload's token for one sign-in, with upper and lower case. Returns Entra's error code if no federated
   * credential matches: 700211 for the issuer, 700213 for the subject, 700212 for the audience.
   */
  signInFederated(
    application: ApplicationRecord,
    { issuer, subject, audience }: { issuer: string; subject: string; audience: string },
  ): "accepted" | 700211 | 700212 | 700213 {
    const now = this.clock.now();
    const known = application.federated.filter(({ worksFrom = 0 }) => worksFrom <= now);
    const ofIssuer = known.filter((one) => one.issuer === issuer);
    if (ofIssuer.length === 0) return 700211;
    const ofSubject = ofIssuer.filter((one) => one.subject === subject);
    if (ofSubject.length === 0) return 700213;
    return ofSubject.some((one) => (one.audience ?? DEFAULT_AUDIENCE) === audience) ? "accepted" : 700212;
  }

  #change(change: DirectoryChange): void {
    this.#apply(change);
    this.#journal?.(change);
  }

  #apply(change: DirectoryChange): void {
    const objectId = change.what === "application" ? change.application.objectId : change.objectId;
    const state = change.what === "application" ? change.application : undefined;
    const versions = this.#versions.get(objectId) ?? [];
    this.#versions.set(objectId, [...versions, { at: change.at, state }]);
    if (state !== undefined) this.#objectIds.set(state.appId, objectId);
    this.#log.push({ objectId, at: change.at });
  }
}

/** The directory as one replica returns it. */
export interface DirectoryView {
  /** Applications in creation order. Undefined for a deleted one. */
  applications(): (ApplicationRecord | undefined)[];
  byObjectId(id: string): ApplicationRecord | undefined;
  byAppId(id: string): ApplicationRecord | undefined;
  /** Position in the log of changes that the replica has reached. */
  sequence: number;
}

function equal(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
