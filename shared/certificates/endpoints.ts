import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { type AssetLocation, type AssetRecord, assetId, fingerprint, locationsOf } from "../inventory/asset.ts";
import type { Moment } from "../inventory/asset-status.ts";
import type { AssetQueries } from "../inventory/query.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { invalidBody, notFound, Problem } from "../platform/http/problem.ts";
import { Unreachable } from "../platform/outgoing/outgoing.ts";
import { createTlsHandshake, type TlsHandshake } from "../platform/outgoing/tls-handshake.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keysOnly, type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import {
  addedKey,
  type CheckMessage,
  DEFAULT_PORT,
  discoveredKey,
  ENDPOINTS,
  type EndpointRecord,
  Endpoints,
  endpointRange,
  isDiscovered,
  isHostName,
  KEYS_PER_MESSAGE,
  MAX_ADDED,
  MAX_DISCOVERED,
  type Platform,
  QUEUE,
} from "./endpoint.ts";
import { afterCheck, type CurrentVersion, type Handshake } from "./endpoint-state.ts";
import { createServedChainReader } from "./served-chain.ts";

/** Time limit of one handshake, with the resolution of the name. */
const HANDSHAKE_TIMEOUT_MS = 10 * SECOND_MS;
/** Handshakes of one process at the same time. */
const HANDSHAKES_AT_ONCE = 10;

/** A host at which a resource serves a certificate, as a discovery found it. */
export interface DiscoveredHost {
  vaultName: string;
  /** Name of the certificate. */
  name: string;
  host: string;
  platform: Platform;
  resource: { id: string; name: string };
}

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
  handshake?: TlsHandshake;
}): CertificateEndpoints {
  const { tables, queues, audit, config, inventory, clock, log } = deps;
  const handshake =
    deps.handshake ??
    createTlsHandshake({
      ranges: config.ENDPOINT_PRIVATE_RANGES,
      remedy: "ENDPOINT_PRIVATE_RANGES names the private addresses that may be checked.",
      timeoutMs: HANDSHAKE_TIMEOUT_MS,
    });
  const chains = createServedChainReader(config.ENDPOINT_AUTHORITIES);
  const ports = new Set([DEFAULT_PORT, ...config.ENDPOINT_PORTS]);

  const onCorrupt = ({ message }: StorageCorrupt) => log.error("An endpoint was skipped", { row: message });

  async function readServed({ host, port }: Pick<EndpointRecord, "host" | "port">): Promise<Handshake> {
    // The setting may have changed since the endpoint was added.
    if (!ports.has(port)) return { failure: `ENDPOINT_PORTS does not contain the port ${port}.`, blocked: true };
    try {
      const { certificates, protocol } = await handshake.read(host, port);
      const facts = await chains.read(certificates, host);
      if (facts) return { facts, protocol };
      return { failure: `${host}:${port} sent a certificate that can't be read.`, blocked: false };
    } catch (error) {
      if (error instanceof Unreachable) return { failure: error.message, blocked: error.permanent };
      throw error;
    }
  }

  /** Returns the current version as the vault has it now, because the inventory can be hours old. */
  async function versionInVault(asset: AssetRecord): Promise<CurrentVersion> {
    const known = versionOf(asset);
    const vault = await tables.get(Vaults, VAULTS, vaultKey(asset.vaultName));
    if (!vault) return known;
    try {
      const client = deps.keyVaults.open(vault);
      const answer = await client.certificate(asset.name, AbortSignal.timeout(MINUTE_MS));
      const { issued } = answer.read();
      if (!issued || issued.serialNumber === known.serial) return known;
      // The next scan reads when the version was created. Until then the platform has its full time from now.
      const createdOn = Math.floor(clock.now().getTime() / SECOND_MS);
      return { serial: issued.serialNumber, notBefore: issued.notBefore, createdOn };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      log.warn("The current version of a certificate could not be read", { asset: assetId(asset), code: error.code });
      // The served certificate can be a version that no scan has seen yet.
      return { ...known, serial: undefined };
    }
  }

  /**
   * Creates the function that returns an endpoint's record after a check. Certificates are read once. Undefined if the inventory
   * does not have the certificate.
   */
  function createCheck(): (endpoint: EndpointRecord) => Promise<EndpointRecord | undefined> {
    const assets = new Map<string, Promise<AssetRecord | undefined>>();
    const versions = new Map<string, Promise<CurrentVersion>>();
    const once = <T>(known: Map<string, Promise<T>>, key: string, read: () => Promise<T>): Promise<T> => {
      if (!known.has(key)) known.set(key, read());
      return known.get(key)!;
    };
    return async (endpoint) => {
      const id = assetId({ ...endpoint, type: "certificate" });
      const asset = await once(
        assets,
        id,
        async () => (await inventory.assets.get(id, await inventory.moment()))?.asset,
      );
      if (!asset) return undefined;
      const served = await readServed(endpoint);
      const known = versionOf(asset);
      const isKnown = "failure" in served || served.facts.serial === known.serial;
      const version = isKnown ? known : await once(versions, id, () => versionInVault(asset));
      return afterCheck(endpoint, served, version, clock.now());
    };
  }

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
          // The endpoint may have been removed, and its slot reused, during the check.
          now && now.host === row.host && now.port === row.port && now.addedAt === row.addedAt
            ? { ...after }
            : undefined,
        );
        hasNewProblem ||= after.staleSince !== undefined && row.staleSince === undefined;
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

    async remove(address, caller) {
      const { vaultName, name } = requireCertificateId(address.assetId);
      const event = eventOf("certificateEndpoint.removed", address, caller);
      await audited(audit, event, async () => {
        const row = (await rowsOf({ vaultName, name })).find(
          ({ host, port }) => host === address.host && port === address.port,
        );
        if (!row) throw notFound(`The endpoint ${address.host}:${address.port}`);
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

    async replaceDiscovered(hosts) {
      const now = clock.now().toISOString();
      const wanted = new Map<string, EndpointRecord>();
      const counts = new Map<string, number>();
      for (const { vaultName, name, host: text, platform, resource } of hosts) {
        const host = text.toLowerCase();
        if (!isHostName(host)) continue;
        const key = discoveredKey({ vaultName, name }, host, DEFAULT_PORT);
        const id = assetId({ vaultName, type: "certificate", name });
        const count = counts.get(id) ?? 0;
        if (wanted.has(key) || count >= MAX_DISCOVERED) continue;
        counts.set(id, count + 1);
        const added = { addedAt: now, addedBy: "system" };
        wanted.set(key, { vaultName, name, host, port: DEFAULT_PORT, platform, resource, ...added });
      }
      for await (const rows of tables.pages(Endpoints, { ...endpointRange(), onCorrupt })) {
        for (const row of rows) {
          const { rowKey } = row;
          const same = wanted.get(isDiscovered(rowKey) ? rowKey : discoveredKey(row, row.host, row.port));
          if (same) {
            // A person added the same endpoint, or an earlier discovery found it.
            wanted.delete(discoveredKey(row, row.host, row.port));
            const isSame = row.platform === same.platform && row.resource?.id === same.resource?.id;
            if (isDiscovered(rowKey) && !isSame) {
              const { platform, resource } = same;
              await tables.modify(Endpoints, ENDPOINTS, rowKey, (stored) =>
                stored ? { ...withoutKeys(stored), platform, ...(resource && { resource }) } : undefined,
              );
            }
          } else if (isDiscovered(rowKey)) await tables.remove(Endpoints, ENDPOINTS, rowKey);
        }
      }
      for (const [key, record] of wanted) await tables.put(Endpoints, ENDPOINTS, key, record);
    },

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

const versionOf = ({ certificate, createdOn }: AssetRecord): CurrentVersion => ({
  serial: certificate?.serialNumber,
  notBefore: certificate?.notBefore,
  createdOn,
});

/** Returns whether the ID is that of a certificate in a key vault, and not of a directory's credential. */
const isVaultCertificate = (id: string): boolean => locationsOf(id).length === 1;

/** Returns the location of a certificate. @throws {Problem} notFound if the ID is not that of a certificate in a key vault. */
function requireCertificateId(id: string): AssetLocation {
  const [location] = locationsOf(id);
  if (location?.type !== "certificate" || !isVaultCertificate(id))
    throw notFound(`The certificate ${id.slice(0, 300)}`);
  return location;
}
