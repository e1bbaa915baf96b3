import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import { keyCompany } from "simulated-cloud/company/key-company.ts";
import type { CompanyChild } from "simulated-cloud/company/resources.ts";
import { expect } from "vitest";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import type { ResourceKeyRequest } from "../../shared/rotation/request.ts";
import { readConnectionString } from "../../shared/rotation/resource-keys/connection-strings.ts";
import { KEY_KINDS, type KeyKind } from "../../shared/rotation/resource-keys/kinds.ts";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { vaultRecord } from "../inventory/write-assets.ts";
import { openStorage } from "../support/storage.ts";
import type { SimulatedConsumers } from "./consumers.ts";
import { SERVICE_VAULT, VAULT, World } from "./world.ts";

const SUBSCRIPTION = "11111111-1111-4111-8111-111111111111";
export const SECOND_VAULT = "kv-second";
const company: Company = {
  subscriptions: [
    ...keyCompany.subscriptions,
    { id: SUBSCRIPTION, name: "Shop", vaults: [{ name: VAULT }, { name: SECOND_VAULT }] },
  ],
};

/** A vault secret that stores a key, alone or in a connection string. */
export interface KeyPlace {
  vaultName: string;
  secretName: string;
}

/** A resource with vault secrets that store one of its keys, and the request that rotates that key. */
export interface RotatedResource {
  id: string;
  kind: KeyKind;
  places: KeyPlace[];
  request: ResourceKeyRequest;
}

export const kindOfName = (name: string): KeyKind => KEY_KINDS.find((one) => one.name === name)!;

/** Opens a world with resources of each kind, and two vaults in the inventory. */
export async function openKeyWorld() {
  const azurite = await openStorage();
  const { cloud, config } = await startTestCloud({ company });
  const world = new World(cloud, config, azurite.connectionString());
  const { control } = cloud;
  const kinds = new Map<string, KeyKind>();
  /** The name of a key in the cloud's history. Only App Configuration has names and IDs. */
  const historyName = (id: string, name: string): string =>
    kinds.get(id)?.name === "appConfiguration" ? CONFIGURATION_IDS[name]! : name;
  for (const name of [VAULT, SECOND_VAULT]) {
    await world.tables().put(Vaults, VAULTS, vaultKey(name), {
      ...vaultRecord(name, SUBSCRIPTION),
      id: control.vaultId(name)!,
      vaultUri: world.vaultUriOf(name),
    });
  }
  let resources = 0;

  /** The current value of a key by the cloud's own history. */
  const currentKey = (id: string, name: string): string =>
    control.consumers.keys(id).findLast(({ key, until }) => key === historyName(id, name) && until === undefined)!
      .value;
  const validValues = (id: string) =>
    control.consumers.keys(id).flatMap(({ value, until }) => (until === undefined ? [value] : []));
  const storedValue = ({ vaultName, secretName }: KeyPlace): string => control.secretValue(vaultName, secretName) ?? "";
  const storedKey = (place: KeyPlace): string => readConnectionString(storedValue(place))?.key ?? storedValue(place);
  const regenerationsOf = (id: string) =>
    control.consumers.keys(id).filter(({ regeneration }) => regeneration !== undefined);

  /** Watches from now on that each place and each consumer always has a valid key. Returns the violations. */
  function recordViolations(
    { id, places }: Pick<RotatedResource, "id" | "places">,
    consumers?: SimulatedConsumers,
  ): string[] {
    const violations: string[] = [];
    const keyIn = (value: string) => readConnectionString(value)?.key ?? value;
    world.afterWrite = async () => {
      const valid = validValues(id);
      for (const place of places)
        if (!valid.includes(storedKey(place))) violations.push(`${place.vaultName}/${place.secretName}`);
      for (const consumer of consumers?.consumersById.keys() ?? [])
        if (!valid.includes(keyIn(consumers!.valueOf(consumer)))) violations.push(consumer);
    };
    return violations;
  }

  /**
   * Adds a resource of a kind. Two vault secrets store the first key of its first pair: alone, and in a connection string if the
   * kind has one.
   */
  function addResource(kindName: string): RotatedResource {
    const kind = kindOfName(kindName);
    const name = `stacme${++resources}`;
    const [namespace, first, ...collections] = kind.type.split("/");
    const below = (index: number): Pick<CompanyChild, "children"> => {
      const collection = collections[index];
      return collection === undefined
        ? {}
        : { children: { [collection]: [{ name: childName(collection), ...below(index + 1) }] } };
    };
    const root = control.consumers.put(SUBSCRIPTION, {
      type: `${namespace}/${first}`,
      name,
      resourceGroup: "rg-shop",
      kind: "StorageV2",
      ...(kindName === "containerRegistry" && { properties: { adminUserEnabled: true } }),
      ...below(0),
    });
    const id = [root, ...collections.flatMap((collection) => [collection, childName(collection)])].join("/");
    kinds.set(id, kind);
    const inUse = kind.pairs[0]![0];
    const key = currentKey(id, inUse);
    const places = [
      { vaultName: VAULT, secretName: `${name}-key` },
      { vaultName: SECOND_VAULT, secretName: `${name}-connection` },
    ];
    // A rotation changes `CredentialId` to the name of the new key, and leaves `tier`, which only contains the name.
    const tags = { owner: "shop@acme.example", CredentialId: inUse, tier: `${inUse}-tier` };
    control.putSecret(VAULT, { name: places[0]!.secretName, value: key, tags });
    const inString = CONNECTION_STRINGS[kind.formats[0] ?? ""]?.(name, key) ?? key;
    control.putSecret(SECOND_VAULT, { name: places[1]!.secretName, value: inString });
    const request: ResourceKeyRequest = {
      issuer: "resourceKey",
      resourceId: id,
      targets: places,
      overlapDays: 7,
      regenerateOld: false,
      acceptUnread: true,
    };
    return { id, kind, places, request };
  }

  return {
    world,
    azurite,
    control,
    currentKey,
    storedValue,
    storedKey,
    regenerationsOf,
    recordViolations,

    /** Adds a storage account whose first key two vault secrets store: alone, and in a connection string. */
    addStorageAccount: (): RotatedResource => addResource("storage"),
    addResource,

    /** Writes a row without a signature, as someone with write access to the tables does. */
    async forgeRow(table: string, partitionKey: string, rowKey: string, row: Record<string, unknown>) {
      const client = TableClient.fromConnectionString(azurite.connectionString(), table, {
        allowInsecureConnection: true,
      });
      const columns = Object.entries(row).map(([name, value]) =>
        typeof value === "string" ? [name, value] : [`${name}_json`, JSON.stringify(value)],
      );
      await client.createTable();
      await client.upsertEntity({ ...Object.fromEntries(columns), partitionKey, rowKey });
    },

    /** Checks what must be true after every rotation of a key, also a failed one. */
    async expectInvariants(resource: RotatedResource, row: RotationRecord, violations: readonly string[]) {
      const { id, kind, places } = resource;
      const [first, second] = kind.pairs[0]!;
      const label = `${kind.name} ${row.status} ${JSON.stringify(row.failure ?? row.attention ?? "")}`;
      expect(violations, label).toEqual([]);
      const regenerated = regenerationsOf(id).map(({ key }) => key);
      const created = historyName(id, second);
      if (row.status === "completed") expect(regenerated, label).toEqual([created]);
      else expect([created, undefined], label).toContain(regenerated[0]);
      expect(regenerated.length, label).toBeLessThanOrEqual(1);
      const key = currentKey(id, row.status === "completed" ? second : first);
      for (const place of places) expect(storedKey(place), label).toBe(key);
      if (!isOver(row.status)) return;
      const copies = control.items(SERVICE_VAULT, "secrets").filter(({ name }) => name.includes(row.rotationId));
      expect(copies, label).toEqual([]);
      expect(await world.start().unfinishedOf(id)).toBeUndefined();
    },

    async stop() {
      await cloud.stop();
      await azurite.stop();
    },
  };
}

export const connectionString = (account: string, key: string): string =>
  `DefaultEndpointsProtocol=https;AccountName=${account};AccountKey=${key};EndpointSuffix=core.windows.net`;

/** Connection strings by format, with the first key of the pair. */
const CONNECTION_STRINGS: Partial<Record<string, (name: string, key: string) => string>> = {
  storage: connectionString,
  cosmos: (name, key) => `AccountEndpoint=https://${name}.documents.azure.com:443/;AccountKey=${key};`,
  sharedAccessKey: (name, key) =>
    `Endpoint=sb://${name}.servicebus.windows.net/;SharedAccessKeyName=app;SharedAccessKey=${key}`,
  redis: (name, key) => `${name}.redis.cache.windows.net:6380,password=${key},ssl=True,abortConnect=False`,
  accessKey: (name, key) => `Endpoint=https://${name}.service.signalr.net;AccessKey=${key};Version=1.0;`,
  appConfiguration: (name, key) => `Endpoint=https://${name}.azconfig.io;Id=${name}-p;Secret=${key}`,
};

/** IDs of App Configuration's keys in the cloud's history, by their names. */
const CONFIGURATION_IDS: Record<string, string> = {
  Primary: "p",
  Secondary: "s",
  "Primary Read Only": "pr",
  "Secondary Read Only": "sr",
};

const childName = (collection: string): string =>
  ({ authorizationRules: "app", databases: "default" })[collection] ?? "orders";
