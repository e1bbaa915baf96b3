import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, LONG_MS, SEED } from "../support/sampling.ts";
import { app, caller, crashAt, Deployment, denied, notSeen, resolved, unresolved } from "./discovery-fixture.ts";

// Tests that a discovery of dependencies ends with the same rows if its process is killed at a write. A run reads which
// resources (such as web apps) refer to which vault secrets, and stores each reference. A campaign is the long test run.

/** Number of killed runs. A campaign instead kills a run at each of its writes, before and after the write is applied. */
const SAMPLE = 4;

let storage: MovedStorage;
beforeAll(async () => {
  storage = await startMovedStorage(["undisturbed", "killed"]);
});
afterAll(() => storage?.stop());

/** Returns `count` settings, named from `S{from}` on, that refer to seven secrets. */
const manySettings = (count: number, from: number, more = {}) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, index) => [`S${index + from}`, { secret: `n${index % 7}`, ...more }]),
  );

/**
 * Two states of a company, by subscription. Between them every kind of change occurs: resources that are new, changed, gone,
 * not readable or only partly readable, references that become unresolved, and resources with many references.
 */
const COMPANIES: Deployment["company"]["itemsByUnit"][] = [
  {
    s1: [
      app("one", { A: resolved, B: {} }),
      app("big", manySettings(120, 0, resolved)),
      app("gone", { A: unresolved }),
    ],
    s2: [app("held", { A: {} }), app("part", { A: {}, B: {} })],
    s3: [app("left", { A: unresolved })],
    s4: [app("denied", { A: {} })],
  },
  {
    s1: [
      app("one", { A: unresolved, C: {} }),
      app("big", manySettings(120, 60, unresolved)),
      app("new", { A: resolved }),
    ],
    s2: [
      notSeen("/subscriptions/s1/sites/held"),
      notSeen("/subscriptions/s1/sites/part"),
      app("part", { A: {} }, { partial: true }),
    ],
    s4: denied(),
    s5: [app("late", { A: {} })],
  },
];

/** Runs a discovery whose first process crashes at the given write. Returns the number of writes of that process. */
async function runWithCrash(deployment: Deployment, company: number, crashAtWrite: number, applied: boolean) {
  const crash = crashAt(crashAtWrite, applied);
  deployment.company.itemsByUnit = COMPANIES[company]!;
  const process = deployment.start({ crash });
  deployment.messages.push({ message: { mode: "full" }, delaySeconds: 0 });
  await deployment.drain(process);
  return crash.taken;
}

test(
  `a run that is killed at random writes (seed ${SEED}) continues and ends like an undisturbed run`,
  async () => {
    const dice = new Dice(SEED);
    const undisturbed = new Deployment(storage.azurite.connectionString("undisturbed"), storage.move);
    const expected: Awaited<ReturnType<Deployment["readState"]>>[] = [];
    const writes: number[] = [];
    // The first two runs only prepare: a state's last run must follow a run of the other state, as the killed ones do.
    for (const company of [0, 1, 0, 1]) {
      writes[company] = await runWithCrash(undisturbed, company, Number.POSITIVE_INFINITY, false);
      expected[company] = await undisturbed.readState();
    }
    expect(Math.min(...writes)).toBeGreaterThan(30);

    const deployment = new Deployment(storage.azurite.connectionString("killed"), storage.move);
    for (const company of [0, 1]) await runWithCrash(deployment, company, Number.POSITIVE_INFINITY, false);
    // Two companies, and each write before and after it is applied.
    const allRounds = Math.max(...writes) * 4;
    const rounds = IS_CAMPAIGN ? allRounds : SAMPLE;
    let killed = 0;
    for (let round = 0; round < rounds; round++) {
      const company = round % 2;
      const writeIndex = IS_CAMPAIGN
        ? Math.floor(round / 4)
        : Math.floor(((round + dice.next()) / rounds) * writes[company]!);
      const applied = IS_CAMPAIGN ? round % 4 > 1 : dice.oneIn(2);
      const where = `round ${round}, company ${company}, write ${writeIndex + 1} ${applied ? "after" : "before"}, seed ${SEED}`;
      const events = deployment.events.length;
      const { unresolved: unresolvedBefore } = await deployment.readState();
      const taken = await runWithCrash(deployment, company, writeIndex + 1, applied);
      if (taken >= writeIndex + 1) killed++;
      const state = await deployment.readState();
      expect({ ...state, unresolved: 0 }, where).toEqual({ ...expected[company], unresolved: 0 });
      // Each reference that became unresolved is recorded once: two in the first company (apps `gone` and `left`), and 121 in
      // the second (one of app `one`, 120 of app `big`).
      expect(state.unresolved - unresolvedBefore, where).toBe(company === 0 ? 2 : 121);
      // A message of a run that does not exist does nothing.
      expect(await deployment.start().dependencies.handle({ runId: "0".repeat(26) }, caller), where).toBeUndefined();
      const ends = deployment.events.slice(events).filter(({ type }) => type === "dependencies.discovered");
      // A redelivered timer message may start a second run. Each run ends once.
      expect(ends.length, where).toBeGreaterThan(0);
      expect(new Set(ends.map(({ id }) => id)).size, where).toBe(new Set(ends.map(({ target }) => target?.id)).size);
    }
    expect(killed).toBeGreaterThan(0);
    console.info(`${killed} of ${rounds} runs were killed; a run has ${writes.join(" or ")} writes`);
  },
  LONG_MS,
);
