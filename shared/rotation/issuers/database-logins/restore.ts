import { SECOND_MS } from "../../../platform/time.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater } from "../../step-errors.ts";
import { attemptOf, newUserOf, SETTLE_TIME_MS, withAttempt } from "./create.ts";

/**
 * Part of a rollback, after places and consumers have the old login again. The old user was never changed. The other user keeps a
 * password, and its held copy is deleted, so that nobody knows it.
 *
 * @param findUsers - Returns the names of consumers that may still have the new login.
 * @throws {ContinueLater} while a statement without a response can still have an effect, also in a later rotation.
 */
export async function keepNewPassword(context: StepContext, findUsers: () => Promise<string[]>): Promise<void> {
  const user = newUserOf(context.record);
  const attempt = attemptOf(context.record, user);
  if (attempt === undefined || attempt.state === "left") return;
  const wait = Date.parse(attempt.askedAt) + SETTLE_TIME_MS - context.now().getTime();
  if (attempt.state === "asked" && wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
  const users = attempt.state === "made" ? await findUsers() : [];
  const note =
    users.length === 0
      ? `${user} keeps a password that nobody knows. Nothing known uses it.`
      : `${user} keeps its new password. The service can't see that these consumers have the old login again: ${users.join(", ")}.`;
  await context.save((record) => ({
    attempts: withAttempt(record, user, { state: "left" }),
    ...(attempt.state !== "refused" && { notes: [...record.notes, note] }),
  }));
}
