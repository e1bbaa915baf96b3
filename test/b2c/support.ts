import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { acmeTenants, PARTNER_REGISTRATION, SHOP_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { CompanyTenant } from "simulated-cloud/company/tenants.ts";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { NewTenant } from "../../shared/b2c/api.ts";
import { type B2c, createB2c, type TenantMessage } from "../../shared/b2c/b2c.ts";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import { createInventory } from "../../shared/inventory/inventory.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createRegistrationIdentity } from "../../shared/platform/azure/registration-identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { SHORT_WAITS } from "../azure/config.ts";
import { recordingLog } from "../azure/services.ts";
import type { MovedStorage } from "../support/moved-storage.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";

// Builds the registry of B2C tenants for tests: with real tables (Azurite) and the simulated cloud, without an HTTP server. The
// test delivers the queue's messages, calls the timer and advances the time.

export const caller: Caller = { actor: "admin", requestId: "test" };
export const PAGE = { limit: 1000, offset: 0, cursor: undefined };
/** A small tenant of Azure AD B2C in addition to the company's own, so that most tests write little. */
const outlet: CompanyTenant = {
  name: "Acme Outlet",
  domain: "acmeoutlet.onmicrosoft.com",
  type: "AAD B2C",
  registration: "Outlet Credential Lifecycle",
  applications: [
    { name: "Outlet Credential Lifecycle", secrets: [{ name: "lifecycle", expiresInDays: 60 }] },
    { name: "Outlet Web", owners: ["outlet@acme.example"], secrets: [{ name: "web", expiresInDays: 5 }] },
  ],
  keySets: [
    { id: "B2C_1A_TokenSigning", keys: [{ name: "first" }, { name: "second", expiresInDays: 20, activeInDays: -3 }] },
  ],
  identityProviders: [{ id: "Google-OAUTH", name: "Google", type: "socialIdentityProvider", clientId: "outlet" }],
};
export const company = { subscriptions: [], tenants: [...acmeTenants, outlet] };

const REGISTRATIONS = {
  shop: ["acmeshop.onmicrosoft.com", SHOP_REGISTRATION],
  partners: ["acmepartners.onmicrosoft.com", PARTNER_REGISTRATION],
  outlet: [outlet.domain, outlet.registration],
} as const;
type TenantName = keyof typeof REGISTRATIONS;

const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

/** Returns the body of a request that registers one of the simulated company's tenants. */
export function registrationOf(cloud: Cloud, tenantName: TenantName, change: object = {}): NewTenant {
  const [domain, registration] = REGISTRATIONS[tenantName];
  const { id, name, clientId } = cloud.control.tenants.list().find((tenant) => tenant.domain === domain)!;
  return NewTenant.parse({
    tenantId: id,
    tenantDomain: domain,
    displayName: name,
    clientId,
    clientSecret: secretValueOf(registration, "lifecycle"),
    ...change,
  });
}

/**
 * Creates the registry with its storage account.
 *
 * @param storage - Storage whose time the test can advance. Without it only the fixture's clock advances.
 */
export function openTestRegistry(cloud: Cloud, config: Config, connectionString: string, storage?: MovedStorage) {
  const storeClock = createStoreClock();
  let clockAdvanceMs = 0;
  const clock = { now: () => new Date(storeClock.now().getTime() + clockAdvanceMs) };
  const log = recordingLog();
  const randomness = systemRandomness();
  const identity = createIdentity(config);
  const vault = createServiceKeyVault({ config, identity, log, limits: SHORT_WAITS });
  const keys = vault && keyVaultRowKeys(vault, randomness);
  const tables = createTables({ connectionString }, { clock: storeClock, keys });
  const messages: { message: TenantMessage; visibleAt: number }[] = [];
  /** All sent messages as JSON, including messages of other queues. */
  const sent: string[] = [];
  const events: AuditEvent[] = [];
  const state = { licensed: true, evaluations: 0 };

  const queues: Queues = {
    async send(queue, message, { delaySeconds = 0 } = {}) {
      sent.push(JSON.stringify(message));
      if (queue !== "b2c-tenants") return;
      messages.push({ message: message as TenantMessage, visibleAt: clock.now().getTime() + delaySeconds * 1000 });
    },
    checkReachable: async () => {},
  };

  /**
   * Creates the modules as one process of the service has them.
   *
   * @param steps - Counts the writes of this process, and makes it crash at one of them.
   * @param waitMs - Time that a request waits for a discovery to end.
   */
  function instance(steps: Steps = { taken: 0 }, waitMs?: number) {
    const crashableTables = crashable(tables, steps, (name) => !["pages", "fence", "get", "getWithAge"].includes(name));
    const audit = { append: async (event: AuditEvent) => void events.push(event) };
    const values = { values: async () => settings } as never;
    const licensed = async () => state.licensed;
    const compliance = createCompliance({
      tables: crashableTables,
      queues,
      settings: values,
      audit,
      licensed,
      clock,
      randomness,
      log,
    } as never);
    const writer = createInventoryWriter({ tables: crashableTables });
    const inventory = createInventory({
      keyVaults: undefined as never,
      tables: crashableTables,
      settings: values,
      clock,
      randomness,
      ownerTag: "owner",
      licensed,
      writer,
      prepareVaultRemoval: (vault) => compliance.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
    });
    const b2c = createB2c({
      tables: crashableTables,
      queues: crashable(queues, steps),
      audit: crashable(audit, steps),
      vault: vault && crashable(vault, steps, (name) => name !== "readSecret"),
      graphOf: (registration) =>
        createGraph({
          config,
          identity: createRegistrationIdentity(config, registration),
          log,
          limits: SHORT_WAITS,
        }),
      ownTenantId: async () => cloud.app.tenantId,
      inventory: { writer, prepareChange: compliance.prepareChange },
      moment: () => inventory.moment(),
      licensed,
      ended: async () => void state.evaluations++,
      clock,
      randomness,
      log,
      ...(waitMs === undefined ? {} : { waitMs }),
    });
    return { b2c, inventory, compliance };
  }

  const first = instance();
  const fixture = {
    ...first,
    tables,
    clock,
    log,
    messages,
    sent,
    events,
    state,
    instance,

    /** Advances the time. If the storage was given, its time advances too, and a request lets the clock follow it. */
    async pass(milliseconds: number): Promise<void> {
      if (!storage) clockAdvanceMs += milliseconds;
      else {
        await storage.move(milliseconds);
        await first.b2c.list(PAGE);
      }
    },

    register: (tenantName: TenantName, change: object = {}) =>
      first.b2c.register(registrationOf(cloud, tenantName, change), caller),

    /** Handles all messages, advancing the time to each. */
    async drain(b2c: B2c = first.b2c): Promise<void> {
      for (let next = messages.shift(); next; next = messages.shift()) {
        const wait = next.visibleAt - clock.now().getTime();
        if (wait > 0) await fixture.pass(wait);
        await b2c.handle(next.message, caller);
      }
    },

    /** Returns the counted assets of a tenant, by default of all tenants. */
    async assets(tenantId = "") {
      const moment = await first.inventory.moment();
      const page = await first.inventory.assets.list({ source: "b2c" }, PAGE, moment);
      return page.items.map(({ asset }) => asset).filter(({ credential }) => credential?.tenantId.startsWith(tenantId));
    },

    /** Returns all rows of the tables that a discovery writes, as JSON. */
    async rows(): Promise<string> {
      const rows: unknown[] = [];
      for (const table of ["B2c", "Vaults", "Assets", "Compliance"]) {
        const client = TableClient.fromConnectionString(connectionString, table, { allowInsecureConnection: true });
        for await (const row of client.listEntities()) rows.push(row);
      }
      return JSON.stringify(rows);
    },
  };
  return fixture;
}
export type TestRegistry = ReturnType<typeof openTestRegistry>;
