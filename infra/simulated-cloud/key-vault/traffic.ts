import type { Vault } from "../vaults/vault.ts";

/** Period of Key Vault's rate limits: https://learn.microsoft.com/azure/key-vault/general/service-limits */
const PERIOD_MS = 10_000;

/**
 * Counts the requests that each vault, and each region of a subscription, received in any ten seconds. Tests and benchmarks
 * compare these numbers with the limits of the service (shared/platform/azure/key-vault-pace.ts).
 */
export class KeyVaultTraffic {
  readonly #periods = new Map<string, BusiestPeriod>();

  add(vault: Vault, segments: string[]): void {
    const names = [
      vault.name,
      `${vault.subscriptionId}/${vault.location}`,
      ...(segments[0] === "keys" ? [`${vault.name}/keys`] : []),
    ];
    for (const name of names) {
      const period = this.#periods.get(name) ?? new BusiestPeriod();
      this.#periods.set(name, period);
      period.add(performance.now());
    }
  }

  /** Requests in the busiest ten seconds. Names are `VAULT`, `VAULT/keys` and `SUBSCRIPTION/REGION`. */
  busiest(): Record<string, number> {
    return Object.fromEntries([...this.#periods].map(([name, { most }]) => [name, most]));
  }

  reset(): void {
    this.#periods.clear();
  }
}

/** Maximum number of times that `#times` keeps before the index `#first`. */
const MAX_OLD_TIMES = 10_000;

/** Counts the requests to one vault or region, and remembers the largest number in any period. */
class BusiestPeriod {
  most = 0;
  /** Times of the requests of the last period, from the index `#first` on. */
  readonly #times: number[] = [];
  #first = 0;

  add(now: number): void {
    this.#times.push(now);
    while (this.#times[this.#first]! <= now - PERIOD_MS) this.#first += 1;
    this.most = Math.max(this.most, this.#times.length - this.#first);
    // Removes old times seldom, because that copies the array.
    if (this.#first < MAX_OLD_TIMES) return;
    this.#times.splice(0, this.#first);
    this.#first = 0;
  }
}
