import "../../infra/simulated-cloud/loopback-names.mjs";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openRoom } from "./sync-fixture.ts";

/** Runs one record, and has this process killed at one of its steps: `crashing-worker.ts RECORD STEP before|after`. */
const [, , recordId, dieAt, when] = process.argv;
const steps: Steps = {
  taken: 0,
  dieAt: Number(dieAt),
  when: when as "before" | "after",
  get dead() {
    return false;
  },
  set dead(_dies) {
    if (when === "before") process.kill(process.pid, "SIGKILL");
  },
};
const cloud = { environment: process.env, app: {} } as unknown as Cloud;
const room = openRoom({ cloud, connectionString: process.env.SYNC_STORAGE!, ahead: Number(process.env.SYNC_AHEAD) });
// After the step its call was applied, and nothing is known of the answer.
await room
  .instance(steps)
  .run(recordId!)
  .catch(() => process.kill(process.pid, "SIGKILL"));
