import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { EvaluationRecord } from "./compliance-rows.ts";
import { currentViolations, readingOf, type ViolationReading } from "./current-violations.ts";
import { createEvaluationWork, type EvaluationWork } from "./evaluation-queue.ts";
import { createEvaluations, type EvaluationStatus, evaluationStatus, isOver, queued } from "./evaluations.ts";
import { createEvaluator, type Evaluator } from "./evaluator.ts";
import { HOLDERS, type IsExcluded, uncountedNow } from "./excluded-vaults.ts";
import { createExemptions, type Exemption, type ExemptionStore } from "./exemptions.ts";
import { type FrameworkResult, frameworkResults } from "./frameworks.ts";
import { type DayScore, readHistory, recordDay } from "./history.ts";
import { type NewViolation, newViolations, removeOldNewViolations } from "./new-violations.ts";
import { type CountedOverview, countsOf, type Overview, readCounted, readOverview } from "./overview.ts";
import type { AssetUse, Reference } from "./references.ts";
import { faultOfTotals, renewTotals } from "./renew-totals.ts";
import { type Score, scoreOf } from "./score.ts";
import { listViolations, type ViolationFilter, type ViolationPage } from "./violations.ts";

/** Up to this many vaults and assets are evaluated while the request waits. */
const INLINE_VAULTS = 20;
const INLINE_ASSETS = 2000;
/** Maximum duration of an evaluation within a request. After this time, the process of an unfinished evaluation has crashed. */
const FINISHED_INLINE_SECONDS = 300;
const READS_AT_ONCE = 4;

export interface ScoreAnswer extends Score {
  exempted: number;
  /** Time of the newest evaluation of any vault. Null before the first. */
  evaluatedAt: string | null;
  evaluation: EvaluationStatus | null;
  history?: DayScore[];
}

/** An evaluation, with the current score once it is over. */
export type EvaluationResult = EvaluationStatus & { score: ScoreAnswer | null };

/** Evaluates checks, stores their results, and returns scores, violations and frameworks. */
export interface Compliance
  extends Pick<Evaluator, "prepareChange" | "restore" | "removeOldFences">,
    Pick<EvaluationWork, "handle" | "failed" | "policyChanged" | "referencesChanged"> {
  readonly exemptions: ExemptionStore;
  /**
   * Evaluates everything: at once if the inventory is small, otherwise with one message per vault.
   *
   * @throws {Problem} conflict while `enableComplianceScanning` is false.
   */
  evaluate(caller: Caller): Promise<EvaluationResult>;
  /**
   * Returns the progress of a requested evaluation.
   *
   * @throws {Problem} notFound
   */
  evaluation(evaluationId: string): Promise<EvaluationResult>;
  /**
   * Evaluates results that change with time, and everything if the checks changed. Called once a day. Uses the queue, which
   * retries failures.
   */
  runDue(): Promise<void>;
  /** Stores today's score and that of each framework. Recomputes the totals if results changed. */
  recordScore(): Promise<void>;
  /** Recomputes the stored totals of all results if any changed, or always with `all`. See renew-totals.ts. */
  renewTotals(options?: { all: boolean }): Promise<void>;
  /** Returns how the stored totals are wrong; see renew-totals.ts. */
  faultOfTotals(): Promise<"stale" | "unreadable" | undefined>;
  /**
   * Returns the overview. One request for the totals if they are exact (otherwise one per 1,000 vaults), one for the scope,
   * more for credentials that are in no vault, and one for the history.
   *
   * @param historyDays - Number of days whose scores are included.
   */
  score(historyDays?: number): Promise<ScoreAnswer>;
  /**
   * Returns the score and that of each framework. One request if the totals are exact, otherwise one per 1,000 vaults.
   *
   * @param isExcluded - Returns whether a vault or holder is excluded at this time, as in the inventory.
   */
  standing(isExcluded: IsExcluded): Promise<{ score: ScoreAnswer; frameworks: FrameworkResult[] }>;
  /**
   * Lists violations. One request per 1,000 vaults, one for the scope, one for when the page's vaults were last seen, and
   * mostly up to four for the page: at most 16, or ten times as many to search for an owner or for exempted violations of one
   * check and vault.
   */
  violations(filter: ViolationFilter, request: PageRequest): Promise<ViolationPage>;
  /** For alerts: returns violations that arose after the cursor. Without a cursor, returns none and the current cursor. */
  newViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor: string; more: boolean }>;
  /**
   * For alerts: returns a page of current violations, the most severe first, without exempted ones. No cursor after the last
   * page.
   */
  currentViolations(
    cursor: string | undefined,
    limit: number,
  ): Promise<{ violations: NewViolation[]; cursor?: string }>;
  /** For alerts: reads the data that shows whether notified violations still exist. One request per 1,000 vaults. */
  readViolations(): Promise<ViolationReading>;
  /** Lists frameworks by ID. */
  frameworks(request: PageRequest): Promise<Page<FrameworkResult>>;
  /**
   * Returns a framework's results.
   *
   * @param historyDays - Number of days whose scores are included.
   * @throws {Problem} notFound
   */
  framework(id: string, historyDays?: number): Promise<FrameworkResult & { history?: DayScore[] }>;
  /**
   * Returns a framework's results with the first violations of each check, for an assessor.
   *
   * @param options - `days` of the trend, and the maximum number of violations of `each` check.
   * @throws {Problem} notFound
   */
  assessment(id: string, options: { days: number; each: number }): Promise<Assessment>;
}

/** A framework's results with their evidence. */
export interface Assessment {
  framework: FrameworkResult & { history: DayScore[] };
  /** Violations by check. Passed and not applicable checks have none. */
  violations: Map<string, ViolationPage>;
  /** Numbers of evaluated resources. */
  scope: {
    vaults: number;
    directories: number;
    subscriptions: string[];
    evaluatedFrom: string | null;
    evaluatedTo: string | null;
  };
  /** Active exemptions of the framework's checks. */
  exemptions: Exemption[];
  createdAt: Date;
}

export function createCompliance(deps: {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Audit;
  /** Returns whether a PRO license is present. Without one, credentials that are in no vault don't count. */
  licensed: () => Promise<boolean>;
  /** Returns the known references to a vault and its assets. */
  references?: (vaultName: string) => Promise<(Reference | AssetUse)[]>;
  /** Returns the tag that names an owner. */
  ownerTag?: string;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): Compliance {
  const { tables, settings, audit, clock, randomness } = deps;
  const evaluator = createEvaluator(deps);
  const evaluations = createEvaluations(deps);
  const overview = async () => {
    const now = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readOverview(tables, now.now, (holders) => uncountedNow(tables, now, holders));
  };
  const work = createEvaluationWork({ ...deps, evaluator, evaluations, overview });
  const counted = async () => {
    const now = { now: clock.now().getTime(), licensed: await deps.licensed() };
    return await readCounted(tables, now.now, (holders) => uncountedNow(tables, now, holders));
  };

  async function evaluate(caller: Caller): Promise<EvaluationResult> {
    if (!(await evaluator.context())) {
      throw new Problem(
        "conflict",
        "Compliance evaluation is switched off. Set enableComplianceScanning to true first.",
      );
    }
    const now = clock.now();
    const evaluationId = randomness.ulid(now);
    const { vaults, assets } = await work.inventory();
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
      // If this process does the work itself, the message only completes it after a crash.
      await work.send({ kind: "everything", evaluationId }, inline ? FINISHED_INLINE_SECONDS : 0);
    });
    if (!inline) return { ...queued(record), score: null };
    for (const vault of await work.everyVault(vaults)) await work.handle({ kind: "vault", vault, evaluationId });
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
    // The score is right without the totals. Throwing makes the failure visible.
    if (renewed.status === "rejected") throw renewed.reason;
  }

  const exemptions = createExemptions({ tables, audit, clock, randomness });

  return {
    prepareChange: evaluator.prepareChange,
    restore: evaluator.restore,
    removeOldFences: evaluator.removeOldFences,
    handle: work.handle,
    failed: work.failed,
    policyChanged: work.policyChanged,
    referencesChanged: work.referencesChanged,
    evaluate,
    evaluation,
    exemptions,
    recordScore,
    renewTotals: (options) => renewTotals(tables, { changed: options?.all !== true }),
    faultOfTotals: () => faultOfTotals(tables),

    async runDue() {
      await work.send({ kind: "crossed" });
      const now = clock.now();
      await removeOldNewViolations(tables, now);
      const { scanRetentionDays } = await settings.values();
      await evaluations.removeOlder(new Date(now.getTime() - scanRetentionDays * DAY_MS));
    },

    async score(historyDays) {
      const answer = scoreAnswer(await counted());
      if (historyDays === undefined) return answer;
      return { ...answer, history: await readHistory(tables, historyDays, clock.now(), answer) };
    },

    async standing(isExcluded) {
      const read = await readCounted(tables, clock.now().getTime(), async () => isExcluded);
      return { score: scoreAnswer(read), frameworks: frameworkResults(read) };
    },

    violations: async (filter, request) => await listViolations(tables, await overview(), filter, request),

    currentViolations: async (cursor, limit) => await currentViolations(tables, await overview(), cursor, limit),

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
function frameworkOf(overview: CountedOverview, id: string): FrameworkResult {
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

function scoreAnswer(overview: CountedOverview): ScoreAnswer {
  const counts = countsOf(overview);
  const { evaluation, evaluatedAt, left } = overview;
  return {
    ...scoreOf(counts),
    exempted: [...counts.values()].reduce((sum, { exempted }) => sum + exempted, 0),
    evaluatedAt,
    evaluation: evaluation ? evaluationStatus(evaluation, left) : null,
  };
}
