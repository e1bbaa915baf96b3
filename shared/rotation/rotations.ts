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
import { reasonsAgainstEnd } from "./conditions.ts";
import { type Draft, draft } from "./draft.ts";
import { createRotationHistory, type HistoryFilter, type RotationEvent } from "./history.ts";
import { holdingName, holdValue } from "./holding.ts";
import { type PlanWorld, planRotation, type RotationRequest } from "./plan.ts";
import { asProblem, conflict, noServiceVault, noVault, rotationUnfinished } from "./problems.ts";
import {
  isOver,
  isToRestore,
  isVaultSecret,
  type RotationConsumer,
  type RotationRecord,
  type RotationSummary,
} from "./rotation.ts";
import { createRotationRows, UnfinishedRotation } from "./rows.ts";
import { isTouched } from "./states.ts";
import { triedAgain } from "./steps/consumers.ts";
import { createTurn, type RotationWorld } from "./turn.ts";
import { createRotationWork } from "./work.ts";

/**
 * Rotation of applications' client secrets and of vaults' secrets, with those who use them. What began under a licence is gone on with and told of without one; only `begin` needs it.
 */
export interface Rotations {
  /** What a rotation would do; nothing is done. @throws {Problem} for what stands against it. */
  plan(request: RotationRequest): Promise<RotationRecord>;
  /**
   * Begins one. It goes on by itself.
   *
   * @param automatic - Whether a policy asks for it.
   * @throws {Problem} licenseRequired; rotationUnfinished with the id of the one that is not over; for what stands against it.
   */
  begin(request: RotationRequest, caller: Caller, automatic?: boolean): Promise<RotationRecord>;
  /** @throws {Problem} notFound; licenseRequired for an unknown one without a licence. */
  get(rotationId: string): Promise<RotationRecord>;
  /** Has everything put back that was done. @throws {Problem} conflict once the old secret is being removed. */
  cancel(rotationId: string, caller: Caller): Promise<RotationRecord>;
  /** Goes on where a person had to look. @throws {Problem} conflict when it needs no attention. */
  retry(rotationId: string, caller: Caller): Promise<RotationRecord>;
  /**
   * Ends the overlap now; with `force` also a way back on which consumers can't be brought back: they are left as they are.
   *
   * @param force - Whatever stands against it.
   * @throws {Problem} notFinishable with the reasons; conflict when there is nothing to end; unavailable when what holds the
   *   new secret can't be seen just now.
   */
  finish(rotationId: string, force: boolean, caller: Caller): Promise<RotationRecord>;
  /**
   * A person has confirmed a place of an application: its unfinished rotation checks whether it is to write that place, too, at
   * once where it overlaps. Nothing happens where there is none.
   */
  placeConfirmed(appId: string): Promise<void>;
  /** Newest first. @throws {Problem} invalidCursor */
  history(filter: HistoryFilter, request: PageRequest): Promise<Page<RotationSummary>>;
  /** The rotation of an application, by its client id, or of an asset that is not over. */
  unfinishedOf(subject: string): Promise<string | undefined>;
  /** Those that ended, need attention or began with a new place left out, in that order, from behind `after` on: for alerts. */
  events(after?: string): AsyncGenerator<RotationEvent[]>;
  /** For the queue: does what is due of one. */
  work(rotationId: string, requestId: string): Promise<void>;
  /** For the timer: has those gone on with that are due and that no message calls, and removes values nobody will ask for. */
  wake(): Promise<void>;
  /** For the poison queue. */
  giveUp(rotationId: string): Promise<void>;
  store(): HistoryStore;
}

export type RotationDependencies = Omit<RotationWorld, "rows" | "own" | "audit"> &
  PlanWorld & {
    own: ServiceKeyVault | undefined;
    audit: Pick<Audit, "append">;
    queues: Queues;
    settings: Pick<Settings, "values">;
    licensing: { tier(): Promise<Tier> };
    config: Pick<Config, "SERVICE_KEY_VAULT_URL" | "HANDOVER_KEY_VAULT_URL">;
  };

export function createRotations(deps: RotationDependencies): Rotations {
  const { tables, queues, settings, licensing, audit, clock, randomness, own } = deps;
  const rows = createRotationRows({ tables, clock, randomness });
  const history = createRotationHistory(tables, rows);
  const world: RotationWorld = { ...deps, rows, own: own ?? noVault };
  const work = createRotationWork(world, queues);

  async function needLicence(): Promise<void> {
    if ((await licensing.tier()) !== "pro") throw licenseRequired();
  }

  async function planned(request: RotationRequest, caller: Caller, automatic: boolean): Promise<Draft> {
    await needLicence();
    if (own === undefined) throw noServiceVault();
    const { defaultValidityDays } = await settings.values();
    const now = clock.now();
    const expiryDays = request.expiryDays ?? defaultValidityDays;
    await refuseUnfinished(
      "appId" in request
        ? request.appId
        : assetId({ vaultName: request.secret.vaultName, type: "secret", name: request.secret.secretName }),
    );
    const plan = await planRotation(deps, { ...request, expiryDays, automatic }, now).catch(asProblem);
    return draft(plan, { rotationId: randomness.ulid(now), caller, automatic, now });
  }

  async function refuseUnfinished(subject: string): Promise<void> {
    const unfinished = await rows.unfinishedOf(subject);
    if (unfinished !== undefined) throw rotationUnfinished(unfinished);
  }

  /** @param value that is held first, of a vault's secret. */
  async function insert(record: Draft, value: string | undefined): Promise<void> {
    if (value !== undefined) {
      await rows.markHeld(record.rotationId);
      await holdValue(world.own, record.rotationId, value);
    }
    try {
      await rows.insert(record, value !== undefined);
    } catch (error) {
      if (!(error instanceof UnfinishedRotation)) throw error;
      if (value !== undefined) await forgetHeld(record.rotationId);
      throw rotationUnfinished(error.rotationId);
    }
  }

  /** A value whose rotation was never written. */
  async function forgetHeld(rotationId: string): Promise<void> {
    await world.own.removeSecret(holdingName(rotationId));
    await rows.forgetStray(rotationId);
  }

  async function found(rotationId: string): Promise<Row<RotationRecord>> {
    const row = await rows.get(rotationId);
    if (row) return row;
    await needLicence();
    throw notFound(`The rotation ${rotationId}`);
  }

  /** Changes what people decide; the work is called to see it. */
  async function decided(
    type: string,
    rotationId: string,
    caller: Caller,
    details: Record<string, unknown>,
    change: (row: Row<RotationRecord>) => Promise<Partial<RotationRecord>>,
  ): Promise<RotationRecord> {
    await found(rotationId);
    const target = { type: "rotation", id: rotationId };
    const saved = await audited(audit, { type, caller, target, details }, () =>
      repeatOnConflict(async () => {
        const row = await found(rotationId);
        const dueAt = clock.now().toISOString();
        return await rows.save(row, { ...row, dueAt, ...(await change(row)) });
      }),
    );
    await work.call(saved);
    return saved;
  }

  return {
    plan: async (request) => ({
      ...(await planned(request, { actor: "nobody", requestId: "" }, false)),
      writeId: "",
    }),

    async begin(request, caller, automatic = false) {
      const record = await planned(request, caller, automatic);
      const { rotationId, appId, oldKeyId, expiryDays, publications, reason } = record;
      const places = publications.map(({ vaultName, secretName }) => `${vaultName}/${secretName}`);
      const what = appId === undefined ? { assetId: record.assetId } : { appId, oldKeyId };
      const event = {
        type: "rotation.begun",
        caller,
        target: { type: "rotation", id: rotationId },
        details: { ...what, expiryDays, places, automatic, ...(reason && { reason }) },
      };
      await audited(audit, event, () => insert(record, "value" in request ? request.value : undefined));
      await work.call(record);
      return (await rows.get(rotationId))!;
    },

    get: found,

    cancel: (rotationId, caller) =>
      decided("rotation.cancelled", rotationId, caller, {}, async (row) => {
        if (isOver(row.status)) throw conflict("This rotation is over.");
        if (row.ending !== undefined) throw conflict("This rotation is being put back already.");
        if (row.status === "revoking" || row.revokingSince !== undefined) {
          throw conflict("The old value is given up: this can't be undone any more.");
        }
        const cancel = { by: caller.actor, at: clock.now().toISOString() };
        return { cancel, ...resumed(row) };
      }),

    retry: (rotationId, caller) =>
      decided("rotation.retried", rotationId, caller, {}, async (row) => {
        if (row.status !== "needsAttention") throw conflict("This rotation does not wait for anybody to look.");
        return resumed(row);
      }),

    async finish(rotationId, force, caller) {
      const before = await found(rotationId);
      const left = notRestored(before);
      if (left.length === 0) refuseUnfinishable(before);
      if (!force) {
        // The same looks as at the end of the overlap, with nobody's hold on the rotation: nothing is written.
        const turn = createTurn(world, { ...before, ending: undefined, failures: 0 }, "", caller);
        const conditions = async () => await reasonsAgainstEnd(turn, true).catch(asProblem);
        const reasons = left.length > 0 ? left.map(mayHoldNew) : (await conditions()).reasons;
        if (reasons.length > 0) {
          throw new Problem("notFinishable", `${reasons.join(" ")} Send force: true to end it all the same.`, {
            members: { reasons },
          });
        }
      }
      const details = { force, ...(left.length > 0 && { left: left.map(({ id }) => id) }) };
      return await decided("rotation.finished", rotationId, caller, details, async (row) => {
        if (left.length > 0) return leave(row);
        if (notRestored(row).length > 0) throw conflict("It goes back just now. Look at it again.");
        refuseUnfinishable(row);
        const now = clock.now().toISOString();
        return {
          ...resumed(row),
          status: "overlapping",
          ending: undefined,
          cancel: undefined,
          failure: undefined,
          finish: { by: caller.actor, at: now, force },
          overlapEndsAt: row.overlapEndsAt ?? now,
        };
      });
    },

    async placeConfirmed(appId) {
      await repeatOnConflict(async () => {
        const rotationId = await rows.unfinishedOf(appId);
        const row = rotationId === undefined ? undefined : await rows.get(rotationId);
        if (row === undefined || row.ending !== undefined || isOver(row.status)) return;
        const now = clock.now().toISOString();
        const overlaps = row.status === "overlapping";
        const saved = await rows.save(row, { ...row, placeConfirmedAt: now, ...(overlaps && { dueAt: now }) });
        if (overlaps) await work.call(saved);
      });
    },

    history: (filter, request) => history.list(filter, request),
    unfinishedOf: (appId) => rows.unfinishedOf(appId),
    events: (after) => history.events(after),
    work: (rotationId, requestId) => work.turn(rotationId, requestId),

    async wake() {
      for await (const rotationIds of rows.overdue()) {
        for (const rotationId of rotationIds) await work.call({ rotationId, dueAt: clock.now().toISOString() });
      }
      for await (const rotationIds of rows.strays()) for (const rotationId of rotationIds) await forgetHeld(rotationId);
    },

    giveUp: (rotationId) => work.giveUp(rotationId),
    store: () => history.store(),
  };
}

/** Where it goes on that waited for a person. */
const resumed = ({ status, attention, consumers }: RotationRecord): Partial<RotationRecord> =>
  status === "needsAttention" && attention !== undefined
    ? {
        status: attention.resume,
        attention: undefined,
        failures: 0,
        ...(consumers && { consumers: triedAgain(consumers) }),
      }
    : {};

/** Those because of whom a way back waits for a person, once all places have the value from before. */
const notRestored = ({ status, ending, publications, consumers = [] }: RotationRecord): RotationConsumer[] =>
  status === "needsAttention" && ending !== undefined && !publications.some(isTouched)
    ? consumers.filter(isToRestore)
    : [];

const mayHoldNew = ({ kind, name }: RotationConsumer): string => `${kind} ${name} may still hold the new value.`;

/** A person answers for those that could not be brought back: it ends as it would have without them. */
function leave(row: RotationRecord): Partial<RotationRecord> {
  const left = notRestored(row);
  if (left.length === 0) throw conflict("Nothing stands against the way back any more. Look at it again.");
  const text = `Left as they are by a person: ${left.map(({ kind, name }) => `${kind} ${name}`).join(", ")}. They may hold the new value.`;
  return {
    ...resumed(row),
    consumers: row.consumers?.map((one) => (isToRestore(one) ? { ...one, state: "left" } : one)),
    notes: [...row.notes, text],
  };
}

function refuseUnfinishable(row: RotationRecord): void {
  const status = row.status === "needsAttention" ? "overlapping" : row.status;
  const made = isVaultSecret(row)
    ? row.publications.every(({ state }) => state === "written")
    : row.attempts.some(({ keyId, state }) => keyId === row.newKeyId && state === "made");
  if (row.revokingSince !== undefined) throw conflict("The old secret is being removed already.");
  if (status !== "overlapping" || !made || (row.ending !== undefined && row.status !== "needsAttention")) {
    throw conflict("There is no overlap to end: only then does the new value stand beside the old one.");
  }
}
