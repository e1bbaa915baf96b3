import type { Directory } from "./directory.ts";

/** An interval in which the value of a target did not sign its application in. Times are ISO 8601. */
export interface Gap {
  vault: string;
  secret: string;
  appId: string;
  /** The secret whose value the target held. Undefined if the value was not a secret of the application. */
  keyId?: string;
  why: "notYet" | "removed" | "expired" | "unknown" | "absent";
  from: string;
  /** Missing while the interval lasts. */
  to?: string;
}

interface Target {
  appId: string;
  vault: string;
  secret: string;
  /** Values that the target held, oldest first, with the start time of each. Undefined for no value. */
  values: { at: number; value: string | undefined }[];
}

/** Watches vault secrets that an application's consumers read, and records whether their value signed in at every moment. */
export class Targets {
  readonly #directory: Directory;
  readonly #readValue: (vault: string, secret: string) => string | undefined;
  readonly #targets: Target[] = [];

  constructor(directory: Directory, readValue: (vault: string, secret: string) => string | undefined) {
    this.#directory = directory;
    this.#readValue = readValue;
  }

  /** Starts to watch a vault secret: from now on its value must sign the application in. */
  watch(target: { appId: string; vault: string; secret: string }): void {
    const value = this.#readValue(target.vault, target.secret);
    this.#targets.push({ ...target, values: [{ at: this.#directory.clock.now(), value }] });
  }

  /** Called when a secret of a vault may have changed. */
  secretChanged(vault: string, secret: string): void {
    for (const target of this.#targets) {
      if (!same(target.vault, vault) || !same(target.secret, secret)) continue;
      const value = this.#readValue(vault, secret);
      if (value !== target.values.at(-1)!.value) target.values.push({ at: this.#directory.clock.now(), value });
    }
  }

  /** Returns all intervals until now in which a target's value did not sign in. */
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

  /** Returns the parts of an interval in which a value did not sign in. */
  #gapsOf(
    { appId }: Target,
    value: string | undefined,
    from: number,
    to: number,
  ): { why: Gap["why"]; keyId?: string; from: number; to: number }[] {
    if (value === undefined) return [{ why: "absent", from, to }];
    const application = this.#directory.currentState(appId);
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
