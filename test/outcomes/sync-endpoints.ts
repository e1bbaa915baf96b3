import { DAY_MS } from "../../shared/platform/time.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

const SYNC_RECORDS = "/api/automation/sync/records";
const SYNC_PROVIDER = "/api/automation/sync/providers/aws";

/**
 * Returns the entries for sync records and sync providers. outcomes.test.ts sends their requests during faults of storage, and once
 * more if the outcome is unknown (`allowedOnRepeat`). `state` reads whether the change happened.
 */
export function syncEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, token, nextNumber, stateIfRemoved } = context;
  /** A sync record that is not enabled, so that no sync runs in the background. */
  const newRecord = () => ({
    sourceVault: "kv-one",
    sourceSecret: "db",
    targetProvider: "azure",
    targetService: "keyvault",
    targetRegion: "kv-one",
    targetName: `copy-${nextNumber()}`,
    enabled: false,
  });
  async function createSyncRecord(): Promise<string> {
    const { recordId } = await call("POST", SYNC_RECORDS, newRecord());
    return `${SYNC_RECORDS}/${recordId}`;
  }
  const providerConfiguration = () => ({
    ...service.cloud.control.providers.configurations().aws,
    expiresOn: new Date(Date.now() + nextNumber() * DAY_MS).toISOString(),
  });
  const removeProvider = () => service.call("DELETE", SYNC_PROVIDER, { token: token() });
  return [
    {
      endpoint: "POST /api/automation/sync/records",
      async prepare() {
        const body = newRecord();
        return {
          method: "POST",
          path: SYNC_RECORDS,
          options: { body },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: async () => {
            const { items } = await call("GET", `${SYNC_RECORDS}?limit=1000`);
            return items.some(({ targetName }: typeof body) => targetName === body.targetName) ? "done" : "undone";
          },
          event: "syncRecord.created",
        };
      },
    },
    {
      endpoint: "PUT /api/automation/sync/records/{record_id}",
      async prepare() {
        const path = await createSyncRecord();
        // Never the default of 24 hours, and at most the 720 that are allowed.
        const scheduleHours = 25 + (nextNumber() % 600);
        return {
          method: "PUT",
          path,
          options: { body: { scheduleHours } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", path)).scheduleHours === scheduleHours ? "done" : "undone"),
          event: "syncRecord.changed",
        };
      },
    },
    {
      endpoint: "DELETE /api/automation/sync/records/{record_id}",
      async prepare() {
        const path = await createSyncRecord();
        return {
          method: "DELETE",
          path,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(path),
          event: "syncRecord.deleted",
        };
      },
    },
    ...[false, true].map(
      // Without and with an existing configuration.
      (isConfigured): ChangingEndpoint => ({
        endpoint: "POST /api/automation/sync/providers/{provider}",
        async prepare() {
          await (isConfigured ? call("POST", SYNC_PROVIDER, providerConfiguration()) : removeProvider());
          const body = providerConfiguration();
          return {
            method: "POST",
            path: SYNC_PROVIDER,
            options: { body },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => ((await call("GET", SYNC_PROVIDER)).expiresOn === body.expiresOn ? "done" : "undone"),
            event: "syncProvider.configured",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/automation/sync/providers/{provider}",
      async prepare() {
        await call("POST", SYNC_PROVIDER, providerConfiguration());
        return {
          method: "DELETE",
          path: SYNC_PROVIDER,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await call("GET", SYNC_PROVIDER)).configured ? "undone" : "done"),
          event: "syncProvider.removed",
        };
      },
    },
  ];
}
