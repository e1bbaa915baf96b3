import { SECOND_MS } from "../../platform/time.ts";
import { closedUntil, isTooLate, OUTSIDE_WINDOW } from "../maintenance-window.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater } from "../step-errors.ts";

/**
 * Waits until the maintenance window of an automatic rotation is open, before its first change of a place. Does not wait if the old
 * credential would expire first, and adds a note then.
 *
 * @throws {ContinueLater} until the window opens.
 */
export async function waitToPublish(context: StepContext): Promise<void> {
  // From the first write on, consumers may have the new value, so the rotation finishes what it started.
  if (context.record.publications.some(({ state }) => state !== "planned")) return;
  await waitToChange(context);
}

/** The same for places that the rotation found during its overlap period, unless a user confirmed one or finishes the rotation. */
export async function waitToAddPlaces(context: StepContext): Promise<void> {
  const { placeConfirmedAt, finish } = context.record;
  if (placeConfirmedAt === undefined && finish === undefined) await waitToChange(context);
}

async function waitToChange(context: StepContext): Promise<void> {
  const { oldExpiresAt } = context.record;
  const opensAt = windowOpensAt(context);
  if (opensAt === undefined) return;
  if (oldExpiresAt === undefined || !isTooLate(opensAt, new Date(oldExpiresAt))) throw continueAt(context, opensAt);
  if (context.record.notes.includes(OUTSIDE_WINDOW)) return;
  await context.save(({ notes }) => ({ notes: [...notes, OUTSIDE_WINDOW] }));
}

/** Waits until the maintenance window of an automatic rotation is open. @throws {ContinueLater} until then. */
export function waitToRetire(context: StepContext): void {
  const opensAt = windowOpensAt(context);
  if (opensAt !== undefined) throw continueAt(context, opensAt);
}

/** Returns when the maintenance window opens. Undefined if it is open, or the rotation has none. */
export const windowOpensAt = ({ record, now }: StepContext): Date | undefined =>
  closedUntil(record.maintenanceWindow, now());

const continueAt = (context: StepContext, time: Date): ContinueLater =>
  new ContinueLater(Math.ceil((time.getTime() - context.now().getTime()) / SECOND_MS));
