/**
 * Limits how many requests this process sends to key vaults, so that it never takes the requests that the owners' applications
 * need. Azure allows 4,000 requests in any ten seconds for a vault, half of that for keys in hardware, and five times as much
 * for all vaults of a subscription in one region: https://learn.microsoft.com/azure/key-vault/general/service-limits
 * This service takes a quarter of each. Short bursts are allowed, because only the sum of ten seconds counts.
 *
 * Instances don't share the limits. Only one scans a vault at a time. For a region a shared counter would cost table requests in
 * the middle of each scan, and one instance usually has all workers: docs/limits.md names the numbers.
 */

/** Maximum number of requests in any period of ten seconds. */
export const KEY_VAULT_PACE = { perVault: 1_000, hardwareKeysPerVault: 500, perRegion: 5_000, periodMs: 10_000 };

/** The members of a vault on which its limits depend. If a caller knows only the origin, no limit of a region applies. */
export interface PacedVault {
  /** Such as `https://kv-payments.vault.azure.net`. */
  origin: string;
  /** With `location`: the subscription and region whose vaults share a limit. Absent if the caller does not know them. */
  subscriptionId?: string | undefined;
  location?: string | undefined;
  /** `standard` vaults have no keys in hardware. In all other vaults, the limit for such keys applies to requests for any key. */
  sku?: string | undefined;
}

/** Runs a request to a path as soon as all limits allow it. Throws the reason of the signal if it is aborted before that. */
export type PacedRequests = <T>(path: string, request: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

/** Limits the requests of this process to key vaults. `vault` returns the function that runs the requests to one vault. */
export interface KeyVaultPace {
  vault(vault: PacedVault): PacedRequests;
}

/** A clock in milliseconds and its timer. Tests replace them. */
export interface PaceClock {
  now(): number;
  after(milliseconds: number, run: () => void): void;
}

const systemClock: PaceClock = {
  now: () => performance.now(),
  after: (milliseconds, run) => void setTimeout(run, milliseconds),
};

export function createKeyVaultPace(limits = KEY_VAULT_PACE, clock = systemClock): KeyVaultPace {
  const limitByName = new Map<string, RateLimit>();

  function limitOf(name: string, maximum: number): RateLimit {
    const existing = limitByName.get(name);
    if (existing) return existing;
    // A process that scans many vaults must not keep a limit for each of them.
    for (const [other, limit] of limitByName) if (limit.isIdle()) limitByName.delete(other);
    const limit = new RateLimit(maximum, limits.periodMs, clock);
    limitByName.set(name, limit);
    return limit;
  }

  return {
    vault({ origin, subscriptionId, location, sku }) {
      const region = subscriptionId && location && `${subscriptionId}/${location}`.toLowerCase();
      const hasHardwareKeys = sku?.toLowerCase() !== "standard";
      return async (path, request, signal) => {
        const isForKey = hasHardwareKeys && path.startsWith("/keys");
        const applicable: [name: string, maximum: number][] = [[origin, limits.perVault]];
        // The narrowest limit is first: a request that waits for it must not count for the wider limits.
        if (isForKey) applicable.unshift([`${origin}/keys`, limits.hardwareKeysPerVault]);
        if (region) applicable.push([region, limits.perRegion]);
        const started: RateLimit[] = [];
        try {
          for (const [name, maximum] of applicable) {
            // The limit is created only now, because an idle limit is deleted when another one is created.
            const limit = limitOf(name, maximum);
            await limit.start(signal);
            started.push(limit);
          }
          return await request();
        } finally {
          for (const limit of started) limit.end();
        }
      };
    },
  };
}

/** The limits of this process. Scans, rotations and syncs share them. */
export const keyVaultPace = createKeyVaultPace();

/**
 * Allows at most `maximum` requests in any period. A request counts from its start until one period after its end, because the
 * vault counts it at some moment between the two.
 */
class RateLimit {
  readonly #maximum: number;
  readonly #periodMs: number;
  readonly #clock: PaceClock;
  #running = 0;
  /** When the requests of the last period ended, oldest first. */
  #endTimes: number[] = [];
  /** Requests that wait, the first one first. */
  readonly #waiting: { start: () => void }[] = [];
  #hasTimer = false;

  constructor(maximum: number, periodMs: number, clock: PaceClock) {
    this.#maximum = maximum;
    this.#periodMs = periodMs;
    this.#clock = clock;
  }

  isIdle(): boolean {
    const last = this.#endTimes.at(-1) ?? Number.NEGATIVE_INFINITY;
    return this.#running === 0 && this.#waiting.length === 0 && last <= this.#clock.now() - this.#periodMs;
  }

  /** Resolves when a request may start. @throws the reason of the signal if it is aborted before that. */
  async start(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.#waiting.length === 0 && this.#hasRoom()) {
      this.#running += 1;
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const abort = () => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        reject(signal?.reason);
      };
      const entry = {
        start: () => {
          signal?.removeEventListener("abort", abort);
          resolve();
        },
      };
      signal?.addEventListener("abort", abort, { once: true });
      this.#waiting.push(entry);
      this.#startWaiting();
    });
  }

  end(): void {
    this.#running -= 1;
    this.#endTimes.push(this.#clock.now());
    this.#startWaiting();
  }

  /** Starts the requests that may start now, and sets a timer for the next one. */
  #startWaiting(): void {
    while (this.#waiting.length > 0 && this.#hasRoom()) {
      this.#running += 1;
      this.#waiting.shift()!.start();
    }
    const [oldest] = this.#endTimes;
    // If no request has ended yet, all of them are running. The end of a request calls this method again.
    if (this.#waiting.length === 0 || this.#hasTimer || oldest === undefined) return;
    this.#hasTimer = true;
    this.#clock.after(Math.max(1, Math.ceil(oldest + this.#periodMs - this.#clock.now())), () => {
      this.#hasTimer = false;
      this.#startWaiting();
    });
  }

  #hasRoom(): boolean {
    // Old times are removed only when they matter, because that takes time in proportion to the limit.
    if (this.#running + this.#endTimes.length < this.#maximum) return true;
    this.#forgetOldTimes();
    return this.#running + this.#endTimes.length < this.#maximum;
  }

  #forgetOldTimes(): void {
    const from = this.#clock.now() - this.#periodMs;
    const recent = this.#endTimes.findIndex((time) => time > from);
    this.#endTimes = recent === -1 ? [] : this.#endTimes.slice(recent);
  }
}
