import type { CloudClock } from "../clock.ts";
import type { CompanyIssuer } from "../company/resources.ts";
import type { Directory } from "../graph/directory.ts";
import type { Resources } from "../resources/resources.ts";

/** The secret that a consumer is meant to hold. */
export interface Place {
  vault: string;
  secret: string;
}

/** What one setting, variable or field of a running consumer held over time; instants are ISO 8601. */
export interface HeldValues extends Place {
  /** The consumer's resource id. */
  resource: string;
  /** The setting or field, such as `appsettings/NAME`. */
  evidence: string;
  /** Oldest first. `value` is left out where it held none, such as a reference that could not be followed. */
  values: { from: string; value?: string }[];
}

/** A time in which a consumer held no value that worked. */
export interface WorkingGap extends Place {
  resource: string;
  evidence: string;
  /** `absent`: it held none. `notYet`, `removed`, `expired`: of an application's secret. `refused`: the issuer takes others. */
  why: "absent" | "notYet" | "removed" | "expired" | "refused";
  from: string;
  /** Left out while it lasts. */
  to?: string;
}

interface Held extends Place {
  resource: string;
  evidence: string;
  values: { at: number; value: string | undefined }[];
}

interface Accepted {
  value: string;
  from: number;
  to: number;
}

/**
 * Which value each consumer held at each moment, and whether it worked. The value of an application's secret works while it
 * signs in. Any other works while its issuer takes it; where the company names none, every value works that the vault's
 * secret ever had.
 */
export class WorkingValues {
  readonly #directory: Directory;
  readonly #resources: Resources;
  readonly #clock: CloudClock;
  /** By resource id in lower case and evidence. */
  readonly #held = new Map<string, Held>();
  /** By vault and secret. */
  readonly #issuers = new Map<string, Accepted[]>();

  constructor(
    parts: { directory: Directory; resources: Resources; clock: CloudClock },
    issuers: readonly CompanyIssuer[],
  ) {
    this.#directory = parts.directory;
    this.#resources = parts.resources;
    this.#clock = parts.clock;
    for (const issuer of issuers) this.setIssuer(issuer);
  }

  /** From now on only what the issuer is told of works. It begins with the secret's current value. */
  setIssuer(place: Place): void {
    const value = this.#versions(place).at(-1)?.value;
    const since = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    this.#issuers.set(keyOf(place), value === undefined ? [] : [{ value, ...since }]);
  }

  /** The issuer takes this value too from now on. @throws {Error} without an issuer. */
  accept(place: Place, value: string): void {
    this.#issuer(place).push({ value, from: this.#clock.now(), to: Number.POSITIVE_INFINITY });
  }

  /** The issuer takes this value no more. @throws {Error} without an issuer. */
  withdraw(place: Place, value: string): void {
    for (const one of this.#issuer(place)) if (one.value === value) one.to = Math.min(one.to, this.#clock.now());
  }

  /** A consumer's running process now holds this; undefined for nothing that works. */
  holds(resource: string, evidence: string, place: Place, value: string | undefined, at = this.#clock.now()): void {
    const key = `${resource.toLowerCase()} ${evidence}`;
    const held = this.#held.get(key);
    if (held === undefined || !samePlace(held, place)) {
      const before = held?.values ?? [];
      this.#held.set(key, { resource, evidence, ...place, values: [...before, { at, value }] });
    } else if (held.values.at(-1)!.value !== value) held.values.push({ at, value });
  }

  /** The consumer and what is below it are no more, or declared anew. */
  forget(resource: string): void {
    for (const [key, held] of this.#held) {
      if (`${held.resource}/`.toLowerCase().startsWith(`${resource}/`.toLowerCase())) this.#held.delete(key);
    }
  }

  /** What consumers held, of one resource or one secret where it is named. */
  values(filter: { resource?: string } & Partial<Place> = {}): HeldValues[] {
    return this.#matching(filter).map(({ resource, evidence, vault, secret, values }) => ({
      resource,
      evidence,
      vault,
      secret,
      values: values.map(({ at, value }) => ({ from: instant(at), ...(value !== undefined && { value }) })),
    }));
  }

  /** All times until now in which a consumer held no working value. */
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
    const accepted = this.#issuers.get(keyOf(place)) ?? this.#versions(place);
    const times = accepted.filter((one) => one.value === value);
    return outside({ from, to }, times).map((gap) => ({ ...gap, why: "refused" }));
  }

  /** The values that a vault's secret ever had. */
  #versions({ vault, secret }: Place): Accepted[] {
    const owner = this.#resources.vault(vault);
    const item = owner?.collections.secrets.get(secret) ?? owner?.deletedSecrets.get(secret.toLowerCase())?.secret;
    const always = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };
    if (item !== undefined) return item.versions.map(({ value }) => ({ value, ...always }));
    const versions = owner?.collections.certificates.get(secret)?.versions ?? [];
    return versions.map(({ id }) => ({ value: `certificate ${id}`, ...always }));
  }

  #issuer(place: Place): Accepted[] {
    const issuer = this.#issuers.get(keyOf(place));
    if (issuer === undefined) throw new Error(`${place.vault}/${place.secret} has no issuer`);
    return issuer;
  }

  #matching({ resource, vault, secret }: { resource?: string } & Partial<Place>): Held[] {
    return [...this.#held.values()].filter(
      (one) => same(resource, one.resource) && same(vault, one.vault) && same(secret, one.secret),
    );
  }
}

/** The parts of a time that are in none of others. */
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
const keyOf = ({ vault, secret }: Place): string => `${vault}/${secret}`.toLowerCase();
const samePlace = (a: Place, b: Place): boolean => keyOf(a) === keyOf(b);
const instant = (milliseconds: number): string => new Date(milliseconds).toISOString();
