import { encodeTime } from "ulid";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type DueSecret, dueSecrets } from "../rotation/due-secrets.ts";
import { allPolicies, type RotationPolicies } from "../rotation/policies.ts";
import type { PolicyAttention, PolicyRecord } from "../rotation/policy.ts";
import { placeOf } from "../rotation/publications.ts";
import { isOver, isVaultSecret, type RotationRecord, type StepName, titleOf } from "../rotation/rotation.ts";
import type { Rotations } from "../rotation/rotations.ts";
import { EVENTS_PREFIX } from "../rotation/rows.ts";
import type { Settings } from "../settings/settings.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";
import { expiryText, timeText } from "./time-text.ts";

/**
 * The events of rotations about which alert rules notify. A rotation replaces a client secret of an application, or a secret of
 * a vault, and writes the new value to the places that store it: vault secrets.
 *
 * A new place stores the old secret, but neither has a user confirmed it nor has an earlier rotation written it, so the
 * rotation does not write it. The rotation's record lists it in `notUpdated` with the reason `newPlace`, and the event has
 * `leftOut`.
 */

/** Rules notify this long before a rotation is due, so that users know before it starts automatically. */
const LEAD_MS = DAY_MS;

type NoticeText = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/**
 * Creates the source of rotation events. The texts contain names of vault secrets and ids of keys, not values. The id of an
 * event begins with its kind (`end.`, `newPlace.`, `wait.`, `due.`, `policy.`). `notice` reads the current state and creates
 * the text, only for events without a notification; it returns undefined if the event no longer applies.
 */
export function createRotationNotices(deps: {
  tables: Tables;
  clock: Clock;
  log: Logger;
  settings: Pick<Settings, "values">;
  licensed: () => Promise<boolean>;
  policies: Pick<RotationPolicies, "getMany">;
  rotations: Pick<Rotations, "get" | "events" | "history" | "unfinishedOf">;
}): AutomationSource {
  const { tables, clock, rotations } = deps;

  /** The row key of an event is the prefix and a ULID, which begins with the time of the event. */
  const eventsFrom = (from: Date) => rotations.events(EVENTS_PREFIX + encodeTime(Math.max(0, from.getTime())));

  /**
   * Yields notices of rotations that ended or need attention, with one of the matching statuses. `after` is the row key of an
   * event.
   */
  async function* endedRotations(from: Date, matches: (status: RotationRecord["status"]) => boolean) {
    for await (const events of eventsFrom(from)) {
      yield events
        .filter(({ status, leftOut: hasNewPlace }) => !hasNewPlace && matches(status))
        .map(({ rotationId, status, at, after: eventKey }): PendingNotice => {
          const notice = async () => {
            const record = await rotations.get(rotationId).catch(ignoreMissing);
            // No notice if a user has continued the rotation.
            return record?.status === status ? resultOf(record, clock.now()) : undefined;
          };
          return { id: `end.${eventKey.slice(EVENTS_PREFIX.length)}`, at, notice };
        });
    }
  }

  /** Yields notices of rotations in progress that do not write a new place. */
  async function* rotationsWithNewPlaces(from: Date): AsyncGenerator<PendingNotice[]> {
    for await (const events of eventsFrom(from)) {
      yield events
        .filter(({ leftOut: hasNewPlace }) => hasNewPlace)
        .map(({ rotationId, at }): PendingNotice => {
          const notice = async () => {
            const record = await rotations.get(rotationId).catch(ignoreMissing);
            return record === undefined || isOver(record.status) ? undefined : newPlacesTextOf(record);
          };
          return { id: `newPlace.${rotationId}`, at, notice };
        });
    }
  }

  /** Yields notices of rotations that wait until a user confirms the deletion of the old secret. */
  async function* waitingRotations(): AsyncGenerator<PendingNotice[]> {
    let cursor: string | undefined;
    do {
      const request = { limit: 1000, offset: 0, cursor };
      const page = await rotations.history({ status: "overlapping" }, request).catch(ignoreMissing);
      if (page === undefined) return;
      const unconfirmed = page.items.filter(({ needsConfirmation }) => needsConfirmation);
      yield unconfirmed.map(({ rotationId }): PendingNotice => {
        const notice = async () => {
          const record = await rotations.get(rotationId).catch(ignoreMissing);
          return record?.status === "overlapping" && record.needsConfirmation ? waitingTextOf(record) : undefined;
        };
        return { id: `wait.${rotationId}`, notice };
      });
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Yields notices of client secrets that expire within `rotationTriggerDays` plus a day. */
  async function* dueRotations(): AsyncGenerator<PendingNotice[]> {
    if (!(await deps.licensed())) return;
    const now = clock.now();
    const { rotationTriggerDays } = await deps.settings.values();
    const before = new Date(now.getTime() + rotationTriggerDays * DAY_MS + LEAD_MS);
    for await (const secrets of dueSecrets(tables, now, before)) {
      yield secrets
        // `dueSecrets` also lists secrets that expired in the last seven days. Rules about expiry report those.
        .filter(({ expiresOn }) => expiresOn * SECOND_MS > now.getTime())
        .map((secret): PendingNotice => {
          const { appId, keyId, expiresOn } = secret;
          const notice = async () => {
            const policy = (await deps.policies.getMany([appId])).get(appId.toLowerCase());
            const runningId = await rotations.unfinishedOf(appId);
            return dueText(secret, nextStepOf(policy, runningId, secret, rotationTriggerDays, now), now);
          };
          // Padded, so that the ids sort by the expiry.
          return { id: `due.${String(expiresOn).padStart(10, "0")}.${appId}.${keyId}`, notice };
        });
    }
  }

  /** Yields notices of automatic policies that can't be applied currently. */
  async function* failingPolicies(): AsyncGenerator<PendingNotice[]> {
    if (!(await deps.licensed())) return;
    for await (const rows of allPolicies(tables, deps.log)) {
      yield rows.flatMap((policy): PendingNotice[] => {
        const { attention, appId, automatic } = policy;
        if (!attention || !automatic) return [];
        const notice = async () => policyText(policy, attention);
        return [{ id: `policy.${appId.toLowerCase()}.${attention.since}`, notice }];
      });
    }
  }

  return {
    async *notices(type, from) {
      if (type === "rotationDue") {
        yield* dueRotations();
        yield* waitingRotations();
      }
      if (type === "rotationDone") yield* endedRotations(from, (status) => status === "completed");
      if (type === "rotationFailed") {
        yield* endedRotations(from, (status) => status !== "completed" && status !== "cancelled");
        yield* rotationsWithNewPlaces(from);
        yield* failingPolicies();
      }
    },
  };
}

/** Codes of failures after which the old secret no longer exists. */
const OLD_SECRET_DELETED = new Set(["oldSecretGone", "applicationGone"]);

const isOfKey = ({ issuer }: RotationRecord): boolean => issuer === "resourceKey";

/** Describes what a completed rotation of a resource's key did. */
function completedKeyText({ newKeyId, oldKeyId, regenerateOld }: RotationRecord, written: string) {
  return {
    what: "has another key in use",
    done: `${newKeyId} was regenerated and written to ${written}.${regenerateOld ? ` Then ${oldKeyId} was regenerated too.` : ""}`,
    safe: regenerateOld
      ? `The old value of ${oldKeyId} is no longer valid.`
      : `${oldKeyId} is unchanged. It stays valid until the next rotation regenerates it.`,
  };
}

/** Describes the end of a rotation, or that it needs attention. */
function resultOf(record: RotationRecord, now: Date): NoticeText {
  const { appId, rotationId, oldKeyId, newKeyId, failure, attention, status } = record;
  const isOfVault = isVaultSecret(record);
  const base = { appId, title: titleOf(record), rotationId, urgency: "critical" } as const;
  const written = listOf(record.publications.filter(({ state }) => state === "written").map(placeOf));
  if (status === "completed") {
    const until = record.newExpiresAt && timeText(new Date(record.newExpiresAt), now);
    const replacement = `${newKeyId} was added, written to ${written}, and ${oldKeyId} was deleted${record.finish?.force ? `, forced by ${record.finish.by}` : ""}.`;
    return {
      ...base,
      urgency: "notice",
      what: isOfVault ? "has a new value" : "has a new client secret",
      why: "",
      done: isOfVault ? `A new version was written to ${written}.` : replacement,
      safe: isOfVault
        ? `The new version expires on ${until}. Earlier versions are still in the vault.`
        : `${record.finish?.force ? "" : "Sign-in with the new secret works. "}It expires on ${until ?? "the date shown in Microsoft Entra"}.`,
      ...(isOfKey(record) && completedKeyText(record, written)),
      next: "No action is needed, unless an unknown consumer used the old value.",
    };
  }
  if (status === "needsAttention" && attention) {
    return {
      ...base,
      what: `has a rotation that stopped${stepText(record)} and needs a decision`,
      why: attention.message,
      done: attention.done,
      safe: `${attention.safe}${validityText(record, now)}`,
      next: attention.next,
    };
  }
  const restoredPlaces = record.publications.filter(({ state }) => state === "restored").map(placeOf);
  const restoredText =
    restoredPlaces.length > 0 ? ` The previous values of ${listOf(restoredPlaces)} were restored.` : "";
  // `left`: the rotation did not delete the new secret that it had added, and its last note says why.
  const hasRemainingSecret = record.attempts.some(({ state }) => state === "left");
  const newSecretText = hasRemainingSecret
    ? record.notes.at(-1)!
    : isOfVault
      ? ""
      : isOfKey(record)
        ? "No key was regenerated."
        : "The new secret of this rotation was deleted.";
  return {
    ...base,
    what: status === "rolledBack" ? "was not rotated: the rotation was rolled back" : "was not rotated",
    why: failure?.message ?? "",
    done: `${newSecretText}${restoredText}`.trim() || "No value was written.",
    safe:
      failure !== undefined && OLD_SECRET_DELETED.has(failure.code)
        ? "Nothing else was deleted."
        : isOfVault
          ? "No version was deleted from the vault."
          : isOfKey(record)
            ? `${oldKeyId} was not regenerated.`
            : `The old secret ${oldKeyId} was not deleted and works until it expires.`,
    next: `${failure?.remedy ?? "See the steps of the rotation."} Then start another rotation.`,
  };
}

/** The steps of a rotation at which it can stop, as the page names them. */
const STEP_NAMES: Record<StepName, string> = {
  makeRoom: "Delete an expired secret",
  create: "Create the new secret",
  prove: "Test sign-in with the new secret",
  publish: "Save the new secret to Key Vault",
  verify: "Update consumers and check that they use the new secret",
  overlap: "Keep both secrets valid for the overlap period",
  revoke: "Delete the old secret",
  putBack: "Save the old secret to Key Vault again",
  restore: "Check that consumers use the old secret again",
  removeNew: "Delete the new secret",
  cleanUp: "Delete the temporary copy of the new secret",
};

/** Steps with another name if the rotation replaces a key of an Azure resource. */
const KEY_STEP_NAMES: Partial<Record<StepName, string>> = {
  create: "Regenerate the key that is not in use",
  prove: "Check the new key",
  publish: "Save the new key to Key Vault",
  verify: "Update consumers and check that they use the new key",
  overlap: "Keep both keys valid for the overlap period",
  revoke: "Regenerate the old key, if the request asked for it",
  putBack: "Save the old key to Key Vault again",
  restore: "Check that consumers use the old key again",
  removeNew: "Check that nothing uses the new key",
  cleanUp: "Delete the temporary copies of the keys",
};

/** Names the failed step at which the rotation stopped. Empty if no step has failed. */
function stepText(record: RotationRecord): string {
  const failed = record.steps.findLast(({ status }) => status === "failed");
  if (failed === undefined) return "";
  const name = (isOfKey(record) ? KEY_STEP_NAMES[failed.name] : undefined) ?? STEP_NAMES[failed.name];
  return ` at the step “${name}”`;
}

/**
 * Says until when the new secret is valid beside the old one. Empty for vault secrets, for keys of resources, which don't expire,
 * and if the old secret may be gone.
 */
function validityText(record: RotationRecord, now: Date): string {
  const { newKeyId, newExpiresAt, revokingSince } = record;
  if (isVaultSecret(record) || isOfKey(record) || newKeyId === undefined) return "";
  if (newExpiresAt === undefined || revokingSince !== undefined) return "";
  return ` Both secrets work until they expire. The new one expires on ${timeText(new Date(newExpiresAt), now)}.`;
}

/** Describes the new places that a rotation does not write. Undefined if a user has confirmed all of them. */
function newPlacesTextOf(record: RotationRecord): NoticeText | undefined {
  const { appId, rotationId, oldKeyId, notUpdated } = record;
  const places = notUpdated.filter(({ reason }) => reason === "newPlace").map(placeOf);
  if (places.length === 0) return undefined;
  return {
    appId,
    rotationId,
    title: titleOf(record),
    urgency: "critical",
    what: "has a rotation that does not write a new place of the secret",
    why: `${places.join(", ")} ${places.length === 1 ? "stores" : "store"} the old secret. No user confirmed ${places.length === 1 ? "this place" : "these places"}, so the rotation does not write the new secret there.`,
    done: "The other places get the new secret.",
    safe: `The old secret ${oldKeyId} works. It is not deleted automatically while a place that was not written stores it.`,
    next: isOfKey(record)
      ? "Find out who wrote the key there. If the place belongs to the resource's consumers, write the new key to it. If not, the key is compromised: remove the copy, and rotate the key again with the reason compromised."
      : "Find out who wrote the secret there. If the place belongs to the application, confirm its match: the rotation then also writes it. If not, the secret is compromised: remove the copy, or finish the rotation with force.",
  };
}

function waitingTextOf(record: RotationRecord): NoticeText {
  const { appId, rotationId, oldKeyId, newKeyId, reasons } = record;
  const base = { appId, rotationId, title: titleOf(record), urgency: "warning", why: reasons.join(" ") } as const;
  if (isVaultSecret(record)) {
    return {
      ...base,
      what: "has a new value that some consumers may not use yet",
      done: "The new version was written.",
      safe: "The previous version is still in the vault and can be read.",
      next: "Check that the named consumers use the new value, then finish the rotation. To restore the old value, cancel the rotation.",
    };
  }
  if (isOfKey(record)) {
    return {
      ...base,
      what: "has a rotation that can't end, because something may still use the old key",
      done: `${newKeyId} was regenerated and is in use.`,
      safe: `Both keys work. ${oldKeyId} is unchanged.`,
      next: "Finish the rotation once nothing uses the old key. The rotation shows what still uses it.",
    };
  }
  return {
    ...base,
    what: "has an old client secret that waits for deletion",
    done: `The new secret ${newKeyId} was added and is in use.`,
    safe: `Both secrets work. The old secret ${oldKeyId} is not deleted automatically.`,
    next: "Finish the rotation once nothing uses the old secret. The rotation shows what still blocks the deletion.",
  };
}

const policyText = ({ appId, appName }: PolicyRecord, { message, remedy }: PolicyAttention): NoticeText => ({
  appId,
  title: appName,
  urgency: "critical",
  what: "can't be rotated automatically by its policy",
  why: message,
  done: "No rotation was started.",
  safe: "The current secrets work until they expire.",
  next: remedy,
});

const dueText = ({ appId, appName, keyId, expiresOn }: DueSecret, next: string, now: Date): NoticeText => ({
  appId,
  title: appName,
  urgency: "warning",
  what: `has a client secret that ${expiryText(expiresOn * SECOND_MS - now.getTime())}`,
  why: `The client secret ${keyId} expires on ${timeText(new Date(expiresOn * SECOND_MS), now)}.`,
  done: "No changes were made.",
  safe: "The secret works until then.",
  next,
});

function nextStepOf(
  policy: PolicyRecord | undefined,
  runningId: string | undefined,
  { expiresOn, keyId }: DueSecret,
  triggerDays: number,
  now: Date,
): string {
  if (runningId !== undefined) return `A rotation of the application is in progress: ${runningId}. See its status.`;
  if (!policy?.automatic) return `Rotate ${keyId}, or set a policy with automatic: true. Automatic rotation is off.`;
  if (policy.attention)
    return `The rotation policy can't be applied: ${policy.attention.message} ${policy.attention.remedy}`;
  const from = new Date(expiresOn * SECOND_MS - triggerDays * DAY_MS);
  return `No action is needed. Automatic rotation starts after ${timeText(from, now)}.`;
}

/** Ignores the error for a purged rotation, and the one for rotations without a license. */
function ignoreMissing(error: unknown): undefined {
  if (error instanceof Error && "code" in error && (error.code === "notFound" || error.code === "licenseRequired"))
    return;
  throw error;
}

const listOf = (places: readonly string[]): string => (places.length === 0 ? "no vault" : places.join(", "));
