import { SECOND_MS } from "../../../platform/time.ts";
import { heldCopyName, readHeldValue } from "../../held-copies.ts";
import { resourceKeyOf } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater } from "../../step-errors.ts";
import { listKeys, newKeyOf, previousCopyOf, SETTLE_TIME_MS, withAttempt } from "./create.ts";

/**
 * Part of a rollback, after places and consumers have the old key again. Nothing is regenerated: the new value stays, and nothing
 * known uses it.
 *
 * @param findUsers - Returns the names of consumers that may still have the new value.
 * @throws {ContinueLater} while a request without a response can still regenerate the key.
 */
export async function keepNewKey(context: StepContext, findUsers: () => Promise<string[]>): Promise<void> {
  for (const { state, keyId = "", askedAt } of context.record.attempts) {
    if (state !== "asked") continue;
    const previous = await readHeldValue(context, previousCopyOf(keyId));
    const listed = (await listKeys(context)).find(({ name }) => name === keyId)?.value;
    const wait = Date.parse(askedAt) + SETTLE_TIME_MS - context.now().getTime();
    const isRegenerated = previous !== undefined && listed !== undefined && previous !== listed;
    if (!isRegenerated && wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
    await context.save((record) => ({
      attempts: withAttempt(record, keyId, { state: isRegenerated ? "made" : "refused" }),
    }));
  }
  const users = context.record.attempts.some(({ state }) => state === "made") ? await findUsers() : [];
  await context.save(({ attempts, notes }) => {
    const regenerated = attempts.filter(({ state }) => state === "made");
    const texts = regenerated.map(({ keyId = "" }) =>
      users.length === 0
        ? `${keyId} keeps its new value, which nothing known uses. Its previous value can't be restored.`
        : `${keyId} keeps its new value. The service can't see that these consumers have the old key again: ${users.join(", ")}.`,
    );
    return {
      attempts: attempts.map((one) => (one.state === "made" ? { ...one, state: "left" } : one)),
      notes: [...notes, ...texts],
    };
  });
}

/** Deletes the held copies of the values that the keys had before this rotation regenerated them. */
export async function deletePreviousCopies({ deps, record }: StepContext): Promise<void> {
  for (const keyName of [newKeyOf(record), resourceKeyOf(record).oldKeyId])
    await deps.serviceVault.removeSecret(heldCopyName(record.rotationId, previousCopyOf(keyName)));
}
