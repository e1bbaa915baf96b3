import { setTimeout as delay } from "node:timers/promises";
import { QueueClient } from "@azure/storage-queue";
import { Service } from "../../test/support/service.ts";
import { atMost, type Section } from "./section.ts";

const EVENTS = 10_000;
/** The benchmark pauses while this many messages wait, because the local storage is slow when a queue is long. */
const MAX_WAITING = 400;
/**
 * Number of deliveries of each event, so the benchmark creates `EVENTS / COPIES` secrets. Event Grid can deliver one
 * repeatedly.
 */
const COPIES = 100;
const SECOND_MS = 1000;
const POLL_MS = 100;
/** Minimum time between two re-scans of a vault. A burst of less than a minute causes at most three. */
const RESCAN_SPACING_MS = 30 * SECOND_MS;

const formatSeconds = (milliseconds: number): string => `${Math.round(milliseconds / SECOND_MS)} s`;

/**
 * Benchmark `events`: sends a burst of Event Grid events for one vault. Counts the re-scans of the vault and the table requests
 * per event, and measures the time until the last new secret is in the inventory.
 */
export async function events(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: { subscriptions: [{ name: "Only", vaults: [{ name: "kv-burst" }, { name: "kv-other" }] }] },
    // Runs timers as in production: the one that starts due re-scans runs each minute.
    schedules: true,
  });
  const { control } = service.cloud;
  try {
    await service.scan({ mode: "full" });
    const connectionString = service.azurite.connectionString();
    await control.deliverEvents({ connectionString, queue: "vault-events", copies: COPIES });
    const queue = new QueueClient(connectionString, "vault-events");
    control.resetCounts();
    service.clearTableRequests();
    // Each re-scan of a vault lists its certificates once.
    const countRescans = () => control.counts()["keyvault.listCertificates"] ?? 0;

    const countWaiting = async () => (await queue.getProperties()).approximateMessagesCount ?? 0;
    const startedAt = Date.now();
    for (let index = 0; index < EVENTS / COPIES; index++) {
      while ((await countWaiting()) > MAX_WAITING) await delay(POLL_MS);
      control.putSecret("kv-burst", { name: `secret-${index}`, expiresInDays: 10 });
      // Waits until the events of the new secret are in the queue.
      await control.eventCounts();
    }
    const lastSecretPath = `/api/assets/discovery/assets/kv-burst.secret.secret-${EVENTS / COPIES - 1}`;
    const sentAt = Date.now();
    while ((await countWaiting()) !== 0) await delay(POLL_MS);
    const queueEmptyAt = Date.now();
    const tableRequests = service.tableRequests().length;
    while ((await service.admin("GET", lastSecretPath)).status !== 200) await delay(SECOND_MS);
    const secondsToInventory = (Date.now() - queueEmptyAt) / SECOND_MS;
    const rescans = countRescans();
    const { delivered } = await control.eventCounts();
    return {
      title: "A burst of events",
      how: `${EVENTS} events of Event Grid for one vault (${COPIES} copies for each of ${EVENTS / COPIES} new secrets) through the storage queue, up to ${MAX_WAITING} waiting, with one host. Table requests are counted until the queue is empty. The vault is re-scanned at most once in 30 seconds, so the number depends on the length of the burst. The time to the inventory starts when the worker has processed the last event.`,
      figures: [
        {
          what: "events delivered",
          value: String(delivered),
          comparedWith: `in one burst of ${formatSeconds(queueEmptyAt - startedAt)} for one vault`,
        },
        {
          what: "re-scans of the vault",
          value: String(rescans),
          comparedWith: "until the last secret was in the inventory",
          bound: atMost(rescans, 2 + Math.floor((queueEmptyAt - startedAt) / RESCAN_SPACING_MS)),
        },
        {
          what: "table requests an event",
          value: (tableRequests / delivered).toFixed(3),
          comparedWith: `${tableRequests} in all`,
          bound: atMost(tableRequests / delivered, 2),
        },
        {
          what: "from the last event to the inventory",
          value: `${Math.round(secondsToInventory)} s`,
          comparedWith: `after ${formatSeconds(queueEmptyAt - sentAt)} in the queue, without a scan`,
          // A timer starts due re-scans, and it runs once a minute.
          bound: atMost(secondsToInventory, 60, " s"),
        },
      ],
    };
  } finally {
    await service.stop();
  }
}
