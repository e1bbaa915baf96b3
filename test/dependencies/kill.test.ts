import { Dice } from "simulated-cloud/company/dice.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, LONG_MS, SEED } from "../support/sampling.ts";
import { app, caller, Deployment, denied, mayDie, notSeen, resolved, unresolved } from "./discovery-fixture.ts";

/** A campaign kills at every write, before and after it. */
const SAMPLE = 4;

let storage: MovedStorage;
beforeAll(async () => {
  storage = await startMovedStorage(["undisturbed", "killed"]);
});
afterAll(() => storage?.stop());

const many = (count: number, from: number, more = {}) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, index) => [`S${index + from}`, { secret: `n${index % 7}`, ...more }]),
  );

/** Two companies between which everything that can change does: new, changed, gone, unseen, in part, unresolved, large. */
const COMPANIES: Deployment["company"]["units_"][] = [
  {
    s1: [app("one", { A: resolved, B: {} }), app("big", many(120, 0, resolved)), app("gone", { A: unresolved })],
    s2: [app("held", { A: {} }), app("part", { A: {}, B: {} })],
    s3: [app("left", { A: unresolved })],
    s4: [app("denied", { A: {} })],
  },
  {
    s1: [app("one", { A: unresolved, C: {} }), app("big", many(120, 60, unresolved)), app("new", { A: resolved })],
    s2: [
      notSeen("/subscriptions/s1/sites/held"),
      notSeen("/subscriptions/s1/sites/part"),
      app("part", { A: {} }, { partial: true }),
    ],
    s4: denied(),
    s5: [app("late", { A: {} })],
  },
];

async function disturbed(deployment: Deployment, company: number, at: number, applied: boolean) {
  const death = mayDie(at, applied);
  deployment.company.units_ = COMPANIES[company]!;
  const process = deployment.start({ death });
  deployment.messages.push({ message: { mode: "full" }, delaySeconds: 0 });
  await deployment.drain(process);
  return death.taken;
}

test(
  `killed at writes drawn by the seed ${SEED}, a run is taken up again and ends as an undisturbed one`,
  async () => {
    const dice = new Dice(SEED);
    const undisturbed = new Deployment(storage.azurite.connectionString("undisturbed"), storage.move);
    const expected: Awaited<ReturnType<Deployment["standing"]>>[] = [];
    const writes: number[] = [];
    for (const company of [0, 1, 0, 1]) {
      writes[company] = await disturbed(undisturbed, company, Number.POSITIVE_INFINITY, false);
      expected[company] = await undisturbed.standing();
    }
    expect(Math.min(...writes)).toBeGreaterThan(30);

    const deployment = new Deployment(storage.azurite.connectionString("killed"), storage.move);
    for (const company of [0, 1]) await disturbed(deployment, company, Number.POSITIVE_INFINITY, false);
    const every = Math.max(...writes) * 4;
    const rounds = IS_CAMPAIGN ? every : SAMPLE;
    let died = 0;
    for (let round = 0; round < rounds; round++) {
      const company = round % 2;
      const place = IS_CAMPAIGN
        ? Math.floor(round / 4)
        : Math.floor(((round + dice.next()) / rounds) * writes[company]!);
      const applied = IS_CAMPAIGN ? round % 4 > 1 : dice.oneIn(2);
      const where = `round ${round}, company ${company}, write ${place + 1} ${applied ? "after" : "before"}, seed ${SEED}`;
      const events = deployment.events.length;
      const { unresolved } = await deployment.standing();
      const taken = await disturbed(deployment, company, place + 1, applied);
      if (taken >= place + 1) died++;
      const standing = await deployment.standing();
      expect({ ...standing, unresolved: 0 }, where).toEqual({ ...expected[company], unresolved: 0 });
      // Each reference that began to be unresolved is kept once: two apps in the first company, and 121 edges in the second.
      expect(standing.unresolved - unresolved, where).toBe(company === 0 ? 2 : 121);
      expect(await deployment.start().fixture.handle({ runId: "0".repeat(26) }, caller), where).toBeUndefined();
      const ends = deployment.events.slice(events).filter(({ type }) => type === "dependencies.discovered");
      // A redelivered timer message may start a second run. Each run ends once.
      expect(ends.length, where).toBeGreaterThan(0);
      expect(new Set(ends.map(({ id }) => id)).size, where).toBe(new Set(ends.map(({ target }) => target?.id)).size);
    }
    expect(died).toBeGreaterThan(0);
    console.info(`${died} of ${rounds} runs were killed; a run has ${writes.join(" or ")} writes`);
  },
  LONG_MS,
);
