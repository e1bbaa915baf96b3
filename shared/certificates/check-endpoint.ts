import type { AssetRecord } from "../inventory/asset.ts";
import { assetId } from "../inventory/asset.ts";
import type { Moment } from "../inventory/asset-status.ts";
import type { AssetQueries } from "../inventory/query.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { Unreachable } from "../platform/outgoing/outgoing.ts";
import { createTlsHandshake } from "../platform/outgoing/tls-handshake.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { EndpointRecord } from "./endpoint.ts";
import { afterCheck, type CurrentVersion, type Handshake, isVersion } from "./endpoint-state.ts";
import { createServedChainReader } from "./served-chain.ts";

/** Time limit of one handshake, with the resolution of the name. */
const HANDSHAKE_TIMEOUT_MS = 10 * SECOND_MS;
/**
 * Creates the check of endpoints. Each call of the result starts a batch, in which each certificate is read once. The function of a
 * batch returns the record of an endpoint after a check, or undefined if the inventory does not have the certificate.
 *
 * @param deps.ports - The allowed ports.
 */
export function endpointCheck(deps: {
  tables: Tables;
  config: Pick<Config, "ENDPOINT_PRIVATE_RANGES" | "ENDPOINT_AUTHORITIES">;
  ports: ReadonlySet<number>;
  inventory: { assets: Pick<AssetQueries, "get">; moment(): Promise<Moment> };
  keyVaults: Pick<KeyVaults, "open">;
  clock: Clock;
  log: Logger;
}): () => (endpoint: EndpointRecord) => Promise<EndpointRecord | undefined> {
  const { tables, config, ports, inventory, clock, log } = deps;
  const handshake = createTlsHandshake({
    ranges: config.ENDPOINT_PRIVATE_RANGES,
    remedy: "ENDPOINT_PRIVATE_RANGES names the private addresses that may be checked.",
    timeoutMs: HANDSHAKE_TIMEOUT_MS,
  });
  const chains = createServedChainReader(config.ENDPOINT_AUTHORITIES);

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
      const { issued, thumbprint } = answer.read();
      if (!issued || isVersion({ serial: issued.serialNumber, thumbprint }, known)) return known;
      // The next scan reads when the version was created. Until then the platform has its full time from now.
      const createdOn = Math.floor(clock.now().getTime() / SECOND_MS);
      return { serial: issued.serialNumber, thumbprint, notBefore: issued.notBefore, createdOn };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      log.warn("The current version of a certificate could not be read", { asset: assetId(asset), code: error.code });
      // The served certificate can be a version that no scan has seen yet.
      return { ...known, serial: undefined };
    }
  }

  return () => {
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
      const isKnown = "failure" in served || isVersion(served.facts, known);
      const version = isKnown ? known : await once(versions, id, () => versionInVault(asset));
      return afterCheck(endpoint, served, version, clock.now());
    };
  };
}

const versionOf = ({ certificate, thumbprint, createdOn }: AssetRecord): CurrentVersion => ({
  serial: certificate?.serialNumber,
  thumbprint,
  notBefore: certificate?.notBefore,
  createdOn,
});
