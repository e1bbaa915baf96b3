import { randomBytes, timingSafeEqual } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import { type CompanyApplication, type PasswordPolicy, secretText } from "../company/applications.ts";
import type { Principal } from "../tokens.ts";
import { type ApplicationRecord, applicationFrom, newKeyId, type SecretRecord } from "./records.ts";

/** What the directory does that no promise covers, and what the service may do in it. Settable by the control API. */
export interface DirectorySettings {
  /** Reads show a state up to this old. Replicas differ, so that answers go back and forth. Default 0. */
  readLagSeconds: number;
  /** Removing a secret that the replica does not see yet is refused as unknown. Default false. */
  writesLag: boolean;
  /** How long a new secret signs nobody in. Default 0. */
  signInDelaySeconds: number;
  /**
   * For how long it then works for some requests and not for others. It ends early with the third success in a row when
   * they are spread over 15 seconds. Default 0.
   */
  flappingSeconds: number;
  /** Application permissions of Microsoft Graph that the service's identities have, from this moment and not the next token. */
  permissions: string[];
  /** The tenant's policy for new secrets. */
  policy?: PasswordPolicy;
  /** Milliseconds between two writes below which the later one is refused as concurrent. Default 0: never. */
  writeGapMilliseconds: number;
}

/** A change to the directory, as it is kept in the data folder. */
export type DirectoryChange =
  | { what: "application"; application: ApplicationRecord; at: number }
  | { what: "noApplication"; objectId: string; at: number };

export function isDirectoryChange(change: { what: string }): change is DirectoryChange {
  return change.what === "application" || change.what === "noApplication";
}

interface Version {
  at: number;
  /** Undefined from when it was deleted. */
  state: ApplicationRecord | undefined;
}

/** Parts of the lag that the replicas have, in the turn in which they answer. */
const REPLICAS = [1, 0, 0.5];

/** Which tries of a secret that flaps fail: after one success, after two, and later every fifth. */
const fails = (tries: number): boolean => tries === 2 || tries === 5 || tries === 6 || (tries > 6 && tries % 5 === 0);

/** Spread of the successes in a row that end the flapping, and how many it takes. */
const PROOF = { count: 3, milliseconds: 15_000 };

/** The tenant's applications: what they are, what they were a while ago, and which secrets sign in. */
export class Directory {
  readonly clock: CloudClock;
  /** The service's own identities: owners where `serviceOwns` says so. */
  readonly service: readonly Principal[];
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
    ],
    writeGapMilliseconds: 0,
  };
  /** By object id, in the order they were made. */
  readonly #versions = new Map<string, Version[]>();
  readonly #objectIds = new Map<string, string>();
  /** What changed, for the delta query; the number of an entry is its place. */
  readonly #log: { objectId: string; at: number }[] = [];
  /** Of secrets that flap, by key id: how often they were tried, and when they worked since they last did not. */
  readonly #tries = new Map<string, number>();
  readonly #successes = new Map<string, number[]>();
  #journal: ((change: DirectoryChange) => void) | undefined;
  /** Stands in every delta link. */
  deltaGeneration = 0;
  #reads = 0;
  #lastWrite = Number.NEGATIVE_INFINITY;

  /** @param base unix seconds from which the company's days are counted. */
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
    this.#log.length = 0;
  }

  /** Applies what an earlier run wrote down, and from then on reports each change. */
  restore(changes: readonly DirectoryChange[], journal: (change: DirectoryChange) => void): void {
    for (const change of changes) this.#apply(change);
    // Where the clock had been moved it does not go back.
    const newest = Math.max(0, ...changes.map(({ at }) => at));
    this.clock.move(Math.max(0, newest - this.clock.now()));
    this.#journal = journal;
  }

  /** One answer's view of the directory: that of the replica whose turn it is. */
  view(): DirectoryView {
    const lag = this.settings.readLagSeconds * 1000 * REPLICAS[this.#reads++ % REPLICAS.length]!;
    const at = this.clock.now() - lag;
    const stateOf = (versions: readonly Version[]) => versions.findLast((one) => one.at <= at)?.state;
    return {
      applications: () => [...this.#versions.values()].map(stateOf),
      byObjectId: (id) => stateOf(this.#versions.get(id.toLowerCase()) ?? []),
      byAppId: (id) => stateOf(this.#versions.get(this.#objectIds.get(id.toLowerCase()) ?? "") ?? []),
      sequence: this.#log.findLastIndex((entry) => entry.at <= at) + 1,
    };
  }

  /** The application permissions that a service principal has. */
  permissionsOf(objectId: string): readonly string[] {
    return this.service.some((one) => one.objectId === objectId) ? this.settings.permissions : [];
  }

  /** Whether a write comes so soon after the one before that both count as made at once. */
  tooSoon(): boolean {
    const now = this.clock.now();
    const soon = now - this.#lastWrite < this.settings.writeGapMilliseconds;
    if (!soon) this.#lastWrite = now;
    return soon;
  }

  /** From now on no delta link is known any more. */
  forgetDeltaLinks(): void {
    this.deltaGeneration++;
  }

  /** Object ids that changed between two places in the log, each once. */
  changed(from: number, to: number): string[] {
    return [...new Set(this.#log.slice(from, to).map(({ objectId }) => objectId))];
  }

  /** As it truly is now. */
  truth(appOrObjectId: string): ApplicationRecord | undefined {
    const id = appOrObjectId.toLowerCase();
    return this.#versions.get(this.#objectIds.get(id) ?? id)?.at(-1)?.state;
  }

  all(): ApplicationRecord[] {
    return [...this.#versions.values()].flatMap((versions) => versions.at(-1)?.state ?? []);
  }

  /** The client secret of whichever application that has or had this value. */
  secretWithValue(value: string): SecretRecord | undefined {
    for (const { secrets, removed } of this.all()) {
      const found = [...secrets, ...removed].find((one) => one.value === value);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  put(application: ApplicationRecord): void {
    this.#change({ what: "application", application, at: this.clock.now() });
  }

  remove(objectId: string): void {
    this.#change({ what: "noApplication", objectId, at: this.clock.now() });
  }

  addSecret(
    application: ApplicationRecord,
    secret: Pick<SecretRecord, "displayName" | "startsOn" | "expiresOn" | "madeBy">,
  ): SecretRecord {
    const madeAt = this.clock.now();
    const worksFrom = madeAt + this.settings.signInDelaySeconds * 1000;
    const made = {
      ...secret,
      keyId: newKeyId(),
      value: secretText(randomBytes(40)),
      madeAt,
      worksFrom,
      settlesAt: worksFrom + this.settings.flappingSeconds * 1000,
    };
    this.put({ ...application, secrets: [...application.secrets, made] });
    return made;
  }

  /** It signs nobody in from this moment. False when there is none. */
  removeSecret(application: ApplicationRecord, keyId: string): boolean {
    const secret = application.secrets.find((one) => one.keyId === keyId);
    if (secret === undefined) return false;
    const rest = application.secrets.filter((one) => one !== secret);
    const removed = [...application.removed, { ...secret, removedAt: this.clock.now() }];
    this.put({ ...application, secrets: rest, removed });
    return true;
  }

  /** Whether a value signs an application in at this request, with the error code of Entra when it does not. */
  signIn(application: ApplicationRecord, value: string): "accepted" | 7000215 | 7000222 {
    const now = this.clock.now();
    const secret = application.secrets.find((one) => equal(one.value, value));
    if (secret !== undefined && secret.expiresOn * 1000 <= now) return 7000222;
    if (secret !== undefined && secret.startsOn * 1000 <= now && this.#known(secret, now)) {
      return "accepted";
    }
    // What signs in does not know the newest one: if all the others are expired, it says so.
    const known = application.secrets.filter((one) => one.worksFrom <= now && one.settlesAt <= now);
    return secret !== undefined && known.length > 0 && known.every((one) => one.expiresOn * 1000 <= now)
      ? 7000222
      : 7000215;
  }

  #known(secret: SecretRecord, now: number): boolean {
    if (now >= secret.settlesAt) return true;
    if (now < secret.worksFrom) return false;
    const tries = (this.#tries.get(secret.keyId) ?? 0) + 1;
    this.#tries.set(secret.keyId, tries);
    if (fails(tries)) {
      this.#successes.delete(secret.keyId);
      return false;
    }
    const successes = [...(this.#successes.get(secret.keyId) ?? []), now];
    this.#successes.set(secret.keyId, successes);
    // No change of the directory, so it is neither a version nor in the log.
    if (successes.length >= PROOF.count && now - successes[0]! >= PROOF.milliseconds) secret.settlesAt = now;
    return true;
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

/** The directory as one replica sees it. */
export interface DirectoryView {
  /** In the order they were made, undefined where one was deleted. */
  applications(): (ApplicationRecord | undefined)[];
  byObjectId(id: string): ApplicationRecord | undefined;
  byAppId(id: string): ApplicationRecord | undefined;
  /** Place in the log of changes up to which it knows them. */
  sequence: number;
}

function equal(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}
