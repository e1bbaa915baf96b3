import "../../infra/simulated-cloud/loopback-names.mjs";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openFixture } from "./sync-fixture.ts";

/**
 * Process for kill.test.ts. It runs one sync record and kills itself with SIGKILL at one of its steps (calls of tables, queues,
 * the audit log and vaults), before or after the step is applied. Usage: `crashing-worker.ts RECORD STEP before|after`.
 */
const [, , recordId, crashAt, when] = process.argv;
const steps: Steps = {
  taken: 0,
  crashAt: Number(crashAt),
  when: when as "before" | "after",
  get dead() {
    return false;
  },
  // The fixture sets this member when the step with the crash is reached.
  set dead(_isDead) {
    if (when === "before") process.kill(process.pid, "SIGKILL");
  },
};
const cloud = { environment: process.env, app: {} } as unknown as Cloud;
const fixture = openFixture({
  cloud,
  connectionString: process.env.SYNC_STORAGE!,
  clockOffsetMs: Number(process.env.SYNC_AHEAD),
});
// With `after`, the step is applied and then throws. The process is killed before it can handle the error.
await fixture
  .instance(steps)
  .run(recordId!)
  .catch(() => process.kill(process.pid, "SIGKILL"));
