// The pace of requests to key vaults, with a simulated clock: random requests of random duration never exceed a limit.
import { expect, test } from "vitest";
import { createKeyVaultPace, KEY_VAULT_PACE } from "../../shared/platform/azure/key-vault-pace.ts";

const limits = { perVault: 40, hardwareKeysPerVault: 20, perRegion: 100, periodMs: 10_000 };

/** A clock whose timers run in order of their time when `run` is called. */
class SimulatedClock {
  #now = 0;
  readonly #timers: { at: number; run: () => void }[] = [];
  now = (): number => this.#now;
  after = (milliseconds: number, run: () => void): void =>
    void this.#timers.push({ at: this.#now + milliseconds, run });

  /** Runs all timers, and those that they set. */
  async run(): Promise<void> {
    for (;;) {
      // Code that waits for the last timer runs first, and can set further timers.
      await new Promise(setImmediate);
      const next = this.#timers.reduce((first, timer) => (timer.at < first.at ? timer : first), {
        at: Number.POSITIVE_INFINITY,
        run: () => {},
      });
      if (next.at === Number.POSITIVE_INFINITY) return;
      this.#timers.splice(this.#timers.indexOf(next), 1);
      this.#now = next.at;
      next.run();
    }
  }
}

/** Sends requests at random times to four vaults of one region, and returns when each arrived at its vault. */
async function simulate(seed: number): Promise<{ vault: string; path: string; at: number }[]> {
  // A linear congruential generator, so that each seed gives the same schedule.
  let state = seed;
  const random = () => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
  const clock = new SimulatedClock();
  const pace = createKeyVaultPace(limits, clock);
  const arrivals: { vault: string; path: string; at: number }[] = [];
  for (let index = 0; index < 600; index++) {
    const vault = `kv-${Math.floor(random() * 4)}`;
    const path = random() < 0.3 ? "/keys/one" : "/secrets";
    const [startMs, arrivalMs, answerMs] = [random() * 20_000, random() * 3_000, random() * 3_000];
    clock.after(startMs, () => {
      const origin = `https://${vault}.vault.azure.net`;
      const paced = pace.vault({ origin, subscriptionId: "one", location: "westeurope", sku: "premium" });
      void paced(path, async () => {
        await new Promise<void>((resolve) => clock.after(arrivalMs, resolve));
        arrivals.push({ vault, path, at: clock.now() });
        await new Promise<void>((resolve) => clock.after(answerMs, resolve));
      });
    });
  }
  await clock.run();
  return arrivals;
}

/** Largest number of arrivals in any period of ten seconds. */
function busiest(arrivals: { at: number }[]): number {
  return Math.max(
    ...arrivals.map(({ at }) => arrivals.filter((other) => other.at > at - limits.periodMs && other.at <= at).length),
  );
}

test("in no period of ten seconds a vault, its hardware keys or a region receives more requests than its limit", async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const arrivals = await simulate(seed);
    expect(arrivals).toHaveLength(600);
    const ofOneVault = arrivals.filter(({ vault }) => vault === "kv-0");
    const figures = [arrivals, ofOneVault, ofOneVault.filter(({ path }) => path.startsWith("/keys"))].map(busiest);
    expect(figures[0], `seed ${seed}`).toBeLessThanOrEqual(limits.perRegion);
    expect(figures[1], `seed ${seed}`).toBeLessThanOrEqual(limits.perVault);
    expect(figures[2], `seed ${seed}`).toBeLessThanOrEqual(limits.hardwareKeysPerVault);
    // The requests come close to the limits, so that the comparisons above mean something.
    expect(figures[0], `seed ${seed}`).toBeGreaterThan(limits.perRegion / 2);
  }
});

// The numbers are a quarter of Azure's limits, see shared/platform/azure/key-vault-pace.ts.
test.each([
  { limited: "a vault", atMost: 1_000, vaults: 1, requests: 1_200, sku: "standard", path: "/secrets" },
  { limited: "the hardware keys of a vault", atMost: 500, vaults: 1, requests: 700, sku: "premium", path: "/keys/one" },
  { limited: "the vaults of a region", atMost: 5_000, vaults: 6, requests: 900, sku: "standard", path: "/secrets" },
])(
  "the service sends $atMost requests of a burst to $limited in ten seconds, and the others in the next ten",
  async ({ atMost, vaults, requests, sku, path }) => {
    const clock = new SimulatedClock();
    const pace = createKeyVaultPace(KEY_VAULT_PACE, clock);
    const arrivals: { at: number }[] = [];
    for (let vault = 0; vault < vaults; vault++) {
      const origin = `https://kv-${vault}.vault.azure.net`;
      const paced = pace.vault({ origin, subscriptionId: "one", location: "westeurope", sku });
      for (let index = 0; index < requests; index++)
        void paced(path, async () => void arrivals.push({ at: clock.now() }));
    }
    await clock.run();
    expect(arrivals).toHaveLength(vaults * requests);
    expect(busiest(arrivals)).toBe(atMost);
    expect(clock.now()).toBe(10_000);
  },
);

test("a request that is aborted while it waits is not sent, and the others continue", async () => {
  const clock = new SimulatedClock();
  const paced = createKeyVaultPace({ ...limits, perVault: 1 }, clock).vault({ origin: "https://kv.vault.azure.net" });
  const sent: string[] = [];
  const stop = new AbortController();
  const send = (name: string, signal?: AbortSignal) => paced("/secrets", async () => void sent.push(name), signal);
  const first = send("first");
  const second = send("second", stop.signal).catch((error: unknown) => error);
  const third = send("third");
  stop.abort(new Error("the time is over"));
  await clock.run();
  await Promise.all([first, third]);
  expect(await second).toMatchObject({ message: "the time is over" });
  expect(sent).toEqual(["first", "third"]);
  expect(clock.now()).toBe(limits.periodMs);
});

test("a failed request counts, and its failure reaches the caller", async () => {
  const clock = new SimulatedClock();
  const paced = createKeyVaultPace({ ...limits, perVault: 1 }, clock).vault({ origin: "https://kv.vault.azure.net" });
  await expect(paced("/secrets", () => Promise.reject(new Error("refused")))).rejects.toThrow("refused");
  const second = paced("/secrets", async () => clock.now());
  await clock.run();
  expect(await second).toBe(limits.periodMs);
});

test("the first requests to a vault count for each of its limits", async () => {
  const clock = new SimulatedClock();
  const pace = createKeyVaultPace({ ...limits, perVault: 2, hardwareKeysPerVault: 1 }, clock);
  const vault = { subscriptionId: "one", location: "westeurope", sku: "premium" };
  const paced = pace.vault({ origin: "https://kv.vault.azure.net", ...vault });
  const other = pace.vault({ origin: "https://kv-other.vault.azure.net", ...vault });
  const now = async () => clock.now();
  const sent = [paced("/keys", now), other("/keys", now), paced("/keys", now), paced("/secrets", now)];
  await clock.run();
  // The second request for keys waits for the first, and counts for the limit of its vault only then.
  expect(await Promise.all(sent)).toEqual([0, 0, limits.periodMs, 0]);
});

test("a vault's limits are forgotten when no request counts any more, and not before", async () => {
  const clock = new SimulatedClock();
  const pace = createKeyVaultPace({ ...limits, perVault: 1 }, clock);
  const send = (vault: string) =>
    pace.vault({ origin: `https://${vault}.vault.azure.net` })("/secrets", async () => clock.now());
  await send("kv");
  clock.after(limits.periodMs - 1, () => {});
  await clock.run();
  // The first request to a new vault deletes the limits of vaults for which no request counts any more. That of `kv` still counts.
  await send("kv-other");
  const second = send("kv");
  await clock.run();
  expect(await second).toBe(limits.periodMs);
});
