import { encodeTime } from "ulid";
import { type DueSecret, dueSecrets } from "../rotation/due.ts";
import { allPolicies, type RotationPolicies } from "../rotation/policies.ts";
import type { PolicyAttention, PolicyRecord } from "../rotation/policy.ts";
import { placeOf } from "../rotation/publications.ts";
import { isOver, isVaultSecret, type RotationRecord, titleOf } from "../rotation/rotation.ts";
import type { Rotations } from "../rotation/rotations.ts";
import { EVENTS } from "../rotation/rows.ts";
import type { Clock, Logger } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../time.ts";
import type { AutomationSource, PendingNotice } from "./automation.ts";

/** A secret is told of this long before it is due, so that people know before it is rotated by itself. */
const LEAD_MS = DAY_MS;

type Words = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/** What alerts tell of rotations. Names places and key ids, never a value. */
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
            const record = await rotations.get(rotationId).catch(goneIsNothing);
            // Somebody has had it go on since.
            return record?.status === status ? endOf(record) : undefined;
          };
          return { id: `end.${after.slice(EVENTS.length)}`, at, notice };
        });
    }
  }

  /** Rotations that left out a place which is new and holds the old secret. */
  async function* leftOut(from: Date): AsyncGenerator<PendingNotice[]> {
    for await (const events of eventsFrom(from)) {
      yield events
        .filter((event) => event.leftOut)
        .map(({ rotationId, at }): PendingNotice => {
          const notice = async () => {
            const record = await rotations.get(rotationId).catch(goneIsNothing);
            return record === undefined || isOver(record.status) ? undefined : leftOutWords(record);
          };
          return { id: `newPlace.${rotationId}`, at, notice };
        });
    }
  }

  /** Rotations whose old secret waits for a person. */
  async function* waiting(): AsyncGenerator<PendingNotice[]> {
    let cursor: string | undefined;
    do {
      const request = { limit: 1000, offset: 0, cursor };
      const page = await rotations.history({ status: "overlapping" }, request).catch(goneIsNothing);
      if (page === undefined) return;
      const found = page.items.filter(({ needsConfirmation }) => needsConfirmation);
      yield found.map(({ rotationId }): PendingNotice => {
        const notice = async () => {
          const record = await rotations.get(rotationId).catch(goneIsNothing);
          return record?.status === "overlapping" && record.needsConfirmation ? waitOf(record) : undefined;
        };
        return { id: `wait.${rotationId}`, notice };
      });
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Secrets that end within `rotationTriggerDays` and a day. */
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
            const underWay = await rotations.unfinishedOf(appId);
            return dueWords(secret, nextOf(policy, underWay, secret, rotationTriggerDays));
          };
          return { id: `due.${String(expiresOn).padStart(10, "0")}.${appId}.${keyId}`, notice };
        });
    }
  }

  /** Policies that can't be followed as things are. */
  async function* policies(): AsyncGenerator<PendingNotice[]> {
    if (!(await deps.licensed())) return;
    for await (const rows of allPolicies(tables, deps.log)) {
      yield rows.flatMap((policy): PendingNotice[] => {
        const { attention, appId, automatic } = policy;
        if (!attention || !automatic) return [];
        const notice = async () => policyWords(policy, attention);
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

/** Failures after which the old secret is not there any more. */
const GONE = new Set(["oldSecretGone", "applicationGone"]);

function endOf(record: RotationRecord): Words {
  const { appId, rotationId, oldKeyId, newKeyId, failure, attention, status } = record;
  const ofVault = isVaultSecret(record);
  const about = { appId, title: titleOf(record), rotationId, urgency: "critical" } as const;
  const written = listOf(record.publications.filter(({ state }) => state === "written").map(placeOf));
  if (status === "completed") {
    const until = record.newExpiresAt?.slice(0, 10);
    const removed = `${newKeyId} was added, written to ${written}, and ${oldKeyId} was removed${record.finish?.force ? `, as ${record.finish.by} asked, whatever stood against it` : ""}.`;
    return {
      ...about,
      urgency: "notice",
      what: ofVault ? "has a new value" : "has a new client secret",
      why: "",
      done: ofVault ? `A new version was written to ${written}.` : removed,
      safe: ofVault
        ? `The new version ends on ${until}. The ones before are still in the vault.`
        : `The new secret ${record.finish?.force ? "" : "signs in and "}ends on ${until ?? "the day that Entra shows"}.`,
      next: "Nothing, unless something that is not known here used the old value.",
    };
  }
  if (status === "needsAttention" && attention) {
    return {
      ...about,
      what: "has a rotation that needs somebody to look",
      why: attention.message,
      done: attention.done,
      safe: attention.safe,
      next: attention.next,
    };
  }
  const restored = record.publications.filter(({ state }) => state === "restored").map(placeOf);
  const back = restored.length > 0 ? ` ${listOf(restored)} hold what they held before.` : "";
  const left = record.attempts.some(({ state }) => state === "left");
  const made = left ? record.notes.at(-1)! : ofVault ? "" : "No new secret of this rotation is left.";
  return {
    ...about,
    what: status === "rolledBack" ? "was not rotated: all was put back" : "was not rotated",
    why: failure?.message ?? "",
    done: `${made}${back}`.trim() || "Nothing was written.",
    safe:
      failure !== undefined && GONE.has(failure.code)
        ? "Nothing else was removed."
        : ofVault
          ? "No version was removed from the vault."
          : `The old secret ${oldKeyId} was not removed and works until it ends.`,
    next: `${failure?.remedy ?? "See the rotation's steps."} Then begin another rotation.`,
  };
}

/** Undefined where a person has confirmed all of them since. */
function leftOutWords(record: RotationRecord): Words | undefined {
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
    safe: `The old secret ${oldKeyId} works, and is not removed by itself while a place that was not written holds it.`,
    next: "Find out who put it there. If the place belongs to the application, confirm its match: the rotation then writes it, too. If not, the secret is compromised: remove the copy, or finish the rotation with force.",
  };
}

function waitOf(record: RotationRecord): Words {
  const { appId, rotationId, oldKeyId, newKeyId, reasons } = record;
  const about = { appId, rotationId, title: titleOf(record), urgency: "warning", why: reasons.join(" ") } as const;
  if (isVaultSecret(record)) {
    return {
      ...about,
      what: "has a new value, and not everybody is known to hold it",
      done: "The new version was written.",
      safe: "The version before is still in the vault and can be read.",
      next: "See that those named hold the new value, then finish the rotation, or cancel it, which puts the old value back.",
    };
  }
  return {
    ...about,
    what: "has an old client secret that waits for you to remove it",
    done: `${newKeyId} was added and is in place.`,
    safe: `Both secrets work. The old one, ${oldKeyId}, is not removed by itself.`,
    next: "Once nothing uses the old one, finish the rotation; it says what still stands against that.",
  };
}

const policyWords = ({ appId, appName }: PolicyRecord, { message, remedy }: PolicyAttention): Words => ({
  appId,
  title: appName,
  urgency: "critical",
  what: "is not rotated by itself as its policy says",
  why: message,
  done: "No rotation was begun.",
  safe: "Its secrets work until they end.",
  next: remedy,
});

const dueWords = ({ appId, appName, keyId, expiresOn }: DueSecret, next: string): Words => ({
  appId,
  title: appName,
  urgency: "warning",
  what: `has a client secret that ends on ${instantText(expiresOn * SECOND_MS).slice(0, 10)}`,
  why: `The client secret ${keyId} ends at ${instantText(expiresOn * SECOND_MS)}.`,
  done: "Nothing was changed.",
  safe: "It works until then.",
  next,
});

function nextOf(
  policy: PolicyRecord | undefined,
  underWay: string | undefined,
  { expiresOn, keyId }: DueSecret,
  triggerDays: number,
): string {
  if (underWay !== undefined) return `A rotation of the application is under way: ${underWay}. See what it says.`;
  if (!policy?.automatic) return `Nobody rotates it by itself: rotate ${keyId}, or set a policy with automatic: true.`;
  if (policy.attention) return `Its policy can't be followed: ${policy.attention.message} ${policy.attention.remedy}`;
  const from = instantText(expiresOn * SECOND_MS - triggerDays * DAY_MS);
  return `Nothing: it is rotated by itself from ${from} on.`;
}

/** A rotation whose history was purged; without a licence, that there never was one. */
function goneIsNothing(error: unknown): undefined {
  if (error instanceof Error && "code" in error && (error.code === "notFound" || error.code === "licenseRequired"))
    return;
  throw error;
}

const instantText = (milliseconds: number): string => `${new Date(milliseconds).toISOString().slice(0, 16)}Z`;

const listOf = (places: readonly string[]): string => (places.length === 0 ? "no vault" : places.join(", "));
