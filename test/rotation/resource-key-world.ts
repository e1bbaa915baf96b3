import { TableClient } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import { keyCompany } from "simulated-cloud/company/key-company.ts";
import { expect } from "vitest";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import type { ResourceKeyRequest } from "../../shared/rotation/request.ts";
import { readConnectionString } from "../../shared/rotation/resource-keys/connection-strings.ts";
import { KEY_KINDS, type KeyKind } from "../../shared/rotation/resource-keys/kinds.ts";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { vaultRecord } from "../inventory/write-assets.ts";
import { openStorage } from "../support/storage.ts";
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
  for (const name of [VAULT, SECOND_VAULT]) {
    await world.tables().put(Vaults, VAULTS, vaultKey(name), {
      ...vaultRecord(name, SUBSCRIPTION),
      id: control.vaultId(name)!,
      vaultUri: world.vaultUriOf(name),
    });
  }
  let accounts = 0;

  /** The current value of a key by the cloud's own history. */
  const currentKey = (id: string, name: string): string =>
    control.consumers.keys(id).findLast(({ key, until }) => key === name && until === undefined)!.value;
  const validValues = (id: string) =>
    control.consumers.keys(id).flatMap(({ value, until }) => (until === undefined ? [value] : []));
  const storedValue = ({ vaultName, secretName }: KeyPlace): string => control.secretValue(vaultName, secretName) ?? "";
  const storedKey = (place: KeyPlace): string => readConnectionString(storedValue(place))?.key ?? storedValue(place);
  const regenerationsOf = (id: string) =>
    control.consumers.keys(id).filter(({ regeneration }) => regeneration !== undefined);

  /** Returns a list to which each later write of a table adds the places that do not store a valid key at that time. */
  function recordViolations({ id, places }: Pick<RotatedResource, "id" | "places">): string[] {
    const violations: string[] = [];
    world.afterWrite = async () => {
      const valid = validValues(id);
      for (const place of places)
        if (!valid.includes(storedKey(place))) violations.push(`${place.vaultName}/${place.secretName}`);
    };
    return violations;
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
    addStorageAccount(): RotatedResource {
      const name = `stacme${++accounts}`;
      const id = control.consumers.put(SUBSCRIPTION, {
        type: "Microsoft.Storage/storageAccounts",
        name,
        resourceGroup: "rg-shop",
        kind: "StorageV2",
      });
      const key = currentKey(id, "key1");
      const places = [
        { vaultName: VAULT, secretName: `${name}-key` },
        { vaultName: SECOND_VAULT, secretName: `${name}-connection` },
      ];
      control.putSecret(VAULT, {
        name: places[0]!.secretName,
        value: key,
        tags: { owner: "shop@acme.example", CredentialId: "key1", tier: "key1-tier" },
      });
      control.putSecret(SECOND_VAULT, { name: places[1]!.secretName, value: connectionString(name, key) });
      const request: ResourceKeyRequest = {
        issuer: "resourceKey",
        resourceId: id,
        targets: places,
        overlapDays: 7,
        regenerateOld: false,
        acceptUnread: true,
      };
      return { id, kind: kindOfName("storage"), places, request };
    },

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

    /** Checks what must be true after every rotation of a storage account, also a failed one. */
    async expectInvariants(resource: RotatedResource, row: RotationRecord, violations: readonly string[]) {
      const { id, places } = resource;
      const label = `${row.status} ${JSON.stringify(row.failure ?? row.attention ?? "")}`;
      expect(violations, label).toEqual([]);
      const regenerated = regenerationsOf(id).map(({ key }) => key);
      const allowed = row.status === "completed" ? ["key2"] : [];
      if (row.status === "completed") expect(regenerated, label).toEqual(allowed);
      else expect(["key2", undefined], label).toContain(regenerated[0]);
      expect(regenerated.length, label).toBeLessThanOrEqual(1);
      const key = row.status === "completed" ? "key2" : "key1";
      for (const place of places) expect(storedKey(place), label).toBe(currentKey(id, key));
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
