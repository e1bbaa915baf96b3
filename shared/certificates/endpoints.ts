import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { type AssetLocation, type AssetRecord, assetId, fingerprint, locationsOf } from "../inventory/asset.ts";
import type { Moment } from "../inventory/asset-status.ts";
import type { AssetQueries } from "../inventory/query.ts";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keysOnly, type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import { endpointCheck } from "./check-endpoint.ts";
import { type DiscoveredHost, replaceDiscovered } from "./discovered-endpoints.ts";
import {
  addedKey,
  type CheckMessage,
  DEFAULT_PORT,
  ENDPOINTS,
  type EndpointRecord,
  Endpoints,
  endpointRange,
  isDiscovered,
  KEYS_PER_MESSAGE,
  MAX_ADDED,
  type Platform,
  QUEUE,
} from "./endpoint.ts";

/** Handshakes of one process at the same time. */
const HANDSHAKES_AT_ONCE = 10;

/** A host and port of a certificate, as a request names them. */
interface EndpointAddress {
  assetId: string;
  host: string;
  port: number;
}

/** The endpoints at which certificates of key vaults are served, and the check that the current version is served there. */
export interface CertificateEndpoints {
  /** Lists the endpoints of one certificate or of all, by vault and name. @throws {Problem} notFound, invalidCursor */
  list(id: string | undefined, request: PageRequest): Promise<Page<Row<EndpointRecord>>>;
  /** Returns the endpoints of a certificate. One request. */
  ofCertificate(certificate: Pick<AssetLocation, "vaultName" | "name">): Promise<Row<EndpointRecord>[]>;
  /**
   * Checks an endpoint and adds it to a certificate.
   *
   * @throws {Problem} invalidRequest for a port or an address that is not allowed; notFound; serviceVault; alreadyExists;
   * conflict if the certificate has the maximum number of endpoints.
   */
  add(endpoint: EndpointAddress & { platform: Platform }, caller: Caller): Promise<Row<EndpointRecord>>;
  /** Returns an endpoint of a certificate. @throws {Problem} notFound */
  get(endpoint: EndpointAddress): Promise<Row<EndpointRecord>>;
  /** Removes an endpoint that a person added. @throws {Problem} notFound; conflict for one that a discovery found. */
  remove(endpoint: EndpointAddress, caller: Caller): Promise<void>;
  /** Checks all endpoints of a certificate now, and returns them. @throws {Problem} notFound */
  check(id: string, caller: Caller): Promise<Row<EndpointRecord>[]>;
  /** Replaces the discovered endpoints. One request per 1,000 endpoints, and one for each difference. */
  replaceDiscovered(hosts: readonly DiscoveredHost[]): Promise<void>;
  /** Sends messages that check all endpoints. Without endpoints, only one request is made. */
  sendChecks(): Promise<void>;
  /** Handles a message of the queue. */
  handle(message: CheckMessage): Promise<void>;
  /** Lists the endpoints with problems that alerts are about, in pages. */
  stale(): AsyncIterable<Row<EndpointRecord>[]>;
}

/** Creates the module. Without a PRO license, no endpoint is checked. */
export function createCertificateEndpoints(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  config: Pick<Config, "ENDPOINT_PORTS" | "ENDPOINT_PRIVATE_RANGES" | "ENDPOINT_AUTHORITIES" | "SERVICE_KEY_VAULT_URL">;
  inventory: { assets: Pick<AssetQueries, "get">; moment(): Promise<Moment> };
  keyVaults: Pick<KeyVaults, "open">;
  licensed: () => Promise<boolean>;
  /** Called when endpoints have new problems. */
  problemsFound: () => Promise<void>;
  clock: Clock;
  log: Logger;
}): CertificateEndpoints {
  const { tables, queues, audit, config, inventory, clock, log } = deps;
  const ports = new Set([DEFAULT_PORT, ...config.ENDPOINT_PORTS]);
  const createCheck = endpointCheck({ ...deps, ports });

  const onCorrupt = ({ message }: StorageCorrupt) => log.error("An endpoint was skipped", { row: message });

  /** Checks endpoints and stores the results. Returns their rows. */
  async function checkAll(rows: readonly Row<EndpointRecord>[]): Promise<Row<EndpointRecord>[]> {
    const check = createCheck();
    let hasNewProblem = false;
    const checked = await pMap(
      rows,
      async (row) => {
        const after = await check(withoutKeys(row));
        if (!after) return row;
        const written = await tables.modify(Endpoints, row.partitionKey, row.rowKey, (now) =>
          // During the check, the endpoint may have been removed and its slot reused, or a discovery changed its platform.
          now &&
          now.host === row.host &&
          now.port === row.port &&
          now.addedAt === row.addedAt &&
          now.platform === row.platform &&
          now.resource?.id === row.resource?.id
            ? { ...after }
            : undefined,
        );
        hasNewProblem ||= after.staleSince !== undefined && after.staleSince !== row.staleSince;
        return written ?? row;
      },
      { concurrency: HANDSHAKES_AT_ONCE },
    );
    if (hasNewProblem) await deps.problemsFound();
    return checked;
  }

  async function rowsOf(certificate: Pick<AssetLocation, "vaultName" | "name">): Promise<Row<EndpointRecord>[]> {
    const found: Row<EndpointRecord>[] = [];
    for await (const rows of tables.pages(Endpoints, endpointRange(certificate))) found.push(...rows);
    return found;
  }

  /** Returns an endpoint of a certificate. @throws {Problem} notFound */
  async function get(address: EndpointAddress): Promise<Row<EndpointRecord>> {
    const rows = await rowsOf(requireCertificateId(address.assetId));
    const row = rows.find(({ host, port }) => host === address.host && port === address.port);
    if (!row) throw notFound(`The endpoint ${address.host}:${address.port}`);
    return row;
  }

  /** Returns the certificate of an endpoint. @throws {Problem} notFound, serviceVault */
  async function certificateOf(id: string): Promise<AssetRecord> {
    const found = await inventory.assets.get(id, await inventory.moment());
    if (!found) throw notFound(`The asset ${id.slice(0, 300)}`);
    if (isServiceVault(config, found.asset.vaultName))
      throw new Problem("serviceVault", "The service's own key vault has no certificates that are served.");
    if (found.asset.type !== "certificate" || !isVaultCertificate(id))
      throw new Problem("conflict", "Only certificates of key vaults have endpoints.");
    return found.asset;
  }

  /** Returns the key of the first free slot for an endpoint. @throws {Problem} alreadyExists, conflict */
  async function freeKey(record: EndpointRecord): Promise<string> {
    const rows = await rowsOf(record);
    if (rows.some(({ host, port }) => host === record.host && port === record.port))
      throw new Problem("alreadyExists", `The certificate already has the endpoint ${record.host}:${record.port}.`);
    const taken = new Set(rows.map(({ rowKey }) => rowKey));
    const slots = Array.from({ length: MAX_ADDED }, (_, slot) => addedKey(record, slot));
    const free = slots.find((key) => !taken.has(key));
    if (free !== undefined) return free;
    throw new Problem("conflict", `A certificate has at most ${MAX_ADDED} added endpoints. Remove one first.`);
  }

  const eventOf = (type: string, { assetId, host, port }: EndpointAddress, caller: Caller) => ({
    type,
    caller,
    target: { type: "certificateEndpoint", id: `${assetId.toLowerCase()}/${host}:${port}` },
    details: { host, port },
  });

  return {
    async list(id, request) {
      const location = id === undefined ? undefined : requireCertificateId(id);
      return await filteredPage<Row<EndpointRecord>>(request, {
        filters: fingerprint(location ? [location.vaultName, location.name] : []),
        matches: undefined,
        pages: (range) => tables.pages(Endpoints, { ...endpointRange(location), ...range }),
      });
    },

    ofCertificate: rowsOf,

    async add({ assetId: id, host, port, platform }, caller) {
      if (!ports.has(port))
        throw invalidBody("port", `must be ${[...ports].join(", ")}. ENDPOINT_PORTS names further ports`);
      const { vaultName, name } = await certificateOf(id);
      const addedAt = clock.now().toISOString();
      const record: EndpointRecord = { vaultName, name, host, port, platform, addedAt, addedBy: caller.actor };
      return await audited(
        audit,
        eventOf("certificateEndpoint.added", { assetId: id, host, port }, caller),
        async () => {
          // Rejects an endpoint without a free slot before the handshake.
          await freeKey(record);
          const checked = (await createCheck()(record)) ?? record;
          if (checked.problems?.includes("blocked"))
            throw invalidBody("host", checked.failure ?? "the address is not allowed");
          // Two requests at the same time choose the same slot, so that one of them starts again.
          return await repeatOnConflict(async () =>
            tables.insert(Endpoints, ENDPOINTS, await freeKey(checked), checked),
          );
        },
      );
    },

    get,

    async remove(address, caller) {
      requireCertificateId(address.assetId);
      const event = eventOf("certificateEndpoint.removed", address, caller);
      await audited(audit, event, async () => {
        const row = await get(address);
        if (isDiscovered(row.rowKey))
          throw new Problem(
            "conflict",
            "A discovery of dependencies found this endpoint. Change the resource instead.",
          );
        await tables.remove(Endpoints, row.partitionKey, row.rowKey);
      });
    },

    async check(id, caller) {
      const certificate = await certificateOf(id);
      const event = {
        type: "certificateEndpoints.checked",
        caller,
        target: { type: "asset", id: assetId(certificate) },
      };
      return await audited(audit, event, async () => await checkAll(await rowsOf(certificate)));
    },

    replaceDiscovered: (hosts) => replaceDiscovered(hosts, { tables, clock, onCorrupt }),

    async sendChecks() {
      let isLicensed: boolean | undefined;
      for await (const rows of tables.pages(keysOnly(Endpoints), endpointRange())) {
        isLicensed ??= await deps.licensed();
        if (!isLicensed) return;
        for (let start = 0; start < rows.length; start += KEYS_PER_MESSAGE) {
          const keys = rows.slice(start, start + KEYS_PER_MESSAGE).map(({ rowKey }) => rowKey);
          await queues.send(QUEUE, { keys } satisfies CheckMessage);
        }
      }
    },

    async handle({ keys }) {
      if (!(await deps.licensed())) return;
      const rows = await pMap(keys, (key) => tables.get(Endpoints, ENDPOINTS, key, { onCorrupt }), {
        concurrency: HANDSHAKES_AT_ONCE,
      });
      await checkAll(rows.filter((row) => row !== undefined));
    },

    async *stale() {
      for await (const rows of tables.pages(Endpoints, { ...endpointRange(), onCorrupt }))
        yield rows.filter(({ staleSince }) => staleSince !== undefined);
    },
  };
}

/** Returns whether the ID is that of a certificate in a key vault, and not of a directory's credential. */
const isVaultCertificate = (id: string): boolean => locationsOf(id).length === 1;

/** Returns the location of a certificate. @throws {Problem} notFound if the ID is not that of a certificate in a key vault. */
function requireCertificateId(id: string): AssetLocation {
  const [location] = locationsOf(id);
  if (location?.type !== "certificate" || !isVaultCertificate(id))
    throw notFound(`The certificate ${id.slice(0, 300)}`);
  return location;
}
