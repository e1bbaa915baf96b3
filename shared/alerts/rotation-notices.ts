import { encodeTime } from "ulid";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type DueSecret, dueSecrets } from "../rotation/due-secrets.ts";
import { allPolicies, type RotationPolicies } from "../rotation/policies.ts";
import type { PolicyAttention, PolicyRecord } from "../rotation/policy.ts";
import { placeOf } from "../rotation/publications.ts";
import { isOver, isVaultSecret, type RotationRecord, titleOf } from "../rotation/rotation.ts";
import type { Rotations } from "../rotation/rotations.ts";
import { EVENTS } from "../rotation/rows.ts";
import type { Settings } from "../settings/settings.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/** Rules notify this long before a rotation is due, so that users know before it starts automatically. */
const LEAD_MS = DAY_MS;

type NoticeText = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/** Events of rotations. Texts contain vault secret names and key ids, never values. */
export function createRotationNotices(deps: {
  tables: Tables;
  clock: Clock;
  log: Logger;
  settings: Pick<Settings, "values">;
  licensed: () => Promise<boolean>;
  policies: Pick<RotationPolicies, "of">;
  rotations: Pick<Rotations, "get" | "events" | "history" | "unfinishedOf">;
}): AutomationSource {
  const { tables, clock, rotations } = deps;

  const eventsFrom = (from: Date) => rotations.events(EVENTS + encodeTime(Math.max(0, from.getTime())));

  async function* ended(from: Date, wanted: (status: RotationRecord["status"]) => boolean) {
    for await (const events of eventsFrom(from)) {
      yield events
        .filter(({ status, leftOut }) => !leftOut && wanted(status))
        .map(({ rotationId, status, at, after }): PendingNotice => {
          const notice = async () => {
            const record = await rotations.get(rotationId).catch(ignoreMissing);
            // No notice if a user continued the rotation since.
            return record?.status === status ? resultOf(record) : undefined;
          };
          return { id: `end.${after.slice(EVENTS.length)}`, at, notice };
        });
    }
  }

  /** Returns notices of rotations that skip a newly found copy of the old secret. */
  async function* leftOut(from: Date): AsyncGenerator<PendingNotice[]> {
    for await (const events of eventsFrom(from)) {
      yield events
        .filter((event) => event.leftOut)
        .map(({ rotationId, at }): PendingNotice => {
          const notice = async () => {
            const record = await rotations.get(rotationId).catch(ignoreMissing);
            return record === undefined || isOver(record.status) ? undefined : newPlacesTextOf(record);
          };
          return { id: `newPlace.${rotationId}`, at, notice };
        });
    }
  }

  /** Rotations that wait for a user: to delete the old secret, or to confirm its removal. */
  async function* waiting(): AsyncGenerator<PendingNotice[]> {
    let cursor: string | undefined;
    do {
      const request = { limit: 1000, offset: 0, cursor };
      const page = await rotations.history({ status: "overlapping" }, request).catch(ignoreMissing);
      if (page === undefined) return;
      const found = page.items.filter(({ needsConfirmation }) => needsConfirmation);
      yield found.map(({ rotationId }): PendingNotice => {
        const notice = async () => {
          const record = await rotations.get(rotationId).catch(ignoreMissing);
          return record?.status === "overlapping" && record.needsConfirmation ? waitingTextOf(record) : undefined;
        };
        return { id: `wait.${rotationId}`, notice };
      });
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Secrets that expire within `rotationTriggerDays` plus a day. */
  async function* due(): AsyncGenerator<PendingNotice[]> {
    if (!(await deps.licensed())) return;
    const now = clock.now();
    const { rotationTriggerDays } = await deps.settings.values();
    const before = new Date(now.getTime() + rotationTriggerDays * DAY_MS + LEAD_MS);
    for await (const secrets of dueSecrets(tables, now, before)) {
      yield secrets
        .filter(({ expiresOn }) => expiresOn * SECOND_MS > now.getTime())
        .map((secret): PendingNotice => {
          const { appId, keyId, expiresOn } = secret;
          const notice = async () => {
            const policy = (await deps.policies.of([appId])).get(appId.toLowerCase());
            const runningId = await rotations.unfinishedOf(appId);
            return dueText(secret, nextStepOf(policy, runningId, secret, rotationTriggerDays));
          };
          return { id: `due.${String(expiresOn).padStart(10, "0")}.${appId}.${keyId}`, notice };
        });
    }
  }

  /** Automatic policies that can't be applied currently. */
  async function* policies(): AsyncGenerator<PendingNotice[]> {
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
        yield* due();
        yield* waiting();
      }
      if (type === "rotationDone") yield* ended(from, (status) => status === "completed");
      if (type === "rotationFailed") {
        yield* ended(from, (status) => status !== "completed" && status !== "cancelled");
        yield* leftOut(from);
        yield* policies();
      }
    },
  };
}

/** Codes of failures after which the old secret no longer exists. */
const GONE = new Set(["oldSecretGone", "applicationGone"]);

function resultOf(record: RotationRecord): NoticeText {
  const { appId, rotationId, oldKeyId, newKeyId, failure, attention, status } = record;
  const ofVault = isVaultSecret(record);
  const about = { appId, title: titleOf(record), rotationId, urgency: "critical" } as const;
  const written = listOf(record.publications.filter(({ state }) => state === "written").map(placeOf));
  if (status === "completed") {
    const until = record.newExpiresAt?.slice(0, 10);
    const removed = `${newKeyId} was added, written to ${written}, and ${oldKeyId} was deleted${record.finish?.force ? `, forced by ${record.finish.by}` : ""}.`;
    return {
      ...about,
      urgency: "notice",
      what: ofVault ? "has a new value" : "has a new client secret",
      why: "",
      done: ofVault ? `A new version was written to ${written}.` : removed,
      safe: ofVault
        ? `The new version expires on ${until}. Earlier versions are still in the vault.`
        : `${record.finish?.force ? "" : "Sign-in with the new secret works. "}It expires on ${until ?? "the date shown in Entra"}.`,
      next: "No action is needed, unless an unknown consumer used the old value.",
    };
  }
  if (status === "needsAttention" && attention) {
    return {
      ...about,
      what: "has a rotation that needs attention",
      why: attention.message,
      done: attention.done,
      safe: attention.safe,
      next: attention.next,
    };
  }
  const restored = record.publications.filter(({ state }) => state === "restored").map(placeOf);
  const back = restored.length > 0 ? ` The previous values of ${listOf(restored)} were restored.` : "";
  const left = record.attempts.some(({ state }) => state === "left");
  const made = left ? record.notes.at(-1)! : ofVault ? "" : "The new secret of this rotation was deleted.";
  return {
    ...about,
    what: status === "rolledBack" ? "was not rotated: the rotation was rolled back" : "was not rotated",
    why: failure?.message ?? "",
    done: `${made}${back}`.trim() || "No value was written.",
    safe:
      failure !== undefined && GONE.has(failure.code)
        ? "Nothing else was deleted."
        : ofVault
          ? "No version was deleted from the vault."
          : `The old secret ${oldKeyId} was not deleted and works until it expires.`,
    next: `${failure?.remedy ?? "See the steps of the rotation."} Then start another rotation.`,
  };
}

/** Returns undefined when a person has confirmed all new places. */
function newPlacesTextOf(record: RotationRecord): NoticeText | undefined {
  const { appId, rotationId, oldKeyId, notUpdated } = record;
  const places = notUpdated.filter(({ reason }) => reason === "newPlace").map(placeOf);
  if (places.length === 0) return undefined;
  return {
    appId,
    rotationId,
    title: titleOf(record),
    urgency: "critical",
    what: "has a rotation that does not write a new place",
    why: `${places.join(", ")} ${places.length === 1 ? "holds the old secret, is" : "hold the old secret, are"} new to this service, and ${places.length === 1 ? "was" : "were"} not written.`,
    done: "The other places get the new secret.",
    safe: `The old secret ${oldKeyId} works, and is not removed automatically while a place that was not written holds it.`,
    next: "Find out who wrote the secret there. If the place belongs to the application, confirm its match: the rotation then also writes it. If not, the secret is compromised: remove the copy, or finish the rotation with force.",
  };
}

function waitingTextOf(record: RotationRecord): NoticeText {
  const { appId, rotationId, oldKeyId, newKeyId, reasons } = record;
  const about = { appId, rotationId, title: titleOf(record), urgency: "warning", why: reasons.join(" ") } as const;
  if (isVaultSecret(record)) {
    return {
      ...about,
      what: "has a new value that some consumers may not use yet",
      done: "The new version was written.",
      safe: "The previous version is still in the vault and can be read.",
      next: "Check that the named consumers use the new value, then finish the rotation. To restore the old value, cancel the rotation.",
    };
  }
  return {
    ...about,
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

const dueText = ({ appId, appName, keyId, expiresOn }: DueSecret, next: string): NoticeText => ({
  appId,
  title: appName,
  urgency: "warning",
  what: `has a client secret that expires on ${instantText(expiresOn * SECOND_MS).slice(0, 10)}`,
  why: `The client secret ${keyId} expires at ${instantText(expiresOn * SECOND_MS)}.`,
  done: "No changes were made.",
  safe: "The secret works until then.",
  next,
});

function nextStepOf(
  policy: PolicyRecord | undefined,
  runningId: string | undefined,
  { expiresOn, keyId }: DueSecret,
  triggerDays: number,
): string {
  if (runningId !== undefined) return `A rotation of the application is in progress: ${runningId}. See its status.`;
  if (!policy?.automatic) return `Rotate ${keyId}, or set a policy with automatic: true. Automatic rotation is off.`;
  if (policy.attention)
    return `The rotation policy can't be applied: ${policy.attention.message} ${policy.attention.remedy}`;
  const from = instantText(expiresOn * SECOND_MS - triggerDays * DAY_MS);
  return `No action is needed. Automatic rotation starts after ${from}.`;
}

/** Ignores the error for a purged rotation, and the one for rotations without a license. */
function ignoreMissing(error: unknown): undefined {
  if (error instanceof Error && "code" in error && (error.code === "notFound" || error.code === "licenseRequired"))
    return;
  throw error;
}

const instantText = (milliseconds: number): string => `${new Date(milliseconds).toISOString().slice(0, 16)}Z`;

const listOf = (places: readonly string[]): string => (places.length === 0 ? "no vault" : places.join(", "));
