import { setTimeout as pause } from "node:timers/promises";
import type { Audit } from "../audit/audit.ts";
import type { MailSender } from "../azure/mail.ts";
import type { ServiceKeyVault } from "../azure/service-key-vault.ts";
import type { Config } from "../config/config.ts";
import type { Caller } from "../http/endpoint.ts";
import { notFound } from "../http/problem.ts";
import { DAY } from "../inventory/health.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import type { Queues } from "../storage/queues.ts";
import type { Tables } from "../storage/tables.ts";
import { createCleanUp } from "./clean-up.ts";
import { createDeliveries } from "./deliver.ts";
import { DELIVERY_QUEUE, type DeliveryRecord, EVALUATION_QUEUE } from "./delivery.ts";
import { createEvaluation, newDelivery } from "./evaluate.ts";
import type { ViolationSource } from "./happenings.ts";
import { createHistory } from "./history.ts";
import type { News } from "./news.ts";
import { createOutgoing, type Outgoing } from "./outgoing.ts";
import { recordOf } from "./record.ts";
import type { RuleRecord } from "./rule.ts";
import { createRules } from "./rules.ts";
import { createSnoozes } from "./snoozes.ts";
import { createTold } from "./told.ts";

export type { NewViolation, ViolationSource } from "./happenings.ts";

/** Milliseconds a test waits for what the mail provider reports; after that the history says it. */
const TEST_WAIT_MS = 12_000;
/** Seconds of one wait within that. */
const TEST_STEP_SECONDS = 6;

/** https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure and the Azure China guide. */
const PORTALS: Record<Config["AZURE_CLOUD"], string> = {
  AzureCloud: "https://portal.azure.com",
  AzureChinaCloud: "https://portal.azure.cn",
  AzureUSGovernment: "https://portal.azure.us",
};

export interface AlertsDependencies {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  audit: Pick<Audit, "append">;
  config: Pick<
    Config,
    "ALLOW_PRIVATE_WEBHOOK_ADDRESSES" | "PUBLIC_BASE_URL" | "OWNER_TAG" | "AZURE_CLOUD" | "AZURE_TENANT_ID"
  >;
  /** Undefined while no mail can be sent: deliveries then wait and say so. */
  mail: MailSender | undefined;
  /** Undefined while the service has no key vault of its own: rules that post are then refused. */
  vault: ServiceKeyVault | undefined;
  /** Undefined: rules about violations have nothing to tell. */
  violations?: ViolationSource | undefined;
  outgoing?: Outgoing;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Rules, what they find to tell, and how it is told. */
export function createAlerts(deps: AlertsDependencies) {
  const { tables, queues, settings, audit, config, clock, randomness, log } = deps;
  const links = {
    portal: PORTALS[config.AZURE_CLOUD],
    tenantId: config.AZURE_TENANT_ID,
    publicBaseUrl: config.PUBLIC_BASE_URL,
  };
  const allowPrivate = config.ALLOW_PRIVATE_WEBHOOK_ADDRESSES;
  const rules = createRules({
    ...{ tables, settings, audit, clock, randomness, log },
    ...{ vault: deps.vault, allowPrivateWebhooks: allowPrivate },
  });
  const snoozes = createSnoozes({ tables, rules, audit, clock });
  const history = createHistory(tables);
  const told = createTold(tables);
  const deliveries = createDeliveries({
    ...{ tables, queues, settings, rules, history, audit, links, clock, randomness, log },
    ...{ mail: deps.mail, outgoing: deps.outgoing ?? createOutgoing({ allowPrivate }) },
  });
  const evaluate = createEvaluation({
    ...{ tables, queues, settings, rules, snoozes, told, history, clock, log },
    ...{ violations: deps.violations, ownerTag: config.OWNER_TAG },
  });

  return {
    rules,
    snoozes,
    history,

    /** Finds and commits to what there is to tell; for the timer, and soon after a scan. */
    evaluate,

    /** Has the rules evaluated soon. */
    requestEvaluation: () => queues.send(EVALUATION_QUEUE, {}),

    /** Works on one recorded delivery; for its queue. */
    deliver: deliveries.handle,

    /** A delivery whose message failed too often; for the poison queue. */
    reviveDelivery: deliveries.revive,

    /** Really delivers an example by a rule and answers what came of it. One attempt; it is in the history as a test. */
    async test(ruleId: string, caller: Caller): Promise<DeliveryRecord> {
      const rule = await rules.get(ruleId);
      const now = clock.now();
      const deliveryId = randomness.ulid(now);
      const made = { deliveryId, createdAt: now.toISOString(), news: [exampleOf(rule, now)] };
      await history.record(newDelivery(rule, { ...made, test: true, requestedBy: caller.actor }));
      const deadline = performance.now() + TEST_WAIT_MS;
      for (;;) {
        const seconds = await deliveries.work(deliveryId);
        if (seconds === undefined) break;
        if (seconds > TEST_STEP_SECONDS || performance.now() + seconds * 1000 > deadline) {
          await queues.send(DELIVERY_QUEUE, { deliveryId }, { delaySeconds: seconds });
          break;
        }
        await pause(seconds * 1000);
      }
      const row = await history.get(deliveryId);
      if (!row) throw notFound(`The delivery ${deliveryId}`);
      return recordOf(row);
    },

    /** Forgets what no longer means anything; once a day. */
    cleanUp: createCleanUp({ tables, rules, snoozes, clock, log }),
  };
}

export type Alerts = ReturnType<typeof createAlerts>;

/** What a test tells of: nothing that exists. */
function exampleOf(rule: RuleRecord, now: Date): News {
  const vault = {
    ...{ vaultName: "kv-example", subscriptionId: "00000000-0000-0000-0000-000000000000" },
    vaultId:
      "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/example/providers/Microsoft.KeyVault/vaults/kv-example",
  };
  switch (rule.alertType) {
    case "expiration":
    case "expired": {
      const threshold = rule.thresholds.at(-1) ?? 0;
      const expiresOn = Math.floor((now.getTime() + threshold * DAY) / 1000) - 3600;
      const asset = { id: "kv-example.secret.example-password", type: "secret", name: "example-password" } as const;
      return { kind: "asset", ...asset, ...vault, owner: "example-team", expiresOn, threshold };
    }
    case "complianceViolation":
      return {
        ...{ kind: "violation", id: "example", checkId: "example-check", title: "An example of a violation" },
        ...{ severity: "medium", resourceId: "kv-example", resourceType: "vault", ...vault },
        ...{ owner: "example-team", firstSeenAt: now.toISOString() },
      };
    case "scanFailure":
      return {
        ...{ kind: "scan", id: "00000000000000000000000000", mode: "full", status: "partial" },
        ...{ finishedAt: now.toISOString(), vaultsTotal: 10, vaultsFailed: 1 },
        message: "An example: one vault's network rules refuse the service's address.",
      };
  }
}
