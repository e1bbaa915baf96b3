// Records the secret values that running consumers held, and the intervals in which they did not work.

import type { CloudClock } from "../clock.ts";
import type { CompanyIssuer } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { VaultStore } from "../vaults/vault-store.ts";

/** The secret whose value a consumer should hold. */
export interface Place {
  vault: string;
  secret: string;
}

/** The values that one setting, variable or field of a running consumer held over time. Times are ISO 8601. */
export interface HeldValues extends Place {
  /** Resource ID of the consumer. */
  resource: string;
  /** The setting or field, such as `appsettings/NAME`. */
  evidence: string;
  /** Oldest first. `value` is missing while the consumer held none, for example because a reference could not be resolved. */
  values: { from: string; value?: string }[];
}

/** An interval in which a consumer held no working value. */
export interface WorkingGap extends Place {
  resource: string;
  evidence: string;
  /**
   * `absent`: the consumer held no value. `notYet`, `removed`, `expired`: state of an application's client secret. `refused`:
   * the issuer accepts other values.
   */
  why: "absent" | "notYet" | "removed" | "expired" | "refused";
  from: string;
  /** Missing while the interval lasts. */
  to?: string;
}

interface HeldSeries extends Place {
  resource: string;
  evidence: string;
  values: { at: number; value: string | undefined }[];
}

interface AcceptedValue {
  value: string;
  from: number;
  to: number;
}

/**
 * Records which value each consumer held at each time, and whether the value worked. A client secret of an application works
 * while the application can sign in with it. Any other value works while its issuer accepts it. Without an issuer, every
 * current or former value of the vault secret works.
 */
export class ConsumerValues {
  readonly #directory: Directory;
  readonly #resources: VaultStore;
  readonly #clock: CloudClock;
  /** Held values by resource ID in lower case and evidence. */
  readonly #held = new Map<string, HeldSeries>();
  /** Issuers by vault and secret. */
  readonly #issuers = new Map<string, AcceptedValue[]>();

  constructor(
    parts: { directory: Directory; resources: VaultStore; clock: CloudClock },
    issuers: readonly CompanyIssuer[],
  ) {
    this.#directory = parts.directory;
    this.#resources = parts.resources;
    this.#clock = parts.clock;
    for (const issuer of issuers) this.setIssuer(issuer);
  }

  /** Registers an issuer, which accepts the secret's current value. From now on only values that the issuer accepts work. */
  setIssuer(place: Place): void {
    const value = this.#versions(place).at(-1)?.value;
    const since = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    this.#issuers.set(secretKey(place), value === undefined ? [] : [{ value, ...since }]);
  }

  /**
   * Makes the issuer also accept this value.
   * @throws {Error} without an issuer.
   */
  accept(place: Place, value: string): void {
    this.#issuer(place).push({ value, from: this.#clock.now(), to: Number.POSITIVE_INFINITY });
  }

  /**
   * Makes the issuer reject this value.
   * @throws {Error} without an issuer.
   */
  reject(place: Place, value: string): void {
    for (const one of this.#issuer(place)) if (one.value === value) one.to = Math.min(one.to, this.#clock.now());
  }

  /** Records the value that a consumer's running process now holds. Undefined for no usable value. */
  record(resource: string, evidence: string, place: Place, value: string | undefined, at = this.#clock.now()): void {
    const key = `${resource.toLowerCase()} ${evidence}`;
    const held = this.#held.get(key);
    if (held === undefined || !samePlace(held, place)) {
      const before = held?.values ?? [];
      this.#held.set(key, { resource, evidence, ...place, values: [...before, { at, value }] });
    } else if (held.values.at(-1)!.value !== value) held.values.push({ at, value });
  }

  /** Removes a consumer and its child resources, because they were deleted or declared again. */
  remove(resource: string): void {
    for (const [key, held] of this.#held) {
      if (`${held.resource}/`.toLowerCase().startsWith(`${resource}/`.toLowerCase())) this.#held.delete(key);
    }
  }

  /** Returns the values that consumers held, filtered by resource or secret. */
  values(filter: { resource?: string } & Partial<Place> = {}): HeldValues[] {
    return this.#matching(filter).map(({ resource, evidence, vault, secret, values }) => ({
      resource,
      evidence,
      vault,
      secret,
      values: values.map(({ at, value }) => ({ from: instant(at), ...(value !== undefined && { value }) })),
    }));
  }

  /** Returns all intervals until now in which a consumer held no working value. */
  gaps(filter: { resource?: string } & Partial<Place> = {}): WorkingGap[] {
    const now = this.#clock.now();
    return this.#matching(filter).flatMap((held) =>
      held.values.flatMap(({ at, value }, index) => {
        const until = held.values[index + 1]?.at;
        return this.#gapsOf(held, value, at, until ?? now).map(({ from, to, why }) => ({
          resource: held.resource,
          evidence: held.evidence,
          vault: held.vault,
          secret: held.secret,
          why,
          from: instant(from),
          ...((to < now || until !== undefined) && { to: instant(to) }),
        }));
      }),
    );
  }

  #gapsOf(
    place: Place,
    value: string | undefined,
    from: number,
    to: number,
  ): { why: WorkingGap["why"]; from: number; to: number }[] {
    if (value === undefined) return [{ why: "absent", from, to }];
    const application = this.#directory.secretWithValue(value);
    if (application !== undefined) {
      const { settlesAt, startsOn, expiresOn, removedAt = Number.POSITIVE_INFINITY } = application;
      const [begins, ends] = [Math.max(settlesAt, startsOn * 1000), Math.min(removedAt, expiresOn * 1000)];
      return outside({ from, to }, [{ from: begins, to: ends }]).map((gap) => ({
        ...gap,
        why: gap.to <= begins ? "notYet" : removedAt <= expiresOn * 1000 ? "removed" : "expired",
      }));
    }
    const accepted = this.#issuers.get(secretKey(place)) ?? this.#versions(place);
    const times = accepted.filter((one) => one.value === value);
    return outside({ from, to }, times).map((gap) => ({ ...gap, why: "refused" }));
  }

  /** Returns all current and former values of a vault secret. */
  #versions({ vault, secret }: Place): AcceptedValue[] {
    const owner = this.#resources.vault(vault);
    const item = owner?.collections.secrets.get(secret) ?? owner?.deletedSecrets.get(secret.toLowerCase())?.secret;
    const always = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    if (item !== undefined) return item.versions.map(({ value }) => ({ value, ...always }));
    const versions = owner?.collections.certificates.get(secret)?.versions ?? [];
    return versions.map(({ id }) => ({ value: `certificate ${id}`, ...always }));
  }

  #issuer(place: Place): AcceptedValue[] {
    const issuer = this.#issuers.get(secretKey(place));
    if (issuer === undefined) throw new Error(`${place.vault}/${place.secret} has no issuer`);
    return issuer;
  }

  #matching({ resource, vault, secret }: { resource?: string } & Partial<Place>): HeldSeries[] {
    return [...this.#held.values()].filter(
      (one) => same(resource, one.resource) && same(vault, one.vault) && same(secret, one.secret),
    );
  }
}

/** Returns the parts of an interval that no other interval covers. */
function outside(
  time: { from: number; to: number },
  others: readonly { from: number; to: number }[],
): { from: number; to: number }[] {
  let left = [time];
  for (const { from, to } of others) {
    left = left.flatMap((part) =>
      [
        { from: part.from, to: Math.min(part.to, from) },
        { from: Math.max(part.from, to), to: part.to },
      ].filter((one) => one.from < one.to),
    );
  }
  return left.filter((one) => one.from < one.to);
}

const same = (wanted: string | undefined, actual: string): boolean =>
  wanted === undefined || wanted.toLowerCase() === actual.toLowerCase();
const secretKey = ({ vault, secret }: Place): string => `${vault}/${secret}`.toLowerCase();
const samePlace = (a: Place, b: Place): boolean => secretKey(a) === secretKey(b);
const instant = (milliseconds: number): string => new Date(milliseconds).toISOString();
