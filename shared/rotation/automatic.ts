import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import type { Graph, GraphApplication, PasswordCredential } from "../platform/azure/graph.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, DAY_SECONDS, SECOND_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { needsConfirmation } from "./choose-places.ts";
import { dueSecrets, MAX_EXPIRED_SECONDS } from "./due-secrets.ts";
import { closedUntil, isTooLate, OUTSIDE_WINDOW } from "./maintenance-window.ts";
import type { MatchFinder } from "./matches.ts";
import { namedPlaces } from "./named-places.ts";
import { allPolicies, lifetimeDays } from "./policies.ts";
import { minLifetimeDays, POLICIES, Policies, type PolicyRecord, policyKey } from "./policy.ts";
import { TRANSIENT_FAILURE_CODES } from "./problems.ts";
import { isOver, type RotationSummary } from "./rotation.ts";
import type { Rotations } from "./rotations.ts";
import { isCertain, type Target } from "./targets.ts";

// Automatic rotations: starts a rotation when a client secret of an application with a policy expires soon.

export const DUE_QUEUE = "rotation-due";
export const DueMessage = z.object({ appId: z.string() });

/** Minimum time between two automatic checks of an application. A check can start a rotation. */
const CHECK_INTERVAL_MS = DAY_MS;
/** Number of unsuccessful automatic rotations of one secret after which the policy needs attention. */
const MAX_ATTEMPTS = 3;
/**
 * Number of automatic rotations of one secret that outages ended, after which the policy needs attention. Automatic rotations
 * start at most once a day, so that takes at least ten days.
 */
const MAX_OUTAGES = 10;

/**
 * Starts rotations of expiring client secrets, as the rotation policies of their applications require. A timer calls
 * `enqueueDue`, and the queue handler then calls `begin` for each application.
 */
export interface AutomaticRotation {
  /**
   * Sends a message for each application with an automatic policy and a secret that is due. Makes one request if there is no
   * such policy.
   */
  enqueueDue(): Promise<void>;
  /**
   * Starts the rotation of an application's next due secret, or records in the policy why it can't. Handler of the queue
   * `rotation-due`.
   *
   * @throws {CloudFailure} transient; {Problem} unavailable. The policy does not change, and the queue redelivers the message.
   */
  begin(appId: string, requestId: string): Promise<void>;
  /**
   * Handler of the poison queue: records in the policy that the message failed repeatedly. The next check follows within a day.
   */
  recordFailedMessage(appId: string): Promise<void>;
}

/**
 * Number of latest rotations of an application that are read to count failed attempts. Automatic ones start once a day at most.
 */
const MAX_READ_ROTATIONS = 100;

export function createAutomaticRotation(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  clock: Clock;
  log: Logger;
  licensed: () => Promise<boolean>;
  graph: Pick<Graph, "findApplication" | "passwordPolicy">;
  matches: Pick<MatchFinder, "targetsOf">;
  rotations: Pick<Rotations, "begin" | "history">;
}): AutomaticRotation {
  const { tables, queues, clock, log } = deps;

  /**
   * Stores the result of a check in the policy, unless a user changed the policy in the meantime. The changed policy is then
   * checked again.
   *
   * @param opensAt - When the maintenance window opens, if a due secret waits for it.
   */
  async function saveCheckResult(
    row: Row<PolicyRecord>,
    attention: Omit<NonNullable<PolicyRecord["attention"]>, "since"> | undefined,
    opensAt?: Date,
  ) {
    const now = clock.now();
    // Not later than tomorrow, because a secret that is added meanwhile may expire before the window opens.
    const tomorrow = now.getTime() + CHECK_INTERVAL_MS;
    const nextCheckAt = new Date(opensAt === undefined ? tomorrow : Math.min(tomorrow, opensAt.getTime()));
    const { attention: earlier, ...record } = withoutKeys(row);
    const isSameAttention =
      earlier !== undefined && earlier.code === attention?.code && earlier.message === attention.message;
    const since = isSameAttention ? earlier.since : now.toISOString();
    await tables.modify(Policies, POLICIES, row.rowKey, (current) =>
      current?.updatedAt === row.updatedAt && current.updatedBy === row.updatedBy
        ? {
            ...record,
            ...(attention && { attention: { ...attention, since } }),
            nextCheckAt: nextCheckAt.toISOString(),
          }
        : undefined,
    );
    if (attention) log.warn("An application is not rotated automatically", { appId: row.appId, code: attention.code });
  }

  const wasCheckedRecently = ({ nextCheckAt }: Pick<PolicyRecord, "nextCheckAt">): boolean =>
    nextCheckAt !== undefined && Date.parse(nextCheckAt) > clock.now().getTime();

  return {
    async enqueueDue() {
      if (!(await deps.licensed())) return;
      const policyKeys = new Set<string>();
      for await (const rows of allPolicies(tables, log))
        for (const row of rows) if (row.automatic && !wasCheckedRecently(row)) policyKeys.add(row.rowKey);
      if (policyKeys.size === 0) return;
      const { rotationTriggerDays } = await deps.settings.values();
      const now = clock.now();
      for await (const due of dueSecrets(tables, now, new Date(now.getTime() + rotationTriggerDays * DAY_MS))) {
        for (const { appId } of due) if (policyKeys.delete(policyKey(appId))) await queues.send(DUE_QUEUE, { appId });
      }
    },

    async begin(appId, requestId) {
      const row = await tables.get(Policies, POLICIES, policyKey(appId));
      if (!row?.automatic || wasCheckedRecently(row) || !(await deps.licensed())) return;
      const app = await deps.graph.findApplication({ appId: row.appId });
      if (!app) {
        const remedy = "If it was deleted for good, delete the policy.";
        return await saveCheckResult(row, {
          code: "applicationGone",
          message: "The directory has no such application.",
          remedy,
        });
      }
      const page = { limit: MAX_READ_ROTATIONS, offset: 0, cursor: undefined };
      const { items: rotations } = await deps.rotations.history({ subject: row.appId }, page);
      // While a rotation runs, no other one can start. The policy keeps its attention until the next check.
      if (rotations.some(({ status }) => !isOver(status))) return await saveCheckResult(row, row.attention);
      const { rotationTriggerDays, defaultValidityDays } = await deps.settings.values();
      const due = dueCredentials(app, rotations, rotationTriggerDays, clock.now());
      if (due.length === 0) return await saveCheckResult(row, undefined);
      const opensAt = closedUntil(row.maintenanceWindow, clock.now());
      const startable = opensAt ? due.filter(({ expiresOn }) => isTooLate(opensAt, dateOf(expiresOn!))) : due;
      if (startable.length === 0) return await saveCheckResult(row, row.attention, opensAt);

      const days = row.expiryDays ?? defaultValidityDays;
      const lifetimeAttention = await lifetimeProblem(app, days, minLifetimeDays(rotationTriggerDays, row.overlapDays));
      if (lifetimeAttention) return await saveCheckResult(row, lifetimeAttention);
      // Why due secrets can't be rotated, for the user who must act.
      const refusals: ReturnType<typeof attentionOf>[] = [];
      // Failures of one secret don't stop the rotation of another one.
      const failures: unknown[] = [];
      for (const credential of startable) {
        const { overlapDays, updateKeyVaults, maintenanceWindow } = row;
        const request = {
          appId: row.appId,
          secretId: credential.keyId,
          expiryDays: days,
          overlapDays,
          updateKeyVaults,
          removeExpired: false,
          ...(row.targets.length > 0 && { targets: namedPlaces(row.targets) }),
        };
        try {
          const refusal = await reasonAgainstRotation(row, app, credential, rotations);
          if (refusal) {
            refusals.push(refusal);
            continue;
          }
          const { rotationId } = await deps.rotations.begin(
            request,
            { actor: "system", requestId },
            {
              ...(maintenanceWindow && {
                maintenanceWindow,
                oldExpiresAt: dateOf(credential.expiresOn!).toISOString(),
              }),
              ...(opensAt && { notes: [OUTSIDE_WINDOW] }),
            },
          );
          log.info("An automatic rotation started", { appId: row.appId, rotationId });
          // Only one rotation of an application runs at a time. The next secret is due again when this rotation has ended.
          return await saveCheckResult(row, undefined);
        } catch (error) {
          // A `Problem` below 500 is a rejection that a user must fix. Everything else may succeed when the message is redelivered.
          if (!(error instanceof Problem) || error.status >= 500) {
            failures.push(error);
            continue;
          }
          // Another message or a user has started a rotation already, so the policy needs no attention.
          if (error.code === "rotationUnfinished") return await saveCheckResult(row, row.attention);
          refusals.push(
            attentionOf(error.code, error.message, "Fix the problem. The service tries again within a day."),
          );
        }
      }
      if (failures.length > 0) throw failures[0];
      await saveCheckResult(row, refusals[0]);
    },

    async recordFailedMessage(appId) {
      const row = await tables.get(Policies, POLICIES, policyKey(appId));
      if (!row) return;
      const message =
        "The automatic rotation could not start: its message failed several times. GET /system/failed-messages has the reason.";
      await saveCheckResult(row, attentionOf("failedMessage", message, "The service tries again within a day."));
    },
  };

  /** Returns why a new secret can't be created or would be due immediately; undefined if neither is the case. */
  async function lifetimeProblem(app: GraphApplication, days: number, minDays: number) {
    const policy = await deps.graph.passwordPolicy(app.objectId);
    if (policy !== "unknown" && !policy.allowed) {
      const message = "An app management policy of the tenant forbids new client secrets.";
      return attentionOf(
        "secretsForbidden",
        message,
        "Exempt the application from the policy, or use a certificate or federated credential.",
      );
    }
    const validDays = lifetimeDays(days, policy);
    if (validDays > minDays) return undefined;
    return attentionOf(
      "lifeTooShort",
      `A new secret would be valid for ${validDays} days, by the policy or the tenant's limit. It must be valid for more than ${minDays} days, otherwise it would be due immediately.`,
      "Raise the validity of new secrets (expiryDays) or the tenant's limit, or lower the overlap period (overlapDays) or the rotation lead time in Settings (rotationTriggerDays).",
    );
  }

  /** Returns why this secret can't be rotated automatically now; undefined if it can. */
  async function reasonAgainstRotation(
    row: PolicyRecord,
    app: GraphApplication,
    { keyId }: PasswordCredential,
    rotations: readonly RotationSummary[],
  ) {
    // Only rotations since the last change of the policy count, so that saving the policy resets the count.
    const tries = rotations.filter(
      ({ oldKeyId, automatic, createdAt }) => automatic && isSameId(oldKeyId ?? "", keyId) && createdAt > row.updatedAt,
    );
    const outages = tries.filter(({ failure }) => isOutage(failure)).length;
    if (tries.length - outages >= MAX_ATTEMPTS || outages >= MAX_OUTAGES) {
      const message = `${tries.length} rotations of the secret ${keyId} ended without success, the last one ${tries[0]!.rotationId}.`;
      return attentionOf(
        "failedRepeatedly",
        message,
        "Check these rotations. Then rotate the secret manually, or save the policy again to reset the count.",
      );
    }
    const targets = await deps.matches.targetsOf(app, keyId);
    const certain = targets.filter(isCertain);
    const isNamed = (place: Target) => row.targets.some((target) => isTarget(row, target, place));
    // `unanswered` is a transient failure to read a place. It decides only if the policy names the place, or if no other place is
    // certain. The message is then redelivered, instead of a report to the user that the place is missing.
    const decisive = targets.find(
      (place) => place.unanswered !== undefined && (certain.length === 0 || isNamed(place)),
    );
    if (decisive?.unanswered !== undefined) throw decisive.unanswered;
    const unproven = row.targets.filter((target) => !certain.some((place) => isTarget(row, target, place)));
    if (certain.length === 0 || unproven.length > 0) {
      const what =
        unproven.length > 0
          ? `it is not proven that ${unproven.join(", ")} stores it`
          : "no key vault secret is proven to store it";
      const message = `The secret ${keyId} expires soon, but ${what}.`;
      return attentionOf(
        "noTarget",
        message,
        "Test or confirm one of the application's matches, or rotate the secret manually.",
      );
    }
    // A user vouches for the places that a policy names. Otherwise one of the places must be known.
    if (row.targets.length > 0 || certain.some(({ knownAs }) => knownAs !== "new")) return undefined;
    return attentionOf(
      "newPlace",
      `The secret ${keyId} expires soon. ${needsConfirmation(certain)}`,
      "Confirm the match of each key vault secret that belongs to the application, add these secrets to the policy (targets), or rotate the secret manually.",
    );
  }
}

/** Returns whether the target of a policy is this place. If the vault was deleted and recreated, it is another place. */
function isTarget(
  { vaultIds }: PolicyRecord,
  target: string,
  { vaultName, secretName: name, vaultId }: Target,
): boolean {
  const expected = vaultIds?.[vaultName.toLowerCase()] ?? vaultId;
  return assetId({ vaultName, name, type: "secret" }) === target && isSameId(expected, vaultId);
}

/** @param seconds - Unix time. */
const dateOf = (seconds: number): Date => new Date(seconds * SECOND_MS);

const attentionOf = (code: string, message: string, remedy: string) => ({ code, message, remedy });

/**
 * Codes of failures that an outage can cause: transient failures, no new secret after several attempts (`notCreated`), and no
 * reliable sign-in with the new secret (`notProven`).
 */
const OUTAGE_CODES: ReadonlySet<string> = new Set([...TRANSIENT_FAILURE_CODES, "notCreated", "notProven"]);
const isOutage = (failure: RotationSummary["failure"]): boolean =>
  failure !== undefined && OUTAGE_CODES.has(failure.code);
const isSameId = (a: string, b: string): boolean => a.toLowerCase() === b.toLowerCase();

/**
 * Returns the client secrets that expire within the trigger period, earliest first. Leaves out secrets created by this service
 * that have not reached half of their lifetime: with a trigger period longer than their lifetime, they would be due at once.
 */
function dueCredentials(
  app: GraphApplication,
  rotations: readonly RotationSummary[],
  triggerDays: number,
  at: Date,
): PasswordCredential[] {
  const now = at.getTime() / SECOND_MS;
  const isOurs = (keyId: string) =>
    rotations.some(({ newKeyId }) => newKeyId !== undefined && isSameId(newKeyId, keyId));
  const isYoung = ({ keyId, startsOn, expiresOn }: PasswordCredential) =>
    startsOn !== undefined && expiresOn !== undefined && isOurs(keyId) && now < (startsOn + expiresOn) / 2;
  return app.passwords
    .filter((one) => {
      const { expiresOn } = one;
      if (expiresOn === undefined || expiresOn < now - MAX_EXPIRED_SECONDS) return false;
      return expiresOn <= now + triggerDays * DAY_SECONDS && !isYoung(one);
    })
    .sort((a, b) => a.expiresOn! - b.expiresOn!);
}
