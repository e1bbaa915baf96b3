import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { expiriesOf, VAULTS, Vaults } from "../inventory/vault.ts";
import { VaultBusy } from "../inventory/write.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { withoutKeys } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Queues } from "../storage/queues.ts";
import type { Tables } from "../storage/tables.ts";
import { assetsExpiringIn, momentOf, sweptIntervals } from "./crossed.ts";
import { createEvaluator, type Evaluator } from "./evaluator.ts";
import { createExemptions, type ExemptionStore } from "./exemptions.ts";
import { type FrameworkResult, frameworkResults } from "./frameworks.ts";
import { readHistory, recordDay } from "./history.ts";
import {
  type DayScore,
  EVALUATION_KEY,
  type EvaluateMessage,
  type EvaluationRecord,
  Evaluations,
  LINES_KEY,
  Lines,
  QUEUE,
  STATE,
  VaultStates,
  vaultsRange,
} from "./layout.ts";
import { type NewViolation, newViolations, removeOldNewViolations } from "./new-violations.ts";
import { countsOf, type Overview, readOverview, uncountedHolders } from "./overview.ts";
import type { Reference } from "./references.ts";
import { type Score, scoreOf } from "./score.ts";
import { listViolations, type Violation, type ViolationFilter } from "./violations.ts";

/** Up to so many vaults and assets are evaluated while the request waits. */
const INLINE_VAULTS = 20;
const INLINE_ASSETS = 2000;
/** An evaluation that is made while its request waits is over after so long, or its process died. */
const FINISHED_INLINE_SECONDS = 300;
/** Every instance feels a changed setting within this time; what it changes is looked for only then. */
const SETTINGS_FELT_SECONDS = 30;
/** Names in one message, each of at most 139 characters: far below 48 KiB. */
const ASSETS_PER_MESSAGE = 300;
const SENDS_AT_ONCE = 16;

/** The last evaluation of everything, as it stands. */
export interface EvaluationStatus {
  evaluationId: string;
  status: "queued" | "running" | "completed" | "partial";
  requestedAt: string;
  requestedBy: string;
  /** Null until it is planned. */
  vaults: number | null;
  vaultsLeft: number;
  failedVaults: string[];
}

export interface ScoreAnswer extends Score {
  exempted: number;
  /** The newest evaluation of any vault; null before the first. */
  evaluatedAt: string | null;
  evaluation: EvaluationStatus | null;
  history?: DayScore[];
}

/** Evaluates checks, keeps their results and answers what they come to. */
export interface Compliance extends Pick<Evaluator, "prepareChange" | "restore" | "removeOldFences"> {
  readonly exemptions: ExemptionStore;
  /** Works on one message of the queue. */
  handle(message: EvaluateMessage): Promise<void>;
  /** A message that failed for good, in five tries: people find it in the audit log and in the evaluation's status. */
  failed(message: EvaluateMessage, requestId: string): Promise<void>;
  /** Looks for what changed settings have passed, once every instance judges by them. */
  policyChanged(keys: readonly string[]): Promise<void>;
  /** References to a vault and to these of its assets (`<type>.<name>`) changed: they are evaluated by a message. */
  referencesChanged(vault: string, assets: string[]): Promise<void>;
  /**
   * Evaluates everything: at once where there is little, else by a message per vault.
   *
   * @throws {Problem} conflict while `enableComplianceScanning` is false.
   */
  evaluate(caller: Caller): Promise<EvaluationStatus & { score: ScoreAnswer | null }>;
  /** Once a day: what time alone has changed. Goes through the queue, which repeats what fails. */
  runDue(): Promise<void>;
  /** Keeps today's score as it is now. */
  recordScore(): Promise<void>;
  /**
   * One request per 1,000 vaults, one more where there are credentials that are no vault's, and one for a history.
   *
   * @param historyDays - Also the score of each of so many days.
   */
  score(historyDays?: number): Promise<ScoreAnswer>;
  /**
   * The score, and that of each framework, of one reading: one request per 1,000 vaults.
   *
   * @param uncounted - The holders whose credentials don't count now, by lower-cased name, as the inventory tells them.
   */
  standing(uncounted: ReadonlySet<string>): Promise<{ score: ScoreAnswer; frameworks: FrameworkResult[] }>;
  /** One request per 1,000 vaults, one for when the page's vaults were last seen, and at most four for its rows. */
  violations(filter: ViolationFilter, request: PageRequest): Promise<Page<Violation>>;
  /** For alerts: violations that arose behind the cursor; without one, none and the cursor of now. */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /** By id. */
  frameworks(request: PageRequest): Promise<Page<FrameworkResult>>;
  /** @throws {Problem} notFound */
  framework(id: string): Promise<FrameworkResult>;
}

export function createCompliance(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  /** Whether there is a PRO licence: credentials that are no vault's count only with one. */
  licensed: () => Promise<boolean>;
  /** The references to a vault and to its assets as they are known now. */
  references?: (vaultName: string) => Promise<Reference[]>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Compliance {
  const { tables, queues, settings, audit, clock, randomness, log } = deps;
  const evaluator = createEvaluator(deps);
  const overview = async () => {
    const now = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readOverview(tables, now.now, () => uncountedHolders(tables, now));
  };

  const send = (message: EvaluateMessage, delaySeconds = 0) => queues.send(QUEUE, message, { delaySeconds });
  const sendAll = (messages: readonly EvaluateMessage[]) =>
    pMap(messages, (message) => send(message), { concurrency: SENDS_AT_ONCE });

  /** Vault names of the inventory, and how many assets they hold. */
  async function inventory(): Promise<{ vaults: string[]; assets: number }> {
    const vaults: string[] = [];
    let assets = 0;
    const select = ["name", "certificateExpiries", "keyExpiries", "secretExpiries"] as const;
    const range = { partitionKey: VAULTS, from: "n!", before: keyEnd("n!"), select };
    for await (const rows of tables.pages(Vaults, range)) {
      for (const row of rows) {
        vaults.push(row.name.toLowerCase());
        for (const type of ASSET_TYPES) assets += countExpiries(expiriesOf(row, type));
      }
    }
    return { vaults, assets };
  }

  async function evaluate(caller: Caller): Promise<EvaluationStatus & { score: ScoreAnswer | null }> {
    if (!(await evaluator.context())) {
      throw new Problem(
        "conflict",
        "Compliance evaluation is switched off. Set enableComplianceScanning to true first.",
      );
    }
    const now = clock.now();
    const evaluationId = randomness.ulid(now);
    const { vaults, assets } = await inventory();
    const inline = vaults.length <= INLINE_VAULTS && assets <= INLINE_ASSETS;
    const record: EvaluationRecord = {
      evaluationId,
      requestedAt: now.toISOString(),
      requestedBy: caller.actor,
      ...(inline ? { vaults: vaults.length } : {}),
      failedVaults: [],
    };
    const event = {
      type: "compliance.evaluationRequested",
      caller,
      target: { type: "evaluation", id: evaluationId },
      details: { vaults: vaults.length, assets },
    };
    await audited(audit, event, async () => {
      await tables.put(Evaluations, STATE, EVALUATION_KEY, record);
      // Where this process does the work itself, the message only finishes what it should leave undone.
      await send({ kind: "everything", evaluationId }, inline ? FINISHED_INLINE_SECONDS : 0);
    });
    if (!inline) return { ...queued(record), score: null };
    for (const vault of await everyVault(vaults)) await handle({ kind: "vault", vault, evaluationId });
    const score = await scoreNow();
    await recordDay(tables, clock.now(), score);
    const status = score.evaluation?.evaluationId === evaluationId ? score.evaluation : queued(record);
    return { ...status, score: status.status === "completed" ? score : null };
  }

  /** The inventory's vaults, and those it has no more, which are taken out when their turn comes. */
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
          ? await evaluator.whole(message.vault, message.evaluationId)
          : message.kind === "due"
            ? await evaluator.some(message.vault, "due")
            : await evaluator.some(message.vault, message.assets, { references: message.references === true });
      log.debug("A vault was evaluated", { vault: message.vault, kind: message.kind, evaluated });
    } catch (error) {
      if (!(error instanceof VaultBusy)) throw error;
      // A scan writes it. Waiting must not count as a failed delivery, so a new message waits instead.
      const seconds = Math.ceil(error.waitMs / 1000);
      await send(message, Math.max(1, seconds));
    }
  }

  async function isOver(evaluationId: string): Promise<boolean> {
    const { evaluation } = await scoreNow();
    return evaluation?.evaluationId === evaluationId && ["completed", "partial"].includes(evaluation.status);
  }

  async function sendEverything(evaluationId: string | undefined): Promise<void> {
    if (evaluationId !== undefined && (await isOver(evaluationId))) return;
    const { vaults } = await inventory();
    const all = await everyVault(vaults);
    await sendAll([...all].map((vault) => ({ kind: "vault", vault, evaluationId })));
    if (evaluationId === undefined) return;
    await tables.modify(Evaluations, STATE, EVALUATION_KEY, (row) =>
      row && row.evaluationId === evaluationId ? { ...withoutKeys(row), vaults: all.size } : undefined,
    );
  }

  /** Sends what expiry lines swept over since the last time, whether by time or by policy, and what is due by age. */
  async function sendCrossed(message: Extract<EvaluateMessage, { kind: "crossed" }>): Promise<void> {
    const row = await tables.get(Lines, STATE, LINES_KEY);
    const at = await evaluator.context();
    if (!row) {
      // Nothing was evaluated yet, so nothing can have crossed a line since.
      if (at) await evaluator.ensureLines(at);
      return;
    }
    if (!at) {
      if (!row.paused) await tables.replace(Lines, { ...row, paused: true });
      return;
    }
    const drawn = { ...row, at: new Date(at.now).toISOString(), ...daysOf(at), paused: false };
    if (row.paused) {
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
    await tables.modify(Evaluations, STATE, EVALUATION_KEY, (row) =>
      row && row.evaluationId === message.evaluationId && !row.failedVaults.includes(message.vault)
        ? { ...withoutKeys(row), failedVaults: [...row.failedVaults, message.vault] }
        : undefined,
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

  async function scoreNow(): Promise<ScoreAnswer> {
    return scoreAnswer(await overview());
  }

  const exemptions = createExemptions({ tables, audit, clock, randomness });

  return {
    prepareChange: evaluator.prepareChange,
    restore: evaluator.restore,
    removeOldFences: evaluator.removeOldFences,
    handle,
    failed,
    policyChanged,
    referencesChanged: (vault, assets) => send({ kind: "assets", vault, assets, references: true }),
    evaluate,
    exemptions,

    async runDue() {
      await send({ kind: "crossed" });
      await removeOldNewViolations(tables, clock.now());
    },

    async recordScore() {
      await recordDay(tables, clock.now(), await scoreNow());
    },

    async score(historyDays) {
      const answer = await scoreNow();
      if (historyDays === undefined) return answer;
      return { ...answer, history: await readHistory(tables, historyDays, clock.now(), answer) };
    },

    async standing(uncounted) {
      const read = await readOverview(tables, clock.now().getTime(), async () => uncounted);
      return { score: scoreAnswer(read), frameworks: frameworkResults(read) };
    },

    violations: async (filter, request) => await listViolations(tables, await overview(), filter, request),

    newViolations: (cursor, limit) => newViolations(tables, overview, clock.now(), cursor, limit),

    async frameworks(request) {
      return pageOfAll(frameworkResults(await overview()), request, ({ id }) => id);
    },

    async framework(id) {
      const found = frameworkResults(await overview()).find((framework) => framework.id === id.toLowerCase());
      if (!found) throw notFound(`The framework ${id.slice(0, 64)}`);
      return found;
    },
  };
}

function scoreAnswer(overview: Overview): ScoreAnswer {
  const counts = countsOf(overview);
  const evaluatedAt = overview.vaults.reduce<string | null>(
    (newest, vault) => (newest === null || vault.evaluatedAt > newest ? vault.evaluatedAt : newest),
    null,
  );
  return {
    ...scoreOf(counts),
    exempted: [...counts.values()].reduce((sum, { exempted }) => sum + exempted, 0),
    evaluatedAt,
    evaluation: overview.evaluation ? evaluationStatus(overview.evaluation, overview) : null,
  };
}

const queued = ({ evaluationId, requestedAt, requestedBy, vaults }: EvaluationRecord): EvaluationStatus => ({
  evaluationId,
  status: "queued",
  requestedAt,
  requestedBy,
  vaults: vaults ?? null,
  vaultsLeft: vaults ?? 0,
  failedVaults: [],
});

/** How far it is, told by the vaults themselves: each says which evaluation last covered it. */
function evaluationStatus(record: EvaluationRecord, { vaults }: Overview): EvaluationStatus {
  if (record.vaults === undefined) return queued(record);
  const { evaluationId, requestedAt, requestedBy, failedVaults } = record;
  const left = vaults.filter(
    (vault) =>
      vault.createdAt <= requestedAt &&
      (vault.evaluationId ?? "") < evaluationId &&
      !failedVaults.includes(vault.name.toLowerCase()),
  ).length;
  const status = left > 0 ? "running" : failedVaults.length > 0 ? "partial" : "completed";
  return { evaluationId, status, requestedAt, requestedBy, vaults: record.vaults, vaultsLeft: left, failedVaults };
}

const daysOf = ({ criticalDays, warningDays }: { criticalDays: number; warningDays: number }) => ({
  criticalDays,
  warningDays,
});
