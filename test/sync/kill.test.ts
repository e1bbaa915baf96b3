import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED, sampled } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { COPIES, openRoom, type Room, SOURCE } from "./sync-fixture.ts";

/** Number of runs, of which each is killed several times. */
const RUNS = IS_CAMPAIGN ? 10 : 1;
/** Longer than a lease, so that another worker takes over. */
const TAKEN_OVER_MS = 7 * 60_000;

let storage: MovedStorage;
let cloud: Cloud;
let room: Room;
let connectionString: string;

beforeAll(async () => {
  storage = await startMovedStorage(["kills"]);
  connectionString = storage.azurite.connectionString("kills");
  const vaults = [{ name: SOURCE }, { name: COPIES }];
  ({ cloud } = await liveIn({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  room = openRoom({ cloud, connectionString, storage });
  await room.discover(SOURCE, COPIES);
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});

interface Scenario {
  /** Brings about what a run has to do. Answers the record and what its target then holds. */
  arrange(): Promise<{ recordId: string; targetName: string; expected: string }>;
  /** Kinds of the history entries afterwards, newest first. */
  kinds: string[];
}

/** @param between - What happens between the source's two versions. */
function newVersion(between = () => {}): Scenario {
  return {
    async arrange() {
      const record = await room.settled((await room.record()).recordId);
      between();
      room.secret("value-two", record.sourceSecret);
      await room.sync.runFor(SOURCE, record.sourceSecret);
      return { ...record, expected: "value-two" };
    },
    kinds: ["updated", "created"],
  };
}

const SCENARIOS: Record<string, Scenario> = {
  "a first copy": {
    arrange: async () => ({ ...(await room.record()), expected: "value-one" }),
    kinds: ["created"],
  },
  "a new version": newVersion(),
  "a target that others changed": {
    async arrange() {
      const record = await room.settled((await room.record()).recordId);
      cloud.control.putSecret(COPIES, { name: record.targetName, value: "by-others" });
      await room.dueAgain(record);
      return { ...record, expected: "value-one" };
    },
    kinds: ["mended", "created"],
  },
};

const writes = () => cloud.control.requests({ operation: "keyvault.setSecret", vault: COPIES }).length;

/** Returns some steps, before one and after the next. In a campaign, both for each step. */
const deathsOf = ({ taken }: Steps, count: number) => {
  const steps = Array.from({ length: taken }, (_, at) => at + 1);
  return sampled(steps, count).flatMap((dieAt, place) => {
    const both = [{ dieAt, when: "before" } as const, { dieAt, when: "after" } as const];
    return IS_CAMPAIGN ? both : [both[(SEED + place) % 2]!];
  });
};

/** Runs the record with a process that crashes at a step, and then with one that does not. Returns its writes. */
async function live(scenario: Scenario, steps: Steps): Promise<number> {
  const { recordId, targetName, expected } = await scenario.arrange();
  const before = writes();
  await room.drain(room.instance(steps)).catch((error: unknown) => {
    if (!steps.dead) throw error;
  });
  await room.pass(TAKEN_OVER_MS);
  await room.drainAll();
  // The timer finds work whose message was lost.
  await room.sync.tick();
  const record = await room.settled(recordId);
  expect([record.state, record.failure, room.value(targetName)]).toEqual(["inSync", undefined, expected]);
  expect(await room.kinds(recordId)).toEqual(scenario.kinds);
  const written = writes() - before;
  await room.clear();
  return written;
}

describe("a process that crashes at any step, before or after it, leaves the target written once", () => {
  test.each(Object.entries(SCENARIOS))("%s", { timeout: 300_000 }, async (name, scenario) => {
    const whole: Steps = { taken: 0 };
    expect(await live(scenario, whole)).toBe(1);
    expect(whole.taken).toBeGreaterThan(8);
    let died = 0;
    for (const death of deathsOf(whole, name === "a new version" ? 8 : 4)) {
      const steps: Steps = { taken: 0, ...death };
      const written = await live(scenario, steps);
      // One life is a step shorter than another where its versions are not of the same second.
      const isOver = steps.dead === true || steps.taken < death.dieAt;
      expect([death, written, isOver]).toEqual([death, 1, true]);
      if (steps.dead) died++;
    }
    expect(died).toBeGreaterThan(0);
  });
});

test("where the provider can't tell what a target holds, a death leaves it written twice at most", {
  timeout: 300_000,
}, async () => {
  const { github } = cloud.control.providers;
  const body = cloud.control.providers.configurations().github!;
  await room.sync.configurations.save("github", body, undefined, { actor: "admin", requestId: "test" });
  const target = { targetProvider: "github", targetService: "actions", targetRegion: null };
  const written = () => github.written();
  const live = async (steps: Steps) => {
    const targetName = `acme/shop/${room.fresh("KILLED").replace("-", "_")}`;
    const { recordId } = await room.record({ ...target, targetName });
    const before = written();
    await room.drain(room.instance(steps)).catch((error: unknown) => {
      if (!steps.dead) throw error;
    });
    await room.pass(TAKEN_OVER_MS);
    await room.drainAll();
    expect(await room.settled(recordId)).toMatchObject({ state: "inSync", targetOwned: true });
    await room.clear();
    return written() - before;
  };
  const whole: Steps = { taken: 0 };
  expect(await live(whole)).toBe(1);
  let died = 0;
  for (const death of deathsOf(whole, 5)) {
    const steps: Steps = { taken: 0, ...death };
    expect([1, 2]).toContain(await live(steps));
    if (steps.dead) died++;
  }
  expect(died).toBeGreaterThan(0);
});

describe("kill -9", () => {
  /** A process of its own that runs the record and is killed at a step. */
  async function killed(recordId: string, dieAt: number, when: string): Promise<string | null> {
    const args = [new URL("crashing-worker.ts", import.meta.url).pathname, recordId, String(dieAt), when];
    const child = spawn(process.execPath, args, {
      env: {
        ...process.env,
        ...cloud.environment,
        SYNC_STORAGE: connectionString,
        SYNC_AHEAD: String(room.clock.now().getTime() - Date.now()),
      },
      stdio: ["ignore", "ignore", "inherit"],
    });
    const [, signal] = (await once(child, "exit")) as [number | null, string | null];
    return signal;
  }

  test("at moments of a run leaves the target written once", { timeout: 1_800_000 }, async () => {
    const steps: Steps = { taken: 0 };
    // A run takes the fewest steps where the versions lie a second apart, so that no moment lies behind the end of another.
    await live(
      newVersion(() => cloud.control.moveClock(1000)),
      steps,
    );
    const moments = Array.from({ length: 10 }, (_, at) => 1 + Math.round((at * (steps.taken - 1)) / 9));
    const outcomes: string[] = [];
    for (let run = 0; run < RUNS; run++) {
      for (const [at, dieAt] of moments.entries()) {
        if (!IS_CAMPAIGN && at !== 3 && at !== 6) continue;
        const { recordId, targetName, expected } = await SCENARIOS["a new version"]!.arrange();
        const before = writes();
        outcomes.push(String(await killed(recordId, dieAt, (run + at) % 2 === 0 ? "before" : "after")));
        await room.pass(TAKEN_OVER_MS);
        await room.drainAll();
        expect([dieAt, writes() - before, room.value(targetName)]).toEqual([dieAt, 1, expected]);
        expect(await room.sync.get(recordId)).toMatchObject({ state: "inSync" });
        await room.clear();
      }
    }
    expect(new Set(outcomes)).toEqual(new Set(["SIGKILL"]));
    if (IS_CAMPAIGN)
      console.log(`${outcomes.length} kills at ${moments.join(", ")} of ${steps.taken} steps, each written once`);
  });
});
