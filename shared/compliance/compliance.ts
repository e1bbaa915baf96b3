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
import { keyEnd } from "../storage/keys.ts";
import type { Queues } from "../storage/queues.ts";
import type { Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { assetsExpiringIn, momentOf, sweptIntervals } from "./crossed.ts";
import { createEvaluations, type EvaluationStatus, evaluationStatus, queued } from "./evaluations.ts";
import { createEvaluator, type Evaluator, editionOf } from "./evaluator.ts";
import { createExemptions, type Exemption, type ExemptionStore } from "./exemptions.ts";
import { type FrameworkResult, frameworkResults } from "./frameworks.ts";
import { type DayScore, readHistory, recordDay } from "./history.ts";
import {
  type EvaluateMessage,
  type EvaluationRecord,
  LINES_KEY,
  Lines,
  QUEUE,
  STATE,
  VaultStates,
  vaultsRange,
} from "./layout.ts";
import { type NewViolation, newViolations, removeOldNewViolations } from "./new-violations.ts";
import { type Counted, countsOf, type Overview, readCounted, readOverview } from "./overview.ts";
import type { AssetUse, Reference } from "./references.ts";
import { faultOfTotals, renewTotals } from "./renew-totals.ts";
import { type Score, scoreOf } from "./score.ts";
import { readingOf, standingViolations, type ViolationReading } from "./standing.ts";
import { HOLDERS, type IsUncounted, uncountedNow } from "./uncounted.ts";
import { listViolations, type ViolationFilter, type ViolationPage } from "./violations.ts";

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
const READS_AT_ONCE = 4;

export interface ScoreAnswer extends Score {
  exempted: number;
  /** The newest evaluation of any vault; null before the first. */
  evaluatedAt: string | null;
  evaluation: EvaluationStatus | null;
  history?: DayScore[];
}

/** An evaluation, and the score as it is now once it is over. */
export type EvaluationResult = EvaluationStatus & { score: ScoreAnswer | null };

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
  evaluate(caller: Caller): Promise<EvaluationResult>;
  /**
   * An evaluation that was asked for, as it stands.
   *
   * @throws {Problem} notFound
   */
  evaluation(evaluationId: string): Promise<EvaluationResult>;
  /** Once a day: what time alone has changed, and everything where the checks did. Goes through the queue, which repeats what fails. */
  runDue(): Promise<void>;
  /** Keeps today's score, and that of each framework, as they are now. Renews the totals where results changed. */
  recordScore(): Promise<void>;
  /** Counts all results anew, where any changed since; `all`: whether or not. See renew-totals.ts. */
  renewTotals(options?: { all: boolean }): Promise<void>;
  /** What is wrong with the totals of all results; see renew-totals.ts. */
  faultOfTotals(): Promise<"stale" | "unreadable" | undefined>;
  /**
   * One request for the totals, where they say it (else one per 1,000 vaults), one for the scope, more where there are
   * credentials that are no vault's, and one for a history.
   *
   * @param historyDays - Also the score of each of so many days.
   */
  score(historyDays?: number): Promise<ScoreAnswer>;
  /**
   * The score, and that of each framework, of one reading: one request, where the totals say it; else one per 1,000 vaults.
   *
   * @param isUncounted - Tells the vaults and holders that don't count now, as the inventory does.
   */
  standing(isUncounted: IsUncounted): Promise<{ score: ScoreAnswer; frameworks: FrameworkResult[] }>;
  /**
   * One request per 1,000 vaults, one for the scope, one for when the page's vaults were last seen, and mostly up to four for its rows: at most
   * 16, or ten times as many where an owner, or what is exempted of one check and vault alone, has to be looked for.
   */
  violations(filter: ViolationFilter, request: PageRequest): Promise<ViolationPage>;
  /** For alerts: violations that arose behind the cursor; without one, none and the cursor of now. */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /** For alerts: a page of those that stand now, the most severe first, without exempted ones; no cursor behind the last. */
  standingViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor?: string }>;
  /** For alerts: what tells whether violations that were told of still stand. One request per 1,000 vaults. */
  readViolations(): Promise<ViolationReading>;
  /** By id. */
  frameworks(request: PageRequest): Promise<Page<FrameworkResult>>;
  /**
   * @param historyDays - Also its score of each of so many days.
   * @throws {Problem} notFound
   */
  framework(id: string, historyDays?: number): Promise<FrameworkResult & { history?: DayScore[] }>;
  /**
   * What an assessor needs of a framework: its results, and for each of its checks the first violations.
   *
   * @param options - `days` of its trend; how many violations `each` check shows.
   * @throws {Problem} notFound
   */
  assessment(id: string, options: { days: number; each: number }): Promise<Assessment>;
}

/** A framework's results with what they rest on. */
export interface Assessment {
  framework: FrameworkResult & { history: DayScore[] };
  /** By check. Those that pass, and those that apply to nothing, have none. */
  violations: Map<string, ViolationPage>;
  /** What was evaluated. */
  scope: {
    vaults: number;
    directories: number;
    subscriptions: string[];
    evaluatedFrom: string | null;
    evaluatedTo: string | null;
  };
  /** Those that cover one of its checks and have not ended. */
  exemptions: Exemption[];
  createdAt: Date;
}

export function createCompliance(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  /** Whether there is a PRO licence: credentials that are no vault's count only with one. */
  licensed: () => Promise<boolean>;
  /** The references to a vault and to its assets as they are known now. */
  references?: (vaultName: string) => Promise<(Reference | AssetUse)[]>;
  /** The tag that names an owner. */
  ownerTag?: string;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Compliance {
  const { tables, queues, settings, audit, clock, randomness, log } = deps;
  const evaluator = createEvaluator(deps);
  const evaluations = createEvaluations(deps);
  const edition = editionOf(deps.ownerTag);
  const overview = async () => {
    const now = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readOverview(tables, now.now, (holders) => uncountedNow(tables, now, holders));
  };
  const counted = async () => {
    const now = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readCounted(tables, now.now, (holders) => uncountedNow(tables, now, holders));
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

  async function evaluate(caller: Caller): Promise<EvaluationResult> {
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
      await evaluations.begin(record);
      // Where this process does the work itself, the message only finishes what it should leave undone.
      await send({ kind: "everything", evaluationId }, inline ? FINISHED_INLINE_SECONDS : 0);
    });
    if (!inline) return { ...queued(record), score: null };
    for (const vault of await everyVault(vaults)) await handle({ kind: "vault", vault, evaluationId });
    await recordScore();
    return await evaluation(evaluationId);
  }

  async function evaluation(evaluationId: string): Promise<EvaluationResult> {
    const read = await overview();
    const status = await evaluations.status(evaluationId, read);
    if (!status) throw notFound(`The evaluation ${evaluationId.slice(0, 64)}`);
    return { ...status, score: isOver(status) ? scoreAnswer(read) : null };
  }

  async function recordScore(): Promise<void> {
    const [renewed] = await Promise.allSettled([renewTotals(tables, { changed: true })]);
    const read = await counted();
    await recordDay(tables, clock.now(), scoreAnswer(read), frameworkResults(read));
    // The score is right without; whoever records it fails, so that it is seen.
    if (renewed.status === "rejected") throw renewed.reason;
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

  async function sendEverything(evaluationId: string | undefined): Promise<void> {
    if (evaluationId !== undefined && isOver(await evaluations.status(evaluationId, await overview()))) return;
    const { vaults } = await inventory();
    const all = await everyVault(vaults);
    await sendAll([...all].map((vault) => ({ kind: "vault", vault, evaluationId })));
    if (evaluationId === undefined) return;
    await evaluations.change(evaluationId, (record) => ({ ...record, vaults: all.size }));
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

  async function scoreNow(): Promise<ScoreAnswer> {
    return scoreAnswer(await counted());
  }

  const exemptions = createExemptions({ tables, audit, clock, randomness });

  return {
    prepareChange: evaluator.prepareChange,
    restore: evaluator.restore,
    removeOldFences: evaluator.removeOldFences,
    handle,
    failed,
    policyChanged,
    async referencesChanged(vault, assets) {
      for (let at = 0; at === 0 || at < assets.length; at += ASSETS_PER_MESSAGE)
        await send({ kind: "assets", vault, assets: assets.slice(at, at + ASSETS_PER_MESSAGE), references: true });
    },
    evaluate,
    evaluation,
    exemptions,
    recordScore,
    renewTotals: (options) => renewTotals(tables, { changed: options?.all !== true }),
    faultOfTotals: () => faultOfTotals(tables),

    async runDue() {
      await send({ kind: "crossed" });
      const now = clock.now();
      await removeOldNewViolations(tables, now);
      const { scanRetentionDays } = await settings.values();
      await evaluations.removeOlder(new Date(now.getTime() - scanRetentionDays * DAY_MS));
    },

    async score(historyDays) {
      const answer = await scoreNow();
      if (historyDays === undefined) return answer;
      return { ...answer, history: await readHistory(tables, historyDays, clock.now(), answer) };
    },

    async standing(isUncounted) {
      const read = await readCounted(tables, clock.now().getTime(), async () => isUncounted);
      return { score: scoreAnswer(read), frameworks: frameworkResults(read) };
    },

    violations: async (filter, request) => await listViolations(tables, await overview(), filter, request),

    standingViolations: async (cursor, limit) => await standingViolations(tables, await overview(), cursor, limit),

    readViolations: async () => readingOf(tables, await overview()),

    newViolations: (cursor, limit) => newViolations(tables, overview, clock.now(), cursor, limit),

    async frameworks(request) {
      return pageOfAll(frameworkResults(await counted()), request, ({ id }) => id);
    },

    async framework(id, historyDays) {
      const framework = frameworkOf(await counted(), id);
      if (historyDays === undefined) return framework;
      return { ...framework, history: await readHistory(tables, historyDays, clock.now(), framework, framework.id) };
    },

    async assessment(id, { days, each }) {
      const createdAt = clock.now();
      const read = await overview();
      const framework = frameworkOf(read, id);
      const history = await readHistory(tables, days, createdAt, framework, framework.id);
      const checks = new Map(framework.controls.flatMap(({ checks }) => checks.map((check) => [check.id, check])));
      const failing = [...checks.values()].filter(({ failed, exempted }) => failed + exempted > 0);
      const violations = await pMap(
        failing,
        async ({ id: check }) => [check, await listViolations(tables, read, { check }, firstOf(each))] as const,
        { concurrency: READS_AT_ONCE },
      );
      const active = (await exemptions.all()).filter((one) => one.active && checks.has(one.checkId));
      return {
        framework: { ...framework, history },
        violations: new Map(violations),
        scope: scopeOf(read),
        exemptions: active,
        createdAt,
      };
    },
  };
}

const firstOf = (limit: number): PageRequest => ({ limit, offset: 0, cursor: undefined });

/** @throws {Problem} notFound */
function frameworkOf(overview: Counted, id: string): FrameworkResult {
  const found = frameworkResults(overview).find((framework) => framework.id === id.toLowerCase());
  if (!found) throw notFound(`The framework ${id.slice(0, 64)}`);
  return found;
}

function scopeOf({ vaults }: Overview): Assessment["scope"] {
  const evaluated = vaults.map(({ evaluatedAt }) => evaluatedAt).sort();
  const keyVaults = vaults.filter(({ subscriptionId }) => !HOLDERS.includes(subscriptionId));
  return {
    vaults: keyVaults.length,
    directories: vaults.length - keyVaults.length,
    subscriptions: [...new Set(keyVaults.map(({ subscriptionId }) => subscriptionId))].sort(),
    evaluatedFrom: evaluated[0] ?? null,
    evaluatedTo: evaluated.at(-1) ?? null,
  };
}

const isOver = (evaluation: EvaluationStatus | undefined): boolean =>
  evaluation?.status === "completed" || evaluation?.status === "partial";

function scoreAnswer(overview: Counted): ScoreAnswer {
  const counts = countsOf(overview);
  const { evaluation, evaluatedAt, left } = overview;
  return {
    ...scoreOf(counts),
    exempted: [...counts.values()].reduce((sum, { exempted }) => sum + exempted, 0),
    evaluatedAt,
    evaluation: evaluation ? evaluationStatus(evaluation, left) : null,
  };
}

const daysOf = ({ criticalDays, warningDays }: { criticalDays: number; warningDays: number }) => ({
  criticalDays,
  warningDays,
});
