import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { assetId } from "../inventory/asset.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { licenseRequired } from "../platform/http/admission.ts";
import type { Caller, Tier } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { HistoryStore } from "../settings/retention.ts";
import type { Settings } from "../settings/settings.ts";
import { type Draft, draftRotation } from "./draft.ts";
import { reasonsAgainstEnd } from "./end-conditions.ts";
import { heldCopyName, holdVaultSecret } from "./held-copies.ts";
import { createRotationHistory, type HistoryFilter, type RotationEvent } from "./history.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { type OnObstacle, throwObstacle } from "./obstacles.ts";
import { planRotation } from "./plan.ts";
import type { PlanDependencies } from "./plan-places.ts";
import { conflict, noServiceVault, rejectingServiceVault, rotationUnfinished, throwAsProblem } from "./problems.ts";
import type { AutomaticStart, RotationRequest } from "./request.ts";
import {
  isOver,
  isToRestore,
  isVaultSecret,
  type RotationConsumer,
  type RotationRecord,
  type RotationSummary,
  subjectDetails,
} from "./rotation.ts";
import { createRotationRows, UnfinishedRotation } from "./rows.ts";
import { replacementUnfinished, unfinishedRunOf } from "./secretless-run.ts";
import { createStepContext, type StepDependencies } from "./step-context.ts";
import { createStepRunner } from "./step-runner.ts";
import { resetFailedRestores } from "./steps/refresh-consumers.ts";
import { LATE_WRITE_MS } from "./steps/roll-back.ts";
import { mayHoldNewValue } from "./transitions.ts";

/**
 * Rotations of client secrets of applications, of keys of Azure resources and of vault secrets, including the refresh of their
 * consumers. `plan` and `begin` need a license. Rotations that started under one continue and stay visible without one.
 */
export interface Rotations {
  /**
   * Returns what a rotation would do, without any change.
   *
   * @param onObstacle - Called for each reason why the rotation can't start. By default the first one is thrown.
   * @throws {Problem} if no plan is possible.
   */
  plan(request: RotationRequest, onObstacle?: OnObstacle): Promise<RotationRecord>;
  /**
   * Starts a rotation. Queue messages and a timer continue it.
   *
   * @param automatic - Decisions of the policy that starts it. Undefined if a user starts it.
   * @throws {Problem} licenseRequired; rotationUnfinished with the ID of the unfinished rotation; other problems if the
   * rotation is not possible.
   */
  begin(request: RotationRequest, caller: Caller, automatic?: AutomaticStart): Promise<RotationRecord>;
  /** @throws {Problem} notFound; licenseRequired for an unknown rotation without a license. */
  get(rotationId: string): Promise<RotationRecord>;
  /**
   * Starts a rollback of all changes.
   *
   * @throws {Problem} conflict if the rotation has ended or is removing the old secret, unless it needs attention and the
   * directory still lists that secret; unavailable if that can't be read.
   */
  cancel(rotationId: string, caller: Caller): Promise<RotationRecord>;
  /** Continues a rotation that needs attention. @throws {Problem} conflict if it needs none. */
  retry(rotationId: string, caller: Caller): Promise<RotationRecord>;
  /**
   * Ends the overlap period, during which both values are valid, now. With `force` it can also end a rollback that can't
   * restore some consumers, and leaves these consumers unchanged.
   *
   * @param force - Ignores the reasons against the end.
   * @throws {Problem} notFinishable with the reasons; conflict if there is no overlap period or rollback to end; unavailable if
   * the places can't be read now.
   */
  finish(rotationId: string, force: boolean, caller: Caller): Promise<RotationRecord>;
  /**
   * Called after a user confirmed or rejected a place (vault secret) of an application. An unfinished rotation in its overlap
   * period then checks immediately whether to write that place too, or whether it can end. In an earlier step the rotation
   * checks when it reaches the overlap period.
   */
  placeReviewed(appId: string): Promise<void>;
  /** Lists rotations, the newest first. @throws {Problem} invalidCursor */
  history(filter: HistoryFilter, request: PageRequest): Promise<Page<RotationSummary>>;
  /** Returns the ID of the unfinished rotation of an application (by client ID) or an asset. */
  unfinishedOf(subject: string): Promise<string | undefined>;
  /**
   * Lists events after the position `after`, oldest first, for alerts: rotations that ended, need attention, or started with a
   * new place left out.
   */
  events(after?: string): AsyncGenerator<RotationEvent[]>;
  /** Runs the due step of a rotation. Handler of the queue. */
  work(rotationId: string, requestId: string): Promise<void>;
  /**
   * Handler of the timer. Continues overdue rotations whose message was lost. Deletes held copies (copies of new values in the
   * service's own vault) whose rotation was never stored.
   */
  continueOverdue(): Promise<void>;
  /** Handler of the poison queue: the rotation then needs the attention of a user. */
  giveUp(rotationId: string): Promise<void>;
  /** Returns the access to past rotations by which the module `settings` counts them and deletes old ones. */
  store(): HistoryStore;
}

export type RotationDependencies = Omit<StepDependencies, "rows" | "serviceVault" | "audit"> &
  PlanDependencies & {
    serviceVault: ServiceKeyVault | undefined;
    audit: Pick<Audit, "append">;
    queues: Queues;
    settings: Pick<Settings, "values">;
    licensing: { tier(): Promise<Tier> };
    config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "HANDOVER_KEY_VAULT_URL">;
  };

export function createRotations(deps: RotationDependencies): Rotations {
  const { tables, queues, settings, licensing, audit, clock, randomness, serviceVault } = deps;
  const rows = createRotationRows({ tables, clock, randomness });
  const history = createRotationHistory(tables, rows);
  const stepDeps: StepDependencies = { ...deps, rows, serviceVault: serviceVault ?? rejectingServiceVault };
  const stepRunner = createStepRunner(stepDeps, queues);

  async function requireLicense(): Promise<void> {
    if ((await licensing.tier()) !== "pro") throw licenseRequired();
  }

  /** Plans a rotation and returns its record, which is not stored. */
  async function planDraft(
    request: RotationRequest,
    caller: Caller,
    automatic: AutomaticStart | undefined,
    onObstacle: OnObstacle,
  ): Promise<Draft> {
    await requireLicense();
    if (serviceVault === undefined) onObstacle(noServiceVault());
    const { defaultValidityDays } = await settings.values();
    const now = clock.now();
    const expiryDays = request.expiryDays ?? defaultValidityDays;
    const unfinished = await rows.unfinishedOf(
      "secret" in request
        ? assetId({ vaultName: request.secret.vaultName, type: "secret", name: request.secret.secretName })
        : issuerOf(request).subjectOf(request),
    );
    if (unfinished !== undefined) onObstacle(rotationUnfinished(unfinished));
    // Consumers would get a secret that the run does not watch.
    const runId = "appId" in request ? await unfinishedRunOf(tables, request.appId) : undefined;
    if (runId !== undefined) onObstacle(conflict(replacementUnfinished(runId)));
    const planned = planRotation(deps, { ...request, expiryDays, automatic: automatic !== undefined }, now, onObstacle);
    const plan = await planned.catch(throwAsProblem);
    return draftRotation(plan, { rotationId: randomness.ulid(now), caller, automatic, now });
  }

  /** Stores a new rotation. @param value - New value of a vault secret. Its held copy is stored before the rotation. */
  async function insert(record: Draft, value: string | undefined): Promise<void> {
    if (value !== undefined) {
      await rows.markHeldCopy(record.rotationId);
      await holdVaultSecret(stepDeps.serviceVault, record.rotationId, value);
    }
    try {
      await rows.insert(record, value !== undefined);
    } catch (error) {
      if (!(error instanceof UnfinishedRotation)) throw error;
      if (value !== undefined) await deleteHeldCopy(record.rotationId);
      throw rotationUnfinished(error.rotationId);
    }
  }

  /** Deletes a held copy whose rotation was never stored, then the row that reserved it (`markHeldCopy`). */
  async function deleteHeldCopy(rotationId: string): Promise<void> {
    await stepDeps.serviceVault.removeSecret(heldCopyName(rotationId));
    await rows.removeHeldCopyMark(rotationId);
  }

  async function requireRotation(rotationId: string): Promise<Row<RotationRecord>> {
    const row = await rows.get(rotationId);
    if (row) return row;
    await requireLicense();
    throw notFound(`The rotation ${rotationId}`);
  }

  /**
   * Returns whether the old secret stays although its removal was started. This is so if the rotation has waited for a user for
   * so long that no request can arrive anymore, and the issuer still has the secret.
   *
   * @throws {Problem} unavailable if the issuer can't be read.
   */
  async function isOldSecretKept(record: RotationRecord): Promise<boolean> {
    const { status, attention } = record;
    if (status !== "needsAttention" || attention === undefined || isVaultSecret(record)) return false;
    if (clock.now().getTime() - Date.parse(attention.since) < LATE_WRITE_MS) return false;
    return await issuerOf(record).isOldKept(stepDeps, record).catch(throwAsProblem);
  }

  /** Stores a user's decision and schedules the next step. */
  async function saveDecision(
    type: string,
    rotationId: string,
    caller: Caller,
    details: Record<string, unknown>,
    change: (row: Row<RotationRecord>) => Promise<Partial<RotationRecord>>,
  ): Promise<RotationRecord> {
    await requireRotation(rotationId);
    const target = { type: "rotation", id: rotationId };
    const saved = await audited(audit, { type, caller, target, details }, () =>
      repeatOnConflict(async () => {
        const row = await requireRotation(rotationId);
        const dueAt = clock.now().toISOString();
        return await rows.save(row, { ...row, dueAt, ...(await change(row)) });
      }),
    );
    await stepRunner.scheduleNext(saved);
    return saved;
  }

  return {
    plan: async (request, onObstacle = throwObstacle) => ({
      ...(await planDraft(request, NOBODY, undefined, onObstacle)),
      writeId: "",
    }),

    async begin(request, caller, automatic) {
      const record = await planDraft(request, caller, automatic, throwObstacle);
      const { rotationId, oldKeyId, expiryDays, publications, reason } = record;
      const places = publications.map(({ vaultName, secretName }) => `${vaultName}/${secretName}`);
      const what = { ...subjectDetails(record), ...(oldKeyId !== undefined && { oldKeyId }) };
      const event = {
        type: "rotation.begun",
        caller,
        target: { type: "rotation", id: rotationId },
        details: { ...what, expiryDays, places, automatic: record.automatic, ...(reason && { reason }) },
      };
      await audited(audit, event, () => insert(record, "value" in request ? request.value : undefined));
      await stepRunner.scheduleNext(record);
      return (await rows.get(rotationId))!;
    },

    get: requireRotation,

    cancel: (rotationId, caller) =>
      saveDecision("rotation.cancelled", rotationId, caller, {}, async (row) => {
        if (isOver(row.status)) throw conflict("This rotation has ended.");
        if (row.ending !== undefined) throw conflict("This rotation is already rolling back.");
        if (row.status === "revoking" || (row.revokingSince !== undefined && !(await isOldSecretKept(row)))) {
          throw conflict("The old value is being retired, so this rotation can no longer be rolled back.");
        }
        const cancel = { by: caller.actor, at: clock.now().toISOString() };
        return { cancel, revokingSince: undefined, ...resumeChanges(row) };
      }),

    retry: (rotationId, caller) =>
      saveDecision("rotation.retried", rotationId, caller, {}, async (row) => {
        if (row.status !== "needsAttention") throw conflict("This rotation does not need attention.");
        return resumeChanges(row);
      }),

    async finish(rotationId, force, caller) {
      const current = await requireRotation(rotationId);
      const unrestored = unrestoredConsumers(current);
      if (unrestored.length === 0) requireFinishable(current, force);
      if (!force) {
        // Makes the same checks as at the end of the overlap period, without a lease and without any write. With `failures: 0`
        // a transient failure becomes a 503 instead of a reason. Without `ending` the consumers are expected to have the new
        // value.
        const context = createStepContext(stepDeps, { ...current, ending: undefined, failures: 0 }, "", caller);
        const conditions = async () => await reasonsAgainstEnd(context, { isUserRequest: true }).catch(throwAsProblem);
        const reasons = unrestored.length > 0 ? unrestored.map(mayHoldNewText) : (await conditions()).reasons;
        if (reasons.length > 0) {
          throw new Problem(
            "notFinishable",
            `${reasons.join(" ")} To end the rotation anyway, finish it even if consumers still use the old value (force: true).`,
            {
              members: { reasons },
            },
          );
        }
      }
      const details = { force, ...(unrestored.length > 0 && { left: unrestored.map(({ id }) => id) }) };
      return await saveDecision("rotation.finished", rotationId, caller, details, async (row) => {
        if (unrestored.length > 0) return leaveConsumers(row);
        if (unrestoredConsumers(row).length > 0)
          throw conflict("The rotation is rolling back. Read the rotation again.");
        requireFinishable(row, force);
        const now = clock.now().toISOString();
        return {
          ...resumeChanges(row),
          status: "overlapping",
          ending: undefined,
          cancel: undefined,
          failure: undefined,
          finish: { by: caller.actor, at: now, force },
          overlapEndsAt: row.overlapEndsAt ?? now,
        };
      });
    },

    async placeReviewed(appId) {
      await repeatOnConflict(async () => {
        const rotationId = await rows.unfinishedOf(appId);
        const row = rotationId === undefined ? undefined : await rows.get(rotationId);
        if (row === undefined || row.ending !== undefined || isOver(row.status)) return;
        const now = clock.now().toISOString();
        const overlaps = row.status === "overlapping";
        const saved = await rows.save(row, { ...row, placeConfirmedAt: now, ...(overlaps && { dueAt: now }) });
        if (overlaps) await stepRunner.scheduleNext(saved);
      });
    },

    history: (filter, request) => history.list(filter, request),
    unfinishedOf: (appId) => rows.unfinishedOf(appId),
    events: (after) => history.events(after),
    work: (rotationId, requestId) => stepRunner.runDueStep(rotationId, requestId),

    async continueOverdue() {
      for await (const rotationIds of rows.listOverdue()) {
        for (const rotationId of rotationIds)
          await stepRunner.scheduleNext({ rotationId, dueAt: clock.now().toISOString() });
      }
      for await (const rotationIds of rows.listUnclaimedCopies())
        for (const rotationId of rotationIds) await deleteHeldCopy(rotationId);
    },

    giveUp: (rotationId) => stepRunner.giveUp(rotationId),
    store: () => history.store(),
  };
}

/** The caller in the record of a plan, which is never stored. */
export const NOBODY: Caller = { actor: "nobody", requestId: "" };

/** Returns the changes that continue a rotation after it needed attention. */
const resumeChanges = ({ status, attention, consumers }: RotationRecord): Partial<RotationRecord> =>
  status === "needsAttention" && attention !== undefined
    ? {
        status: attention.resume,
        attention: undefined,
        failures: 0,
        ...(consumers && { consumers: resetFailedRestores(consumers) }),
      }
    : {};

/** Returns the consumers for which a rollback waits for a user. Empty while a place does not have the previous value again. */
const unrestoredConsumers = ({ status, ending, publications, consumers = [] }: RotationRecord): RotationConsumer[] =>
  status === "needsAttention" && ending !== undefined && !publications.some(mayHoldNewValue)
    ? consumers.filter(isToRestore)
    : [];

const mayHoldNewText = ({ kind, name }: RotationConsumer): string => `${kind} ${name} may still hold the new value.`;

/** Marks the consumers that could not be restored as left, because a user accepts that. The rollback then ends normally. */
function leaveConsumers(row: RotationRecord): Partial<RotationRecord> {
  const unrestored = unrestoredConsumers(row);
  if (unrestored.length === 0) throw conflict("All consumers were restored in the meantime. Read the rotation again.");
  const text = `Left unchanged by decision of a user: ${unrestored.map(({ kind, name }) => `${kind} ${name}`).join(", ")}. They may hold the new value.`;
  return {
    ...resumeChanges(row),
    consumers: row.consumers?.map((one) => (isToRestore(one) ? { ...one, state: "left" } : one)),
    notes: [...row.notes, text],
  };
}

/**
 * A rotation that needs attention can be finished like one in its overlap period, also during a rollback. With `force` also
 * after it started to remove the old secret.
 */
function requireFinishable(row: RotationRecord, force: boolean): void {
  const status = row.status === "needsAttention" ? "overlapping" : row.status;
  const hasNewValue = isVaultSecret(row)
    ? row.publications.every(({ state }) => state === "written")
    : row.attempts.some(({ keyId, state }) => keyId === row.newKeyId && state === "made");
  if (row.revokingSince !== undefined && !(force && row.status === "needsAttention"))
    throw conflict(
      "The old secret is already being removed. If the rotation needs attention, finish it even if consumers still use the old value (force: true).",
    );
  if (status !== "overlapping" || !hasNewValue || (row.ending !== undefined && row.status !== "needsAttention")) {
    throw conflict("There is no overlap period to end. A rotation can be finished only while both values are in use.");
  }
}
