import { setTimeout as pause } from "node:timers/promises";
import type { Audit } from "../audit/audit.ts";
import { readScope } from "../inventory/scope.ts";
import type { Principal } from "../platform/azure/identity.ts";
import type { MailSender } from "../platform/azure/mail.ts";
import { portalOf } from "../platform/azure/portal.ts";
import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { notFound } from "../platform/http/problem.ts";
import { createOutgoing, type Outgoing } from "../platform/outgoing/outgoing.ts";
import { webhookTargets } from "../platform/outgoing/webhooks.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, DAY_SECONDS, HOUR_SECONDS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { type Acknowledgements, createAcknowledgements } from "./acknowledgements.ts";
import { type AssetNotifications, createAssetNotifications } from "./asset-notifications.ts";
import type { AutomationSource } from "./automation-events.ts";
import { automationExample } from "./automation-events.ts";
import { createCleanUp } from "./clean-up.ts";
import { createDeliveryWorker } from "./deliver.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, EVALUATION_QUEUE } from "./delivery.ts";
import { createEvaluation } from "./evaluate.ts";
import { createHeldDeliveries, type HeldDeliveries } from "./held-deliveries.ts";
import { createHistory, type History } from "./history.ts";
import { type Item, isDeniedAccess } from "./items.ts";
import type { Links } from "./links.ts";
import { createNotificationLog } from "./notification-log.ts";
import { createOwners, type Owners } from "./owners.ts";
import { createPreview, type Preview } from "./preview.ts";
import type { RuleRecord } from "./rule.ts";
import { newDelivery } from "./rule-notifications.ts";
import { type AlertRules, createRules } from "./rules.ts";
import { type CredentialSource, SERVICE_CREDENTIAL_DAYS } from "./service-credentials.ts";
import { createSnoozes, type Snoozes } from "./snoozes.ts";
import { createTrackedAlerts } from "./tracked-alerts.ts";
import type { ViolationSource } from "./violation-items.ts";

export type { AutomationSource } from "./automation-events.ts";
export type { CredentialSource } from "./service-credentials.ts";
export type { NewViolation, ViolationSource } from "./violation-items.ts";

/**
 * The alerts module. An alert rule matches items, such as assets that expire. A timer evaluates the rules; items without an
 * earlier notification become a delivery, a message by mail, webhook or another channel, which workers send from a queue.
 * Alerts about some items stay open (tracked) until they are resolved.
 */

/**
 * Maximum milliseconds for which the test of a rule waits for the result of its notification, such as the mail provider's report.
 * Later reports appear in the history.
 */
const TEST_WAIT_MS = 12_000;
/** Maximum seconds that the test of a rule waits for the next step. A queue message continues after longer waits. */
const TEST_STEP_SECONDS = 6;

/** The services and settings that `createAlerts` needs. */
export interface AlertsDependencies {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Pick<Audit, "append">;
  config: Pick<
    Config,
    | "ALLOW_PRIVATE_WEBHOOK_ADDRESSES"
    | "PUBLIC_BASE_URL"
    | "OWNER_TAG"
    | "AZURE_CLOUD"
    | "AZURE_TENANT_ID"
    | "cloud"
    | "MAIL_PER_MINUTE"
    | "MAIL_PER_HOUR"
    | "ALERT_OWNER_DOMAINS"
    | "OWNER_MAIL_PER_DAY"
  >;
  /** Undefined if mail is not configured. Deliveries then wait and report that. */
  mail: MailSender | undefined;
  /** Undefined if the service has no key vault of its own. Rules with a webhook are then rejected. */
  vault: ServiceKeyVault | undefined;
  /** Undefined: rules about violations find no items. */
  violations?: ViolationSource | undefined;
  /** Sources of the service's own credentials. Default: none. */
  credentials?: readonly CredentialSource[];
  /** Returns whether there is a PRO license. Without it, rules ignore credentials outside of vaults. */
  licensed: () => Promise<boolean>;
  /** Returns the service's identity, for messages about missing permissions. Undefined if no token can be acquired. */
  identity?: () => Promise<Principal | undefined>;
  /** The audit log with break-glass sign-ins. Undefined: rules find none. */
  entries?: Pick<Audit, "list">;
  /** Sources of rotation, sync and dependency events. Default: none. */
  automation?: readonly AutomationSource[];
  outgoing?: Outgoing;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Alert rules, their evaluation, and the delivery of notifications. */
export interface Alerts {
  readonly rules: AlertRules;
  readonly snoozes: Snoozes;
  readonly acknowledgements: Acknowledgements;
  readonly history: History;
  /** The part of the history about one asset. */
  readonly assetNotifications: AssetNotifications;
  /** Deliveries that a restore of the store holds. */
  readonly held: HeldDeliveries;
  readonly owners: Owners;
  /** Evaluates the rules that are due and creates deliveries. Called by the timer and soon after a scan. */
  evaluate(): Promise<void>;
  /**
   * Returns the notification that a rule would send now, and the time of the next one. Sends and writes nothing.
   *
   * @param rule - A stored rule, or one from `rules.planned`.
   */
  preview(rule: RuleRecord): Promise<Preview>;
  /** Requests an evaluation of the rules before the next timer. */
  requestEvaluation(): Promise<void>;
  /** Handles the queue message of a delivery. */
  deliver(deliveryId: string): Promise<void>;
  /** Handles the poison queue message of a delivery. */
  reviveDelivery(deliveryId: string): Promise<void>;
  /**
   * Sends an example through a rule's channel and returns the result. One attempt, recorded in the history as a test.
   *
   * @throws {Problem} notFound
   */
  test(ruleId: string, caller: Caller): Promise<DeliveryRecord>;
  /** Removes obsolete rows. Called once a day. @throws {CloudFailure} if a deleted rule's secret can't be removed. */
  cleanUp(caller: Caller): Promise<void>;
}

/** Time after which a message is sent without the service's identity. */
const MAX_IDENTITY_WAIT_MS = 5_000;

/** Creates the alerts module: rules, evaluation, delivery, history, snoozes and acknowledgments. */
export function createAlerts(deps: AlertsDependencies): Alerts {
  const { tables, queues, settings, audit, config, clock, randomness, log } = deps;
  // An error or an unreachable sign-in service must not stop a delivery: the message may be about this very problem.
  const identityForMessage = async (): Promise<Principal | undefined> =>
    await Promise.race([
      deps.identity?.().catch(() => undefined),
      pause(MAX_IDENTITY_WAIT_MS, undefined, { ref: false }),
    ]);
  const links = async (items: readonly Item[]): Promise<Links> => ({
    ...portalOf(config),
    publicBaseUrl: config.PUBLIC_BASE_URL,
    subscriptionName: (await readScope(tables)).nameOf,
    // Only messages about denied access name the service's identity. Reading the identity can take time.
    ...(items.some(isDeniedAccess) && { identity: await identityForMessage() }),
  });
  const owners = createOwners({ tables, audit, domains: config.ALERT_OWNER_DOMAINS, clock });
  const allowPrivate = config.ALLOW_PRIVATE_WEBHOOK_ADDRESSES;
  const rules = createRules({
    tables,
    settings,
    audit,
    vault: deps.vault,
    allowPrivateWebhooks: allowPrivate,
    clock,
    randomness,
    log,
  });
  const snoozes = createSnoozes({ tables, rules, audit, clock, randomness });
  const history = createHistory(tables);
  const notifications = createNotificationLog(tables);
  const trackedAlerts = createTrackedAlerts(tables);
  const acknowledgements = createAcknowledgements({ tables, rules, trackedAlerts, history, audit, clock });
  const deliveries = createDeliveryWorker({
    tables,
    queues,
    settings,
    rules,
    history,
    audit,
    mail: deps.mail,
    outgoing: deps.outgoing ?? createOutgoing(webhookTargets(allowPrivate)),
    trackedAlerts,
    owners,
    limits: { perMinute: config.MAIL_PER_MINUTE, perHour: config.MAIL_PER_HOUR },
    ownerMailsPerDay: config.OWNER_MAIL_PER_DAY,
    links,
    clock,
    randomness,
    log,
  });
  const evaluation = createEvaluation({
    tables,
    queues,
    settings,
    rules,
    snoozes,
    notifications,
    trackedAlerts,
    acknowledgements,
    history,
    licensed: deps.licensed,
    violations: deps.violations,
    credentials: deps.credentials ?? [],
    audit: deps.entries,
    automation: deps.automation ?? [],
    ownerTag: config.OWNER_TAG,
    clock,
    log,
  });

  const automation = deps.automation ?? [];
  const cleanUp = createCleanUp({ tables, rules, snoozes, acknowledgements, trackedAlerts, automation, clock, log });

  return {
    rules,
    snoozes,
    acknowledgements,
    history,
    assetNotifications: createAssetNotifications({ tables, rules, history }),
    held: createHeldDeliveries({ tables, queues, history, audit, clock }),
    owners,

    evaluate: evaluation.run,

    preview: createPreview({ tables, evaluation, snoozes, ownerTag: config.OWNER_TAG, clock }),

    requestEvaluation: () => queues.send(EVALUATION_QUEUE, {}),

    deliver: deliveries.handle,

    reviveDelivery: deliveries.revive,

    async test(ruleId, caller) {
      const rule = await rules.get(ruleId);
      const now = clock.now();
      const deliveryId = randomness.ulid(now);
      const fields = { deliveryId, createdAt: now.toISOString(), items: [exampleOf(rule, now)] };
      await history.record(newDelivery(rule, { ...fields, test: true, requestedBy: caller.actor }));
      const deadline = performance.now() + TEST_WAIT_MS;
      for (;;) {
        // Seconds until the next step, such as the next request for the status of a mail. Undefined: the test is complete.
        const seconds = await deliveries.work(deliveryId);
        if (seconds === undefined) break;
        if (seconds > TEST_STEP_SECONDS || performance.now() + seconds * 1000 > deadline) {
          await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: Math.min(seconds, HOUR_SECONDS) });
          break;
        }
        await pause(seconds * 1000);
      }
      const row = await history.get(deliveryId);
      if (!row) throw notFound(`The delivery ${deliveryId}`);
      return withoutKeys(row);
    },

    async cleanUp(caller) {
      await deliveries.cleanUp();
      await cleanUp(caller);
    },
  };
}

/**
 * Returns the example item of a test. Its resources don't exist. Examples about expiry reached their last threshold an hour
 * ago.
 */
function exampleOf(rule: RuleRecord, now: Date): Item {
  const vault = {
    vaultName: "kv-example",
    subscriptionId: "00000000-0000-0000-0000-000000000000",
    vaultId:
      "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/example/providers/Microsoft.KeyVault/vaults/kv-example",
  };
  switch (rule.alertType) {
    case "expiration":
    case "expired": {
      const threshold = rule.thresholds.at(-1) ?? 0;
      const expiresOn = Math.floor((now.getTime() + threshold * DAY_MS) / 1000) - 3600;
      const asset = { id: "kv-example.secret.example-password", type: "secret", name: "example-password" } as const;
      return { kind: "asset", ...asset, ...vault, owner: "example-team", expiresOn, threshold };
    }
    case "lateRenewal": {
      const windowEnd = Math.floor(now.getTime() / 1000) - 3600;
      const asset = { id: "kv-example.certificate.example", type: "certificate", name: "example" } as const;
      const late = { renewedBy: "keyVaultPolicy", windowEnd } as const;
      const expiresOn = windowEnd + 10 * DAY_SECONDS;
      return { kind: "asset", ...asset, ...vault, owner: "example-team", expiresOn, threshold: 0, late };
    }
    case "credentialExpiry": {
      const threshold = rule.thresholds.at(-1) ?? 0;
      const expiresOn = Math.floor((now.getTime() + threshold * DAY_MS) / 1000) - 3600;
      const noId = "00000000-0000-0000-0000-000000000000";
      const credential = {
        tenantId: noId,
        appId: noId,
        applicationName: "Example",
        keyId: noId,
        displayName: "example",
      };
      const asset = { id: `entra.${noId}.${noId}.${noId}`, type: "secret", name: `${noId}-${noId}` } as const;
      return { kind: "asset", ...asset, ...vault, owner: "example-owner", expiresOn, threshold, credential };
    }
    case "serviceCredentialExpiry": {
      const threshold = SERVICE_CREDENTIAL_DAYS.at(-1)!;
      const expiresOn = Math.floor((now.getTime() + threshold * DAY_MS) / 1000) - 3600;
      return {
        kind: "credential",
        id: "example",
        what: "API token",
        name: "example",
        owner: "example-user",
        expiresOn,
        threshold,
      };
    }
    case "breakGlass":
      return {
        kind: "breakGlass",
        id: "00000000000000000000000000",
        username: "example-administrator",
        address: "192.0.2.1",
        at: now.toISOString(),
      };
    case "rotationDue":
    case "rotationDone":
    case "rotationFailed":
    case "syncFailed":
    case "referenceUnresolved":
    case "unexpectedReader":
    case "rowUnreadable":
    case "staleEndpoint":
    case "auditStreamFailing":
      return automationExample(rule.alertType, now);
    case "complianceViolation":
      return {
        kind: "violation",
        id: "example",
        checkId: "example-check",
        title: "Example violation",
        severity: "medium",
        resourceId: "kv-example",
        resourceType: "vault",
        ...vault,
        owner: "example-team",
        firstSeenAt: now.toISOString(),
      };
    case "scanFailure":
      return {
        kind: "scanFailure",
        id: "vault:kv-example",
        scanId: "00000000000000000000000000",
        subscriptionId: vault.subscriptionId,
        vaultName: vault.vaultName,
        list: "secrets",
        code: "firewall",
        message: "Example: the vault's network rules deny the service's address.",
        remedy: "No action is needed.",
        at: now.toISOString(),
      };
  }
}
