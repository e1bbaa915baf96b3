import type { GraphApplication } from "../platform/azure/graph.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { SyncRecordRow } from "../sync/record.ts";
import { createClients, type DoctorDeps } from "./clients.ts";
import { CHECK_TIMEOUT_MS, createReports } from "./report.ts";
import { createSample, firstPage, SAMPLE } from "./sample.ts";

/**
 * Everything that the check of a call (`OutgoingCall.check`) uses: the sampled resources, each read once, the clients, and the
 * functions that report results.
 */
export type CheckContext = ReturnType<typeof createContext>;

/**
 * Creates the context of one check. Sends no request.
 *
 * @param caller - Recorded in the audit log as the person who tests the B2C tenants.
 */
export function createContext(deps: DoctorDeps, caller: Caller) {
  const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS);
  const clients = createClients(deps);
  const { memo, ...sample } = createSample(deps, clients, signal);
  return {
    deps,
    config: deps.config,
    caller,
    signal,
    clients,
    ...sample,
    ...createReports({ memo, ...sample }, signal),
    licensed: () => memo("licensed", () => deps.licensed()),
    /** Returns the first page of applications, with their owners. */
    applications: () =>
      memo(
        "applications",
        async (): Promise<GraphApplication[]> => (await firstPage(clients.graph.applications(signal))) ?? [],
      ),
    /** Returns the application permissions of Microsoft Graph in the identity's token. */
    graphPermissions: () =>
      memo("graphPermissions", async () => (await clients.graph.grantedPermissions()).permissions),
    devopsTest: () => memo("devops", () => deps.devops.test()),
    /** Returns some sync records of a provider. */
    syncRecords: async (provider: string) => {
      const records = await memo("sync records", async () => {
        const all: SyncRecordRow[] = [];
        for await (const record of deps.sync.everyRecord()) all.push(record);
        return all;
      });
      return records.filter(({ targetProvider }) => targetProvider === provider).slice(0, SAMPLE.targets);
    },
    alertChannels: () => memo("alertChannels", () => deps.alertChannels()),
    /** Tests the connection of some registered tenants. Each test is recorded in the audit log, as one that a person starts. */
    tenantTests: () =>
      memo("tenants", async () => {
        const { items } = await deps.b2c.list({ limit: SAMPLE.tenants, offset: 0, cursor: undefined });
        return await Promise.all(
          items.map(async ({ row: { tenantId, tenantDomain } }) => {
            return { domain: tenantDomain, checks: (await deps.b2c.test(tenantId, caller)).checks };
          }),
        );
      }),
  };
}
