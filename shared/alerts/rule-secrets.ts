import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { invalidBody, Problem, retryLater } from "../platform/http/problem.ts";
import { keysAfterRotation, SIGNING_KEY_BYTES, signingKeyOf } from "../platform/outgoing/webhooks.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { isUnclear, merge, type Operation, put, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import {
  type DeliveryMethod,
  opensIncidents,
  RULES,
  type RuleCredentials,
  type RuleRecord,
  RuleSecretRows,
  Rules,
  ruleKey,
  ruleSecretKey,
  SECRET_PREFIX,
  secretName,
  usesWebhook,
  WebhookSecret,
} from "./rule.ts";

/**
 * The secrets of alert rules: the URL, signing keys and credentials of a rule that posts to a webhook, chat or incident
 * service. They are stored in the service's own key vault.
 */

/** Maximum number of signing keys of a rule, to limit the size of headers and of the secret. */
const MAX_KEYS = 20;
/** Minimum age of a secret without a rule before removal, because its rule may be about to be written. */
const UNUSED_MS = DAY_MS;
/** Default Retry-After in seconds, if the key vault returns none. */
const RETRY_SECONDS = 10;

const SECRET_CONTENT_TYPE = "application/vnd.credential-lifecycle.webhook+json";

/** Default URL of PagerDuty rules: https://developer.pagerduty.com/docs/send-alert-event */
const PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue";

/** The members of a rule's secret in a request. Undefined members stay unchanged. */
export interface SecretInput {
  url: string | undefined;
  credentials: RuleCredentials | undefined;
}

/** The result of writing a rule's secret. */
export interface WrittenSecret {
  /** The rule with the secret's host and version. */
  rule: RuleRecord;
  /** A new signing key, which is returned once. */
  webhookSecret?: string;
}

/**
 * The secrets of rules with a webhook, in the service's own key vault. A table row records that a rule's secret may exist. The
 * row is written before the secret and removed after it, so that no secret is orphaned.
 */
export interface RuleSecrets {
  /** Does nothing if the service has a key vault of its own. @throws {Problem} conflict if it has none. */
  requireVault(): void;
  /** Returns a rule's secret. Undefined if there is none. @throws {CloudFailure}; {Problem} conflict without a key vault. */
  read(rule: RuleRecord): Promise<WebhookSecret | undefined>;
  /** Writes the secret of a rule if it changes.
   *
   * @throws {Problem} invalidRequest without a URL, without the credentials that the method needs, and if stored credentials
   *   would be sent to a new URL; unavailable if the key vault fails. The rule is then unchanged.
   */
  writeIfChanged(rule: RuleRecord, given: SecretInput): Promise<WrittenSecret>;
  /** Writes a new signing key. Previous keys stay valid for a day. @throws {Problem} as `writeIfChanged`. */
  rotate(rule: RuleRecord, now: Date): Promise<Required<WrittenSecret>>;
  /** Returns operations for the transaction that adds a rule. They fail if the rule's secret was cleaned up meanwhile. */
  requireStored(rule: RuleRecord): Operation[];
  /** Returns operations for the transaction that deletes a rule. They mark its secret for removal. */
  markForRemoval(rule: RuleRecord): Promise<Operation[]>;
  /** Removes the secret of a deleted rule. After a failure, `cleanUp` removes it later. */
  remove(ruleId: string, caller: Caller): Promise<void>;
  /** Removes secrets that have had no rule for a day. @throws the first failure, after all secrets were tried. */
  cleanUp(caller: Caller): Promise<void>;
}

/** Creates the store of webhook URLs, signing keys and credentials of rules in the service's key vault. */
export function createRuleSecrets(deps: {
  tables: Tables;
  audit: Pick<Audit, "append">;
  vault: ServiceKeyVault | undefined;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): RuleSecrets {
  const { tables, audit, clock, log } = deps;

  function vault(): ServiceKeyVault {
    if (deps.vault) return deps.vault;
    throw new Problem(
      "conflict",
      "Webhook URLs are stored in the service's own key vault, which is not configured. Set SERVICE_KEY_VAULT_URL, or use the delivery method email.",
    );
  }

  const newKey = (): string => signingKeyOf(deps.randomness.bytes(SIGNING_KEY_BYTES));

  async function read({ ruleId, webhookVersion }: RuleRecord): Promise<WebhookSecret | undefined> {
    if (webhookVersion === undefined) return undefined;
    const text = await vault().readSecret(secretName(ruleId), webhookVersion);
    return text === undefined ? undefined : WebhookSecret.parse(JSON.parse(text));
  }

  /** Runs a key vault operation before the rule is written. If it fails, the rule is unchanged. */
  async function beforeRuleWrite<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const detail = `The rule was not written. ${error.message} ${error.remedy}`;
      throw retryLater("unavailable", detail, error.retryAfterSeconds ?? RETRY_SECONDS);
    }
  }

  async function write(rule: RuleRecord, secret: WebhookSecret): Promise<RuleRecord> {
    const { ruleId } = rule;
    await tables.put(RuleSecretRows, RULES, ruleSecretKey(ruleId), rowOf(ruleId));
    const name = secretName(ruleId);
    const version = await vault().writeSecret(name, JSON.stringify(secret), SECRET_CONTENT_TYPE);
    return { ...rule, webhookHost: new URL(secret.url).host, webhookVersion: version };
  }

  const rowOf = (ruleId: string) => ({ ruleId, since: clock.now().toISOString() });

  async function removeSecret(ruleId: string, caller: Caller): Promise<void> {
    const name = secretName(ruleId);
    const event = {
      type: "alertRule.secretRemoved",
      caller,
      target: { type: "alertRule", id: ruleId },
      details: { name },
    };
    await audited(audit, event, () => vault().removeSecret(name));
    await tables.remove(RuleSecretRows, RULES, ruleSecretKey(ruleId));
  }

  return {
    requireVault: () => void vault(),
    read,

    async writeIfChanged(rule, given) {
      const { deliveryMethod } = rule;
      if (!usesWebhook(deliveryMethod) && given.url === undefined) return { rule };
      return await beforeRuleWrite(async () => {
        const stored = await read(rule);
        // The stored secret is not used if it belongs to another kind of receiver, so that it is not sent to this one.
        const previous = stored && kindOf(stored) === kindOfMethod(deliveryMethod) ? stored : undefined;
        const defaultUrl = deliveryMethod === "pagerDuty" ? PAGERDUTY_URL : undefined;
        const url = given.url ?? previous?.url ?? defaultUrl;
        if (url === undefined) {
          throw invalidBody("webhookUrl", `is required for the delivery method ${deliveryMethod}`);
        }
        const credentials = credentialsOf(rule, given, previous);
        // Signing keys are never sent, so they stay if the rule gets another kind of receiver.
        const keys = stored?.keys ?? [];
        const needsKey = deliveryMethod === "webhook" && keys.length === 0;
        if (previous && given.url === undefined && given.credentials === undefined && !needsKey) return { rule };
        const secret = { url, keys, ...(credentials && { credentials }) };
        if (!needsKey) return { rule: await write(rule, secret) };
        const webhookSecret = newKey();
        return { rule: await write(rule, { ...secret, keys: [{ key: webhookSecret }] }), webhookSecret };
      });
    },

    async rotate(rule, now) {
      return await beforeRuleWrite(async () => {
        const secret = await read(rule);
        if (!secret) {
          throw new Problem("conflict", "The rule's webhookUrl is missing from the key vault. Set webhookUrl again.");
        }
        const webhookSecret = newKey();
        const validKeys = keysAfterRotation(secret.keys, now);
        if (validKeys.length >= MAX_KEYS) {
          throw new Problem(
            "conflict",
            `The rule already has ${validKeys.length} valid signing keys. Try again in a day.`,
          );
        }
        return {
          rule: await write(rule, { ...secret, keys: [{ key: webhookSecret }, ...validKeys] }),
          webhookSecret,
        };
      });
    },

    // `merge` fails if the row does not exist.
    requireStored: ({ ruleId, webhookVersion }) =>
      webhookVersion === undefined ? [] : [merge(RuleSecretRows, ruleSecretKey(ruleId), { ruleId })],

    async markForRemoval({ ruleId, webhookVersion }) {
      const key = ruleSecretKey(ruleId);
      if (webhookVersion === undefined && !(await tables.get(RuleSecretRows, RULES, key))) return [];
      return [put(RuleSecretRows, key, rowOf(ruleId))];
    },

    async remove(ruleId, caller) {
      try {
        await removeSecret(ruleId, caller);
      } catch (error) {
        if (!(error instanceof CloudFailure || error instanceof Problem || isUnclear(error))) throw error;
        log.warn("The secret of a deleted rule is left to the daily clean-up", { ruleId, reason: String(error) });
      }
    },

    async cleanUp(caller) {
      if (!deps.vault) return;
      const unusedSince = new Date(clock.now().getTime() - UNUSED_MS).toISOString();
      const failures: unknown[] = [];
      const range = {
        partitionKey: RULES,
        from: SECRET_PREFIX,
        before: keyEnd(SECRET_PREFIX),
        onCorrupt: "leaveOut" as const,
      };
      for await (const rows of tables.pages(RuleSecretRows, range)) {
        for (const { ruleId, since } of rows) {
          if (since > unusedSince || (await tables.get(Rules, RULES, ruleKey(ruleId)))) continue;
          await removeSecret(ruleId, caller).catch((error: unknown) => failures.push(error));
        }
      }
      if (failures.length > 0) throw failures[0];
    },
  };
}

/** Returns the credentials of a rule. @throws {Problem} if its delivery method needs others. */
function credentialsOf(
  { deliveryMethod }: RuleRecord,
  given: SecretInput,
  previous: WebhookSecret | undefined,
): RuleCredentials | undefined {
  if (!opensIncidents(deliveryMethod)) {
    if (given.credentials)
      throw invalidBody("credentials", `is not supported for the delivery method ${deliveryMethod}`);
    return undefined;
  }
  const isNewUrl = given.url !== undefined && previous !== undefined && given.url !== previous.url;
  if (isNewUrl && given.credentials === undefined)
    throw invalidBody(
      "credentials",
      "must be given again with a new webhookUrl, because stored credentials are never sent to a new URL",
    );
  const credentials = given.credentials ?? previous?.credentials ?? {};
  const { routingKey, username, password, clientId, clientSecret } = credentials;
  if (deliveryMethod === "pagerDuty") {
    if (routingKey === undefined)
      throw invalidBody("credentials.routingKey", "is required for the delivery method pagerDuty");
    return { routingKey };
  }
  if ((username === undefined) !== (password === undefined))
    throw invalidBody("credentials", "must have username and password together");
  if ((clientId === undefined) !== (clientSecret === undefined))
    throw invalidBody("credentials", "must have clientId and clientSecret together");
  if (username === undefined && clientId === undefined)
    throw invalidBody(
      "credentials",
      "must have username and password, or clientId and clientSecret, for the delivery method serviceNow",
    );
  return {
    ...(username !== undefined && { username, password }),
    ...(clientId !== undefined && { clientId, clientSecret }),
  };
}

/** Return the kind of receiver of a delivery method, and of a stored secret. `message`: a webhook, Teams or Slack. */
const kindOfMethod = (method: DeliveryMethod) => (opensIncidents(method) ? method : "message");
const kindOf = ({ credentials }: WebhookSecret) =>
  credentials === undefined ? "message" : credentials.routingKey === undefined ? "serviceNow" : "pagerDuty";
