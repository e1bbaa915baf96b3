import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { nameRange } from "../inventory/asset-keys.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { expiriesOf, VAULTS, Vaults } from "../inventory/vault.ts";
import { VaultBusy } from "../inventory/write.ts";
import type { Logger } from "../platform/runtime.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import { type EvaluateMessage, LINES_KEY, Lines, QUEUE, STATE, VaultStates, vaultsRange } from "./compliance-rows.ts";
import { type EvaluationStore, isOver } from "./evaluations.ts";
import { type Evaluator, editionOf } from "./evaluator.ts";
import type { Overview } from "./overview.ts";
import { assetsExpiringIn, momentOf, sweptIntervals } from "./passed-thresholds.ts";

/** Every instance applies a changed setting within this time. Its effects are evaluated only then. */
const SETTINGS_FELT_SECONDS = 30;
/** Names in one message, each of at most 139 characters: far below 48 KiB. */
const ASSETS_PER_MESSAGE = 300;
const SENDS_AT_ONCE = 16;

/** Evaluates through queue messages: all vaults, one vault, or the assets that time, policy or references affect. */
export interface EvaluationWork {
  send(message: EvaluateMessage, delaySeconds?: number): Promise<void>;
  /** Handles one message of the queue. */
  handle(message: EvaluateMessage): Promise<void>;
  /** Records a message that failed five times in the audit log and in the evaluation's status. */
  failed(message: EvaluateMessage, requestId: string): Promise<void>;
  /** Evaluates assets that passed a changed threshold, once every instance uses the new settings. */
  policyChanged(keys: readonly string[]): Promise<void>;
  /** Sends a message that evaluates a vault and some of its assets (`<type>.<name>`) after their references changed. */
  referencesChanged(vault: string, assets: string[]): Promise<void>;
  /** Returns lower-case names of the inventory's vaults, with their numbers of assets. */
  inventory(): Promise<{ vaults: string[]; assets: number }>;
  /** Returns the inventory's vaults and those it no longer has, whose results are removed. */
  everyVault(vaults: readonly string[]): Promise<Set<string>>;
}

export function createEvaluationWork(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  evaluator: Evaluator;
  evaluations: EvaluationStore;
  overview: () => Promise<Overview>;
  ownerTag?: string;
  log: Logger;
}): EvaluationWork {
  const { tables, queues, settings, audit, evaluator, evaluations, overview, log } = deps;
  const edition = editionOf(deps.ownerTag);
  const send = (message: EvaluateMessage, delaySeconds = 0) => queues.send(QUEUE, message, { delaySeconds });
  const sendAll = (messages: readonly EvaluateMessage[]) =>
    pMap(messages, (message) => send(message), { concurrency: SENDS_AT_ONCE });

  async function inventory(): Promise<{ vaults: string[]; assets: number }> {
    const vaults: string[] = [];
    let assets = 0;
    const select = ["name", "certificateExpiries", "keyExpiries", "secretExpiries"] as const;
    const range = { ...nameRange(VAULTS), select };
    for await (const rows of tables.pages(Vaults, range)) {
      for (const row of rows) {
        vaults.push(row.name.toLowerCase());
        for (const type of ASSET_TYPES) assets += countExpiries(expiriesOf(row, type));
      }
    }
    return { vaults, assets };
  }

  async function everyVault(vaults: readonly string[]): Promise<Set<string>> {
    const all = new Set(vaults);
    for await (const rows of tables.pages(VaultStates, { ...vaultsRange, select: ["name", "gone"] })) {
      for (const { name, gone } of rows) if (!gone) all.add(name.toLowerCase());
    }
    return all;
  }

  async function handle(message: EvaluateMessage): Promise<void> {
    switch (message.kind) {
      case "everything":
        return await sendEverything(message.evaluationId);
      case "crossed":
        return await sendCrossed(message);
      default:
        return await evaluateOne(message);
    }
  }

  async function evaluateOne(message: Exclude<EvaluateMessage, { kind: "everything" | "crossed" }>): Promise<void> {
    try {
      const evaluated =
        message.kind === "vault"
          ? await evaluator.evaluateWholeVault(message.vault, message.evaluationId)
          : message.kind === "due"
            ? await evaluator.evaluateAssets(message.vault, "due")
            : await evaluator.evaluateAssets(message.vault, message.assets, {
                references: message.references === true,
              });
      log.debug("A vault was evaluated", { vault: message.vault, kind: message.kind, evaluated });
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // A scan is writing the vault. Throwing would count as a failed delivery, so a new message is sent instead.
      const seconds = Math.ceil(error.waitMs / 1000);
      await send(message, Math.max(1, seconds));
    }
  }

  async function sendEverything(evaluationId: string | undefined): Promise<void> {
    if (evaluationId !== undefined && isOver(await evaluations.status(evaluationId, await overview()))) return;
    const { vaults } = await inventory();
    const all = await everyVault(vaults);
    await sendAll([...all].map((vault) => ({ kind: "vault", vault, evaluationId })));
    if (evaluationId === undefined) return;
    await evaluations.change(evaluationId, (record) => ({ ...record, vaults: all.size }));
  }

  /**
   * Sends messages for the assets that passed an expiry threshold since the last time, because of time or policy, and for those
   * due by age.
   */
  async function sendCrossed(message: Extract<EvaluateMessage, { kind: "crossed" }>): Promise<void> {
    const row = await tables.get(Lines, STATE, LINES_KEY);
    const at = await evaluator.context();
    if (!row) {
      // Before the first evaluation, no asset can have passed a threshold.
      if (at) await evaluator.ensureLines(at);
      return;
    }
    if (!at) {
      if (!row.paused) await tables.replace(Lines, { ...row, paused: true });
      return;
    }
    const drawn = { ...row, at: new Date(at.now).toISOString(), ...daysOf(at), paused: false, edition };
    if (row.paused || row.edition !== edition) {
      await sendEverything(undefined);
    } else {
      const { criticalDays = at.criticalDays, warningDays = at.warningDays } = message;
      const intervals = sweptIntervals([momentOf(row), at, { now: at.now, criticalDays, warningDays }]);
      const crossed = await assetsExpiringIn(tables, intervals);
      const messages: EvaluateMessage[] = [];
      for (const [vault, assets] of crossed) {
        for (let start = 0; start < assets.length; start += ASSETS_PER_MESSAGE) {
          messages.push({ kind: "assets", vault, assets: assets.slice(start, start + ASSETS_PER_MESSAGE) });
        }
      }
      for await (const rows of tables.pages(VaultStates, { ...vaultsRange, select: ["name", "dueAt"] })) {
        for (const { name, dueAt } of rows) {
          if (dueAt !== undefined && dueAt * 1000 <= at.now) messages.push({ kind: "due", vault: name.toLowerCase() });
        }
      }
      await sendAll(messages);
      log.info("What time and policy have passed is being evaluated", { messages: messages.length });
    }
    await tables.replace(Lines, drawn);
  }

  async function failed(message: EvaluateMessage, requestId: string): Promise<void> {
    const vault = "vault" in message ? message.vault : undefined;
    log.error("An evaluation failed for good", { kind: message.kind, vault });
    await audit.append({
      type: "compliance.evaluationFailed",
      caller: { actor: "system", requestId },
      outcome: "failure",
      target: vault === undefined ? { type: "evaluation", id: message.kind } : { type: "vault", id: vault },
    });
    if (message.kind !== "vault" || message.evaluationId === undefined) return;
    const { vault: failedVault, evaluationId } = message;
    await evaluations.change(evaluationId, (record) =>
      record.failedVaults.includes(failedVault)
        ? undefined
        : { ...record, failedVaults: [...record.failedVaults, failedVault] },
    );
  }

  async function policyChanged(keys: readonly string[]): Promise<void> {
    const values = await settings.values();
    if (keys.includes("enableComplianceScanning") && values.enableComplianceScanning) {
      return await send({ kind: "everything" }, SETTINGS_FELT_SECONDS);
    }
    const wanted = ["criticalExpiryDays", "warningExpiryDays", "enableComplianceScanning"];
    if (!keys.some((key) => wanted.includes(key))) return;
    const { criticalExpiryDays: criticalDays, warningExpiryDays: warningDays } = values;
    await send({ kind: "crossed", criticalDays, warningDays }, SETTINGS_FELT_SECONDS);
  }

  async function referencesChanged(vault: string, assets: string[]): Promise<void> {
    for (let at = 0; at === 0 || at < assets.length; at += ASSETS_PER_MESSAGE)
      await send({ kind: "assets", vault, assets: assets.slice(at, at + ASSETS_PER_MESSAGE), references: true });
  }

  return { send, handle, failed, policyChanged, referencesChanged, inventory, everyVault };
}

const daysOf = ({ criticalDays, warningDays }: { criticalDays: number; warningDays: number }) => ({
  criticalDays,
  warningDays,
});
