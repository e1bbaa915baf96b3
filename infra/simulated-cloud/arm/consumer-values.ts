// Records which secret values the company's running resources ("consumers" of secrets) used over time, and the intervals
// ("gaps") in which their value did not work. Tests of rotation require that there are no gaps.

import type { CloudClock } from "../clock.ts";
import type { CompanyIssuer } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { VaultStore } from "../vaults/vault-store.ts";

/** A vault secret. */
export interface SecretLocation {
  vault: string;
  secret: string;
}

/**
 * The values that one setting, variable or field of a running consumer had over time. Times are ISO 8601. The location is the
 * secret that the setting refers to now.
 */
export interface UsedValues extends SecretLocation {
  /** Resource ID of the consumer. */
  resource: string;
  /** The setting or field, such as `appsettings/NAME`. */
  evidence: string;
  /** Oldest first. `value` is missing while the consumer had none, for example because a reference could not be resolved. */
  values: { from: string; value?: string }[];
}

/** An interval in which a consumer had no working value. */
export interface WorkingGap extends SecretLocation {
  resource: string;
  evidence: string;
  /**
   * `absent`: the consumer had no value. `notYet`, `removed`, `expired`: the value is a client secret in this state. `refused`:
   * the issuer does not accept the value.
   */
  why: "absent" | "notYet" | "removed" | "expired" | "refused";
  from: string;
  /** Missing while the interval lasts. */
  to?: string;
}

/** Like `UsedValues`, with times in Unix milliseconds. Each value keeps the secret that the setting referred to at that time. */
interface ValueSeries extends SecretLocation {
  resource: string;
  evidence: string;
  values: { at: number; value: string | undefined; location: SecretLocation }[];
}

/** A value with the time in which it is accepted, in Unix milliseconds. */
interface AcceptedValue {
  value: string;
  from: number;
  to: number;
}

/**
 * Records which value each consumer had at each time, and whether the value worked. A client secret of an application works
 * while the application can sign in with it. Any other value works while its issuer, the system that checks it, accepts it.
 * Without an issuer, every current or former value of the vault secret works.
 */
export class ConsumerValues {
  readonly #directory: Directory;
  readonly #resources: VaultStore;
  readonly #clock: CloudClock;
  /** Series by resource ID in lower case and evidence. */
  readonly #series = new Map<string, ValueSeries>();
  /** Values that an issuer accepts, by vault and secret. */
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

  /**
   * Registers an issuer, which accepts the secret's current value, also in the past. Other values do not work, not even for
   * times before the registration: `gaps` judges all recorded values by the registered issuer.
   */
  setIssuer(location: SecretLocation): void {
    const value = this.#versions(location).at(-1)?.value;
    const since = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    this.#issuers.set(secretKey(location), value === undefined ? [] : [{ value, ...since }]);
  }

  /**
   * Makes the issuer also accept this value.
   * @throws {Error} without an issuer.
   */
  accept(location: SecretLocation, value: string): void {
    this.#issuer(location).push({ value, from: this.#clock.now(), to: Number.POSITIVE_INFINITY });
  }

  /**
   * Makes the issuer reject this value.
   * @throws {Error} without an issuer.
   */
  reject(location: SecretLocation, value: string): void {
    for (const one of this.#issuer(location)) if (one.value === value) one.to = Math.min(one.to, this.#clock.now());
  }

  /** Records the value that a consumer's running process has from now on. Undefined for no usable value. */
  record(
    resource: string,
    evidence: string,
    location: SecretLocation,
    value: string | undefined,
    at = this.#clock.now(),
  ): void {
    const key = `${resource.toLowerCase()} ${evidence}`;
    const series = this.#series.get(key);
    if (series === undefined || !isSameSecret(series, location)) {
      // The earlier values stay, so that a gap before the change to another secret is still reported.
      const earlierValues = series?.values ?? [];
      this.#series.set(key, { resource, evidence, ...location, values: [...earlierValues, { at, value, location }] });
    } else if (series.values.at(-1)!.value !== value) series.values.push({ at, value, location });
  }

  /** Removes a consumer and its child resources, because they were deleted or declared again. */
  remove(resource: string): void {
    for (const [key, series] of this.#series) {
      if (`${series.resource}/`.toLowerCase().startsWith(`${resource}/`.toLowerCase())) this.#series.delete(key);
    }
  }

  /** Returns the values that consumers had, filtered by resource or secret. */
  values(filter: { resource?: string } & Partial<SecretLocation> = {}): UsedValues[] {
    return this.#matching(filter).map(({ resource, evidence, vault, secret, values }) => ({
      resource,
      evidence,
      vault,
      secret,
      values: values.map(({ at, value }) => ({ from: toIso(at), ...(value !== undefined && { value }) })),
    }));
  }

  /**
   * Returns the intervals until now in which a consumer had no working value. Each value is judged by the issuer or the versions
   * of the secret that the setting referred to at that time. The filter selects consumers by the secret of today.
   */
  gaps(filter: { resource?: string } & Partial<SecretLocation> = {}): WorkingGap[] {
    const now = this.#clock.now();
    return this.#matching(filter).flatMap((series) =>
      series.values.flatMap(({ at, value, location }, index) => {
        const until = series.values[index + 1]?.at;
        return this.#gapsOf(location, value, at, until ?? now).map(({ from, to, why }) => ({
          resource: series.resource,
          evidence: series.evidence,
          vault: location.vault,
          secret: location.secret,
          why,
          from: toIso(from),
          ...((to < now || until !== undefined) && { to: toIso(to) }),
        }));
      }),
    );
  }

  /** Returns the parts of an interval in which a value did not work, with the reason. */
  #gapsOf(
    location: SecretLocation,
    value: string | undefined,
    from: number,
    to: number,
  ): { why: WorkingGap["why"]; from: number; to: number }[] {
    if (value === undefined) return [{ why: "absent", from, to }];
    const clientSecret = this.#directory.secretWithValue(value);
    if (clientSecret !== undefined) {
      const { settlesAt, startsOn, expiresOn, removedAt = Number.POSITIVE_INFINITY } = clientSecret;
      const [worksFrom, worksUntil] = [Math.max(settlesAt, startsOn * 1000), Math.min(removedAt, expiresOn * 1000)];
      return uncoveredParts({ from, to }, [{ from: worksFrom, to: worksUntil }]).map((gap) => ({
        ...gap,
        why: gap.to <= worksFrom ? "notYet" : removedAt <= expiresOn * 1000 ? "removed" : "expired",
      }));
    }
    const accepted = this.#issuers.get(secretKey(location)) ?? this.#versions(location);
    const times = accepted.filter((one) => one.value === value);
    return uncoveredParts({ from, to }, times).map((gap) => ({ ...gap, why: "refused" }));
  }

  /** Returns all current and former values of a vault secret. */
  #versions({ vault, secret }: SecretLocation): AcceptedValue[] {
    const owner = this.#resources.vault(vault);
    const item = owner?.collections.secrets.get(secret) ?? owner?.deletedSecrets.get(secret.toLowerCase())?.secret;
    const always = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    if (item !== undefined) return item.versions.map(({ value }) => ({ value, ...always }));
    // The secret of a certificate has no real value. This text with the version's ID stands for it, as in read-secret.ts.
    const versions = owner?.collections.certificates.get(secret)?.versions ?? [];
    return versions.map(({ id }) => ({ value: `certificate ${id}`, ...always }));
  }

  #issuer(location: SecretLocation): AcceptedValue[] {
    const issuer = this.#issuers.get(secretKey(location));
    if (issuer === undefined) throw new Error(`${location.vault}/${location.secret} has no issuer`);
    return issuer;
  }

  #matching({ resource, vault, secret }: { resource?: string } & Partial<SecretLocation>): ValueSeries[] {
    return [...this.#series.values()].filter(
      (one) =>
        equalOrUnset(resource, one.resource) && equalOrUnset(vault, one.vault) && equalOrUnset(secret, one.secret),
    );
  }
}

/** Returns the parts of an interval that no other interval covers. */
function uncoveredParts(
  interval: { from: number; to: number },
  coveringIntervals: readonly { from: number; to: number }[],
): { from: number; to: number }[] {
  let uncovered = [interval];
  for (const { from, to } of coveringIntervals) {
    uncovered = uncovered.flatMap((part) =>
      [
        { from: part.from, to: Math.min(part.to, from) },
        { from: Math.max(part.from, to), to: part.to },
      ].filter((one) => one.from < one.to),
    );
  }
  return uncovered.filter((one) => one.from < one.to);
}

/** Returns whether the values are equal, ignoring case, or no value is expected. */
const equalOrUnset = (expected: string | undefined, actual: string): boolean =>
  expected === undefined || expected.toLowerCase() === actual.toLowerCase();
const secretKey = ({ vault, secret }: SecretLocation): string => `${vault}/${secret}`.toLowerCase();
const isSameSecret = (a: SecretLocation, b: SecretLocation): boolean => secretKey(a) === secretKey(b);
const toIso = (milliseconds: number): string => new Date(milliseconds).toISOString();
