import type { StepContext } from "../../step-context.ts";
import { attemptOf, newUserOf, requireSettled, withAttempt } from "./create.ts";

/**
 * Part of a rollback, after places and consumers have the old login again. The old user was never changed. The other user keeps
 * its new password until the next rotation.
 *
 * @param findUsers - Returns the names of consumers that may still have the new login.
 * @throws {ContinueLater} while a statement without a response can still have an effect, also in a later rotation.
 */
export async function keepNewPassword(context: StepContext, findUsers: () => Promise<string[]>): Promise<void> {
  const user = newUserOf(context.record);
  const attempt = attemptOf(context.record, user);
  if (attempt === undefined || attempt.state === "left") return;
  if (attempt.state === "asked") requireSettled(attempt, context.now());
  const users = attempt.state === "made" ? await findUsers() : [];
  const note =
    attempt.state === "made"
      ? `${user} keeps its new password. ${users.length === 0 ? "Nothing known uses it." : `The service can't see that these consumers have the old login again: ${users.join(", ")}.`}`
      : `${user} may have got a new password. Nothing known uses it.`;
  await context.save((record) => ({
    attempts: withAttempt(record, user, { state: "left" }),
    notes: [...record.notes, note],
  }));
}
