import { setTimeout as delay } from "node:timers/promises";
import { DAY_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import type { MovedClock } from "../support/moved-clock.ts";
import { ADMIN, type Answer, type Service } from "../support/service.ts";

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
export type Rotation = any;

/** Calls to a service whose time a test moves, and what becomes of its rotations meanwhile. */
export function overHttp(service: Service, storageClock: MovedClock) {
  let token: string | undefined;

  /** As the administrator. Days pass here, and tokens with them. */
  async function admin(method: string, path: string, body?: unknown): Promise<Answer> {
    token ??= await service.signIn(ADMIN);
    const answer = await service.call(method, path, { token, body });
    if (answer.status !== 401) return answer;
    token = await service.signIn(ADMIN);
    return await service.call(method, path, { token, body });
  }

  async function pass(milliseconds: number): Promise<void> {
    service.cloud.control.moveClock(milliseconds);
    await storageClock.add(milliseconds);
  }

  const look = async (id: string): Promise<Rotation> =>
    (await admin("GET", `/api/automation/rotation/rotations/${id}`)).body;

  /**
   * Lets time pass until the condition holds. @param passes - False: no days pass, so that only work that is due now happens.
   */
  async function until(id: string, isSo: (rotation: Rotation) => boolean, passes = true): Promise<Rotation> {
    let passed: string | undefined;
    for (let looks = 0; looks < 600; looks++) {
      const rotation = await look(id);
      if (isSo(rotation)) return rotation;
      const waits = passes && rotation.status === "overlapping";
      if (waits && rotation.nextAt !== passed) {
        passed = rotation.nextAt;
        await pass(2 * DAY_MS + 20 * MINUTE_MS);
      } else if (looks % 5 === 4) await pass(10_000);
      if (waits) {
        const headers = { "Content-Type": "application/json" };
        await fetch(`${service.url}/admin/functions/wakeRotations`, { method: "POST", body: "{}", headers });
      }
      await delay(50);
    }
    throw new Error(`It never was: ${JSON.stringify(await look(id))}`);
  }

  return { admin, pass, look, until };
}
