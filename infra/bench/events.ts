import { setTimeout as delay } from "node:timers/promises";
import { QueueClient } from "@azure/storage-queue";
import { Service } from "../../test/support/service.ts";
import { atMost, type Section } from "./section.ts";

const EVENTS = 10_000;
/** Maximum number of waiting messages. The local storage takes longer for each message when its queue is long. */
const WAITING = 400;
/** Number of events for each new version. Event Grid can deliver an event more than once. */
const COPIES = 100;
const SECOND = 1000;
const POLL_MS = 100;
/** Minimum time between two re-scans of a vault. A burst of less than a minute causes at most three. */
const SPACING_MS = 30 * SECOND;

const inSeconds = (milliseconds: number): string => `${Math.round(milliseconds / SECOND)} s`;

/** Measures a burst of events for one vault, and the time until the last change is in the inventory. */
export async function events(): Promise<Section> {
  const service = await Service.start({
    tableProxy: true,
    company: { subscriptions: [{ name: "Only", vaults: [{ name: "kv-burst" }, { name: "kv-other" }] }] },
    // As in production: the watch runs each minute.
    schedules: true,
  });
  const { control } = service.cloud;
  try {
    await service.scan({ mode: "full" });
    const connectionString = service.azurite.connectionString();
    await control.deliverEvents({ connectionString, queue: "vault-events", copies: COPIES });
    const queue = new QueueClient(connectionString, "vault-events");
    control.resetCounts();
    service.forgetTables();
    const asked = () => control.counts()["keyvault.listCertificates"] ?? 0;

    const waiting = async () => (await queue.getProperties()).approximateMessagesCount ?? 0;
    const beganAt = Date.now();
    for (let at = 0; at < EVENTS / COPIES; at++) {
      while ((await waiting()) > WAITING) await delay(POLL_MS);
      control.putSecret("kv-burst", { name: `secret-${at}`, expiresInDays: 10 });
      await control.eventCounts();
    }
    const last = `/api/assets/discovery/assets/kv-burst.secret.secret-${EVENTS / COPIES - 1}`;
    const sentAt = Date.now();
    while ((await waiting()) !== 0) await delay(POLL_MS);
    const receivedAt = Date.now();
    const drained = service.tableRequests().length;
    while ((await service.admin("GET", last)).status !== 200) await delay(SECOND);
    const seconds = (Date.now() - receivedAt) / SECOND;
    const looks = asked();
    const { delivered } = await control.eventCounts();
    return {
      title: "A burst of events",
      how: `${EVENTS} events of Event Grid for one vault (${COPIES} copies for each of ${EVENTS / COPIES} new secrets) through the storage queue, up to ${WAITING} waiting, with one host. Table requests are counted until the queue is empty. A look is one re-scan of the vault. There is at most one in 30 seconds, so the number depends on the length of the burst. The time to the inventory starts when the worker has processed the last event.`,
      figures: [
        {
          what: "events delivered",
          value: String(delivered),
          comparedWith: `in one burst of ${inSeconds(receivedAt - beganAt)} for one vault`,
        },
        {
          what: "looks",
          value: String(looks),
          comparedWith: "until the last secret was in the inventory",
          bound: atMost(looks, 2 + Math.floor((receivedAt - beganAt) / SPACING_MS)),
        },
        {
          what: "table requests an event",
          value: (drained / delivered).toFixed(3),
          comparedWith: `${drained} in all`,
          bound: atMost(drained / delivered, 2),
        },
        {
          what: "from the last event to the inventory",
          value: `${Math.round(seconds)} s`,
          comparedWith: `after ${inSeconds(receivedAt - sentAt)} in the queue, without a scan`,
          bound: atMost(seconds, 60, " s"),
        },
      ],
    };
  } finally {
    await service.stop();
  }
}
