import { unlessMissing } from "../../azure/failure.ts";
import { DAY_MS, DAY_SECONDS, MINUTE_MS, SECOND_MS } from "../../time.ts";
import { reasonsAgainstRemoval } from "../conditions.ts";
import { entered } from "../effect.ts";
import { holdingName } from "../holding.ts";
import { GoBack, Later } from "../stop.ts";
import type { Turn } from "../turn.ts";
import { reconcile } from "./attempts.ts";

const AGAIN_SECONDS = 60;
/** What was seen of the places is good for so long. */
const CHECK_HOLDS_MS = 5 * MINUTE_MS;

/** Has the consumers refreshed, and sets when both secrets need not live any more. */
export async function verify(turn: Turn): Promise<void> {
  const report = await turn.world.consumers.refresh(turn.record.publications);
  if (report.failed !== undefined) {
    throw new GoBack(
      "consumerFailed",
      report.failed,
      "See why it does not take the new value, then begin a new rotation.",
    );
  }
  const lastsMs = Math.max(turn.record.overlapDays * DAY_MS, report.slowestSeconds * SECOND_MS);
  const overlapEndsAt = new Date(turn.now().getTime() + lastsMs).toISOString();
  await turn.save(() => ({ coverage: report.coverage, overlapEndsAt }));
}

/** Waits until the overlap is over and nothing stands against removing the old secret. @throws {Later} until then. */
export async function overlap(turn: Turn): Promise<void> {
  const { finish, overlapEndsAt = "" } = turn.record;
  const wait = Date.parse(overlapEndsAt) - turn.now().getTime();
  if (wait > 0 && finish === undefined) throw new Later(Math.ceil(wait / SECOND_MS));
  const checkedAt = turn.now().toISOString();
  if (finish?.force) return await turn.save(() => ({ checkedAt }));
  const reasons = await reasonsAgainstRemoval(turn);
  // A person who asked to finish was answered already; what came up since must be seen first.
  const against = reasons.length > 0;
  await turn.save(() => ({ checkedAt, reasons, needsConfirmation: against, finish: against ? undefined : finish }));
  if (reasons.length > 0) throw new Later(DAY_SECONDS);
}

/** Removes the old secret: the only one that this rotation did not make, and that its record names from the beginning. */
export async function revoke(turn: Turn): Promise<void> {
  const { graph } = turn.world;
  const { objectId, oldKeyId, revokingSince, checkedAt = "" } = turn.record;
  if (revokingSince === undefined && turn.now().getTime() - Date.parse(checkedAt) > CHECK_HOLDS_MS) {
    await turn.save(() => ({ status: "overlapping" }));
    throw new Later(0);
  }
  const removed = await turn.directory(async () => {
    await turn.save(({ revokingSince }) => ({ revokingSince: revokingSince ?? turn.now().toISOString() }));
    return await entered(
      turn,
      "rotation.secretRemoved",
      { keyId: oldKeyId, which: "old" },
      async () => (await unlessMissing(graph.removePassword(objectId, oldKeyId))) ?? "absent",
      (result) => ({ result }),
    );
  });
  if (removed === "removed") return;
  // The directory may say so of one that is there.
  const app = await graph.application({ objectId });
  if (app?.passwords.some(({ keyId }) => keyId === oldKeyId)) throw new Later(AGAIN_SECONDS);
}

/** Nothing that this rotation made and nobody uses is left behind. */
export async function cleanUp(turn: Turn): Promise<void> {
  await reconcile(turn, { final: true });
  for (const { keyId } of turn.record.attempts) {
    if (keyId !== undefined) await turn.world.own.removeSecret(holdingName(turn.record.rotationId, keyId));
  }
}
