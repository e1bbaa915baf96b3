import { createAcmeClients } from "../../shared/certificate-renewal/acme.ts";
import { createAuthorities } from "../../shared/certificate-renewal/authorities.ts";
import { DEFAULT_BUDGET } from "../../shared/certificate-renewal/authority.ts";
import { createBudgets } from "../../shared/certificate-renewal/budgets.ts";
import { createChallenges } from "../../shared/certificate-renewal/challenges.ts";
import type { RenewalRecord } from "../../shared/certificate-renewal/renewal.ts";
import { isOver } from "../../shared/certificate-renewal/renewal.ts";
import { type CertificateRenewals, createRenewals } from "../../shared/certificate-renewal/renewals.ts";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createDnsZones } from "../../shared/platform/azure/dns-zones.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createVaultCertificates } from "../../shared/platform/azure/vault-certificates.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { createNameServers } from "../../shared/platform/outgoing/name-servers.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { Row } from "../../shared/platform/storage/entity.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../azure/services.ts";
import { vaultRecord } from "../inventory/write-assets.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { openStorage } from "../support/storage.ts";

/** Runs renewals in this process on real tables and the simulated cloud. The test controls the clock and the crashes. */

export const VAULT = "kv-shop-prod";
const ADMIN: Caller = { actor: "admin", role: "admin", requestId: "request-1" };
/** A lease ends after five minutes without a write. */
const AFTER_LEASE_MS = 6 * MINUTE_MS;
const MAX_DELIVERIES = 60;

export async function openRenewalWorld() {
  const azurite = await openStorage();
  const { cloud, config } = await startTestCloud({ company: "small" });
  const { control } = cloud;
  const log = recordingLog();
  const identity = createIdentity(config);
  const services = { config, identity, log, limits: SHORT_WAITS };
  const serviceVault = createServiceKeyVault(services)!;
  const stored = createTables(
    { connectionString: azurite.connectionString() },
    { log, keys: keyVaultRowKeys(serviceVault, systemRandomness()) },
  );
  let offsetMs = 0;
  const clock = { now: () => new Date(Date.now() + offsetMs) };
  const writtenAt = new Map<string, number>();
  const written = (keys: Iterable<string>) => {
    for (const key of keys) writtenAt.set(key, offsetMs);
  };
  /** The tables, whose rows also age when the test moves the clock. */
  const tables: Tables = {
    ...stored,
    getWithAge: async (e, partitionKey, rowKey) => {
      const row = await stored.getWithAge(e, partitionKey, rowKey);
      return row && { ...row, ageMs: row.ageMs + offsetMs - (writtenAt.get(rowKey) ?? 0) };
    },
    transaction: async (table, partitionKey, operations) => {
      const etags = await stored.transaction(table, partitionKey, operations);
      written(etags.keys());
      return etags;
    },
  };
  await stored.put(Vaults, VAULTS, vaultKey(VAULT), {
    ...vaultRecord(VAULT, control.vaultId(VAULT)!.split("/")[2]!),
    id: control.vaultId(VAULT)!,
    vaultUri: `https://${VAULT}.${config.cloud.keyVaultSuffix}:${new URL(config.SERVICE_KEY_VAULT_URL!).port}`,
  });

  /** Creates an instance of the service, here called a worker. With `steps` it crashes at one of its outside calls. */
  function start(steps: Steps = { taken: 0 }): {
    renewals: CertificateRenewals;
    authorities: ReturnType<typeof createAuthorities>;
  } {
    const randomness = systemRandomness();
    const audit = crashable({ append: async () => {} }, steps, () => false);
    const changes = ["transaction", "put", "insert", "replace", "remove", "modify"];
    const workerTables = crashable(tables, steps, (method) => changes.includes(method));
    const acme = createAcmeClients(config);
    const vaults = createVaultCertificates(services);
    const authorities = createAuthorities({
      tables: workerTables,
      audit,
      serviceVault,
      acme: { ...acme, open: async (signIn) => crashable(await acme.open(signIn), steps) },
      clock,
      randomness,
      log,
    });
    const renewals = createRenewals({
      tables: workerTables,
      queues: { send: async () => {}, checkReachable: async () => {} },
      audit,
      config,
      settings: { values: async () => ({ rotationRetentionDays: 90 }) as never },
      inventory: {
        assets: { get: async () => undefined } as never,
        moment: async () => ({ now: clock.now().getTime(), criticalDays: 7, warningDays: 30 }),
      },
      licensed: async () => true,
      authorities,
      budgets: createBudgets({ tables: workerTables, clock }),
      challenges: createChallenges({
        config,
        zones: crashable(createDnsZones(services), steps),
        nameServers: crashable(createNameServers(config.ACME_DNS_SERVERS), steps),
      }),
      vaults: { open: (vault) => crashable(vaults.open(vault), steps) },
      renewalInformation: createRenewalInformation({ config, clock }),
      vaultChanged: async () => {},
      clock,
      randomness,
      log,
    });
    return { renewals, authorities };
  }

  const authority = await start().authorities.add(
    {
      name: "Stand-in",
      directoryUrl: control.acmeAuthority.directory,
      contacts: ["pki@acme.example"],
      preferredChain: null,
      profile: null,
      ...DEFAULT_BUDGET,
      certificatesPerDomain: 1000,
    },
    ADMIN,
  );

  /** Moves the clock of the service and of the cloud. */
  function skip(ms: number): void {
    offsetMs += ms;
    control.moveClock(ms);
  }

  async function begin(name: string): Promise<string> {
    const { renewals } = start();
    const plan = await renewals.planIssue(
      {
        vaultName: VAULT,
        certificate: name,
        dnsNames: [`${name}.acme.example`, `*.${name}.acme.example`],
        authorityId: authority.authorityId,
        key: { keyType: "EC", keyCurve: "P-256", reuseKey: false },
        exportable: true,
      },
      ADMIN,
    );
    return (await renewals.start(plan, ADMIN)).runId;
  }

  /**
   * Delivers messages until the renewal has ended. The first workers share `steps`, and the worker that crashes is replaced by
   * others that don't.
   */
  async function run(runId: string, steps: Steps = { taken: 0 }): Promise<Row<RenewalRecord>> {
    for (let delivery = 0; delivery < MAX_DELIVERIES; delivery++) {
      const row = await start().renewals.get(runId);
      if (isOver(row.status)) return row;
      const waitMs = Math.max(0, Date.parse(row.dueAt) - clock.now().getTime());
      skip(row.working === undefined ? waitMs + 1 : Math.max(waitMs, AFTER_LEASE_MS));
      const worker = start(steps.dead ? { taken: 0 } : steps);
      await worker.renewals.handle({ runId }, "request-2").catch((error: unknown) => {
        if (!(error instanceof SimulatedCrash) && !steps.dead) throw error;
      });
    }
    throw new Error(`The renewal did not end: ${JSON.stringify(await start().renewals.get(runId))}`);
  }

  return {
    cloud,
    control,
    tables: stored,
    authority,
    connectionString: azurite.connectionString(),
    begin,
    run,
    start,
    skip,
    now: () => clock.now().getTime(),
    async stop() {
      await cloud.stop();
      await azurite.stop();
    },
  };
}
