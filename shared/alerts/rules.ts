import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { addressProblem } from "../platform/outgoing/outgoing.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keysOnly, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, RowExists, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { isUlid } from "../platform/ulid.ts";
import type { Settings } from "../settings/settings.ts";
import type { NewRule, RuleChange } from "./api.ts";
import {
  type ChangedRule,
  NEW_RULE_DEFAULTS,
  RULE_PREFIX,
  RULES,
  RuleNames,
  type RuleRecord,
  Rules,
  ruleKey,
  ruleNameKey,
  usesWebhook,
  type WebhookSecret,
} from "./rule.ts";
import { scopeOf, withChange } from "./rule-change.ts";
import { createRuleSecrets, type WrittenSecret } from "./rule-secrets.ts";

/** Alert rules: the only module that writes them and their secrets. Every change is recorded in the audit log. */
export interface AlertRules {
  /** Returns a rule. Undefined for an unknown id. */
  find(ruleId: string): Promise<Row<RuleRecord> | undefined>;
  /** Returns a rule. @throws {Problem} notFound */
  get(ruleId: string): Promise<Row<RuleRecord>>;
  /** Returns all rules that can be read. One request per 1,000 rules. */
  all(): Promise<Row<RuleRecord>[]>;
  /** Returns the IDs of all rules, also of those whose row can't be read. */
  ids(): Promise<ReadonlySet<string>>;
  /** Returns a page of rules, sorted by name. */
  list(request: PageRequest): Promise<Page<Row<RuleRecord>>>;
  /** Returns the secret of a rule with a webhook. Undefined if the secret is missing. @throws {CloudFailure} */
  readSecret(rule: RuleRecord): Promise<WebhookSecret | undefined>;
  /** Returns the rule that `create` would create, with a new id. Writes nothing. @throws {Problem} invalidRequest */
  planned(given: NewRule, caller: Caller): Promise<RuleRecord>;
  /** Returns the rule that `change` would write. Writes nothing. @throws {Problem} notFound; invalidRequest. */
  plannedChange(ruleId: string, given: RuleChange, caller: Caller): Promise<RuleRecord>;
  /**
   * Creates a rule.
   *
   * @throws {Problem} invalidRequest; alreadyExists for a duplicate name; conflict without a key vault; unavailable.
   */
  create(given: NewRule, caller: Caller): Promise<ChangedRule>;
  /** Changes any subset of the fields.
   *
   * @param ifMatch - The ETag that the change is based on.
   * @throws {Problem} notFound; preconditionFailed; otherwise as `create`.
   */
  change(ruleId: string, given: RuleChange, caller: Caller, ifMatch: string | undefined): Promise<ChangedRule>;
  /**
   * Creates a signing key. Previous keys stay valid for a day. @throws {Problem} conflict if the method does not sign messages.
   */
  rotateSecret(ruleId: string, caller: Caller, ifMatch: string | undefined): Promise<ChangedRule>;
  /** Deletes a rule. Its history stays; pending deliveries are cancelled. @throws {Problem} notFound; preconditionFailed. */
  remove(ruleId: string, caller: Caller, ifMatch: string | undefined): Promise<void>;
  /** Removes secrets without a rule. Called once a day. @throws {CloudFailure} */
  cleanUp(caller: Caller): Promise<void>;
}

/** Creates the store of alert rules. */
export function createRules(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  audit: Pick<Audit, "append">;
  vault: ServiceKeyVault | undefined;
  allowPrivateWebhooks: boolean;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): AlertRules {
  const { tables, audit, clock } = deps;
  const secrets = createRuleSecrets(deps);
  const { find, get, getIfMatch, all, ids } = createRuleReader(tables);
  const { planned, withPlannedChange, checkEscalation } = createRulePlans({ ...deps, find, getIfMatch });

  function checkUrl(url: string | undefined): void {
    if (url === undefined) return;
    const problem = addressProblem(new URL(url), deps.allowPrivateWebhooks);
    if (problem) throw invalidBody("webhookUrl", problem);
    secrets.requireVault();
  }

  /**
   * Writes a rule with its name and the row of its secret in one transaction. @throws {Problem} alreadyExists for a duplicate
   * name.
   */
  async function write({ rule, webhookSecret }: WrittenSecret, operations: Operation[]) {
    try {
      const etags = await tables.transaction(Rules.table, RULES, operations);
      const row = {
        ...rule,
        partitionKey: RULES,
        rowKey: ruleKey(rule.ruleId),
        etag: etags.get(ruleKey(rule.ruleId))!,
      };
      return { rule: row, ...(webhookSecret === undefined ? {} : { webhookSecret }) };
    } catch (error) {
      if (error instanceof RowExists) throw nameTaken(rule.name);
      throw error;
    }
  }

  return {
    find,
    get,
    all,
    ids,
    readSecret: secrets.read,
    cleanUp: secrets.cleanUp,
    list: async (request) => pageOfAll(await all(), request, (rule) => rule.name.toLowerCase()),

    planned,

    async plannedChange(ruleId, given, caller) {
      const { newRule } = await withPlannedChange(ruleId, given, caller, undefined);
      if (given.escalation) await checkEscalation(newRule);
      return newRule;
    },

    async create(given, caller) {
      const newRule = await planned(given, caller);
      checkUrl(given.webhookUrl);
      // PagerDuty has a default URL.
      if (
        usesWebhook(newRule.deliveryMethod) &&
        newRule.deliveryMethod !== "pagerDuty" &&
        given.webhookUrl === undefined
      ) {
        throw invalidBody("webhookUrl", `is required for ${newRule.deliveryMethod}`);
      }
      if (await tables.get(RuleNames, RULES, ruleNameKey(newRule.name))) throw nameTaken(newRule.name);
      const event = { type: "alertRule.created", caller, target: targetOf(newRule), after: newRule };
      return await audited(audit, event, async () => {
        const withSecrets = await secrets.writeIfChanged(newRule, {
          url: given.webhookUrl,
          credentials: given.credentials,
        });
        return await write(withSecrets, [
          insert(Rules, ruleKey(newRule.ruleId), withSecrets.rule),
          insert(RuleNames, ruleNameKey(newRule.name), { ruleId: newRule.ruleId }),
          ...secrets.requireStored(withSecrets.rule),
        ]);
      });
    },

    async change(ruleId, given, caller, ifMatch) {
      const planChange = () => withPlannedChange(ruleId, given, caller, ifMatch);
      const first = await planChange();
      checkUrl(given.webhookUrl);
      if (given.escalation) await checkEscalation(first.newRule);
      const target = targetOf(first.before);
      const event = { type: "alertRule.changed", caller, target, before: first.before, after: first.newRule };
      const effect = async (attempt: number) => {
        const { before, newRule, etag } = attempt === 1 ? first : await planChange();
        const withSecrets = await secrets.writeIfChanged(newRule, {
          url: given.webhookUrl,
          credentials: given.credentials,
        });
        const operations: Operation[] = [replace(Rules, ruleKey(ruleId), withSecrets.rule, etag)];
        if (ruleNameKey(newRule.name) !== ruleNameKey(before.name)) {
          operations.push(remove(RuleNames, ruleNameKey(before.name)));
          operations.push(insert(RuleNames, ruleNameKey(newRule.name), { ruleId }));
        }
        return { before, newRule, written: await write(withSecrets, operations) };
      };
      const { written } = await audited(
        audit,
        event,
        () => repeatOnConflict(effect),
        ({ before, newRule }) => ({ before, after: newRule }),
      );
      return written;
    },

    async rotateSecret(ruleId, caller, ifMatch) {
      const getSigningRule = async () => {
        const row = await getIfMatch(ruleId, ifMatch);
        if (row.deliveryMethod === "webhook") return row;
        throw new Problem(
          "conflict",
          `Only webhooks are signed. The delivery method of this rule is ${row.deliveryMethod}.`,
        );
      };
      const first = await getSigningRule();
      const now = clock.now();
      const event = { type: "alertRule.secretRotated", caller, target: targetOf(first) };
      return await audited(audit, event, () =>
        repeatOnConflict(async (attempt) => {
          const row = attempt === 1 ? first : await getSigningRule();
          const changed = { ...withoutKeys(row), updatedAt: now.toISOString(), updatedBy: caller.actor };
          const withSecrets = await secrets.rotate(changed, now);
          return await write(withSecrets, [replace(Rules, ruleKey(ruleId), withSecrets.rule, row.etag)]);
        }),
      );
    },

    async remove(ruleId, caller, ifMatch) {
      const first = await getIfMatch(ruleId, ifMatch);
      const event = { type: "alertRule.deleted", caller, target: targetOf(first), before: withoutKeys(first) };
      const firstSecretRemoval = await secrets.markForRemoval(first);
      const effect = async (attempt: number) => {
        const row = attempt === 1 ? first : await find(ruleId);
        // Ids are never reused, so a missing rule was deleted by another request or by an earlier attempt of this one.
        if (!row) return { before: withoutKeys(first), secretRemoval: firstSecretRemoval };
        requireMatch(row.etag, ifMatch, RULE);
        const secretRemoval = attempt === 1 ? firstSecretRemoval : await secrets.markForRemoval(row);
        await tables.transaction(Rules.table, RULES, [
          remove(Rules, ruleKey(ruleId), row.etag),
          remove(RuleNames, ruleNameKey(row.name)),
          ...secretRemoval,
        ]);
        return { before: withoutKeys(row), secretRemoval };
      };
      const { secretRemoval } = await audited(
        audit,
        event,
        () => repeatOnConflict(effect),
        ({ before }) => ({ before }),
      );
      if (secretRemoval.length > 0) await secrets.remove(ruleId, caller);
    },
  };
}

/** Creates the functions that read rules. */
function createRuleReader(tables: Tables) {
  return { find, get, getIfMatch, all, ids };

  async function find(ruleId: string): Promise<Row<RuleRecord> | undefined> {
    return isUlid(ruleId) ? await tables.get(Rules, RULES, ruleKey(ruleId)) : undefined;
  }

  async function get(ruleId: string): Promise<Row<RuleRecord>> {
    const rule = await find(ruleId);
    if (!rule) throw notFound(`The alert rule ${ruleId.slice(0, 64)}`);
    return rule;
  }

  /** Returns a rule if its ETag matches. @throws {Problem} notFound; preconditionFailed. */
  async function getIfMatch(ruleId: string, ifMatch: string | undefined): Promise<Row<RuleRecord>> {
    const rule = await get(ruleId);
    requireMatch(rule.etag, ifMatch, RULE);
    return rule;
  }

  /** Leaves out rules that can't be read, so that the others are evaluated. */
  async function all(): Promise<Row<RuleRecord>[]> {
    const rules: Row<RuleRecord>[] = [];
    const onCorrupt = "leaveOut" as const;
    const range = { partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX), onCorrupt };
    for await (const rows of tables.pages(Rules, range)) rules.push(...rows);
    return rules;
  }

  async function ids(): Promise<Set<string>> {
    const ruleIds = new Set<string>();
    const range = { partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX), select: [] };
    for await (const rows of tables.pages(RuleKeys, range))
      for (const { rowKey } of rows) ruleIds.add(rowKey.slice(RULE_PREFIX.length));
    return ruleIds;
  }
}

/** Creates the functions that make and check a new or changed rule before it is written. */
function createRulePlans({
  settings,
  clock,
  randomness,
  find,
  getIfMatch,
}: {
  settings: Pick<Settings, "values">;
  clock: Clock;
  randomness: Randomness;
} & Pick<ReturnType<typeof createRuleReader>, "find" | "getIfMatch">) {
  return { planned, withPlannedChange, checkEscalation };

  /** Returns a new rule. @throws {Problem} if it is invalid. */
  async function planned(given: NewRule, caller: Caller): Promise<RuleRecord> {
    const now = clock.now();
    const nowText = now.toISOString();
    const emptyRule: RuleRecord = {
      ruleId: randomness.ulid(now),
      name: given.name,
      alertType: given.alertType,
      thresholds: [],
      filters: {},
      ...NEW_RULE_DEFAULTS,
      recipients: [],
      generation: 1,
      activeSince: nowText,
      createdAt: nowText,
      createdBy: caller.actor,
      updatedAt: nowText,
      updatedBy: caller.actor,
    };
    const newRule = withChange(emptyRule, given, (await settings.values()).defaultThresholdDays);
    await checkEscalation(newRule);
    return newRule;
  }

  /**
   * Returns a rule before and after a change. A new `generation` makes the next evaluation check everything in the rule's
   * scope. Events before `activeSince` cause no notification.
   */
  async function withPlannedChange(ruleId: string, given: RuleChange, caller: Caller, ifMatch: string | undefined) {
    const row = await getIfMatch(ruleId, ifMatch);
    const before: RuleRecord = withoutKeys(row);
    const now = clock.now().toISOString();
    const newRule: RuleRecord = {
      ...withChange(before, given, (await settings.values()).defaultThresholdDays),
      updatedAt: now,
      updatedBy: caller.actor,
    };
    const isActivated = newRule.enabled && !before.enabled;
    if (isActivated) newRule.activeSince = now;
    if (isActivated || scopeOf(newRule) !== scopeOf(before)) newRule.generation = before.generation + 1;
    return { before, newRule, etag: row.etag };
  }

  /** Checks the rule whose channel sends the escalations. @throws {Problem} if it is this rule or does not exist. */
  async function checkEscalation({ ruleId, escalation }: RuleRecord): Promise<void> {
    const channelRuleId = escalation?.ruleId;
    if (channelRuleId === undefined) return;
    if (channelRuleId === ruleId) throw invalidBody("escalation.ruleId", "must be another rule");
    if (!(await find(channelRuleId))) throw invalidBody("escalation.ruleId", "is not an alert rule");
  }
}

const RULE = "The alert rule";
/** Reads only the keys of rules, so that a rule whose content can't be read is also listed. */
const RuleKeys = keysOnly(Rules);

const targetOf = ({ ruleId }: RuleRecord) => ({ type: "alertRule", id: ruleId });

const nameTaken = (name: string) =>
  new Problem("alreadyExists", `An alert rule named ${name} already exists. Choose another name.`);
