import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../azure/failure.ts";
import type { ServiceKeyVault } from "../azure/service-key-vault.ts";
import { changedSince, requireMatch } from "../http/conditional.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import { singleLine } from "../http/text.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import {
  insert,
  type Operation,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  replace,
  type Tables,
} from "../storage/tables.ts";
import { audited } from "./audited.ts";
import { addressProblem } from "./outgoing.ts";
import { recordOf } from "./record.ts";
import {
  ALERT_TYPES,
  DELIVERY_METHODS,
  DELIVERY_MODES,
  DIGEST_FREQUENCIES,
  MAX_RECIPIENTS,
  MAX_THRESHOLD_DAYS,
  MAX_THRESHOLDS,
  posts,
  RULE_PREFIX,
  RULES,
  RuleFilters,
  RuleNames,
  type RuleRecord,
  Rules,
  ruleKey,
  ruleNameKey,
  secretName,
  WebhookSecret,
} from "./rule.ts";
import { SIGNING_KEY_BYTES, signingKeyOf } from "./webhook.ts";

const threshold = z.int().min(1).max(MAX_THRESHOLD_DAYS);

const fields = {
  name: singleLine(128),
  alertType: z.enum(ALERT_TYPES),
  thresholdDays: threshold.meta({
    description:
      "For `expiration`: the days before an asset expires at which it is told of. The simple form of thresholds.",
  }),
  thresholds: z
    .array(threshold)
    .min(1)
    .max(MAX_THRESHOLDS)
    .meta({ description: "For `expiration`: several thresholds in days. Each asset is told of once per threshold." }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({
    description: "For `digest`: every day at 06:00 UTC, or every Monday.",
  }),
  recipients: z
    .array(z.email().max(254))
    .max(MAX_RECIPIENTS)
    .meta({ description: "E-mail addresses; a mail goes to at most 50 of them." }),
  webhookUrl: z
    .url()
    .max(4096)
    .meta({ description: "Write-only: kept in the service's key vault. For `webhook`, `teams` and `slack`." }),
  enabled: z.boolean(),
};

const { name, alertType, ...others } = fields;

export const NewRule = z
  .strictObject({ name, alertType, ...z.object(others).partial().shape })
  .meta({ id: "NewAlertRule" });
export type NewRule = z.infer<typeof NewRule>;

export const RuleChange = z.strictObject(z.object(fields).partial().shape).meta({ id: "AlertRuleChange" });
export type RuleChange = z.infer<typeof RuleChange>;

/** A rule as it is now, and its signing key where it was made by this very call. */
export interface ChangedRule {
  rule: Row<RuleRecord>;
  webhookSecret?: string;
}

/** How long messages are signed with the key before as well, so that receivers can change over. */
const KEY_OVERLAP_MS = 24 * 3_600_000;

const SECRET_CONTENT_TYPE = "application/vnd.credential-lifecycle.webhook+json";

/** Alert rules: the only place that writes them and their secrets. */
export function createRules(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  audit: Pick<Audit, "append">;
  vault: ServiceKeyVault | undefined;
  allowPrivateWebhooks: boolean;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}) {
  const { tables, audit, clock, randomness, log } = deps;

  const find = async (ruleId: string): Promise<Row<RuleRecord> | undefined> =>
    /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(ruleId) ? await tables.get(Rules, RULES, ruleKey(ruleId)) : undefined;

  async function get(ruleId: string): Promise<Row<RuleRecord>> {
    const rule = await find(ruleId);
    if (!rule) throw notFound(`The alert rule ${ruleId.slice(0, 64)}`);
    return rule;
  }

  async function all(): Promise<Row<RuleRecord>[]> {
    const found: Row<RuleRecord>[] = [];
    const range = { partitionKey: RULES, from: RULE_PREFIX, before: keyEnd(RULE_PREFIX) };
    for await (const rows of tables.pages(Rules, range)) found.push(...rows);
    return found;
  }

  /** @throws {Problem} conflict while the service has no key vault of its own. */
  function vault(): ServiceKeyVault {
    if (deps.vault) return deps.vault;
    throw new Problem(
      "conflict",
      "The address of a webhook is a credential and is kept in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL, or use the delivery method email.",
    );
  }

  async function readSecret({ ruleId, webhookVersion }: RuleRecord): Promise<WebhookSecret | undefined> {
    if (webhookVersion === undefined) return undefined;
    const text = await vault().readSecret(secretName(ruleId), webhookVersion);
    return text === undefined ? undefined : WebhookSecret.parse(JSON.parse(text));
  }

  const newKey = (): string => signingKeyOf(randomness.bytes(SIGNING_KEY_BYTES));

  /** Writes the secret a rule is to have and answers what the rule keeps of it, and a key that is new. */
  async function keepSecret(
    rule: RuleRecord,
    url: string | undefined,
  ): Promise<{ host?: string; version?: string; webhookSecret?: string }> {
    if (!posts(rule.deliveryMethod) && url === undefined) return {};
    const before = await readSecret(rule);
    const address = url ?? before?.url;
    if (address === undefined) throw invalid("webhookUrl", `is needed for the delivery method ${rule.deliveryMethod}`);
    const keys = before?.keys ?? [];
    const needsKey = rule.deliveryMethod === "webhook" && keys.length === 0;
    if (before && url === undefined && !needsKey) return {};
    const webhookSecret = needsKey ? newKey() : undefined;
    const secret: WebhookSecret = { url: address, keys: webhookSecret ? [{ key: webhookSecret }] : keys };
    return {
      version: await vault().writeSecret(secretName(rule.ruleId), JSON.stringify(secret), SECRET_CONTENT_TYPE),
      host: new URL(address).host,
      ...(webhookSecret === undefined ? {} : { webhookSecret }),
    };
  }

  const withSecret = (rule: RuleRecord, kept: { host?: string; version?: string }): RuleRecord =>
    kept.version === undefined ? rule : { ...rule, webhookHost: kept.host!, webhookVersion: kept.version };

  function checkUrl(url: string | undefined): void {
    if (url === undefined) return;
    const problem = addressProblem(new URL(url), deps.allowPrivateWebhooks);
    if (problem) throw invalid("webhookUrl", problem);
    vault();
  }

  async function write(operations: Operation[], name: string, ifMatch: string | undefined): Promise<string> {
    try {
      return (await tables.transaction(Rules.table, RULES, operations)).get(operations[0]!.rowKey) ?? "";
    } catch (error) {
      if (error instanceof RowExists) throw nameTaken(name);
      if ((error instanceof RowChanged || error instanceof RowMissing) && ifMatch !== undefined)
        throw changedSince(RULE);
      throw error;
    }
  }

  /** The rule is gone already, so a key vault that does not answer can't undo that: it is said where people look. */
  async function removeSecret(ruleId: string, caller: Caller): Promise<void> {
    const name = secretName(ruleId);
    try {
      await vault().removeSecret(name);
    } catch (error) {
      if (!(error instanceof CloudFailure || error instanceof Problem)) throw error;
      log.warn("The secret of a deleted rule is left in the key vault", { ruleId, name, reason: error.message });
      const event = { type: "alertRule.secretLeft", caller, target: { type: "alertRule", id: ruleId } };
      await audit.append({ ...event, outcome: "failure", details: { name, reason: error.message } });
    }
  }

  return {
    find,
    get,
    all,
    readSecret,

    /** By name. */
    list: async (request: PageRequest): Promise<Page<Row<RuleRecord>>> =>
      pageOfAll(await all(), request, (rule) => rule.name.toLowerCase()),

    /** @throws {Problem} alreadyExists for a name that is taken; conflict without a key vault. */
    async create(given: NewRule, caller: Caller): Promise<ChangedRule> {
      const now = clock.now();
      const at = now.toISOString();
      const blank: RuleRecord = {
        ...{ ruleId: randomness.ulid(now), name: given.name, alertType: given.alertType, thresholds: [], filters: {} },
        ...{ deliveryMethod: "email", deliveryMode: "immediate", digestFrequency: "daily", recipients: [] },
        ...{ enabled: true, generation: 1, activeSince: at },
        ...{ createdAt: at, createdBy: caller.actor, updatedAt: at, updatedBy: caller.actor },
      };
      const wanted = changed(blank, given, (await deps.settings.values()).defaultThresholdDays);
      checkUrl(given.webhookUrl);
      if (posts(wanted.deliveryMethod)) {
        if (given.webhookUrl === undefined) throw invalid("webhookUrl", `is needed for ${wanted.deliveryMethod}`);
      }
      if (await tables.get(RuleNames, RULES, ruleNameKey(wanted.name))) throw nameTaken(wanted.name);
      return await audited(
        audit,
        { type: "alertRule.created", caller, target: target(wanted), after: wanted },
        async () => {
          const kept = await keepSecret(wanted, given.webhookUrl);
          const rule = withSecret(wanted, kept);
          const operations = [
            insert(Rules, ruleKey(rule.ruleId), rule),
            insert(RuleNames, ruleNameKey(rule.name), { ruleId: rule.ruleId }),
          ];
          const etag = await write(operations, rule.name, undefined);
          return answer(rule, etag, kept.webhookSecret);
        },
      );
    },

    async change(ruleId: string, given: RuleChange, caller: Caller, ifMatch: string | undefined): Promise<ChangedRule> {
      const row = await get(ruleId);
      requireMatch(row.etag, ifMatch, RULE);
      const before = recordOf(row);
      const now = clock.now().toISOString();
      const wanted: RuleRecord = {
        ...changed(before, given, (await deps.settings.values()).defaultThresholdDays),
        updatedAt: now,
        updatedBy: caller.actor,
      };
      const enabled = wanted.enabled && !before.enabled;
      if (enabled) wanted.activeSince = now;
      if (enabled || scopeOf(wanted) !== scopeOf(before)) wanted.generation = before.generation + 1;
      checkUrl(given.webhookUrl);
      const event = { type: "alertRule.changed", caller, target: target(before), before, after: wanted };
      return await audited(audit, event, async () => {
        const kept = await keepSecret(wanted, given.webhookUrl);
        const rule = withSecret(wanted, kept);
        const operations: Operation[] = [replace(Rules, ruleKey(ruleId), rule, row.etag)];
        if (ruleNameKey(rule.name) !== ruleNameKey(before.name)) {
          operations.push(remove(RuleNames, ruleNameKey(before.name)));
          operations.push(insert(RuleNames, ruleNameKey(rule.name), { ruleId }));
        }
        const etag = await write(operations, rule.name, ifMatch);
        return answer(rule, etag, kept.webhookSecret);
      });
    },

    /** A new signing key; for a day messages are signed with the old one too. */
    async rotateSecret(ruleId: string, caller: Caller, ifMatch: string | undefined): Promise<ChangedRule> {
      const row = await get(ruleId);
      requireMatch(row.etag, ifMatch, RULE);
      if (row.deliveryMethod !== "webhook") {
        throw new Problem(
          "conflict",
          `Only webhooks are signed; this rule's delivery method is ${row.deliveryMethod}.`,
        );
      }
      const secret = await readSecret(row);
      if (!secret)
        throw new Problem("conflict", "The rule's webhookUrl is not in the key vault any more. Set it again.");
      const now = clock.now();
      const before = recordOf(row);
      return await audited(audit, { type: "alertRule.secretRotated", caller, target: target(before) }, async () => {
        const key = newKey();
        const until = new Date(now.getTime() + KEY_OVERLAP_MS).toISOString();
        const last = secret.keys[0];
        const next: WebhookSecret = { url: secret.url, keys: [{ key }, ...(last ? [{ key: last.key, until }] : [])] };
        const version = await vault().writeSecret(secretName(ruleId), JSON.stringify(next), SECRET_CONTENT_TYPE);
        const rule: RuleRecord = {
          ...before,
          ...{ webhookVersion: version, updatedAt: now.toISOString(), updatedBy: caller.actor },
        };
        const etag = await write([replace(Rules, ruleKey(ruleId), rule, row.etag)], rule.name, ifMatch);
        return answer(rule, etag, key);
      });
    },

    /** What it told and its history stay; deliveries that wait are cancelled. */
    async remove(ruleId: string, caller: Caller, ifMatch: string | undefined): Promise<void> {
      const row = await get(ruleId);
      requireMatch(row.etag, ifMatch, RULE);
      const event = { type: "alertRule.deleted", caller, target: target(row), before: recordOf(row) };
      await audited(audit, event, async () => {
        const operations = [remove(Rules, ruleKey(ruleId), row.etag), remove(RuleNames, ruleNameKey(row.name))];
        await write(operations, row.name, ifMatch);
        if (row.webhookVersion === undefined) return;
        await removeSecret(ruleId, caller);
      });
    },
  };

  function answer(rule: RuleRecord, etag: string, webhookSecret: string | undefined): ChangedRule {
    const row = { ...rule, partitionKey: RULES, rowKey: ruleKey(rule.ruleId), etag };
    return { rule: row, ...(webhookSecret === undefined ? {} : { webhookSecret }) };
  }
}

export type RuleRoom = ReturnType<typeof createRules>;

const target = ({ ruleId }: RuleRecord) => ({ type: "alertRule", id: ruleId });

/** What decides which assets a rule is about. */
const scopeOf = ({ alertType: type, thresholds, filters }: RuleRecord): string =>
  JSON.stringify([type, thresholds, Object.entries(filters).sort()]);

/** As a problem names it. */
const RULE = "The alert rule";
const nameTaken = (taken: string) =>
  new Problem("alreadyExists", `There is an alert rule named ${taken} already. Choose another name.`);
const invalid = (member: string, message: string) =>
  new Problem("invalidRequest", `Correct this and send the request again: body.${member}: ${message}`, {
    errors: [{ path: `body.${member}`, message }],
  });

/** The rule with what was given, checked as a whole. */
function changed(rule: RuleRecord, given: RuleChange, defaultThresholdDays: number): RuleRecord {
  const { webhookUrl: _, thresholdDays, thresholds, recipients, ...rest } = given;
  const plain = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  const next: RuleRecord = { ...rule, ...plain };
  if (recipients) next.recipients = distinct(recipients);
  if (thresholds) next.thresholds = [...new Set(thresholds)].sort((a, b) => b - a);
  else if (thresholdDays !== undefined) next.thresholds = [thresholdDays];
  if (thresholds && thresholdDays !== undefined && thresholdDays !== next.thresholds[0]) {
    throw invalid("thresholdDays", "must be the highest of thresholds, or be left out beside them");
  }
  if (next.alertType !== "expiration") next.thresholds = [];
  else if (next.thresholds.length === 0) next.thresholds = [defaultThresholdDays];
  if (next.deliveryMethod === "email" && next.recipients.length === 0) {
    throw invalid("recipients", "must name at least one e-mail address for the delivery method email");
  }
  checkFilters(next);
  return next;
}

/** A filter that can't apply would keep a rule silent, or be taken for one that works. */
function checkFilters({ alertType: type, filters }: RuleRecord): void {
  const without = (filter: keyof RuleFilters) => {
    if (filters[filter] !== undefined) throw invalid(`filters.${filter}`, `has no meaning for the alert type ${type}`);
  };
  if (type !== "complianceViolation") without("severity");
  if (type === "scanFailure") for (const filter of ["vault", "type", "tag", "owner"] as const) without(filter);
}

/** Addresses differ in case only for machines. */
function distinct(addresses: readonly string[]): string[] {
  const seen = new Map(addresses.map((address) => [address.toLowerCase(), address]));
  return [...seen.values()];
}
