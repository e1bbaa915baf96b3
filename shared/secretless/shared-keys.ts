import pMap from "p-map";
import * as z from "zod";
import { az } from "../platform/azure/cli.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { type ResourceGraph, SUBSCRIPTIONS_IN_QUERY, toQueryLiteral } from "../platform/azure/resource-graph.ts";
import type { StorageMetrics } from "../platform/azure/storage-metrics.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import type { Clock } from "../platform/runtime.ts";
import { KEY_BLIND_SPOT_TEXTS, KEY_BLIND_SPOTS } from "../rotation/resource-keys/credential-usage.ts";
import type { Credentials } from "../rotation/resource-keys/credentials.ts";

/** Reports which resources with two keys could turn these keys off, because nothing used one. Changes nothing. */

/** `possible`: the evidence shows no use. `used`: it shows one. `off`: the keys are off already. `unknown`: no evidence. */
export const SHARED_KEY_VERDICTS = ["possible", "used", "off", "unknown"] as const;

export interface SharedKeys {
  resourceId: string;
  name: string;
  /** Title of the kind, such as `storage account`. */
  kind: string;
  /** Setting that turns the keys off. */
  setting: string;
  verdict: (typeof SHARED_KEY_VERDICTS)[number];
  evidence: string;
  lastUsedAt: string | undefined;
  blindSpots: { code: string; message: string }[];
  command: string | undefined;
}

/** How a kind of resource turns its keys off. */
interface Switch {
  title: string;
  /** In lower case, as Azure Resource Graph lists it. */
  type: string;
  /** Member of `properties`, and whether a value means that the keys are off. */
  member: string;
  isOff: (value: unknown) => boolean;
  /** Value of the member in the command. */
  off: string;
  documentation: string;
}

const LEARN = "https://learn.microsoft.com/azure/";
const localAuth = (title: string, type: string, page: string): Switch => ({
  title,
  type,
  member: "disableLocalAuth",
  isOff: (value) => value === true,
  off: "true",
  documentation: `${LEARN}${page}`,
});

const STORAGE = "microsoft.storage/storageaccounts";

/** The kinds whose keys can be turned off. The keys of Managed Redis are a setting of its database, which is not listed. */
export const SWITCHES: readonly Switch[] = [
  {
    title: "storage account",
    type: STORAGE,
    member: "allowSharedKeyAccess",
    isOff: (value) => value === false,
    off: "false",
    documentation: `${LEARN}storage/common/shared-key-authorization-prevent`,
  },
  localAuth(
    "Cosmos DB account",
    "microsoft.documentdb/databaseaccounts",
    "cosmos-db/how-to-connect-role-based-access-control",
  ),
  localAuth(
    "Service Bus namespace",
    "microsoft.servicebus/namespaces",
    "service-bus-messaging/disable-local-authentication",
  ),
  localAuth("Event Hubs namespace", "microsoft.eventhub/namespaces", "event-hubs/authenticate-shared-access-signature"),
  {
    ...localAuth(
      "Azure Cache for Redis",
      "microsoft.cache/redis",
      "azure-cache-for-redis/cache-azure-active-directory-for-authentication",
    ),
    member: "disableAccessKeyAuthentication",
  },
  localAuth("AI services account", "microsoft.cognitiveservices/accounts", "ai-services/disable-local-auth"),
  localAuth("AI Search service", "microsoft.search/searchservices", "search/search-security-enable-roles"),
  localAuth("SignalR service", "microsoft.signalrservice/signalr", "azure-signalr/howto-disable-local-auth"),
  localAuth("Web PubSub service", "microsoft.signalrservice/webpubsub", "azure-web-pubsub/howto-disable-local-auth"),
  localAuth("Azure Maps account", "microsoft.maps/accounts", "azure-maps/azure-maps-authentication"),
  localAuth("Event Grid topic", "microsoft.eventgrid/topics", "event-grid/authenticate-with-microsoft-entra-id"),
  localAuth(
    "App Configuration store",
    "microsoft.appconfiguration/configurationstores",
    "azure-app-configuration/howto-disable-access-key-authentication",
  ),
  localAuth("IoT hub", "microsoft.devices/iothubs", "iot-hub/authenticate-authorize-azure-ad"),
  {
    title: "Batch account",
    type: "microsoft.batch/batchaccounts",
    member: "allowedAuthenticationModes",
    isOff: (value) => Array.isArray(value) && !value.includes("SharedKey"),
    off: '["AAD","TaskAuthenticationToken"]',
    documentation: `${LEARN}batch/security-best-practices`,
  },
  {
    title: "container registry",
    type: "microsoft.containerregistry/registries",
    member: "adminUserEnabled",
    isOff: (value) => value !== true,
    off: "false",
    documentation: `${LEARN}container-registry/container-registry-authentication`,
  },
];

const SWITCH_OF = new Map(SWITCHES.map((one) => [one.type, one]));

const ResourceRow = z.looseObject({
  id: z.string(),
  name: z.string(),
  type: z.string(),
  properties: z.record(z.string(), z.unknown()).nullish(),
});
type ResourceRow = z.infer<typeof ResourceRow>;

const READS_AT_ONCE = 4;

const METRIC_BLIND_SPOTS = [
  {
    code: "sasKinds",
    message:
      "The metric does not tell a shared access signature of a key from one of a user delegation, which works without keys.",
  },
  { code: "olderUse", message: "Use before the period is not in the metric. Some jobs run once a year." },
  { code: "rareClients", message: "Programs that can use only keys, such as SMB mounts with a key, stop working." },
];

/**
 * Lists resources by ID. One query of Azure Resource Graph for each 300 subscriptions, and one request for the metric of each storage
 * account of the page.
 *
 * @param days - Period without use, 1 to 90.
 * @throws {CloudFailure} if the resources can't be listed.
 */
export type ListSharedKeys = (filter: { days: number }, request: PageRequest) => Promise<Page<SharedKeys>>;

export function createSharedKeys(deps: {
  storageMetrics: StorageMetrics;
  resourceGraph: ResourceGraph;
  units: () => Promise<string[]>;
  credentials: Pick<Credentials, "list">;
  clock: Clock;
}): ListSharedKeys {
  const { storageMetrics, resourceGraph, units, credentials, clock } = deps;

  async function resources(): Promise<ResourceRow[]> {
    const subscriptions = await units();
    const types = SWITCHES.map(({ type }) => toQueryLiteral(type)).join(", ");
    const query = `resources\n| where type in~ (${types})\n| project id, name, type, properties`;
    const found: ResourceRow[] = [];
    for (let from = 0; from < subscriptions.length; from += SUBSCRIPTIONS_IN_QUERY)
      for await (const rows of resourceGraph.query(query, subscriptions.slice(from, from + SUBSCRIPTIONS_IN_QUERY)))
        found.push(...rows.flatMap((one) => ResourceRow.safeParse(one).data ?? []));
    return found;
  }

  async function assess({ id, name, type, properties }: ResourceRow, days: number): Promise<SharedKeys> {
    const { title, member, isOff, off } = SWITCH_OF.get(type.toLowerCase())!;
    const command = az("resource update", { ids: id, set: `properties.${member}=${off}` });
    const base = { resourceId: id, name, kind: title, setting: `properties.${member}`, lastUsedAt: undefined };
    if (isOff(properties?.[member]))
      return { ...base, verdict: "off", evidence: "The keys are turned off.", blindSpots: [], command: undefined };
    if (type.toLowerCase() === STORAGE) {
      const blindSpots = METRIC_BLIND_SPOTS;
      try {
        const lastUsedAt = await storageMetrics.lastKeyUse(id, clock.now(), days);
        return lastUsedAt === undefined
          ? {
              ...base,
              verdict: "possible",
              evidence: `The metric Transactions shows no request with a key or a shared access signature for ${days} days.`,
              blindSpots,
              command,
            }
          : {
              ...base,
              verdict: "used",
              lastUsedAt: new Date(lastUsedAt).toISOString(),
              evidence: `The metric Transactions shows requests with a key or a shared access signature, last on ${lastUsedAt.slice(0, 10)}.`,
              blindSpots,
              command: undefined,
            };
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        const evidence = `Unknown: ${error.message} ${error.remedy}`;
        return { ...base, verdict: "unknown", evidence, blindSpots, command: undefined };
      }
    }
    return { ...base, ...(await assessByReads(id, days, command)) };
  }

  /** Assesses a resource without a metric by the reads of the vault secrets that store its keys. */
  async function assessByReads(
    resourceId: string,
    days: number,
    command: string,
  ): Promise<Pick<SharedKeys, "verdict" | "evidence" | "lastUsedAt" | "blindSpots" | "command">> {
    const blindSpots = [
      { code: "noMetric", message: "No metric of this kind shows which requests used a key." },
      ...KEY_BLIND_SPOTS.map((code) => ({ code, message: KEY_BLIND_SPOT_TEXTS[code] })),
    ];
    const { items } = await credentials.list({ resourceId }, { limit: 20, offset: 0, cursor: undefined });
    const evidence = "Unknown: no vault secret is known that stores a key. Compare the vaults with the keys first.";
    if (items.length === 0)
      return { verdict: "unknown", evidence, lastUsedAt: undefined, blindSpots, command: undefined };
    const lastUsedAt = items
      .flatMap(({ usage }) => usage.lastReadAt ?? [])
      .sort()
      .at(-1);
    const texts = [...new Set(items.map(({ usage }) => usage.evidence))].join(" ");
    if (items.some(({ usage }) => usage.idleDays === undefined))
      return { verdict: "unknown", evidence: texts, lastUsedAt, blindSpots, command: undefined };
    const isIdle = items.every(({ usage }) => (usage.idleDays ?? 0) >= days);
    const verdict = isIdle ? "possible" : "used";
    return { verdict, evidence: texts, lastUsedAt, blindSpots, command: isIdle ? command : undefined };
  }

  return async ({ days }, request) => {
    const page = pageOfAll(await resources(), request, ({ id }) => id.toLowerCase());
    const items = await pMap(page.items, (one) => assess(one, days), { concurrency: READS_AT_ONCE });
    return { ...page, items };
  };
}
