import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, type CallLimits, createSender } from "./calls.ts";
import { type CallTarget, failure, foreignHost } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";

/**
 * Sends records to Azure Monitor and to Event Hubs with the service's identity. Neither has an SDK client that fits:
 * `@azure/monitor-ingestion` compresses the body in a policy, which `clientOptions` would undo, and `@azure/event-hubs` needs AMQP.
 */
export interface AzureEvents {
  /**
   * Adds records to a table by the Logs Ingestion API: https://learn.microsoft.com/azure/azure-monitor/logs/logs-ingestion-api-overview
   *
   * @param records - At most 1 MB as JSON.
   * @throws {CloudFailure} foreignHost if the endpoint is not one of the cloud.
   */
  ingest(rule: DataCollectionRule, records: readonly object[], signal?: AbortSignal): Promise<void>;
  /**
   * Sends events to an event hub. Events with one partition key stay in order.
   * https://learn.microsoft.com/rest/api/eventhub/send-batch-events
   *
   * @param bodies - At most 1 MB as JSON.
   * @throws {CloudFailure} foreignHost if the namespace is not one of the cloud.
   */
  send(hub: EventHub, partitionKey: string, bodies: readonly string[], signal?: AbortSignal): Promise<void>;
}

export interface DataCollectionRule {
  /** Address of the data collection endpoint. */
  endpoint: string;
  /** Immutable ID, `dcr-…`. */
  ruleId: string;
  /** Stream of the rule, `Custom-…`. */
  streamName: string;
}

export interface EventHub {
  /** Address of the namespace. */
  endpoint: string;
  eventHub: string;
}

const INGESTION_VERSION = "2023-01-01";
const EVENT_HUBS_VERSION = "2014-01";
/** The audience is the same in all clouds: https://learn.microsoft.com/azure/event-hubs/authenticate-application */
const EVENT_HUBS_SCOPE = "https://eventhubs.azure.net/.default";
const BATCH_TYPE = "application/vnd.microsoft.servicebus.json";

/** A failed call is repeated once. The caller repeats it later and must not wait for long. */
const SEND_LIMITS: CallLimits = { ...CALL_LIMITS, throttledTries: 2, unreachableTries: 2, totalWaitMs: 10_000 };

/** Returns the origin of an address if it is https, has no path, and is in one of the domains. Undefined otherwise. */
export function originInDomains(address: string, domains: readonly string[]): string | undefined {
  if (!URL.canParse(address)) return undefined;
  const { protocol, hostname, origin, pathname, search, hash, username, password } = new URL(address);
  const isBare = pathname === "/" && search === "" && hash === "" && username === "" && password === "";
  const isInDomain = domains.some((domain) => hostname.endsWith(`.${domain}`));
  return protocol === "https:" && isBare && isInDomain ? origin : undefined;
}

export function createAzureEvents(services: CloudServices): AzureEvents {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const { resourceDomains, logsIngestionAudience } = config.cloud;
  const common = { identity, log, randomness, limits: { ...SEND_LIMITS, ...limits } };

  return {
    async ingest({ endpoint, ruleId, streamName }, records, signal) {
      const target: CallTarget = {
        operation: "send the records",
        resource: `data collection rule ${ruleId}`,
        grant: "the role Monitoring Metrics Publisher on the data collection rule",
      };
      const origin = originInDomains(endpoint, resourceDomains.logsIngestion);
      if (origin === undefined) throw foreignHost(target, endpoint);
      const path = `/dataCollectionRules/${encodeURIComponent(ruleId)}/streams/${encodeURIComponent(streamName)}`;
      const send = await createSender({
        ...common,
        origin,
        scope: `${logsIngestionAudience}/.default`,
        resource: target.resource,
        route: (requested) => (requested === path ? { target, answer: "nothing" } : undefined),
        signal,
      });
      await send({ method: "POST", url: `${origin}${path}?api-version=${INGESTION_VERSION}`, body: records });
    },

    async send({ endpoint, eventHub }, partitionKey, bodies, signal) {
      const target: CallTarget = {
        operation: "send the events",
        resource: `event hub ${eventHub}`,
        grant: "the role Azure Event Hubs Data Sender on the event hub",
      };
      const origin = originInDomains(endpoint, resourceDomains.messaging);
      if (origin === undefined) throw foreignHost(target, endpoint);
      const path = `/${encodeURIComponent(eventHub)}/messages`;
      const send = await createSender({
        ...common,
        origin,
        scope: EVENT_HUBS_SCOPE,
        resource: target.resource,
        route: (requested) => (requested === path ? { target, answer: "accepted" } : undefined),
        // Event Hubs answers 401 to an identity without the role.
        failureOf: ({ status }) =>
          status === 401
            ? failure("accessDenied", target, "the service's identity does not have the required permission", {
                remedy: `Give the service's identity ${target.grant}.`,
              })
            : undefined,
        signal,
      });
      const properties = { PartitionKey: partitionKey };
      await send({
        method: "POST",
        url: `${origin}${path}?api-version=${EVENT_HUBS_VERSION}`,
        headers: { "content-type": BATCH_TYPE, BrokerProperties: JSON.stringify(properties) },
        body: bodies.map((body) => ({ Body: body, BrokerProperties: properties })),
      });
    },
  };
}
