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
import {
  type EvaluateMessage,
  QUEUE,
  STATE,
  THRESHOLDS_KEY,
  ThresholdsRows,
  VaultStates,
  vaultsRange,
} from "./compliance-rows.ts";
import { nextEvaluation } from "./evaluation-states.ts";
import { type EvaluationStore, hasEnded } from "./evaluations.ts";
import { type Evaluator, editionOf } from "./evaluator.ts";
import type { Overview } from "./overview.ts";
import { readAssetsThatPassed, thresholdMomentOf } from "./passed-thresholds.ts";

/**
 * Evaluations through a queue, for inventories that are too large for one request. Timers, changed settings and
 * requests send messages. Each message evaluates all vaults, one vault, or up to 300 assets.
 */

/**
 * Every instance of the service applies a changed setting within this time. Messages that depend on it are delayed until then.
 */
const SETTINGS_PROPAGATION_SECONDS = 30;
/** Maximum number of assets in one message. With at most 139 characters each, the message stays below the queue's 48 KiB. */
const ASSETS_PER_MESSAGE = 300;
const MAX_CONCURRENT_SENDS = 16;

/**
 * Sends and handles the messages of the queue: they evaluate all vaults, one vault, or assets affected by time, policy or
 * references.
 */
export interface EvaluationWork {
  /** Sends a message of the queue. */
  send(message: EvaluateMessage, delaySeconds?: number): Promise<void>;
  /** Handles one message of the queue. */
  handle(message: EvaluateMessage): Promise<void>;
  /** Records a message that failed five times in the audit log and in the evaluation's status. */
  failed(message: EvaluateMessage, requestId: string): Promise<void>;
  /**
   * Called after settings changed. Sends a message that evaluates the assets between the old and new thresholds, or everything
   * if evaluation was turned on.
   */
  policyChanged(keys: readonly string[]): Promise<void>;
  /** Sends a message that evaluates a vault and some of its assets (`<type>.<name>`) after their references changed. */
  referencesChanged(vault: string, assets: string[]): Promise<void>;
  /** Returns lower-case names of the inventory's vaults, with their numbers of assets. */
  readInventory(): Promise<{ vaults: string[]; assets: number }>;
  /**
   * Returns these vaults, and vaults with results that the inventory no longer has. Evaluating the latter removes their
   * results.
   */
  namesOfAllVaults(vaults: readonly string[]): Promise<Set<string>>;
}

/** Creates the sender and handler of the queue's messages. */
export function createEvaluationWork(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  evaluator: Evaluator;
  evaluations: EvaluationStore;
  overview: () => Promise<Overview>;
  /** Name of the tag whose value is a resource's owner. */
  ownerTag?: string;
  log: Logger;
}): EvaluationWork {
  const { tables, queues, settings, audit, evaluator, evaluations, overview, log } = deps;
  /** Version of the checks. If it changes, all vaults are evaluated again. */
  const edition = editionOf(deps.ownerTag);
  const send = (message: EvaluateMessage, delaySeconds = 0) => queues.send(QUEUE, message, { delaySeconds });
  const sendAll = (messages: readonly EvaluateMessage[]) =>
    pMap(messages, (message) => send(message), { concurrency: MAX_CONCURRENT_SENDS });

  async function readInventory(): Promise<{ vaults: string[]; assets: number }> {
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

  async function namesOfAllVaults(vaults: readonly string[]): Promise<Set<string>> {
    const names = new Set(vaults);
    for await (const rows of tables.pages(VaultStates, { ...vaultsRange, select: ["name", "gone"] })) {
      for (const { name, gone } of rows) if (!gone) names.add(name.toLowerCase());
    }
    return names;
  }

  async function handle(message: EvaluateMessage): Promise<void> {
    switch (message.kind) {
      case "everything":
        return await sendEverything(message.evaluationId);
      case "crossed":
        return await sendPassedThresholds(message);
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
      // A scan is writing the vault. Throwing would count as a failed delivery, so this sends the same message again with a
      // delay.
      const seconds = Math.ceil(error.waitMs / 1000);
      await send(message, Math.max(1, seconds));
    }
  }

  async function sendEverything(evaluationId: string | undefined): Promise<void> {
    if (evaluationId !== undefined && hasEnded(await evaluations.status(evaluationId, await overview()))) return;
    const { vaults } = await readInventory();
    const names = await namesOfAllVaults(vaults);
    await sendAll([...names].map((vault) => ({ kind: "vault", vault, evaluationId })));
    if (evaluationId === undefined) return;
    await evaluations.change(evaluationId, (record) => nextEvaluation(record, { type: "sent", vaults: names.size }));
  }

  /**
   * Handles a message of the kind `crossed`. Sends messages for the assets that passed an expiry threshold since the previous
   * call, and for those whose age changes a result. Sends messages for all vaults if evaluation was turned off meanwhile
   * (`paused`) or the checks changed (`edition`).
   */
  async function sendPassedThresholds(message: Extract<EvaluateMessage, { kind: "crossed" }>): Promise<void> {
    /** The time and the thresholds of the previous call. */
    const row = await tables.get(ThresholdsRows, STATE, THRESHOLDS_KEY);
    /** The time and the thresholds of now. Undefined while evaluation is turned off. */
    const checkContext = await evaluator.readContext();
    if (!row) {
      // Before the first evaluation, no asset can have passed a threshold.
      if (checkContext) await evaluator.ensureThresholds(checkContext);
      return;
    }
    if (!checkContext) {
      if (!row.paused) await tables.replace(ThresholdsRows, { ...row, paused: true });
      return;
    }
    const newThresholds = {
      ...row,
      at: new Date(checkContext.now).toISOString(),
      ...thresholdDays(checkContext),
      paused: false,
      edition,
    };
    if (row.paused || row.edition !== edition) {
      await sendEverything(undefined);
    } else {
      // Three policies: of the last call, of now, and of the time when the message was sent. They differ if settings changed.
      const { criticalDays = checkContext.criticalDays, warningDays = checkContext.warningDays } = message;
      const passedAssets = await readAssetsThatPassed(tables, [
        thresholdMomentOf(row),
        checkContext,
        { now: checkContext.now, criticalDays, warningDays },
      ]);
      const messages: EvaluateMessage[] = [];
      for (const [vault, assets] of passedAssets) {
        for (let start = 0; start < assets.length; start += ASSETS_PER_MESSAGE) {
          messages.push({ kind: "assets", vault, assets: assets.slice(start, start + ASSETS_PER_MESSAGE) });
        }
      }
      for await (const rows of tables.pages(VaultStates, { ...vaultsRange, select: ["name", "dueAt"] })) {
        for (const { name, dueAt } of rows) {
          if (dueAt !== undefined && dueAt * 1000 <= checkContext.now)
            messages.push({ kind: "due", vault: name.toLowerCase() });
        }
      }
      await sendAll(messages);
      log.info("Assets that passed a threshold are being evaluated", { messages: messages.length });
    }
    // Written last: after a crash before this, the next call sends the messages again.
    await tables.replace(ThresholdsRows, newThresholds);
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
    const event = { type: "vaultFailed", vault: message.vault } as const;
    await evaluations.change(message.evaluationId, (record) => nextEvaluation(record, event));
  }

  async function policyChanged(keys: readonly string[]): Promise<void> {
    const values = await settings.values();
    if (keys.includes("enableComplianceScanning") && values.enableComplianceScanning) {
      return await send({ kind: "everything" }, SETTINGS_PROPAGATION_SECONDS);
    }
    // After evaluation was turned off, `crossed` only records the pause.
    const relevantKeys = ["criticalExpiryDays", "warningExpiryDays", "enableComplianceScanning"];
    if (!keys.some((key) => relevantKeys.includes(key))) return;
    const { criticalExpiryDays: criticalDays, warningExpiryDays: warningDays } = values;
    await send({ kind: "crossed", criticalDays, warningDays }, SETTINGS_PROPAGATION_SECONDS);
  }

  async function referencesChanged(vault: string, assets: string[]): Promise<void> {
    // Without assets, one message still evaluates the vault itself.
    for (let start = 0; start === 0 || start < assets.length; start += ASSETS_PER_MESSAGE)
      await send({ kind: "assets", vault, assets: assets.slice(start, start + ASSETS_PER_MESSAGE), references: true });
  }

  return { send, handle, failed, policyChanged, referencesChanged, readInventory, namesOfAllVaults };
}

const thresholdDays = ({ criticalDays, warningDays }: { criticalDays: number; warningDays: number }) => ({
  criticalDays,
  warningDays,
});
