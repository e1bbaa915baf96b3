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
import { createEvaluations, type EvaluationStatus, evaluationStatus, isOver, queued } from "./evaluations.ts";
import { createEvaluator, type Evaluator } from "./evaluator.ts";
import { createExemptions, type Exemption, type ExemptionStore } from "./exemptions.ts";
import { type FrameworkResult, frameworkResults } from "./frameworks.ts";
import { type DayScore, readHistory, recordDay } from "./history.ts";
import type { EvaluationRecord } from "./layout.ts";
import { type NewViolation, newViolations, removeOldNewViolations } from "./new-violations.ts";
import { type Counted, countsOf, type Overview, readCounted, readOverview } from "./overview.ts";
import type { AssetUse, Reference } from "./references.ts";
import { faultOfTotals, renewTotals } from "./renew-totals.ts";
import { type Score, scoreOf } from "./score.ts";
import { currentViolations, readingOf, type ViolationReading } from "./standing.ts";
import { HOLDERS, type IsUncounted, uncountedNow } from "./uncounted.ts";
import { listViolations, type ViolationFilter, type ViolationPage } from "./violations.ts";
import { createEvaluationWork, type EvaluationWork } from "./work.ts";

/** Up to so many vaults and assets are evaluated while the request waits. */
const INLINE_VAULTS = 20;
const INLINE_ASSETS = 2000;
/** An evaluation that is made while its request waits is over after so long, or its process died. */
const FINISHED_INLINE_SECONDS = 300;
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
export interface Compliance
  extends Pick<Evaluator, "prepareChange" | "restore" | "removeOldFences">,
    Pick<EvaluationWork, "handle" | "failed" | "policyChanged" | "referencesChanged"> {
  readonly exemptions: ExemptionStore;
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
  currentViolations(
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
      // Where this process does the work itself, the message only finishes what it should leave undone.
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
    // The score is right without; whoever records it fails, so that it is seen.
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

    async standing(isUncounted) {
      const read = await readCounted(tables, clock.now().getTime(), async () => isUncounted);
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
