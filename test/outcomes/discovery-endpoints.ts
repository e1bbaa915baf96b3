import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { createDiscovery } from "../../shared/discovery/discovery.ts";
import { SCAN_ROW, Scans, scanPartition } from "../../shared/discovery/scan.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

/**
 * Returns the entries for subscriptions. outcomes.test.ts sends their requests during faults of storage, and once more if the
 * outcome is unknown (`allowedOnRepeat`). `state` reads whether the change happened. `begun`: a repeated request completes it.
 */
export function subscriptionEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, token, stateIfExists } = context;
  async function addSubscription() {
    const subscriptionId = randomUUID();
    await call("POST", "/subscriptions", { subscriptionId, name: "one" });
    return subscriptionId;
  }
  return [
    {
      endpoint: "POST /subscriptions",
      async prepare() {
        const subscriptionId = randomUUID();
        return {
          method: "POST",
          path: "/subscriptions",
          options: { body: { subscriptionId, name: "one" } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateIfExists(`/subscriptions/${subscriptionId}`),
          event: "subscription.added",
        };
      },
    },
    {
      endpoint: "DELETE /subscriptions/{subscription_id}",
      async prepare() {
        const path = `/subscriptions/${await addSubscription()}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
          async state() {
            const { status, body } = await service.call("GET", path, { token: token() });
            return status === 404 ? "done" : body.state === "removing" ? "begun" : "undone";
          },
          event: "subscription.removed",
        };
      },
    },
  ];
}

/** Returns the entries for endpoints that serve the certificate `www`. */
export function certificateEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, token, nextNumber } = context;
  const path = "/api/assets/dependencies/endpoints";
  const assetId = "kv-one.certificate.www";
  const read = async (): Promise<{ host: string }[]> => (await call("GET", `${path}?assetId=${assetId}`)).items;
  const addressOf = (host: string) => `${path}?assetId=${assetId}&host=${host}`;
  /** Removes the endpoints of earlier requests, because a certificate can have five. Returns a host that was not used before. */
  async function newHost(): Promise<string> {
    for (const { host } of await read()) await service.call("DELETE", addressOf(host), { token: token() });
    return `www${nextNumber()}.localhost`;
  }
  const exists = async (host: string) => (await read()).some((endpoint) => endpoint.host === host);
  return [
    {
      endpoint: `POST ${path}`,
      async prepare() {
        const host = await newHost();
        return {
          method: "POST",
          path,
          options: { body: { assetId, host } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: async () => ((await exists(host)) ? "done" : "undone"),
          event: "certificateEndpoint.added",
        };
      },
    },
    {
      endpoint: `DELETE ${path}`,
      async prepare() {
        const host = await newHost();
        await call("POST", path, { assetId, host });
        return {
          method: "DELETE",
          path: addressOf(host),
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await exists(host)) ? "undone" : "done"),
          event: "certificateEndpoint.removed",
        };
      },
    },
  ];
}

/** Returns the entries for starting and cancelling scans. */
export function scanEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { services, call } = context;
  /** Creates a scan that stays queued, because its message is not sent. */
  async function createQueuedScan(): Promise<string> {
    const { tables, audit, clock, randomness } = services();
    const silentLog = { debug() {}, info() {}, warn() {}, error() {} };
    const discovery = createDiscovery({
      tables,
      audit,
      clock,
      randomness,
      log: silentLog,
      queues: { send: async () => {}, checkReachable: async () => {} },
      active: { add: async () => {} } as never,
      requireWatched: async () => {},
    });
    return (await discovery.start({ mode: "force" }, { actor: "admin", requestId: randomUUID() })).scanId;
  }
  /**
   * Waits up to two seconds until no scan is active. A scan whose message was lost continues only minutes later, so it is not
   * awaited.
   */
  async function waitForScans(): Promise<void> {
    for (let tries = 0; tries < 10; tries++) {
      const { items } = await call("GET", "/api/assets/discovery/scans?limit=3");
      if (!items.some(({ status }: { status: string }) => status === "queued" || status === "running")) return;
      await delay(200);
    }
  }
  return [
    {
      endpoint: "DELETE /api/assets/discovery/scan/{scan_id}",
      // For each tested write, the test prepares a scan and waits for it up to two seconds, so fewer writes are tested.
      maxWrites: 8,
      async prepare() {
        const scanId = await createQueuedScan();
        const path = `/api/assets/discovery/scan/${scanId}`;
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 409],
          async state() {
            const scan = await services().tables.get(Scans, scanPartition(scanId), SCAN_ROW);
            return scan?.cancelledBy === undefined ? "undone" : "done";
          },
          event: "scan.cancelled",
          waitForBackgroundWork: waitForScans,
        };
      },
    },
    {
      endpoint: "POST /api/assets/discovery/scan",
      async prepare() {
        const scans = async () => (await call("GET", "/api/assets/discovery/scans?limit=1")).total as number;
        const totalBefore = await scans();
        return {
          method: "POST",
          path: "/api/assets/discovery/scan",
          options: { body: { mode: "force" } },
          status: 201,
          allowedOnRepeat: [201],
          state: async () => ((await scans()) > totalBefore ? "done" : "undone"),
          event: "scan.started",
          waitForBackgroundWork: waitForScans,
          // The outcome of a scan has an event type of its own, scan.finished.
          outcomes: ["intent"],
        };
      },
    },
  ];
}
