// Watches vault secrets that must always contain a working client secret. Such a vault secret is called a target.

import type { Directory } from "./directory.ts";

/** An interval in which the value of a vault secret did not sign its application in. Times are ISO 8601. */
export interface Gap {
  vault: string;
  secret: string;
  appId: string;
  /** Key ID of the client secret in the vault secret. Missing if the value is not a client secret of the application. */
  keyId?: string;
  /**
   * `notYet`: the client secret is not valid yet or has not settled on all replicas. `removed`, `expired`: it no longer works.
   * `unknown`: the value is no client secret of the application. `absent`: the vault secret has no value.
   */
  why: "notYet" | "removed" | "expired" | "unknown" | "absent";
  from: string;
  /** Missing while the interval lasts. */
  to?: string;
}

interface Target {
  appId: string;
  vault: string;
  secret: string;
  /** All values that the vault secret had, oldest first, with their start times. Undefined: it had no value. */
  values: { at: number; value: string | undefined }[];
}

/** Records the values of vault secrets, and returns the intervals in which a value did not sign its application in. */
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

  /** Records the value of a vault secret after a possible change. */
  secretChanged(vault: string, secret: string): void {
    for (const target of this.#targets) {
      if (!equalIgnoringCase(target.vault, vault) || !equalIgnoringCase(target.secret, secret)) continue;
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
          from: toIso(from),
          ...((to < now || until !== undefined) && { to: toIso(to) }),
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
    // Until `settlesAt` some sign-ins with a new secret fail.
    const worksFrom = Math.max(secret.settlesAt, secret.startsOn * 1000);
    const removedAt = secret.removedAt ?? Number.POSITIVE_INFINITY;
    const worksUntil = Math.min(removedAt, secret.expiresOn * 1000);
    const gapBefore = { why: "notYet" as const, keyId, from, to: Math.min(to, worksFrom) };
    const gapAfter = {
      why: removedAt <= secret.expiresOn * 1000 ? ("removed" as const) : ("expired" as const),
      keyId,
      from: Math.max(from, worksUntil),
      to,
    };
    return [gapBefore, gapAfter].filter((gap) => gap.from < gap.to);
  }
}

const equalIgnoringCase = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();
const toIso = (milliseconds: number): string => new Date(milliseconds).toISOString();
