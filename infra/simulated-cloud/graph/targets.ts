import type { Directory } from "./directory.ts";

/** A time in which the value in a target did not sign its application in. Instants are ISO 8601. */
export interface Gap {
  vault: string;
  secret: string;
  appId: string;
  /** The secret whose value it was; undefined when it was none of the application's, or there was no value. */
  keyId?: string;
  why: "notYet" | "removed" | "expired" | "unknown" | "absent";
  from: string;
  /** Left out while it lasts. */
  to?: string;
}

interface Target {
  appId: string;
  vault: string;
  secret: string;
  /** The values that it had, oldest first, with the moment of each; undefined for none. */
  values: { at: number; value: string | undefined }[];
}

/** Vault secrets that an application's consumers read, and whether their value signed in at every moment. */
export class Targets {
  readonly #directory: Directory;
  readonly #readValue: (vault: string, secret: string) => string | undefined;
  readonly #targets: Target[] = [];

  constructor(directory: Directory, readValue: (vault: string, secret: string) => string | undefined) {
    this.#directory = directory;
    this.#readValue = readValue;
  }

  /** From now on what the vault secret holds must sign the application in. */
  watch(target: { appId: string; vault: string; secret: string }): void {
    const value = this.#readValue(target.vault, target.secret);
    this.#targets.push({ ...target, values: [{ at: this.#directory.clock.now(), value }] });
  }

  /** A secret of a vault may have changed. */
  noticed(vault: string, secret: string): void {
    for (const target of this.#targets) {
      if (!same(target.vault, vault) || !same(target.secret, secret)) continue;
      const value = this.#readValue(vault, secret);
      if (value !== target.values.at(-1)!.value) target.values.push({ at: this.#directory.clock.now(), value });
    }
  }

  /** All moments until now in which a target's value did not sign in. */
  gaps(): Gap[] {
    const now = this.#directory.clock.now();
    return this.#targets.flatMap((target) =>
      target.values.flatMap(({ at, value }, index) => {
        const until = target.values[index + 1]?.at;
        return this.#gapsOf(target, value, at, until ?? now).map(({ from, to, ...rest }) => ({
          vault: target.vault,
          secret: target.secret,
          appId: target.appId,
          ...rest,
          from: instant(from),
          ...((to < now || until !== undefined) && { to: instant(to) }),
        }));
      }),
    );
  }

  /** The parts of a time in which a value did not sign in. */
  #gapsOf(
    { appId }: Target,
    value: string | undefined,
    from: number,
    to: number,
  ): { why: Gap["why"]; keyId?: string; from: number; to: number }[] {
    if (value === undefined) return [{ why: "absent", from, to }];
    const application = this.#directory.truth(appId);
    const secret = [...(application?.secrets ?? []), ...(application?.removed ?? [])].find(
      (one) => one.value === value,
    );
    if (secret === undefined) return [{ why: "unknown", from, to }];
    const { keyId } = secret;
    const begins = Math.max(secret.settlesAt, secret.startsOn * 1000);
    const removedAt = secret.removedAt ?? Number.POSITIVE_INFINITY;
    const ends = Math.min(removedAt, secret.expiresOn * 1000);
    const before = { why: "notYet" as const, keyId, from, to: Math.min(to, begins) };
    const after = {
      why: removedAt <= secret.expiresOn * 1000 ? ("removed" as const) : ("expired" as const),
      keyId,
      from: Math.max(from, ends),
      to,
    };
    return [before, after].filter((gap) => gap.from < gap.to);
  }
}

const same = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();
const instant = (milliseconds: number): string => new Date(milliseconds).toISOString();
