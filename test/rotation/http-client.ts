import { setTimeout as delay } from "node:timers/promises";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import type { MovedClock } from "../support/moved-clock.ts";
import { ADMIN, type Answer, type Service } from "../support/service.ts";

// biome-ignore lint/suspicious/noExplicitAny: the body of a response, whose members the tests check
export type Rotation = any;

/** Creates a client of the rotation API for a service whose clock the test moves. */
export function createRotationClient(service: Service, storageClock: MovedClock) {
  let token: string | undefined;

  /** Sends a request as the administrator. Signs in again if the token has expired, because tests skip days. */
  async function admin(method: string, path: string, body?: unknown): Promise<Answer> {
    token ??= await service.signIn(ADMIN);
    const answer = await service.call(method, path, { token, body });
    if (answer.status !== 401) return answer;
    token = await service.signIn(ADMIN);
    return await service.call(method, path, { token, body });
  }

  async function advanceClock(milliseconds: number): Promise<void> {
    service.cloud.control.moveClock(milliseconds);
    await storageClock.add(milliseconds);
  }

  const getRotation = async (id: string): Promise<Rotation> =>
    (await admin("GET", `/api/automation/rotation/rotations/${id}`)).body;

  /**
   * Polls the rotation until the condition is met. Skips the overlap period meanwhile.
   *
   * @param options - `skipsDays: false`: does not skip the overlap period, so that only work that is due now happens.
   * @throws Error after 600 polls.
   */
  async function waitUntil(
    id: string,
    isMet: (rotation: Rotation) => boolean,
    { skipsDays = true } = {},
  ): Promise<Rotation> {
    let skippedDueTime: string | undefined;
    for (let poll = 0; poll < 600; poll++) {
      const rotation = await getRotation(id);
      if (isMet(rotation)) return rotation;
      const isWaiting = skipsDays && rotation.status === "overlapping";
      if (isWaiting && rotation.nextAt !== skippedDueTime) {
        skippedDueTime = rotation.nextAt;
        await advanceClock(2 * DAY_MS + 20 * MINUTE_MS);
      } else if (poll % 5 === 4) await advanceClock(10 * SECOND_MS);
      if (isWaiting) {
        const headers = { "Content-Type": "application/json" };
        await fetch(`${service.url}/admin/functions/wakeRotations`, { method: "POST", body: "{}", headers });
      }
      await delay(50);
    }
    throw new Error(`The rotation never met the condition: ${JSON.stringify(await getRotation(id))}`);
  }

  return { admin, advanceClock, getRotation, waitUntil };
}
